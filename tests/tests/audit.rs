//! The audit log: changes and refusals with their senders, in files and at a collector.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_tests::cluster::native;
use forebay_tests::s3::{OTHER, OWNER, User, request};
use forebay_tests::web::{Reply, Web};
use forebay_tests::{Cluster, Options, http, wait};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(20);

/// Audit records of a node of a cluster.
fn records(cluster: &Cluster, node: &str) -> Vec<Value> {
    read(&cluster.dir().join(node).join("state/audit.jsonl"))
}

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    // The last line may be incomplete while it is written.
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Waits for a record of this event and subject at any node.
fn find(cluster: &Cluster, event: &str, subject: &str) -> Value {
    let nodes: Vec<_> = cluster.gateways.iter().chain(&cluster.targets).collect();
    let mut found = None;
    wait::until(&format!("a record of {event}, {subject}"), TIMEOUT, || {
        let all = nodes.iter().flat_map(|node| records(cluster, &node.id));
        let is_it =
            |r: &Value| r["event"] == event && r["subject"].as_str().unwrap_or_default() == subject;
        found = all.into_iter().find(is_it);
        found.is_some()
    });
    found.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_and_refusals_are_recorded_with_their_senders() {
    let settings = "[audit]\nfile = \"audit.jsonl\"\n";
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    let (client, bucket) = (cluster.client(), native("watched"));
    client.create_bucket(&bucket, None).await.unwrap();
    client.set_bucket(&bucket, json!({"checksum": {"type": "md5"}})).await.unwrap();
    let made = find(&cluster, "bucket made", "ais://watched");
    assert_eq!(
        (&made["result"], &made["node"]),
        (&"done".into(), &cluster.gateways[0].id.as_str().into()),
        "{made}"
    );
    assert_eq!(
        (&made["sender"]["from"], &made["sender"]["api"]),
        (&"127.0.0.1".into(), &"v1".into(),)
    );
    assert!(made["map_version"].as_u64() > Some(0), "{made}");
    let changed = find(&cluster, "bucket changed", "ais://watched");
    assert_eq!(changed["detail"], "checksum=md5");

    let set = json!({"action": "set-config", "value": {"rebalance": {"enabled": false}}});
    let set = http::request("PUT", &format!("{}/v1/cluster", cluster.endpoint)).json(&set).send();
    assert_eq!(set.status, 200, "{}", set.text());
    assert_eq!(find(&cluster, "settings changed", "")["detail"], "rebalance.enabled=false");
}

#[test]
fn a_request_that_is_refused_for_its_sender_is_recorded_at_every_kind_of_node() {
    let settings = "[audit]\nfile = \"audit.jsonl\"\n";
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    let made = request("PUT", &cluster.endpoint, "mine").send_as(OWNER);
    assert_eq!(made.status, 200, "{}", made.text());
    for key in ["a", "b"] {
        let put = request("PUT", &cluster.endpoint, &format!("mine/{key}")).body("x");
        assert_eq!(put.send_as(OWNER).status, 200);
    }

    // Another user's read, with a signature that is valid.
    let read = request("GET", &cluster.endpoint, "mine/a").send_as(OTHER);
    assert_eq!(read.status, 403);
    let record = find(&cluster, "request refused", "GET /s3/mine/a");
    assert_eq!(record["error"]["status"], 403, "{record}");
    assert_eq!(record["result"], "refused");

    // A signature that is wrong, straight at the target.
    let forged = User { secret: "another-secret", ..OWNER };
    let refused = request("DELETE", &cluster.targets[0].url, "mine/b").send_as(forged);
    assert_eq!(refused.status, 403);
    let record = find(&cluster, "request refused", "DELETE /s3/mine/b");
    assert_eq!(record["node"], cluster.targets[0].id.as_str(), "{record}");
    let text = record.to_string();
    assert!(!text.contains("Signature") && !text.contains("another-secret"), "{text}");

    // A removal of many objects is one record.
    let body = "<Delete><Object><Key>a</Key></Object><Object><Key>b</Key></Object></Delete>";
    let many = request("POST", &cluster.endpoint, "mine").query("delete", "").body(body);
    assert_eq!(many.send_as(OWNER).status, 200);
    let record = find(&cluster, "objects deleted", "ais://mine");
    assert_eq!(record["detail"], "deleted=2, refused=0");
    assert_eq!(record["sender"]["user"], "forebay", "{record}");
    assert!(record["sender"]["request"].as_str().is_some_and(|id| id.len() == 16), "{record}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_gets_every_record_also_those_of_the_time_when_it_failed() {
    let (received, failures) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let (kept, failed) = (received.clone(), failures.clone());
    let collector = Web::start(move |request| {
        if failed.fetch_add(1, Ordering::Relaxed) < 3 {
            return Reply::new(503, "not now");
        }
        let text = String::from_utf8(request.body.clone()).unwrap();
        assert_eq!(request.headers["content-type"], "application/x-ndjson");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        kept.lock().unwrap().extend(lines);
        Reply::new(204, "")
    });
    let env = vec![("FOREBAY_AUDIT__URL".to_owned(), collector.url.clone())];
    let cluster = Cluster::start(Options { targets: 1, env, ..Options::default() });
    let client = cluster.client();
    for i in 0..5 {
        client.create_bucket(&native(&format!("b{i}")), None).await.unwrap();
    }
    wait::until("the collector has all", TIMEOUT, || received.lock().unwrap().len() >= 5);
    let received = received.lock().unwrap();
    let buckets: Vec<_> = received.iter().map(|record| record["subject"].clone()).collect();
    assert_eq!(buckets, ["ais://b0", "ais://b1", "ais://b2", "ais://b3", "ais://b4"]);
    assert!(failures.load(Ordering::Relaxed) > 3);
}
