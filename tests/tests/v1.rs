//! Responses to foreign clients of the v1 protocol: redirects, refusals, and words that clients
//! search for.

use std::sync::Arc;

use forebay_tests::cluster::{Cluster, native};
use forebay_tests::{Shared, http};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

#[tokio::test]
async fn a_gateway_redirects_reads_by_301_and_writes_by_307() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("redirects");
    client.create_bucket(&bucket, None).await.unwrap();
    let name = "dir/100% ä?.bin";
    let url = cluster.object_url("redirects", "dir/100%25%20%C3%A4%3F.bin");
    let owner = cluster.owner(&bucket, name);
    for (method, status) in [("PUT", 307), ("GET", 301), ("HEAD", 307), ("DELETE", 307)] {
        let request = http::request(method, &url);
        let request = if method == "PUT" { request.body("bytes") } else { request };
        let first = request.clone().send();
        assert_eq!(first.status, status, "{method}: {}", first.text());
        let location = first.header("location").unwrap();
        assert!(location.starts_with(&owner.url), "{method} → {location}, owner {}", owner.url);
        let second = request.follow();
        assert_eq!(second.status, 200, "{method}: {}", second.text());
        if method == "GET" {
            assert_eq!(second.body, b"bytes");
        }
    }
}

#[tokio::test]
async fn a_write_that_no_gateway_sent_is_refused_and_a_read_is_not() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("direct");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let url = format!("{}/v1/objects/direct/x", cluster.owner(&bucket, "x").url);
    for method in ["PUT", "DELETE"] {
        let refused = http::request(method, &url).body("other").send();
        assert_eq!(refused.status, 400, "{method}: {}", refused.text());
        let message = refused.message();
        assert!(message.contains("is expected to be redirected"), "{method}: {message}");
    }
    let forged =
        http::request("PUT", &format!("{url}?fbx=99999999999&fbs=00")).body("other").send();
    assert_eq!(forged.status, 400, "{}", forged.text());
    let got = http::get(&url);
    assert_eq!((got.status, got.body.as_slice()), (200, b"bytes".as_slice()));
}

#[tokio::test]
async fn a_foreign_client_that_asks_the_wrong_target_is_sent_to_the_owner() {
    let cluster = cluster();
    let client = cluster.client();
    let bucket = native("wrong-target");
    client.create_bucket(&bucket, None).await.unwrap();
    client.put(&bucket, "x", "bytes", None).await.unwrap();
    let owner = cluster.owner(&bucket, "x");
    let other = cluster.targets.iter().find(|t| t.id != owner.id).unwrap();
    let got = http::request("GET", &format!("{}/v1/objects/wrong-target/x", other.url)).follow();
    assert_eq!((got.status, got.body.as_slice()), (200, b"bytes".as_slice()));
    let map = cluster.map();
    let redirected = http::request("GET", &format!("{}/v1/objects/wrong-target/x", other.url))
        .header("forebay-grant", &map.grant)
        .send();
    assert_eq!(redirected.status, 421, "{}", redirected.text());
    assert!(redirected.header("location").unwrap().starts_with(&owner.url));
    assert_eq!(redirected.header("forebay-map"), Some(map.state.version.to_string().as_str()));
}

#[test]
fn missing_and_existing_things_are_named_in_the_answer() {
    let cluster = cluster();
    let endpoint = &cluster.endpoint;
    let create = || {
        http::request("POST", &format!("{endpoint}/v1/buckets/exists"))
            .json(&serde_json::json!({"action": "create-bck", "value": null}))
            .send()
    };
    assert_eq!(create().status, 200);
    let again = create();
    assert_eq!(again.status, 409);
    assert_eq!(again.message(), "bucket \"ais://exists\" already exists");
    assert_eq!(again.json()["tcode"], "ErrBucketAlreadyExists");

    let no_bucket = http::get(&cluster.object_url("nowhere", "x"));
    assert_eq!(no_bucket.status, 404, "{}", no_bucket.text());
    assert_eq!(no_bucket.message(), "bucket \"ais://nowhere\" does not exist");
    assert_eq!(no_bucket.json()["status"], 404);

    let no_object = http::request("GET", &cluster.object_url("exists", "a/b")).follow();
    assert_eq!(no_object.status, 404);
    let message = no_object.message();
    assert!(message.contains("ais://exists/a/b does not exist"), "{message}");

    let no_object = http::request("DELETE", &cluster.object_url("exists", "a/b")).follow();
    assert_eq!(no_object.status, 404);
    assert!(no_object.message().contains("ais://exists/a/b"), "{}", no_object.message());

    let destroy = http::request("DELETE", &format!("{endpoint}/v1/buckets/nowhere"))
        .json(&serde_json::json!({"action": "destroy-bck"}))
        .send();
    assert_eq!(destroy.status, 404);
    assert_eq!(destroy.message(), "bucket \"ais://nowhere\" does not exist");
}
