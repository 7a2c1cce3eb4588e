//! The boundary of a cluster without users: foreign names, pages of other sites, headers that claim
//! an identity, and files that other users of the machine could read.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use forebay_core::date::format_utc;
use forebay_tests::cluster::{Cluster, Options, folder_backend, native};
use forebay_tests::http::Answer;
use forebay_tests::s3::{self, OWNER};
use forebay_tests::{Shared, http};

const EVIL_HOST: (&str, &str) = ("host", "evil.example:7400");
const EVIL_PAGE: (&str, &str) = ("origin", "http://evil.example");

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(|| {
        let domains = ("FOREBAY_S3__DOMAINS".to_owned(), r#"["s3.test"]"#.to_owned());
        let hosts = ("FOREBAY_LISTEN__HOSTS".to_owned(), r#"["cache.lab", "*.lan"]"#.to_owned());
        Cluster::start(Options { env: vec![domains, hosts], targets: 2, ..Options::default() })
    })
}

/// All nodes of the cluster that clients reach.
fn nodes(cluster: &Cluster) -> impl Iterator<Item = &str> {
    let targets = cluster.targets.iter().map(|target| target.url.as_str());
    std::iter::once(cluster.endpoint.as_str()).chain(targets)
}

fn send(method: &str, url: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = http::request(method, url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if matches!(method, "PUT" | "POST") {
        request = request.body("x");
    }
    request.send()
}

#[tokio::test]
async fn a_rebound_name_reaches_nothing_but_health_at_every_node() {
    let cluster = cluster();
    let (client, bucket) = (cluster.client(), native("rebound"));
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "o", "bytes", None).await.unwrap();
    for node in nodes(&cluster) {
        for (method, path) in [
            ("GET", "/v1/objects/rebound/o"),
            ("HEAD", "/v1/objects/rebound/o"),
            ("PUT", "/v1/objects/rebound/o"),
            ("DELETE", "/v1/objects/rebound/o"),
            ("GET", "/v1/daemon?what=smap"),
            ("GET", "/v1/buckets"),
            ("GET", "/api/v1/map"),
            ("POST", "/api/v1/batch"),
            ("POST", "/internal/v1/state"),
            ("GET", "/metrics"),
            ("GET", "/ui/"),
            ("OPTIONS", "/v1/objects/rebound/o"),
            ("GET", "/ais/rebound/o"),
        ] {
            let refused = send(method, &format!("{node}{path}"), &[EVIL_HOST]);
            assert_eq!(refused.status, 403, "{method} {node}{path}: {}", refused.text());
            if method != "HEAD" {
                let message = refused.text();
                assert!(message.contains("evil.example:7400"), "{message}");
                assert!(message.contains("listen.hosts"), "{message}");
            }
        }
        for path in ["/healthz", "/readyz", "/v1/health"] {
            let open = send("GET", &format!("{node}{path}"), &[EVIL_HOST]);
            assert_eq!(open.status, 200, "{node}{path}: {}", open.text());
        }
        for host in ["localhost:7400", "cache.lab", "a.b.lan:80", "[::1]:1"] {
            let open = send("GET", &format!("{node}/metrics"), &[("host", host)]);
            assert_eq!(open.status, 200, "{node} {host}: {}", open.text());
        }
        // With S3, in its own form; the signature does not help.
        let refused = s3::hosted("GET", node, "evil.example", "s3/rebound/o").send_as(OWNER);
        assert_eq!((refused.status, s3::code(&refused).as_str()), (403, "AccessDenied"));
        assert!(refused.text().contains("evil.example"), "{}", refused.text());
    }
    assert_eq!(client.get_bytes(&bucket, "o", None).await.unwrap(), "bytes");
}

/// The status of each of these requests, sent over one connection.
fn statuses(node: &str, requests: &[String]) -> Vec<u16> {
    let mut stream = TcpStream::connect(node.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut found = Vec::new();
    for request in requests {
        stream.write_all(request.as_bytes()).unwrap();
        let (mut line, mut length) = (String::new(), 0);
        reader.read_line(&mut line).unwrap();
        found.push(line.split(' ').nth(1).unwrap_or_default().parse().unwrap_or(0));
        loop {
            line.clear();
            reader.read_line(&mut line).unwrap();
            if line.trim_end().is_empty() {
                break;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
    }
    found
}

#[tokio::test]
async fn the_fast_path_refuses_what_the_normal_path_refuses() {
    let cluster = cluster();
    let (client, bucket) = (cluster.client(), native("quick"));
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "o", "bytes", None).await.unwrap();
    let owner = cluster.owner(&bucket, "o").url;
    let get = |lines: &str| format!("GET /v1/objects/quick/o HTTP/1.1\r\n{lines}\r\n");
    let address = owner.trim_start_matches("http://");
    let own = get(&format!("host: {address}\r\n"));
    let port = address.split(':').next_back().unwrap();
    let requests = [
        own.clone(),
        get("host: evil.example\r\n"),
        own.clone(),
        get(&format!("host: {address}\r\norigin: http://evil.example\r\n")),
        get(&format!("host: {address}\r\nOrigin: null\r\n")),
        get(&format!("host: {address}\r\nSec-Fetch-Site: cross-site\r\n")),
        get(&format!("host: {address}\r\nsec-fetch-site: same-origin\r\n")),
        get(&format!("host: {address}\r\norigin: {owner}\r\n")),
        get(&format!("host: localhost:{port}\r\n")),
        get("host: localhost\r\n"),
        "GET http://evil.example/v1/objects/quick/o HTTP/1.1\r\nhost: evil.example\r\n\r\n".into(),
        own,
    ];
    let found = statuses(&owner, &requests);
    assert_eq!(found, [200, 403, 200, 403, 403, 403, 200, 200, 200, 200, 403, 200]);
}

#[test]
fn pages_of_other_sites_need_a_signature_or_a_rule_of_the_bucket() {
    let cluster = cluster();
    let gateway = cluster.endpoint.as_str();
    for bucket in ["pages-plain", "pages-rules"] {
        assert_eq!(s3::request("PUT", gateway, bucket).send_as(OWNER).status, 200);
        let put = s3::request("PUT", gateway, &format!("{bucket}/k")).body("bytes");
        assert_eq!(put.header("x-amz-acl", "public-read").send_as(OWNER).status, 200);
    }
    let rules = "<CORSConfiguration><CORSRule><AllowedMethod>GET</AllowedMethod>\
                 <AllowedOrigin>http://friend.example</AllowedOrigin></CORSRule></CORSConfiguration>";
    let set = s3::request("PUT", gateway, "pages-rules").query("cors", "").body(rules);
    assert_eq!(set.send_as(OWNER).status, 200);
    let friend = ("origin", "http://friend.example");
    for node in nodes(&cluster) {
        for (path, header, status) in [
            ("/v1/buckets", EVIL_PAGE, 403),
            ("/v1/buckets", ("origin", "null"), 403),
            ("/v1/buckets", ("origin", "http://localhost:3000"), 403),
            ("/v1/buckets", ("sec-fetch-site", "same-site"), 403),
            ("/metrics", ("sec-fetch-site", "cross-site"), 403),
            ("/metrics", ("sec-fetch-site", "same-origin"), 200),
            ("/metrics", ("sec-fetch-site", "none"), 200),
            ("/metrics", ("origin", node), 200),
            ("/metrics", ("origin", gateway), 200),
            ("/s3/pages-plain/k", EVIL_PAGE, 403),
            ("/s3/pages-plain/k", ("sec-fetch-site", "cross-site"), 403),
            ("/s3/pages-rules/k", friend, 200),
            // Its browser does not show the page this answer.
            ("/s3/pages-rules/k", EVIL_PAGE, 200),
        ] {
            let answer = send("GET", &format!("{node}{path}"), &[header]);
            assert_eq!(answer.status, status, "{node}{path} {header:?}: {}", answer.text());
            let shown = answer.header("access-control-allow-origin");
            assert_eq!(shown, (header == friend).then_some(friend.1), "{node}{path} {header:?}");
        }
        let signed = s3::request("PUT", node, "pages-plain/by-a-page").body("x");
        let signed = signed.header(EVIL_PAGE.0, EVIL_PAGE.1).send_as(OWNER);
        assert_eq!(signed.status, 200, "{node}: {}", signed.text());
        let presigned = s3::request("GET", node, "pages-plain/by-a-page").presign(OWNER, 60);
        assert_eq!(send("GET", &presigned, &[EVIL_PAGE]).status, 200);
        let forged = format!("{node}/s3/pages-plain/k?X-Amz-Signature=0");
        assert!((400..404).contains(&send("GET", &forged, &[EVIL_PAGE]).status), "{node}");
    }
}

#[test]
fn a_form_of_another_site_needs_its_signature_even_for_a_bucket_that_all_may_write() {
    let cluster = cluster();
    let gateway = cluster.endpoint.as_str();
    let made = s3::request("PUT", gateway, "forms").header("x-amz-acl", "public-read-write");
    assert_eq!(made.send_as(OWNER).status, 200);
    let form = |key: &str, more: &[(&str, String)], origin: Option<&str>| {
        let mut body = String::new();
        let fields = [("key", key.to_owned())].into_iter().chain(more.iter().cloned());
        for (name, value) in fields {
            body += &format!(
                "--edge\r\ncontent-disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
            );
        }
        body +=
            "--edge\r\ncontent-disposition: form-data; name=\"file\"; filename=\"f\"\r\n\r\nx\r\n";
        body += "--edge--\r\n";
        let post = http::request("POST", &format!("{gateway}/s3/forms"))
            .header("content-type", "multipart/form-data; boundary=edge")
            .body(body);
        match origin {
            Some(origin) => post.header("origin", origin).send(),
            None => post.send(),
        }
    };
    assert_eq!(form("a", &[], None).status, 204);
    let refused = form("b", &[], Some(EVIL_PAGE.1));
    assert_eq!((refused.status, s3::code(&refused).as_str()), (403, "AccessDenied"));
    let until = format_utc((s3::now() + 600) * 1_000_000_000);
    let policy = format!(
        r#"{{"expiration": "{until}", "conditions": [{{"bucket": "forms"}}, {{"key": "c"}},
            ["starts-with", "$x-amz-algorithm", ""], ["starts-with", "$x-amz-credential", ""],
            ["starts-with", "$x-amz-date", ""]]}}"#
    );
    let signed = s3::form_fields(OWNER, &policy);
    let done = form("c", &signed, Some(EVIL_PAGE.1));
    assert_eq!(done.status, 204, "{}", done.text());
}

#[test]
fn headers_that_claim_an_address_or_an_identity_change_no_decision() {
    let settings = "[audit]\nfile = \"audit.jsonl\"\n";
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    let gateway = cluster.endpoint.as_str();
    assert_eq!(s3::request("PUT", gateway, "claims").send_as(OWNER).status, 200);
    assert_eq!(s3::request("PUT", gateway, "claims/k").body("x").send_as(OWNER).status, 200);
    let allow = |network: &str| {
        let policy = format!(
            r#"{{"Version": "2012-10-17", "Statement": [{{"Effect": "Allow", "Principal": "*",
                "Action": "s3:GetObject", "Resource": "arn:aws:s3:::claims/*",
                "Condition": {{"IpAddress": {{"aws:SourceIp": "{network}"}}}}}}]}}"#
        );
        let put = s3::request("PUT", gateway, "claims").query("policy", "").body(policy);
        assert!((200..300).contains(&put.send_as(OWNER).status));
    };
    let claims = [
        ("x-forwarded-for", "10.1.2.3"),
        ("x-real-ip", "10.1.2.3"),
        ("forwarded", "for=10.1.2.3"),
        ("x-client-ip", "10.1.2.3"),
        ("true-client-ip", "10.1.2.3"),
        ("x-amz-source-ip", "10.1.2.3"),
        ("forebay-s3-peer", "10.1.2.3"),
        ("forebay-s3-user", "forebay"),
        ("x-amz-user", "forebay"),
        ("x-amz-security-token", "forebay"),
        ("x-forwarded-user", "forebay"),
        ("x-remote-user", "forebay"),
        ("remote-user", "forebay"),
        ("ais-caller-id", "p[gateway1]"),
        ("ais-caller-name", "gateway1"),
    ];
    for (network, status) in [("10.0.0.0/8", 403), ("127.0.0.0/8", 200)] {
        allow(network);
        for node in nodes(&cluster) {
            let url = format!("{node}/s3/claims/k");
            assert_eq!(send("GET", &url, &[]).status, status, "{node} {network}");
            for claim in claims {
                let answer = send("GET", &url, &[claim]);
                assert_eq!(answer.status, status, "{node} {network} {claim:?}");
            }
            assert_eq!(send("GET", &url, &claims).status, status, "{node} {network}");
            assert_eq!(send("PUT", &url, &claims).status, 403, "{node}");
            let internal = send("POST", &format!("{node}/internal/v1/state"), &claims);
            assert_eq!(internal.status, 403, "{node}: {}", internal.text());
        }
    }
    for node in cluster.gateways.iter().chain(&cluster.targets) {
        let path = cluster.dir().join(&node.id).join("state/audit.jsonl");
        let log = fs::read_to_string(path).unwrap_or_default();
        assert!(!log.contains("10.1.2.3"), "{log}");
    }
}

#[test]
fn metadata_and_response_headers_carry_no_line_breaks() {
    let cluster = cluster();
    let gateway = cluster.endpoint.as_str();
    assert_eq!(s3::request("PUT", gateway, "lines").send_as(OWNER).status, 200);
    let put = s3::request("PUT", gateway, "lines/k").header("x-amz-meta-a", "b").body("x");
    assert_eq!(put.send_as(OWNER).status, 200);
    let injected = ["a\r\nx-planted: 1", "a\nx-planted: 1", "a\rx-planted: 1", "a\r\n\r\nplanted"];
    for node in nodes(&cluster) {
        for name in [
            "response-content-disposition",
            "response-content-type",
            "response-content-language",
            "response-cache-control",
            "response-content-encoding",
            "response-expires",
        ] {
            for value in injected {
                let url = s3::request("GET", node, "lines/k").query(name, value).presign(OWNER, 60);
                let answer = send("GET", &url, &[]);
                assert_eq!(answer.status, 400, "{node} {name} {value:?}: {}", answer.text());
                assert_eq!(answer.header("x-planted"), None);
            }
        }
    }
    let url = format!("{gateway}/v1/objects/lines/k");
    for value in injected {
        let set = serde_json::json!({"action": "set-custom", "value": {"note": value}});
        let set = http::request("PATCH", &url).json(&set).follow();
        let head = http::request("HEAD", &url).follow();
        assert_eq!(head.status, 200, "{set:?}");
        assert_eq!(head.header("x-planted"), None, "{value:?}");
        assert!(!head.text().contains("planted"), "{value:?}");
        assert_eq!(set.status, 400, "{value:?}: {}", set.text());
    }
}

/// Files and folders below `folder` that others than their owner have a permission for.
fn open_to_others(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        if !meta.is_symlink() && meta.mode() & 0o077 != 0 {
            found.push(format!("{:o} {}", meta.mode() & 0o7777, path.display()));
        }
        if meta.is_dir() {
            open_to_others(&path, found);
        }
    }
}

#[tokio::test]
async fn files_of_nodes_are_private_and_files_of_users_are_not() {
    let root = tempfile::tempdir().unwrap();
    let settings = "[audit]\nfile = \"audit.jsonl\"\n";
    let folder_roots = vec![PathBuf::from(root.path())];
    let options = Options { targets: 2, settings, folder_roots, ..Options::default() };
    let cluster = Cluster::start(options);
    let client = cluster.client();
    let (bucket, shared) = (native("private"), native("shared"));
    client.create_bucket(&bucket, None).await.unwrap();
    client.create_bucket(&shared, Some(folder_backend(root.path()))).await.unwrap();
    for n in 0..20 {
        client.put(&bucket, &format!("small/{n}"), "bytes", None).await.unwrap();
    }
    client.put(&bucket, "large", vec![7; 9 << 20], None).await.unwrap();
    client.put(&shared, "of/users", "bytes", None).await.unwrap();
    let gateway = cluster.endpoint.as_str();
    assert_eq!(s3::request("PUT", gateway, "private-s3").send_as(OWNER).status, 200);
    let started = s3::request("POST", gateway, "private-s3/parts").query("uploads", "");
    let started = started.send_as(OWNER);
    assert_eq!(started.status, 200);
    let id = s3::texts(&started, "InitiateMultipartUploadResult", "UploadId").remove(0);
    let part = s3::request("PUT", gateway, "private-s3/parts").query("partNumber", "1");
    assert_eq!(part.query("uploadId", &id).body("x").send_as(OWNER).status, 200);
    let mut found = Vec::new();
    open_to_others(cluster.dir(), &mut found);
    // The test itself wrote these two.
    let of_test = ["dev.log", "settings.toml"].map(|name| cluster.dir().join(name));
    found.retain(|found| !of_test.iter().any(|path| found.ends_with(&path.display().to_string())));
    assert!(found.is_empty(), "{found:#?}");
    // The files of a folder bucket belong to users of the folder, as the test's umask has it.
    let probe = root.path().join("probe");
    fs::write(&probe, "").unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&root.path().join("of/users")), mode(&probe));
    fs::create_dir(root.path().join("probes")).unwrap();
    assert_eq!(mode(&root.path().join("of")), mode(&root.path().join("probes")));
}
