//! Access control of S3: owners, access control lists and policies, the same on every node.

use std::sync::Arc;

use forebay_tests::s3::{OTHER, OWNER, UNSIGNED, code, request, texts};
use forebay_tests::{Cluster, Shared, http};

static CLUSTER: Shared<Cluster> = Shared::new();

fn cluster() -> Arc<Cluster> {
    CLUSTER.get(Cluster::plain)
}

/// Makes a bucket of [`OWNER`]'s.
fn make(cluster: &Cluster, bucket: &str) {
    let made = request("PUT", &cluster.endpoint, bucket).send_as(OWNER);
    assert_eq!(made.status, 200, "{}", made.text());
}

fn put(cluster: &Cluster, what: &str, body: &[u8]) {
    let put = request("PUT", &cluster.endpoint, what).body(body).send_as(OWNER);
    assert_eq!(put.status, 200, "{what}: {}", put.text());
}

fn get(cluster: &Cluster, what: &str) -> http::Answer {
    request("GET", &cluster.endpoint, what).send_as(OWNER)
}

#[test]
fn a_bucket_belongs_to_who_made_it() {
    let cluster = cluster();
    make(&cluster, "mine");
    put(&cluster, "mine/k", b"secret");
    let made = request("PUT", &cluster.endpoint, "yours").send_as(OTHER);
    assert_eq!(made.status, 200, "{}", made.text());
    let other = |method: &str, what: &str| request(method, &cluster.endpoint, what).send_as(OTHER);
    for (method, what) in [
        ("GET", "mine"),
        ("GET", "mine/k"),
        ("GET", "mine/not-there"),
        ("PUT", "mine/k"),
        ("DELETE", "mine/k"),
        ("DELETE", "mine"),
    ] {
        let refused = other(method, what);
        assert_eq!(code(&refused), "AccessDenied", "{method} {what}");
    }
    assert_eq!(code(&other("PUT", "mine")), "BucketAlreadyExists");
    let all = other("GET", "");
    let buckets = texts(&all, "ListAllMyBucketsResult", "Name");
    assert!(buckets.contains(&"yours".into()) && !buckets.contains(&"mine".into()), "{buckets:?}");
    // A copy grants no access either, wherever source and copy are stored.
    for n in 0..8 {
        let copy = request("PUT", &cluster.endpoint, &format!("yours/copy-{n}"))
            .header("x-amz-copy-source", "/mine/k");
        assert_eq!(code(&copy.send_as(OTHER)), "AccessDenied");
    }
    let delete = "<Delete><Object><Key>k</Key></Object></Delete>";
    let many = request("POST", &cluster.endpoint, "mine").query("delete", "").body(delete);
    assert_eq!(texts(&many.send_as(OTHER), "DeleteResult", "Code"), ["AccessDenied"]);
    assert_eq!(get(&cluster, "mine/k").body, b"secret");
}

#[test]
fn an_access_control_list_gives_what_it_says() {
    let cluster = cluster();
    make(&cluster, "lists");
    let acl = |what: &str, word: &str| {
        let acl = request("PUT", &cluster.endpoint, what).query("acl", "");
        assert_eq!(acl.header("x-amz-acl", word).send_as(OWNER).status, 200);
    };
    let anybody = |method: &str, what: &str| request(method, &cluster.endpoint, what).send();
    put(&cluster, "lists/k", b"told");
    assert_eq!(code(&anybody("GET", "lists/k")), "AccessDenied");
    acl("lists/k", "public-read");
    assert_eq!(anybody("GET", "lists/k").body, b"told");
    assert_eq!(code(&anybody("GET", "lists")), "AccessDenied", "an object's list is its own");
    assert_eq!(code(&anybody("GET", "lists/none")), "AccessDenied");
    acl("lists", "public-read");
    assert_eq!(texts(&anybody("GET", "lists"), "ListBucketResult", "Key"), ["k"]);
    assert_eq!(code(&anybody("GET", "lists/none")), "NoSuchKey", "who may list may know");
    assert_eq!(code(&anybody("PUT", "lists/new")), "AccessDenied");

    let given = request("PUT", &cluster.endpoint, "lists/for-one").body("x");
    let given = given.header("x-amz-grant-read", "id=forebay2").send_as(OWNER);
    assert_eq!(given.status, 200, "{}", given.text());
    let read = |user| request("GET", &cluster.endpoint, "lists/for-one").send_as(user).body;
    assert_eq!((read(OTHER), read(OWNER)), (b"x".to_vec(), b"x".to_vec()));
    assert_eq!(code(&anybody("GET", "lists/for-one")), "AccessDenied");
    // New bytes have a new list.
    put(&cluster, "lists/k", b"not told");
    assert_eq!(code(&anybody("GET", "lists/k")), "AccessDenied");
}

#[test]
fn a_policy_judges_by_tags_and_by_address_at_whatever_node_it_is_asked() {
    let cluster = cluster();
    make(&cluster, "judged");
    for (key, tag) in [("open", "public"), ("closed", "secret")] {
        let put = request("PUT", &cluster.endpoint, &format!("judged/{key}")).body(key);
        assert_eq!(put.header("x-amz-tagging", &format!("for={tag}")).send_as(OWNER).status, 200);
    }
    let policy = |condition: &str| {
        let text = format!(
            r#"{{"Statement": {{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::judged/*", "Condition": {condition}}}}}"#
        );
        let put = request("PUT", &cluster.endpoint, "judged").query("policy", "").body(text);
        put.send_as(OWNER)
    };
    let nodes: Vec<_> = cluster.targets.iter().chain(&cluster.gateways).collect();
    let status = |key: &str| -> Vec<u16> {
        let get = |url: &str| request("GET", url, &format!("judged/{key}")).send().status;
        nodes.iter().map(|node| get(&node.url)).collect()
    };
    let done = policy(r#"{"StringEquals": {"s3:ExistingObjectTag/for": "public"}}"#);
    assert_eq!(done.status, 204, "{}", done.text());
    assert_eq!((status("open"), status("closed")), (vec![200; 4], vec![403; 4]));
    policy(r#"{"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}"#);
    assert_eq!(status("closed"), [200; 4]);
    policy(r#"{"IpAddress": {"aws:SourceIp": "10.0.0.0/8"}}"#);
    assert_eq!(status("closed"), [403; 4]);
    let unknown = policy(r#"{"DateGreaterThan": {"aws:CurrentTime": "2026-01-01T00:00:00Z"}}"#);
    assert_eq!(code(&unknown), "MalformedPolicy", "what is not kept is not taken");
}

#[test]
fn a_refused_upload_gets_its_error_before_its_body_is_sent() {
    let cluster = cluster();
    make(&cluster, "refusals");
    let big = vec![1; 4 << 20];
    for node in cluster.targets.iter().chain(&cluster.gateways) {
        for n in 0..5 {
            let put = request("PUT", &node.url, &format!("refusals/{n}")).payload(UNSIGNED);
            assert_eq!(code(&put.body(big.clone()).send_as(OTHER)), "AccessDenied");
        }
    }
    let left = request("GET", &cluster.endpoint, "refusals").send_as(OWNER);
    assert!(texts(&left, "ListBucketResult", "Key").is_empty());
}
