//! Clients that hold connections and do nothing do not affect other clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::{Bucket, ObjectName};
use forebay_tests::cluster::{Cluster, Options, native};
use forebay_tests::data::content;
use forebay_tests::{http, wait};

const TIMEOUT: Duration = Duration::from_secs(30);
/// The longest time that a well-behaved client waits for a response.
const ANSWER: Duration = Duration::from_secs(10);
const LARGE: usize = 24 << 20;

fn connect(url: &str) -> TcpStream {
    let stream = TcpStream::connect(http::split(url).0).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// A connection on which this text was sent, and nothing after it.
fn sent(url: &str, text: &str) -> TcpStream {
    let mut stream = connect(url);
    stream.write_all(text.as_bytes()).unwrap();
    stream
}

fn batch(bucket: &Bucket, name: &str, times: usize) -> String {
    let entry = BatchEntry::whole(0, ObjectName::new(name).unwrap());
    let entries = vec![entry; times];
    let request = BatchRequest { buckets: vec![bucket.clone()], entries, ordered: true };
    serde_json::to_string(&request).unwrap()
}

fn post(path: &str, length: usize, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

/// The first lines of a PUT to the target that the gateway redirects it to.
fn put_at_owner(cluster: &Cluster, name: &str) -> String {
    let redirect = http::request("PUT", &cluster.object_url("crowd", name)).send();
    let location = redirect.header("location").unwrap_or_else(|| panic!("{}", redirect.text()));
    format!("PUT {} HTTP/1.1\r\nhost: localhost\r\n", http::split(location).1)
}

/// Waits until the node has closed a connection, so that writes to it fail. Reads nothing, because
/// a read would let the node continue.
fn wait_for_end(stream: &mut TcpStream) {
    wait::until("the node ends a connection", TIMEOUT, || stream.write_all(b"x").is_err());
}

async fn one_target(settings: &'static str) -> (Cluster, Bucket, String) {
    let cluster = Cluster::start(Options { targets: 1, settings, ..Options::default() });
    let bucket = native("crowd");
    let client = cluster.client();
    client.create_bucket(&bucket, None).await.unwrap();
    for (name, len) in [("small", 1000), ("large", LARGE)] {
        let url = cluster.object_url("crowd", name);
        let put = http::request("PUT", &url).body(content(name, len)).follow();
        assert_eq!(put.status, 200, "{}", put.text());
    }
    let target = cluster.targets[0].url.clone();
    (cluster, bucket, target)
}

/// Serves one round of a well-behaved client.
fn served(cluster: &Cluster, bucket: &Bucket, target: &str) {
    let get = http::request("GET", &format!("{target}/v1/objects/crowd/small")).within(ANSWER);
    assert_eq!(get.send().body, content("small", 1000));
    let body = batch(bucket, "small", 20);
    let batch = http::request("POST", &format!("{target}/api/v1/batch"));
    let batch = batch.header("content-type", "application/json").body(body).within(ANSWER).send();
    assert_eq!(batch.status, 200, "{}", batch.text());
    let url = cluster.object_url("crowd", "written");
    let put = http::request("PUT", &url).body(content("w", 200_000)).within(ANSWER).follow();
    assert_eq!(put.status, 200, "{}", put.text());
}

#[tokio::test]
async fn a_crowd_that_does_nothing_costs_others_neither_answers_nor_disks() {
    let (cluster, bucket, target) = one_target("[limits]\nclient_timeout_s = 8\n").await;
    let mut idle = Vec::new();
    let mut stalled = Vec::new();
    for _ in 0..2000 {
        idle.push(connect(&target));
    }
    let whole = batch(&bucket, "large", 20);
    for n in 0..300 {
        // Incomplete bodies: of batches, objects, and requests to a gateway.
        stalled.push(match n % 3 {
            0 => sent(&target, &post("/api/v1/batch", whole.len(), &whole[..5])),
            1 => {
                let put = put_at_owner(&cluster, "never");
                sent(&target, &format!("{put}content-length: 500000\r\n\r\nx"))
            }
            _ => sent(&cluster.endpoint, &post("/v1/buckets/never", 500, "{")),
        });
    }
    for n in 0..300 {
        // Responses that the client does not read: batches take all slots, and more wait.
        stalled.push(match n % 10 {
            0 => sent(&target, "GET /v1/objects/crowd/large HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            _ => sent(&target, &post("/api/v1/batch", whole.len(), &whole)),
        });
    }
    let (started, mut rounds) = (Instant::now(), 0);
    while rounds < 5 || started.elapsed() < Duration::from_secs(2) {
        served(&cluster, &bucket, &target);
        rounds += 1;
        let held = cluster.metric("forebay_batch_held_bytes", &[]);
        assert!(held <= f64::from(128 << 20), "{held}");
        assert_eq!(cluster.metric("forebay_disks", &["state=\"in_use\""]), 1.0);
    }
    drop(idle);
    for stream in &mut stalled {
        wait_for_end(stream);
    }
    wait::until("all batches are over", TIMEOUT, || cluster.metric("forebay_batches", &[]) == 0.0);
    served(&cluster, &bucket, &target);
}

#[tokio::test]
async fn above_the_cap_resting_connections_end_and_with_none_at_rest_new_ones_get_503() {
    let (cluster, bucket, target) = one_target("[limits]\nconnections = 48\n").await;
    let resting: Vec<TcpStream> = (0..100).map(|_| connect(&target)).collect();
    wait::until("a new client is served", TIMEOUT, || {
        let get = http::request("GET", &format!("{target}/v1/objects/crowd/small"));
        get.within(ANSWER).try_send().is_ok_and(|answer| answer.status == 200)
    });
    served(&cluster, &bucket, &target);
    drop(resting);
    let unfinished: Vec<String> = (0..60)
        .map(|_| put_at_owner(&cluster, "never") + "content-length: 500000\r\n\r\nx")
        .collect();
    let busy: Vec<TcpStream> = unfinished.iter().map(|put| sent(&target, put)).collect();
    wait::until("a new client is refused", TIMEOUT, || {
        let get = http::request("GET", &format!("{target}/v1/objects/crowd/small"));
        let Ok(answer) = get.within(ANSWER).try_send() else { return false };
        answer.status == 503 && answer.header("retry-after") == Some("1")
    });
    drop(busy);
    wait::until("clients are served again", TIMEOUT, || {
        let get = http::request("GET", &format!("{target}/v1/objects/crowd/small"));
        get.within(ANSWER).try_send().is_ok_and(|answer| answer.status == 200)
    });
}

#[tokio::test]
async fn heads_of_no_request_that_is_served_are_refused() {
    let (cluster, _, target) = one_target("").await;
    let status = |head: &str| {
        let mut stream = sent(&target, head);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer);
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    };
    let long = "x".repeat(70_000);
    let get = "GET /v1/objects/crowd/small HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    assert_eq!(status(&format!("{get}\r\n")), "200");
    assert_eq!(status(&format!("{get}a: {long}\r\n\r\n")), "431");
    let put = |coding: &str| {
        let head = put_at_owner(&cluster, "coded") + "connection: close\r\n";
        status(&format!("{head}transfer-encoding: {coding}\r\n\r\n1\r\nx\r\n0\r\n\r\n"))
    };
    assert_eq!(put("chunked"), "200");
    assert_eq!(put("gzip, chunked"), "501");
}
