//! The entry of every request: its protocol, and the rights of its sender under it.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use forebay_tests::cluster::{Cluster, Options, native};
use forebay_tests::http::Answer;
use forebay_tests::s3::{self, OTHER, OWNER};
use forebay_tests::{Shared, http};
use serde_json::{Value, json};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(|| {
        let domains = ("FOREBAY_S3__DOMAINS".to_owned(), r#"["s3.test"]"#.to_owned());
        Cluster::start(Options { env: vec![domains], ..Options::default() })
    })
}

fn act(cluster: &Cluster, method: &str, bucket: &str, action: &str, value: Value) -> Answer {
    let url = format!("{}/v1/buckets/{bucket}", cluster.endpoint);
    http::request(method, &url).json(&json!({"action": action, "value": value})).send()
}

/// All nodes of the cluster that clients reach.
fn nodes(cluster: &Cluster) -> impl Iterator<Item = &str> {
    let targets = cluster.targets.iter().map(|target| target.url.as_str());
    std::iter::once(cluster.endpoint.as_str()).chain(targets)
}

#[test]
fn behind_the_host_of_a_bucket_a_path_of_ours_is_a_key() {
    let cluster = cluster();
    let gateway = cluster.endpoint.as_str();
    for bucket in ["edge-mine", "edge-theirs"] {
        let user = if bucket == "edge-mine" { OWNER } else { OTHER };
        assert_eq!(s3::request("PUT", gateway, bucket).send_as(user).status, 200);
    }
    for key in ["gone", "kept"] {
        let put = s3::request("PUT", gateway, &format!("edge-theirs/{key}")).body("of theirs");
        assert_eq!(put.send_as(OTHER).status, 200);
    }
    for (index, node) in nodes(&cluster).enumerate() {
        let host = "edge-mine.s3.test";
        for path in ["v1/objects/edge-theirs/new", "v1/objects/edge-theirs/kept", "s3/x", "metrics"]
        {
            let (key, body) = (format!("{path}-{index}"), format!("of mine {index}"));
            let put = s3::hosted("PUT", node, host, &key).body(body.clone()).send_as(OWNER);
            assert_eq!(put.status, 200, "{node} {key}: {}", put.text());
            let got = s3::request("GET", gateway, &format!("edge-mine/{key}")).send_as(OWNER);
            assert_eq!((got.status, got.text()), (200, body.clone()), "{node} {key}");
            let got = s3::hosted("GET", node, host, &key).send_as(OWNER);
            assert_eq!((got.status, got.text()), (200, body), "{node} {key}");
        }
        let key = "v1/objects/edge-theirs/gone";
        assert_eq!(s3::hosted("DELETE", node, host, key).send_as(OWNER).status, 204, "{node}");
        // Without access control no request needs a signature.
        for method in ["GET", "PUT", "DELETE"] {
            let request = s3::hosted(method, node, "edge-theirs.s3.test", key).body("planted");
            let refused = request.send();
            assert_eq!(refused.status, 403, "{method} {node}: {}", refused.text());
        }
    }
    for key in ["gone", "kept"] {
        let kept = s3::request("GET", gateway, &format!("edge-theirs/{key}")).send_as(OTHER);
        assert_eq!((kept.status, kept.text()), (200, "of theirs".into()), "{key}");
    }
    let listed = s3::request("GET", gateway, "edge-theirs").send_as(OTHER);
    assert_eq!(s3::texts(&listed, "ListBucketResult", "Contents").len(), 2, "{}", listed.text());
}

#[tokio::test]
async fn nobody_is_a_node_by_saying_so() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("edge-victim");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let owner = cluster.owner(&bucket, "x");
    for (name, value) in [
        ("forebay-s3-front", "/"),
        ("forebay-s3-user", "forebay"),
        ("forebay-auth", "99999999999.00"),
        ("forebay-auth", "2~target01~*~1~99999999999~-~00"),
    ] {
        let url = format!("{}/v1/objects/edge-victim/x", owner.url);
        for method in ["PUT", "DELETE"] {
            let refused = http::request(method, &url).header(name, value).body("evil").send();
            assert_eq!(refused.status, 400, "{method} {name}: {}", refused.text());
        }
        for node in nodes(&cluster) {
            let path = format!("{node}/internal/v1/state");
            let refused = http::request("POST", &path).header(name, value).body("{}").send();
            assert_eq!(refused.status, 403, "{node} {name}: {}", refused.text());
        }
    }
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "bytes");
}

#[tokio::test]
async fn a_redirect_is_followed_with_the_query_that_was_signed_and_at_one_target() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("edge-redirect");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let url = cluster.object_url("edge-redirect", "x");
    let first = http::request("PUT", &format!("{url}?provider=ais")).body("other").send();
    assert_eq!(first.status, 307, "{}", first.text());
    let location = first.header("location").unwrap().to_owned();
    let owner = cluster.owner(&bucket, "x");
    let elsewhere = cluster.targets.iter().find(|target| target.url != owner.url).unwrap();
    for altered in [
        format!("{location}&append_type=append"),
        location.replace("provider=ais", "provider=aws"),
        location.replace("provider=ais&", ""),
        location.replace("/x?", "/y?"),
        location.replace(&owner.url, &elsewhere.url),
    ] {
        assert_ne!(altered, location);
        let refused = http::request("PUT", &altered).body("other").send();
        assert_eq!(refused.status, 400, "{altered}: {}", refused.text());
        assert!(refused.message().contains("is expected to be redirected"), "{altered}");
    }
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "bytes");
    // A client may encode the URL that it received in another way.
    let encoded = location.replace("provider=ais", "%70rovider=%61is");
    assert_eq!(http::request("PUT", &encoded).body("other").send().status, 200);
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "other");
}

#[test]
fn new_buckets_are_not_called_like_paths_of_ours() {
    let cluster = cluster();
    for name in ["v1", "api", "internal", "s3", "metrics", "healthz", "readyz", "clusterz", "ui"] {
        let refused = act(&cluster, "POST", name, "create-bck", Value::Null);
        assert_eq!(refused.status, 400, "{name}: {}", refused.text());
        assert!(refused.message().contains("reserved"), "{name}: {}", refused.message());
        let refused = s3::request("PUT", &cluster.endpoint, name).send_as(OWNER);
        assert!((400..500).contains(&refused.status), "{name}: {}", refused.text());
    }
    assert_eq!(act(&cluster, "POST", "edge-old", "create-bck", Value::Null).status, 200);
    let url = format!("{}/v1/buckets/edge-old?bck_to=ais/@%23/api/", cluster.endpoint);
    let renamed = http::request("POST", &url).json(&json!({"action": "move-bck"})).send();
    assert_eq!(renamed.status, 400, "{}", renamed.text());
}

#[test]
fn texts_longer_than_a_name_are_refused_and_hurt_no_disk() {
    let cluster = cluster();
    assert_eq!(act(&cluster, "POST", "edge-long", "create-bck", Value::Null).status, 200);
    let long = "a".repeat(70_000);
    for (method, action, value, field) in [
        ("GET", "list", json!({"prefix": long}), "prefix"),
        ("GET", "list", json!({"start_after": long}), "start_after"),
        ("GET", "list", json!({"continuation_token": long}), "continuation_token"),
        ("DELETE", "delete-listrange", json!({"objnames": ["ok", long]}), "objnames[1]"),
        ("DELETE", "delete-listrange", json!({"template": long}), "template"),
        ("POST", "copy-listrange", json!({"prefix": long, "tobck": {"name": "b"}}), "prefix"),
    ] {
        let refused = act(&cluster, method, "edge-long", action, value);
        assert_eq!(refused.status, 400, "{action} {field}: {}", refused.text());
        let message = refused.message();
        assert!(message.contains(field) && message.contains("limit is 1024"), "{message}");
    }
    let endpoint = &cluster.endpoint;
    let archpath = format!("{endpoint}/v1/objects/edge-long/x.tar?archpath={}", &long[..2000]);
    assert_eq!(http::get(&archpath).status, 400);
    let entries = json!({"buckets": [{"name": "edge-long", "provider": "ais"}],
        "entries": [{"bucket": 0, "name": "x.tar", "archpath": long}], "ordered": true});
    let batch = format!("{}/api/v1/batch", cluster.targets[0].url);
    let refused = http::request("POST", &batch).json(&entries).send();
    assert_eq!(refused.status, 400, "{}", refused.text());
    let listing = s3::request("GET", endpoint, "edge-long").query("prefix", &long[..60_000]);
    assert_eq!(listing.send_as(OWNER).status, 400);
    let (disks, code) = cluster.cli(&["disk", "ls", "-o", "json"]);
    assert_eq!(code, 0, "{disks}");
    assert!(!disks.contains("away") && !disks.contains("mending"), "{disks}");
}

#[tokio::test]
async fn a_delete_says_what_it_means() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("edge-selection");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    for value in [
        Value::Null,
        json!({}),
        json!({"objnames": []}),
        json!({"objname": ["x"]}),
        json!({"Templates": "x"}),
        json!({"coer": true}),
    ] {
        let refused = act(&cluster, "DELETE", "edge-selection", "delete-listrange", value.clone());
        assert_eq!(refused.status, 400, "{value}: {}", refused.text());
    }
    assert_eq!(client.get_bytes(&bucket, "x", None).await.unwrap(), "bytes");
}

#[test]
fn the_state_of_the_cluster_takes_nothing_without_bounds_and_no_passwords() {
    let cluster = cluster();
    let attach = |alias: &str, url: &str| {
        let url = format!("{}/v1/cluster/attach?alias={alias}&url={url}", cluster.endpoint);
        http::request("PUT", &url).send()
    };
    assert_eq!(attach("far", &format!("http://{}", "h".repeat(50_000))).status, 400);
    assert_eq!(attach(&"a".repeat(5000), "http://127.0.0.1:1").status, 400);
    let backend = json!({"backend": {"type": "s3", "bucket": "b",
        "endpoint": "http://user:planted@127.0.0.1:1"}});
    let refused = act(&cluster, "POST", "edge-password", "create-bck", backend);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(!refused.text().contains("planted"), "{}", refused.text());
    assert_eq!(act(&cluster, "POST", "edge-extra", "create-bck", Value::Null).status, 200);
    let extra = json!({"extra": {"custom": "x".repeat(900_000)}});
    let refused = act(&cluster, "PATCH", "edge-extra", "set-bprops", extra);
    assert_eq!(refused.status, 400, "{}", refused.text());
    let state = http::get(&format!("{}/api/v1/map", cluster.endpoint)).text();
    assert!(!state.contains("planted") && state.len() < 100_000, "{} bytes", state.len());
}

#[test]
fn bodies_that_are_no_json_are_refused_in_the_form_of_all_errors() {
    let cluster = cluster();
    let url = format!("{}/api/v1/disks", cluster.endpoint);
    for body in ["{", "[]", "{\"node\": 7}", ""] {
        let refused = http::request("POST", &url)
            .header("content-type", "application/json")
            .body(body)
            .send();
        assert_eq!(refused.status, 400, "{body}: {}", refused.text());
        let error = refused.json();
        assert_eq!(error["status"], 400, "{body}: {error}");
        assert!(error["node"].as_str().unwrap().starts_with("p["), "{error}");
        assert!(!error["message"].as_str().unwrap().is_empty(), "{error}");
    }
}

/// A node's response to these bytes, until the node closes the connection.
fn raw(node: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(node.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8(answer).unwrap()
}

#[test]
fn requests_with_ambiguous_framing_are_refused() {
    let cluster = cluster();
    let (length, chunked) = ("Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n");
    let many: String = (0..60).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(20_000));
    let smuggled = "GET /v1/daemon?what=smap HTTP/1.1\r\nHost: h\r\n\r\n";
    let before = "PUT /v1/objects/edge-raw/o HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
                  0\r\n\r\n";
    for node in nodes(&cluster) {
        for (lines, status) in [
            (format!("Host: h\r\n{length}{chunked}"), 400),
            (format!("Host: h\r\n{chunked}{length}"), 400),
            (format!("Host: h\r\n{many}{chunked}{length}"), 400),
            (format!("{long}Host: h\r\n{chunked}{length}"), 400),
            (format!("Host: h\r\n{length}{length}"), 400),
            ("Host: h\r\nTransfer-Encoding: gzip\r\n".to_owned(), 501),
            ("Host: h\r\nTransfer-Encoding: gzip, chunked\r\n".to_owned(), 501),
            ("Host: h\r\nTransfer-Encoding: xchunked\r\n".to_owned(), 501),
            (format!("Host: h\r\n{chunked}{chunked}"), 501),
            (chunked.to_owned(), 400),
            (String::new(), 400),
            ("Host: h\r\nHost: h\r\n".to_owned(), 400),
            ("Host: h\r\nHost: other\r\n".to_owned(), 400),
        ] {
            for target in ["/v1/objects/edge-raw/o", "/s3/edge-raw/o", "/metrics"] {
                let bad = format!("PUT {target} HTTP/1.1\r\n{lines}\r\n0\r\n\r\n{smuggled}");
                let answer = raw(node, &bad);
                let wanted = format!("HTTP/1.1 {status} ");
                assert!(answer.starts_with(&wanted), "{node} {lines}: {answer}");
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{node} {lines}: {answer}");
                let (_, body) = answer.split_once("\r\n\r\n").unwrap();
                let error: Value = serde_json::from_str(body).unwrap();
                assert_eq!(error["status"], status, "{node} {lines}: {answer}");
                // Behind a chunked body on the same connection, too.
                let answer = raw(node, &format!("{before}{bad}"));
                assert_eq!(answer.matches("HTTP/1.1 ").count(), 2, "{node} {lines}: {answer}");
                assert!(answer.contains(&wanted), "{node} {lines}: {answer}");
            }
        }
        // The first version of the protocol has no Host.
        let answer = raw(node, "GET /healthz HTTP/1.0\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.0 200 "), "{answer}");
    }
}
