//! One id for each request: in the answer, in the error of each client, and in the log of each node
//! that the request passed.

use std::time::Duration;

use forebay_core::ObjectName;
use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::request::{REQUEST_ID_HEADER, RequestId};
use forebay_tests::cluster::native;
use forebay_tests::request_ids::id_of;
use forebay_tests::s3::{self, OWNER};
use forebay_tests::{Cluster, Options, http, wait};

const TIMEOUT: Duration = Duration::from_secs(10);

/// The lines of a node's log that have all these words.
fn lines(cluster: &Cluster, node: &str, words: &[&str]) -> Vec<String> {
    let log = std::fs::read_to_string(cluster.dir().join(node).join("log")).unwrap();
    let found = log.lines().filter(|line| words.iter().all(|word| line.contains(word)));
    found.map(str::to_owned).collect()
}

#[test]
fn a_failed_v1_request_has_its_id_in_header_body_and_log() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let made = http::request("POST", &format!("{}/v1/buckets/b", cluster.endpoint));
    assert_eq!(made.json(&serde_json::json!({"action": "create-bck"})).send().status, 200);
    let sent = http::request("GET", &cluster.object_url("b", "missing"));
    let answer = sent.header(REQUEST_ID_HEADER, "00000000000000AA").follow();
    assert_eq!(answer.status, 404, "{}", answer.text());
    let id = id_of(&answer).unwrap();
    assert!(RequestId::parse(id).is_some(), "{id}");
    assert_ne!(id, "00000000000000AA", "a client cannot choose the id");
    let body: serde_json::Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(body["request_id"], id);
    let target = &cluster.targets[0].id;
    let found = lines(&cluster, target, &["request failed", id, "op=\"get\"", "status=404"]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("path=\"/v1/objects/b/missing\""), "{found:?}");
}

#[test]
fn a_request_that_a_gateway_forwards_has_one_id_on_both_nodes() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    assert_eq!(s3::request("PUT", &cluster.endpoint, "bucket").send_as(OWNER).status, 200);
    let answer = s3::request("GET", &cluster.endpoint, "bucket/missing").send_as(OWNER);
    assert_eq!(answer.status, 404, "{}", answer.text());
    let id = answer.header("x-amz-request-id").unwrap();
    assert!(answer.text().contains(&format!("<RequestId>{id}</RequestId>")), "{}", answer.text());
    assert_eq!(answer.header(REQUEST_ID_HEADER), None);
    for node in [&cluster.gateways[0].id, &cluster.targets[0].id] {
        let found = lines(&cluster, node, &["request failed", id, "op=\"GetObject\""]);
        assert_eq!(found.len(), 1, "{node}: {found:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_errors_of_our_clients_name_the_request() {
    let cluster = Cluster::start(Options { targets: 1, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("b"));
    client.create_bucket(&bucket, None).await.unwrap();
    let missing = client.get_bytes(&bucket, "missing", None).await.unwrap_err().into_core();
    let id = missing.request_id.unwrap().to_string();
    let target = &cluster.targets[0].id;
    assert_eq!(lines(&cluster, target, &["request failed", &id]).len(), 1);
    let (text, code) = cluster.cli(&["cat", "ais://b/missing"]);
    assert_eq!(code, 4, "{text}");
    let shown = text.lines().find_map(|line| line.strip_prefix("request: ")).unwrap();
    assert_eq!(lines(&cluster, target, &["request failed", shown]).len(), 1, "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_error_of_a_batchs_entry_names_the_request_of_the_batch() {
    let settings = "[log]\naccess_share = 1.0\n";
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("b"));
    client.create_bucket(&bucket, None).await.unwrap();
    let entries = vec![BatchEntry::whole(0, ObjectName::new("missing").unwrap())];
    let request = BatchRequest { buckets: vec![bucket], entries, ordered: true };
    let missing = client.batch_all(&request).await.unwrap().remove(0).unwrap_err();
    let id = missing.request_id.unwrap().to_string();
    let (target, words) = (&cluster.targets[0].id, ["forebay::access", &id, "op=\"batch\""]);
    wait::until("an access line", TIMEOUT, || lines(&cluster, target, &words).len() == 1);
}

#[test]
fn an_access_line_shows_the_result_the_size_and_the_times_of_a_request() {
    let settings = "[log]\naccess_share = 1.0\n";
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    assert_eq!(s3::request("PUT", &cluster.endpoint, "bucket").send_as(OWNER).status, 200);
    let target = &cluster.targets[0];
    let put = s3::request("PUT", &target.url, "bucket/o").body("hello").send_as(OWNER);
    assert_eq!(put.status, 200, "{}", put.text());
    // One by the HTTP path below `hyper`, one by `hyper`.
    let fast = http::request("GET", &cluster.object_url("bucket", "o")).follow();
    let slow =
        http::request("GET", &cluster.object_url("bucket", "o")).header("x-test", "1").follow();
    for answer in [fast, slow] {
        assert_eq!(answer.text(), "hello");
        let id = id_of(&answer).unwrap().to_owned();
        let words = ["forebay::access", &id, "op=\"get\"", "result=\"ok\"", "bytes=5", "ms="];
        wait::until("an access line", TIMEOUT, || lines(&cluster, &target.id, &words).len() == 1);
        let line = lines(&cluster, &target.id, &words).remove(0);
        assert!(line.contains("path=\"/v1/objects/bucket/o\""), "without the query: {line}");
    }
}
