//! Tests of own names, and of pages of other sites.
#![allow(clippy::unwrap_used)]

use super::*;

fn own(listen: &str) -> OwnNames {
    let mut own = OwnNames::new(listen);
    own.add_host("http://Gateway-1.lab:7400");
    own.add_domain("s3.Example.com");
    own.add_pattern("cache.example.org");
    own.add_pattern("*.Cluster.Local");
    own.add_name("box.");
    own
}

#[test]
fn only_own_names_are_accepted() {
    let own = own("127.0.0.1:7400");
    for host in [
        "localhost",
        "LOCALHOST:7400",
        "localhost.:7400",
        "127.0.0.1",
        "127.9.8.7:1",
        "[::1]:7400",
        "[::ffff:127.0.0.1]",
        "gateway-1.LAB",
        "s3.example.com:80",
        "a.b.s3.example.com",
        "cache.example.org",
        "x.y.cluster.local:7400",
        "box",
        "box:",
    ] {
        assert_eq!(own.check(host.as_bytes()), HostCheck::Own, "{host}");
    }
    for host in [
        "",
        ":7400",
        ".",
        "evil.example",
        "localhost.evil.example",
        "evil.localhost",
        "xlocalhost",
        "127.0.0.1.evil.example",
        "127.0.0.1@evil.example",
        "user@localhost",
        "s3.example.com.evil",
        "xs3.example.com",
        "cluster.local",
        ".cluster.local",
        "a.cache.example.org",
        "localhost:7400:1",
        "localhost:x",
        "localhost:99999",
        "localhost:+1",
        "localhost/",
        "local host",
        "::1",
        "[::1",
        "[localhost]",
        "2130706433",
        "0x7f000001",
        "127.1",
        "\u{ff4c}ocalhost",
    ] {
        assert_eq!(own.check(host.as_bytes()), HostCheck::Foreign, "{host}");
    }
    assert_eq!(own.check(b"localhost\0"), HostCheck::Foreign);
    assert_eq!(own.check(b"\xff"), HostCheck::Foreign);
}

#[test]
fn other_addresses_are_own_beyond_loopback_and_undecided_on_it() {
    let address: IpAddr = [10, 0, 0, 7].into();
    assert_eq!(own("127.0.0.1:7400").check(b"10.0.0.7"), HostCheck::OwnIfLocal(address));
    assert_eq!(own("[::1]:7400").check(b"10.0.0.7:1"), HostCheck::OwnIfLocal(address));
    for listen in ["0.0.0.0:7400", "10.0.0.8:7400", "[::]:7400"] {
        let own = own(listen);
        assert_eq!(own.check(b"10.0.0.7"), HostCheck::Own, "{listen}");
        assert_eq!(own.check(b"[fd00::1]:7400"), HostCheck::Own, "{listen}");
        assert_eq!(own.check(b"evil.example"), HostCheck::Foreign, "{listen}");
    }
    let mut all = OwnNames::new("127.0.0.1:7400");
    all.add_pattern("*");
    assert_eq!(all.check(b"evil.example"), HostCheck::Own);
    assert_eq!(all.check(b""), HostCheck::Foreign, "no name at all");
}

#[test]
fn an_entry_of_the_list_is_a_name_a_domain_or_a_star() {
    for pattern in ["a", "a.b-c_d.example.com", "*.example.com", "*", "10.0.0.1", "[::1]"] {
        check_pattern("listen.hosts", pattern).unwrap();
    }
    for pattern in
        ["", "*.", "**", "*a", "a*", "a.*.b", "http://a", "a:80", "a b", "a/", "*.10.0.0.1", "a@b"]
    {
        let e = check_pattern("listen.hosts", pattern).unwrap_err();
        assert!(e.message.contains("listen.hosts") && e.hint.is_some(), "{pattern}");
    }
}

#[test]
fn an_own_page_has_the_host_and_the_port_of_the_request_or_of_a_node() {
    let nodes = ["http://10.0.0.1:7400", "https://cache.example.com"];
    let is_own = |origin: &str, host: Option<&str>| {
        is_own_origin(origin.as_bytes(), host.map(str::as_bytes), nodes)
    };
    for (origin, host) in [
        ("http://localhost:7400", "localhost:7400"),
        ("http://LOCALHOST:7400", "localhost:7400"),
        ("http://[::1]:7400", "[::1]:7400"),
        ("http://cache.lab", "cache.lab"),
        ("http://cache.lab", "cache.lab:80"),
        ("https://cache.lab", "cache.lab"),
        ("http://10.0.0.1:7400", "10.0.0.2:7400"),
        ("https://cache.example.com", "10.0.0.2:7400"),
    ] {
        assert!(is_own(origin, Some(host)), "{origin} {host}");
    }
    for (origin, host) in [
        ("null", "localhost:7400"),
        ("", "localhost:7400"),
        ("http://localhost:3000", "localhost:7400"),
        ("http://localhost", "localhost:7400"),
        ("http://127.0.0.1:7400", "localhost:7400"),
        ("http://evil.example", "localhost:7400"),
        ("http://localhost:7400.evil.example", "localhost:7400"),
        ("file://localhost:7400", "localhost:7400"),
        ("chrome-extension://localhost", "localhost"),
        ("http://localhost:7400/x", "localhost:7400"),
        ("http://user@localhost:7400", "localhost:7400"),
        ("http://localhost:7400 http://evil.example", "localhost:7400"),
        ("http://cache.example.com", "10.0.0.2:7400"),
        ("https://10.0.0.1:7400", "10.0.0.2:7400"),
    ] {
        assert!(!is_own(origin, Some(host)), "{origin} {host}");
    }
    assert!(is_own("http://10.0.0.1:7400", None));
    assert!(!is_own("http://localhost:7400", None));
}

#[test]
fn another_site_may_link_to_the_console_and_do_nothing_else() {
    let link = |method, path, mode: &str, dest: Option<&str>| {
        is_link_to_console(method, path, Some(mode.as_bytes()), dest.map(str::as_bytes))
    };
    assert!(link("GET", "/ui", "navigate", Some("document")));
    assert!(link("GET", "/ui/", "navigate", None));
    assert!(!link("GET", "/ui/", "navigate", Some("iframe")));
    assert!(!link("POST", "/ui/", "navigate", Some("document")));
    assert!(!link("GET", "/uix", "navigate", Some("document")));
    assert!(!link("GET", "/v1/cluster", "navigate", Some("document")));
    assert!(!link("GET", "/ui/", "no-cors", Some("document")));
    assert!(!is_link_to_console("GET", "/ui/", None, None));
    for (site, foreign) in [
        ("same-origin", false),
        ("none", false),
        ("same-site", true),
        ("cross-site", true),
        ("", true),
    ] {
        assert_eq!(is_cross_site(site.as_bytes()), foreign, "{site}");
    }
}

#[test]
fn errors_name_the_host_and_the_setting() {
    let e = foreign_host(b"evil.example\x1b[1m");
    assert_eq!(e.code.status(), 403);
    assert!(e.message.contains("evil.example\\u{1b}"), "{e}");
    assert!(e.hint.unwrap().contains("listen.hosts"));
    assert!(foreign_host(&[b'a'; 9000]).message.len() < 400);
    assert!(foreign_page(Some(b"http://evil.example")).message.contains("http://evil.example"));
    assert!(is_same_host(b"h:1", b"H") && !is_same_host(b"h", b"g") && !is_same_host(b"", b""));
}
