//! Tests of the boundary, by requests as the server has them.
#![allow(clippy::unwrap_used)]

use axum::body::Body;
use forebay_core::bucket::{BucketInfo, CorsRule};
use forebay_core::config::S3Key;
use forebay_core::request::{Principal, RequestId};
use forebay_core::state::{Command, Role};
use forebay_core::{Bucket, NodeId, Provider};

use super::*;
use crate::identity::tests::identity;

const EVIL: (&str, &str) = ("origin", "http://evil.example");
const CROSS_SITE: (&str, &str) = ("sec-fetch-site", "cross-site");

fn boundary(listen: &str, hosts: &[&str], has_keys: bool) -> Boundary {
    let mut config = NodeConfig::default();
    config.listen.http = listen.to_owned();
    config.listen.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
    config.cluster.gateways = vec!["http://gateways.lab:7400".into()];
    config.s3.domains = vec!["s3.Example.com".into()];
    config.s3.keys =
        has_keys.then(|| vec![S3Key { access: "a".into(), secret: "s".into(), user: None }]);
    Boundary::of(&config, &identity())
}

/// A cluster with a target at `http://target-1.lab:7410`, and two S3 buckets: `shared` lets pages
/// of `http://friend.example` read, `plain` has no CORS rules.
fn state() -> ClusterState {
    let mut state = ClusterState::default();
    let id = NodeId::new("target-1").unwrap();
    let url = "http://target-1.lab:7410".to_owned();
    let (role, https, zone, external) = (Role::Target, String::new(), String::new(), String::new());
    let join = Command::Join { id, role, url, https, weight: 1, zone, instance: 1, external };
    state.apply(1, join).unwrap();
    for (index, name) in (2..).zip(["shared", "plain"]) {
        let bucket = Bucket::new(Provider::Ais, name).unwrap();
        let mut info = BucketInfo::requested(bucket, None);
        if name == "shared" {
            info.s3.cors = vec![CorsRule {
                allowed_methods: vec!["GET".into(), "POST".into()],
                allowed_origins: vec!["http://friend.example".into()],
                ..CorsRule::default()
            }];
        }
        let create = Command::CreateBucket { info: Box::new(info), now_ns: 7 };
        state.apply(index, create).unwrap();
    }
    state
}

/// The status of the refusal of this request; 200 if it is accepted.
fn status(boundary: &Boundary, method: &str, target: &str, headers: &[(&str, &str)]) -> u16 {
    let mut builder = axum::http::Request::builder().method(method).uri(target);
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    let mut request = builder.body(Body::empty()).unwrap();
    let path = request.uri().path();
    let protocol = match path.split('/').nth(1).unwrap_or("") {
        "s3" => Protocol::S3Prefixed,
        "ui" | "metrics" | "healthz" | "readyz" | "clusterz" => Protocol::Operations,
        "api" => Protocol::Native,
        _ => Protocol::V1,
    };
    let about = RequestContext {
        id: RequestId(1),
        protocol,
        route: protocol.route(path),
        principal: Principal::new(Caller::Anonymous),
        trace: None,
    };
    match boundary.check(&about, &mut request, &state()) {
        Ok(()) => 200,
        Err(e) => e.code.status(),
    }
}

#[test]
fn a_rebound_name_is_refused_on_every_path_but_those_of_health() {
    for listen in ["127.0.0.1:7400", "0.0.0.0:7400"] {
        let boundary = boundary(listen, &[], false);
        let evil = [("host", "evil.example:7400")];
        for target in
            ["/v1/objects/b/o", "/v1/cluster", "/api/v1/map", "/s3/b/k", "/metrics", "/ui/"]
        {
            for method in ["GET", "PUT", "POST", "DELETE", "OPTIONS"] {
                assert_eq!(status(&boundary, method, target, &evil), 403, "{method} {target}");
            }
            assert_eq!(status(&boundary, "GET", target, &[("host", "localhost:7400")]), 200);
        }
        for target in HEALTH_PATHS {
            assert_eq!(status(&boundary, "GET", target, &evil), 200, "{target}");
        }
        assert!(!boundary.is_surely_own(Some(b"evil.example:7400")));
        assert!(!boundary.is_surely_own(None));
        assert!(boundary.is_surely_own(Some(b"127.0.0.1:7400")));
    }
}

#[test]
fn every_name_of_the_configuration_and_of_the_cluster_is_accepted() {
    let boundary = boundary("127.0.0.1:7400", &["cache.lab", "*.svc.cluster.local"], false);
    let get = |host: &str| status(&boundary, "GET", "/v1/cluster", &[("host", host)]);
    for host in [
        "localhost",
        "127.0.0.1:7400",
        "[::1]:7400",
        "cache.lab:80",
        "a.b.svc.cluster.local",
        "gateways.lab:7400",
        "target-1.lab:7410",
        "TARGET-1.lab",
        "s3.example.com",
        "bucket.s3.example.com",
    ] {
        assert_eq!(get(host), 200, "{host}");
    }
    for host in
        ["", "svc.cluster.local", "target-2.lab", "xtarget-1.lab", "192.0.2.1", "a@localhost"]
    {
        assert_eq!(get(host), 403, "{host}");
    }
    for name in machine_names() {
        assert_eq!(get(&name), 200, "{name}");
    }
}

#[test]
fn a_virtual_address_is_accepted_where_other_machines_reach_the_node() {
    let virtual_address = [("host", "192.0.2.1:7400")];
    let reached = boundary("0.0.0.0:7400", &[], false);
    assert_eq!(status(&reached, "GET", "/v1/cluster", &virtual_address), 200);
    let local = boundary("127.0.0.1:7400", &[], false);
    assert_eq!(status(&local, "GET", "/v1/cluster", &virtual_address), 403);
    assert!(is_local([127, 0, 0, 1].into()) && !is_local([192, 0, 2, 1].into()));
    assert!(!is_local([0, 0, 0, 0].into()));
}

#[test]
fn the_authority_of_an_absolute_target_counts_and_agrees_with_the_host() {
    let boundary = boundary("127.0.0.1:7400", &[], false);
    let get = |target: &str, headers: &[(&str, &str)]| status(&boundary, "GET", target, headers);
    let host = [("host", "localhost:7400")];
    assert_eq!(get("http://localhost:7400/v1/cluster", &host), 200);
    assert_eq!(get("http://LOCALHOST/v1/cluster", &host), 200);
    assert_eq!(get("http://evil.example/v1/cluster", &host), 400);
    assert_eq!(get("http://evil.example/v1/cluster", &[("host", "evil.example")]), 403);
    assert_eq!(get("http://evil.example/v1/cluster", &[]), 403);
    // HTTP/1.0 has no Host, and no browser sends it.
    assert_eq!(get("/v1/cluster", &[]), 200);
}

#[test]
fn pages_of_other_sites_are_refused_with_any_method() {
    let boundary = boundary("127.0.0.1:7400", &[], false);
    let host = ("host", "localhost:7400");
    for foreign in [
        vec![EVIL],
        vec![("origin", "null")],
        vec![("origin", "http://localhost:3000")],
        vec![CROSS_SITE],
        vec![("sec-fetch-site", "same-site")],
        vec![("sec-fetch-site", "new-value")],
        vec![("origin", "http://localhost:7400"), EVIL],
        vec![("origin", "http://localhost:7400"), ("origin", "http://localhost:7400"), CROSS_SITE],
    ] {
        let headers: Vec<_> = std::iter::once(host).chain(foreign).collect();
        for method in ["GET", "PUT", "POST", "DELETE", "OPTIONS"] {
            for target in ["/v1/objects/b/o", "/api/v1/jobs", "/metrics", "/ui/"] {
                assert_eq!(status(&boundary, method, target, &headers), 403, "{headers:?}");
            }
        }
    }
    for own in [
        vec![("origin", "http://localhost:7400"), ("sec-fetch-site", "same-origin")],
        vec![("sec-fetch-site", "none"), ("sec-fetch-mode", "navigate")],
        // The console of one node reads from another.
        vec![("origin", "http://target-1.lab:7410"), CROSS_SITE],
    ] {
        let headers: Vec<_> = std::iter::once(host).chain(own).collect();
        assert_eq!(status(&boundary, "PUT", "/v1/objects/b/o", &headers), 200, "{headers:?}");
    }
    let link = [host, CROSS_SITE, ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
    assert_eq!(status(&boundary, "GET", "/ui/", &link), 200);
    assert_eq!(status(&boundary, "GET", "/v1/cluster", &link), 403);
}

#[test]
fn s3_decides_about_pages_by_signatures_and_cors_rules() {
    let host = ("host", "localhost:7400");
    let friend = ("origin", "http://friend.example");
    let signed = ("authorization", "AWS4-HMAC-SHA256 Credential=a");
    let form = ("content-type", "Multipart/Form-Data; boundary=x");
    let presigned = "/s3/plain/k?X-Amz-Signature=1";
    for (method, target, headers, with_keys, open) in [
        ("GET", "/s3/plain/k", vec![EVIL], 403, 403),
        ("GET", "/s3/plain/k", vec![CROSS_SITE], 403, 403),
        ("GET", "/s3/missing/k", vec![EVIL], 403, 403),
        ("GET", "/s3", vec![EVIL], 403, 403),
        // Without keys no signature is checked, so that it proves nothing.
        ("PUT", "/s3/plain/k", vec![EVIL, signed], 200, 403),
        ("PUT", presigned, vec![EVIL], 200, 403),
        ("OPTIONS", "/s3/plain/k", vec![EVIL], 200, 200),
        ("GET", "/s3/shared/k", vec![friend], 200, 200),
        ("GET", "/s3/shared/k", vec![EVIL], 200, 200),
        ("PUT", "/s3/shared/k", vec![friend], 403, 403),
        ("PUT", "/s3/shared/k", vec![EVIL], 403, 403),
        ("DELETE", "/s3/shared/k", vec![CROSS_SITE], 403, 403),
        ("POST", "/s3/shared", vec![friend, form], 200, 200),
        ("POST", "/s3/plain", vec![EVIL, form], 200, 403),
        ("POST", "/s3/plain?delete", vec![EVIL], 403, 403),
        ("PUT", "/v1/objects/plain/k", vec![EVIL, signed], 403, 403),
    ] {
        let headers: Vec<_> = std::iter::once(host).chain(headers).collect();
        for (has_keys, expected) in [(true, with_keys), (false, open)] {
            let boundary = boundary("127.0.0.1:7400", &[], has_keys);
            let found = status(&boundary, method, target, &headers);
            assert_eq!(found, expected, "{method} {target} {headers:?} {has_keys}");
        }
    }
}

#[test]
fn proven_senders_are_not_checked() {
    let boundary = boundary("127.0.0.1:7400", &[], false);
    for caller in [Caller::Node, Caller::S3Relay, Caller::Client, Caller::Redirected] {
        let mut request = axum::http::Request::builder()
            .header("host", "evil.example")
            .body(Body::empty())
            .unwrap();
        let about = RequestContext {
            id: RequestId(1),
            protocol: Protocol::V1,
            route: Protocol::V1.route("/"),
            principal: Principal::new(caller),
            trace: None,
        };
        boundary.check(&about, &mut request, &state()).unwrap();
    }
}

#[test]
fn the_machine_has_its_host_name_and_the_complete_form_of_it() {
    let hosts = "127.0.0.1 localhost\n0.0.0.0 ads.example\n10.0.0.1 box.lab box other # box.evil\n";
    assert_eq!(machine_names_of("box\n", hosts), ["box", "box", "box.lab", "box"]);
    assert_eq!(machine_names_of("box.lab", "")[..], ["box.lab", "box"]);
    assert!(machine_names_of("", hosts).is_empty());
}
