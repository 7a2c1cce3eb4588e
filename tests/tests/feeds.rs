//! Feeds of training loops, at any gateway; and the stages of targets, for those who ask for them.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::batch_stream::Decoder;
use forebay_core::timing::{StageTimes, TIMING_HEADER};
use forebay_tests::cluster::{folder_backend, native};
use forebay_tests::data::{content, fill_folder, names};
use forebay_tests::http::{self, Answer};
use forebay_tests::users::send;
use forebay_tests::{Cluster, Options, Users, wait};
use serde_json::{Value, json};

const TIMEOUT: Duration = Duration::from_secs(30);

fn feed(bucket: &str) -> Value {
    json!({
        // The id in the path counts.
        "id": "any", "name": "job", "host": "h", "rank": 1, "buckets": [bucket], "steps": 7, "wait_s": 1.5,
        "step_s": 3.0, "causes": {"cold": 1.0, "worker": 0.5},
    })
}

fn put(endpoint: &str, id: &str, token: Option<&str>, feed: &Value) -> Answer {
    send("PUT", &format!("{endpoint}/api/v1/feeds/{id}"), token, feed)
}

fn feeds(endpoint: &str, token: Option<&str>) -> Value {
    send("GET", &format!("{endpoint}/api/v1/feeds"), token, &Value::Null).json()
}

#[test]
fn a_feed_that_one_gateway_got_is_shown_by_all() {
    let cluster = Cluster::start(Options { gateways: 2, targets: 1, ..Options::default() });
    let urls: Vec<String> = cluster.gateways.iter().map(|node| node.url.clone()).collect();
    assert_eq!(put(&urls[0], "a", None, &feed("ais://b")).status, 200);
    assert_eq!(put(&urls[1], "b", None, &feed("ais://b")).status, 200);
    for url in &urls {
        let shown = feeds(url, None);
        assert_eq!(shown["away"], json!([]));
        let feeds = shown["feeds"].as_array().unwrap();
        let ids: Vec<_> = feeds.iter().map(|feed| feed["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["a", "b"]);
        assert_eq!((&feeds[0]["steps"], &feeds[0]["causes"]["cold"]), (&json!(7), &json!(1.0)));
        assert!(feeds[0]["updated"].as_u64().unwrap() > 1_000_000_000);
    }
    // A later report replaces the first, at whatever gateway.
    std::thread::sleep(Duration::from_millis(1100));
    let later = json!({"id": "a", "steps": 9, "wait_s": 2.0, "step_s": 4.0});
    assert_eq!(put(&urls[1], "a", None, &later).status, 200);
    assert_eq!(feeds(&urls[0], None)["feeds"][0]["steps"], 9);
    let negative = json!({"id": "c", "steps": 1, "wait_s": -1.0, "step_s": 1.0});
    for invalid in [json!({"id": "c", "steps": 1}), negative] {
        assert_eq!(put(&urls[0], "c", None, &invalid).status, 400);
    }
    let id = cluster.gateways[1].id.clone();
    cluster.kill9(&id);
    let is_named = || feeds(&urls[0], None)["away"] == json!([id]);
    wait::until("the dead gateway is named", TIMEOUT, is_named);
}

#[test]
fn a_feed_needs_the_right_to_read_its_buckets_and_is_shown_to_their_users() {
    let users = Users::start(Options { targets: 1, ..Options::default() });
    let endpoint = users.cluster.endpoint.clone();
    for bucket in ["mine", "theirs"] {
        let url = format!("{endpoint}/v1/buckets/{bucket}");
        let made = send("POST", &url, Some(&users.root), &json!({"action": "create-bck"}));
        assert_eq!(made.status, 200, "{}", made.text());
    }
    users.add("ann", &[]);
    users.bind("ann", "reader", "ais://mine", "");
    let token = users.token("ann", 3600);
    let (ann, root) = (Some(token.as_str()), Some(users.root.as_str()));
    assert_eq!(put(&endpoint, "a", ann, &feed("ais://mine")).status, 200);
    assert_eq!(put(&endpoint, "b", ann, &feed("ais://theirs")).status, 403);
    assert_eq!(put(&endpoint, "c", root, &feed("ais://theirs")).status, 200);
    // Nor may she replace a feed that she does not see.
    assert_eq!(put(&endpoint, "c", ann, &feed("ais://mine")).status, 403);
    assert_eq!(put(&endpoint, "d", None, &feed("ais://mine")).status, 401);
    let ids = |token| {
        let shown = feeds(&endpoint, token);
        let feeds = shown["feeds"].as_array().unwrap().clone();
        feeds.iter().map(|feed| feed["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(ann), ["a"]);
    assert_eq!(ids(root), ["a", "c"]);
}

/// The frames of a batch of these objects, and the times in them.
fn batch(url: &str, names: &[String], is_timed: bool) -> (Vec<u8>, Option<StageTimes>) {
    let entries: Vec<_> = names.iter().map(|name| json!({"bucket": 0, "name": name})).collect();
    let buckets = json!([{"name": "folder", "provider": "ais"}]);
    let body = json!({"buckets": buckets, "entries": entries, "ordered": true});
    let mut request = http::request("POST", &format!("{url}/api/v1/batch"));
    if is_timed {
        request = request.header(TIMING_HEADER, "1");
    }
    let answer = request.header("content-type", "application/json").body(body.to_string()).send();
    assert_eq!(answer.status, 200, "{}", answer.text());
    let (mut decoder, mut rows) = (Decoder::new(), VecDeque::new());
    decoder.decode(&answer.body, &mut rows).unwrap();
    assert!(decoder.is_complete());
    assert_eq!(rows.len(), names.len());
    for (row, name) in rows.iter().zip(names) {
        assert_eq!((row.status, &row.payload[..]), (0, &content(name, 9000)[..]));
    }
    (answer.body.clone(), decoder.times())
}

#[tokio::test]
async fn the_stages_of_a_target_come_only_with_answers_to_those_who_ask() {
    let root = tempfile::tempdir().unwrap();
    let folder_roots = vec![root.path().to_owned()];
    let cluster = Cluster::start(Options { targets: 1, folder_roots, ..Options::default() });
    let names = names(40);
    fill_folder(root.path(), &names, 9000);
    let bucket = native("folder");
    cluster.client().create_bucket(&bucket, Some(folder_backend(root.path()))).await.unwrap();
    let url = &cluster.targets[0].url;

    let (_, cold) = batch(url, &names[..20], true);
    let cold = cold.expect("times were asked for");
    assert!(!cold.cold.is_zero(), "{cold:?}");
    let (timed, warm) = batch(url, &names[..20], true);
    assert!(warm.is_some_and(|times| times.cold.is_zero()), "{warm:?}");
    let (plain, none) = batch(url, &names[..20], false);
    assert_eq!(none, None);
    assert!(plain.len() < timed.len());

    let get = |name: &str, is_timed: bool| {
        let mut request = http::request("GET", &cluster.object_url("folder", name));
        if is_timed {
            request = request.header(TIMING_HEADER, "1");
        }
        let answer = request.follow();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.header(TIMING_HEADER).map(StageTimes::parse_header)
    };
    assert_eq!(get(&names[20], false), None);
    let (times, is_cold_body) = get(&names[21], true).expect("times were asked for");
    assert!(!times.cold.is_zero() && is_cold_body, "{times:?}");
}
