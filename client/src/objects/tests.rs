//! Requests about objects against scripted nodes.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::size::RangeSpec;
use http::Method;

use crate::body::Body;
use crate::client::{Client, ClientConfig};
use crate::error::Error;
use crate::ranges::Ranges;
use crate::scripted_server::{
    Server, Turns, broken, bucket, client, cluster, json, map, nobody, not_here, reply, trickle,
};

const TARGET: &str = "target-01";
const LONG_TIMEOUT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn an_object_is_asked_of_its_owner_with_the_grant_and_without_redirects() {
    let (gateway, target) =
        cluster(|_| reply(200, &[("ais-version", "3"), ("etag", "\"x\"")], "hello")).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    let reply = client.get(&bucket(), "a b", None).await.unwrap();
    assert_eq!((reply.meta.size, reply.meta.version.as_str()), (5, "3"));
    assert_eq!(reply.bytes().await.unwrap(), "hello");
    client.get_bytes(&bucket(), "a b", None).await.unwrap();
    let seen = target.seen.lock().unwrap().clone();
    assert_eq!(seen[0].path, "/v1/objects/b/a%20b?provider=ais");
    assert_eq!(seen[0].headers["forebay-grant"], "grant-7");
    assert_eq!(gateway.seen.lock().unwrap().len(), 1, "one map serves many requests");
}

#[tokio::test]
async fn a_busy_target_is_asked_again_after_the_pause_it_wants() {
    let turns = Turns::new();
    let (gateway, _target) = cluster(move |seen| match turns.next(&seen.path) {
        1 => reply(503, &[("retry-after", "1")], "starting"),
        _ => reply(200, &[], "hello"),
    })
    .await;
    let started = Instant::now();
    let bytes = client(&gateway.url, LONG_TIMEOUT).get_bytes(&bucket(), "o", None).await.unwrap();
    assert_eq!(bytes, "hello");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_removal_that_was_made_but_not_confirmed_in_time_is_no_missing_object() {
    let turns = Turns::new();
    let (gateway, _target) = cluster(move |seen| match turns.next(&seen.path) {
        1 if seen.path.contains("/late") => reply(503, &[], "another target did not confirm"),
        _ => reply(404, &[], "no such object"),
    })
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    client.delete(&bucket(), "late").await.unwrap();
    let e = client.delete(&bucket(), "missing").await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn a_wrong_owner_makes_the_client_fetch_the_map_and_ask_the_right_one() {
    let right = Server::start(|_| reply(200, &[], "right")).await;
    let wrong = Server::start(|_| reply(421, &[("forebay-map", "9")], "")).await;
    let (old, new, turns) = (wrong.url.clone(), right.url.clone(), Turns::new());
    let gateway = Server::start(move |seen| match turns.next(&seen.path) {
        1 => json(&map(7, &[(TARGET, &old)])),
        _ => json(&map(9, &[(TARGET, &new)])),
    })
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    assert_eq!(client.get_bytes(&bucket(), "o", None).await.unwrap(), "right");
    assert_eq!(wrong.seen.lock().unwrap().len(), 1);
    assert_eq!(gateway.count("/api/v1/map"), 2);
}

#[tokio::test]
async fn a_download_goes_on_where_it_broke() {
    let (gateway, target) = cluster(|seen| {
        let version = ("ais-version", "1");
        match seen.headers.get("range").map(|v| v.to_str().unwrap()) {
            None => broken(200, &[version], 10, Bytes::from_static(b"0123")),
            Some("bytes=4-9") => {
                reply(206, &[version, ("content-range", "bytes 4-9/10")], "456789")
            }
            Some(_) => not_here(),
        }
    })
    .await;
    let bytes = client(&gateway.url, LONG_TIMEOUT).get_bytes(&bucket(), "o", None).await.unwrap();
    assert_eq!(bytes, "0123456789");
    assert_eq!(target.seen.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn a_download_of_an_object_that_changed_meanwhile_fails() {
    let (gateway, _target) = cluster(|seen| match seen.headers.get("range") {
        None => broken(200, &[("ais-version", "1")], 10, Bytes::from_static(b"0123")),
        Some(_) => reply(206, &[("ais-version", "2"), ("content-range", "bytes 4-9/10")], "abcdef"),
    })
    .await;
    let e = client(&gateway.url, LONG_TIMEOUT).get_bytes(&bucket(), "o", None).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::ObjectChanged);
    assert!(e.to_string().contains("ais://b/o changed after 4 bytes"), "{e}");
}

#[tokio::test]
async fn a_range_is_asked_for_and_named_in_the_reply() {
    let (gateway, target) =
        cluster(|_| reply(206, &[("content-range", "bytes 7-9/10")], "789")).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    let reply = client.get(&bucket(), "o", Some(RangeSpec::Suffix(3))).await.unwrap();
    assert_eq!((reply.range.start, reply.range.end, reply.meta.size), (7, 10, 10));
    assert_eq!(reply.bytes().await.unwrap(), "789");
    assert_eq!(target.seen.lock().unwrap()[0].headers["range"], "bytes=-3");
}

#[tokio::test]
async fn an_upload_is_sent_again_from_its_start() {
    let (turns, bodies) = (Turns::new(), Arc::new(Mutex::new(Vec::new())));
    let log = bodies.clone();
    let (gateway, _target) = cluster(move |seen| {
        log.lock().unwrap().push(seen.body.clone());
        match turns.next(&seen.path) {
            1 => reply(429, &[], ""),
            _ => reply(200, &[("ais-version", "2")], ""),
        }
    })
    .await;
    let file = std::env::temp_dir().join(format!("forebay-client-{}", std::process::id()));
    tokio::fs::write(&file, vec![7u8; 600_000]).await.unwrap();
    let body = Body::file(&file).await.unwrap();
    let client = client(&gateway.url, LONG_TIMEOUT);
    let meta = client.put(&bucket(), "o", body, None).await.unwrap();
    tokio::fs::remove_file(&file).await.unwrap();
    assert_eq!((meta.size, meta.version.as_str()), (600_000, "2"));
    let bodies = bodies.lock().unwrap();
    assert_eq!(bodies.len(), 2);
    assert!(bodies.iter().all(|b| b.len() == 600_000));
}

#[tokio::test]
async fn a_short_upload_source_fails_without_retry_and_keeps_its_error() {
    let (gateway, _target) = cluster(|_| reply(200, &[], "")).await;
    let open: crate::OpenStream = Arc::new(|| {
        Box::pin(async {
            let stream: crate::ByteStream =
                Box::pin(futures::stream::iter([Ok(Bytes::from_static(b"123"))]));
            Ok(stream)
        })
    });
    let body = Body::Stream { len: Some(9), open };
    let client = client(&gateway.url, LONG_TIMEOUT);
    let e = client.put(&bucket(), "o", body, None).await.unwrap_err();
    assert!(e.to_string().contains("shrank"), "{e}");
}

#[tokio::test]
async fn errors_say_what_the_node_said_for_head_too() {
    let text = r#"{"message":"ais://b/o does not exist","status":404,"code":"object_not_found"}"#;
    let (gateway, _target) = cluster(move |seen| match seen.method {
        Method::HEAD => reply(404, &[("hdr-error", text)], ""),
        _ => reply(404, &[], text),
    })
    .await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    for e in [
        client.head(&bucket(), "o").await.unwrap_err(),
        client.delete(&bucket(), "o").await.unwrap_err(),
        client.get_bytes(&bucket(), "o", None).await.unwrap_err(),
    ] {
        assert_eq!(e.to_string(), "ais://b/o does not exist");
        assert_eq!(e.code(), ErrorCode::ObjectNotFound);
    }
}

#[tokio::test]
async fn without_a_cluster_one_error_names_the_endpoint_at_the_deadline() {
    let gone = nobody();
    let client = client(&gone, Duration::from_millis(300));
    let started = Instant::now();
    let e = client.get_bytes(&bucket(), "o", None).await.unwrap_err();
    assert!(started.elapsed() >= Duration::from_millis(300));
    assert_eq!(e.code(), ErrorCode::Unavailable);
    let text = e.to_string();
    assert!(text.contains(&format!("cannot connect to {gone}: connection refused")), "{text}");
    let e = client.list_buckets(None).await.unwrap_err();
    assert!(matches!(e, Error::Refused { .. }), "{e}");
}

#[tokio::test]
async fn a_cluster_that_was_there_before_is_waited_for_until_the_deadline() {
    let server = Server::start(|_| reply(503, &[], "not yet")).await;
    let config = ClientConfig {
        deadline: Duration::from_millis(300),
        ..ClientConfig::new(server.url.clone())
    };
    let client = Client::new(config.clone()).unwrap();
    client.map().await.unwrap_err();
    drop(server);
    for client in [client, Client::new(config).unwrap()] {
        let e = client.get_bytes(&bucket(), "o", None).await.unwrap_err();
        assert!(matches!(e, Error::Timeout { .. }), "{e}");
    }
}

#[tokio::test]
async fn bytes_that_trickle_do_not_hold_a_call_beyond_its_deadline() {
    let deadline = Duration::from_millis(400);
    let map_trickles = Server::start(|_| trickle(&[], 100_000)).await;
    let started = Instant::now();
    let e = client(&map_trickles.url, deadline).map().await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::Timeout);
    assert!(e.to_string().contains("bytes in 0.4 s"), "{e}");

    let (gateway, _target) = cluster(|seen| match seen.headers.get("range") {
        Some(_) => reply(503, &[], "the rest comes later"),
        None => trickle(&[], 2_000_000),
    })
    .await;
    let client = client(&gateway.url, deadline);
    let e = client.get_bytes(&bucket(), "o", None).await.unwrap_err();
    assert!(matches!(e, Error::Timeout { .. }), "{e}");
    let into = client.read(&bucket(), "o", None).await.unwrap();
    let mut dest = Vec::with_capacity(2_000_000);
    let e = into.stream.read_into(&mut dest).await.unwrap_err();
    assert!(matches!(e, Error::Timeout { .. }), "{e}");
    assert!(started.elapsed() < deadline * 3 * 3, "{:?}", started.elapsed());
}

#[tokio::test]
async fn an_answer_that_announces_more_than_memory_is_an_error_that_says_so() {
    const HUGE: u64 = 9_000_000_000_000_000_000;
    let (gateway, _target) = cluster(|seen| match seen.headers.get("range") {
        Some(_) => reply(206, &[("content-range", &format!("bytes 0-9/{HUGE}"))], "0123456789"),
        None => reply(200, &[], ""),
    })
    .await;
    let client = client(&gateway.url, Duration::from_secs(5));
    let how = Ranges { size: 10, parallel: 2 };
    let e = client.get_in_ranges((&bucket(), "o"), None, how, None).await.unwrap_err();
    assert!(
        e.to_string().contains("ais://b/o: no memory for the 9000000000000000000 bytes"),
        "{e}"
    );
}

#[tokio::test]
async fn an_unknown_bucket_is_looked_up_once_through_the_gateway() {
    let error = r#"{"message":"bucket \"ais://no\" does not exist","status":404,"code":"bucket_not_found"}"#;
    let gateway = Server::start(move |seen| match (&seen.method, seen.path.as_str()) {
        (_, "/api/v1/map") => json(&map(7, &[])),
        (&Method::HEAD, "/v1/buckets/no?provider=ais") => reply(404, &[("hdr-error", error)], ""),
        _ => not_here(),
    })
    .await;
    let no = forebay_core::Bucket::new(forebay_core::Provider::Ais, "no").unwrap();
    let e = client(&gateway.url, LONG_TIMEOUT).get_bytes(&no, "o", None).await.unwrap_err();
    assert_eq!(e.code(), ErrorCode::BucketNotFound);
    assert_eq!(gateway.count("/v1/buckets/no"), 1);
}

#[tokio::test]
async fn bad_object_names_are_refused_before_anything_is_sent() {
    let (gateway, _target) = cluster(|_| not_here()).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    for bad in ["", "nul\0", &"y".repeat(1025)] {
        let e = client.get_bytes(&bucket(), bad, None).await.unwrap_err();
        assert_eq!(e.code(), ErrorCode::InvalidName);
    }
    assert!(gateway.seen.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_copy_is_asked_of_the_owner_of_the_original() {
    let (gateway, target) = cluster(|_| reply(200, &[], "")).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    client.copy((&bucket(), "a b"), (&bucket(), "c&d/e")).await.unwrap();
    let seen = target.seen.lock().unwrap().clone();
    let to = "ais/@%23/b/c%26d/e";
    assert_eq!(seen[0].path, format!("/v1/objects/b/a%20b?provider=ais&object_to={to}"));
    assert_eq!(seen[0].method, Method::PUT);
}

/// Bytes without short repetition, so that misplaced data is detected.
fn long(len: usize) -> Bytes {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

async fn read(client: &crate::Client) -> crate::Result<Vec<u8>> {
    let reply = client.read(&bucket(), "o", None).await?;
    let mut read = vec![0; reply.range.len() as usize];
    reply.read_over(&mut read).await.map(|()| read)
}

#[tokio::test]
async fn long_objects_read_into_memory_come_over_one_connection() {
    let content = long(3 << 20);
    let sent = content.clone();
    let (gateway, target) = cluster(move |_| reply(200, &[], sent.clone())).await;
    let client = client(&gateway.url, LONG_TIMEOUT);
    for _ in 0..3 {
        assert!(read(&client).await.unwrap() == content);
    }
    assert_eq!(target.seen.lock().unwrap().len(), 3);
    assert_eq!(target.connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_long_object_read_into_memory_goes_on_where_it_broke() {
    let content = long(3 << 20);
    let sent = content.clone();
    let (gateway, target) = cluster(move |seen| {
        let version = ("ais-version", "1");
        let Some(range) = seen.headers.get("range") else {
            return broken(200, &[version], sent.len(), sent.slice(..1 << 20));
        };
        let first = range.to_str().unwrap().strip_prefix("bytes=").unwrap().split('-').next();
        let first = first.unwrap().parse::<usize>().unwrap();
        let total = sent.len();
        let rest = format!("bytes {first}-{}/{total}", total - 1);
        reply(206, &[version, ("content-range", &rest)], sent.slice(first..))
    })
    .await;
    assert!(read(&client(&gateway.url, LONG_TIMEOUT)).await.unwrap() == content);
    assert_eq!(target.seen.lock().unwrap().len(), 2);
}
