//! Redirects: their destination, what they preserve, and that bodies do not break them.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use forebay_core::bucket::BucketInfo;
use forebay_core::{Bucket, placement};
use serde_json::{Value, json};

use crate::wire::{act, get, send};
use crate::world::{World, map};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redirects_lead_to_the_owner_and_keep_path_and_query() {
    let w = World::new(1, 3).await;
    act(w.url(), "POST", "/v1/buckets/b?provider=ais", "create-bck", Value::Null).await.expect(200);
    let state = map(w.url()).await.unwrap().state;
    let info = BucketInfo::requested(Bucket::parse_uri("ais://b").unwrap().0, None);
    let names =
        [("plain", "plain"), ("dir/a%20b%25%3F%23%2B+%C3%BC", "dir/a b%?#++ü"), ("x~.-_", "x~.-_")];
    for (encoded, name) in names {
        let owner = placement::owner(&state, &info, name).unwrap();
        let path = format!("/v1/objects/b/{encoded}?provider=ais&archpath=&x=a%2Fb");
        for (method, status) in [
            ("GET", 301),
            ("HEAD", 307),
            ("PUT", 307),
            ("DELETE", 307),
            ("PATCH", 307),
            ("POST", 307),
        ] {
            let answer = send(w.url(), method, &path, &[], "").await.expect(status);
            let location = answer.header("location");
            assert!(location.starts_with(&format!("{}{path}&fbv=", owner.url)), "{location}");
            assert!(location.contains("&fbs=2~"), "{location}");
            assert!(!answer.header("forebay-map").is_empty());
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_wrong_is_said_before_any_redirect() {
    let w = World::new(1, 1).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let missing = get(w.url(), "/v1/objects/nope/o?provider=ais").await.expect(404).json();
    assert_eq!(missing["message"], "bucket \"ais://nope\" does not exist");
    assert_eq!((&missing["tcode"], &missing["status"]), (&json!("ErrBckNotFound"), &json!(404)));
    assert_eq!(missing["node"], "p[gateway-0]");
    let head = send(w.url(), "HEAD", "/v1/objects/nope/o", &[], "").await.expect(404);
    assert!(head.body.is_empty() && head.header("hdr-error").contains("does not exist"));
    for bad in ["trail/", "/lead", "a//b", "a/../b", "", "%00", &"y".repeat(1025)] {
        let answer = get(w.url(), &format!("/v1/objects/b/{bad}")).await;
        assert_eq!(answer.status, 400, "{bad}: {answer:?}");
    }
    get(w.url(), "/v1/objects/b/o?archregx=x&archmode=glob").await.expect(400);
    get(w.url(), "/v1/objects/b/o?archpath=x&archmode=prefix").await.expect(400);
    get(w.url(), "/v1/objects/b/o?provider=nowhere").await.expect(400);
    let e = act(w.url(), "POST", "/v1/objects/b", "no-such", json!({})).await.expect(400).json();
    assert!(e["message"].as_str().unwrap().contains("no-such"));
    act(w.url(), "POST", "/v1/objects/b", "promote", json!({"src": 5})).await.expect(400);
    act(w.url(), "POST", "/v1/objects/b", "blob-download", Value::Null).await.expect(400);
    let to = "object_to=ais%2F%40%23%2Fnope%2Fo";
    let e = send(w.url(), "PUT", &format!("/v1/objects/b/o?{to}"), &[], "").await.expect(404);
    assert_eq!(e.json()["message"], "bucket \"ais://nope\" does not exist");
    let e = send(w.url(), "OPTIONS", "/v1/objects/b/o", &[], "").await.expect(405);
    assert!(e.header("allow").contains("PUT"), "{e:?}");
    let e = get(w.url(), "/v1/nope").await.expect(400).json();
    assert!(e["message"].as_str().unwrap().contains("invalid request URI"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn easy_urls_are_answered_as_the_paths_they_stand_for() {
    let w = World::new(1, 1).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    for (method, status) in [("GET", 301), ("PUT", 307), ("HEAD", 307), ("DELETE", 307)] {
        let answer = send(w.url(), method, "/ais/b/d/x%20y", &[], "").await.expect(status);
        let to = answer.header("location");
        let path = format!("{}/v1/objects/b/d/x%20y?provider=ais&fbv=", w.targets[0].url);
        assert!(to.starts_with(&path), "{method}: {to}");
    }
    send(w.url(), "HEAD", "/ais/b", &[], "").await.expect(200);
    send(w.url(), "HEAD", "/ais/none", &[], "").await.expect(404);
    send(w.url(), "PUT", "/ais/b", &[], "").await.expect(400);
    get(w.url(), "/s4/b/x").await.expect(400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_owner_is_503_and_no_target_at_all_is_400() {
    let w = World::new(1, 0).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let e = get(w.url(), "/v1/objects/b/o").await.expect(400).json();
    assert_eq!(e["message"], "no storage targets in the cluster");
    let w = World::new(1, 1).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    w.targets[0].stop().await;
    let e = get(w.url(), "/v1/objects/b/o").await.expect(503);
    assert_eq!(e.header("retry-after"), "3");
}

fn read_head(stream: &mut std::net::TcpStream) -> String {
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// A cluster with a bucket, and the address of its gateway.
async fn with_bucket() -> (World, String) {
    let w = World::new(1, 1).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let address = w.url().strip_prefix("http://").unwrap().to_owned();
    (w, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_its_whole_body_first_still_sees_the_answer() {
    let (_world, address) = with_bucket().await;
    tokio::task::spawn_blocking(move || {
        let size = 48 << 20;
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        for (bucket, status) in [("b", "307"), ("nope", "404"), ("b", "307")] {
            let head = format!(
                "PUT /v1/objects/{bucket}/o HTTP/1.1\r\nHost: localhost\r\nContent-Length: {size}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).unwrap();
            let piece = vec![7u8; 1 << 20];
            (0..size / piece.len()).for_each(|_| stream.write_all(&piece).unwrap());
            let head = read_head(&mut stream);
            assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
            let length: usize = head
                .lines()
                .find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
                .unwrap_or(0);
            std::io::copy(&mut (&stream).take(length as u64), &mut std::io::sink()).unwrap();
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_announced_body_that_never_comes_does_not_hold_the_answer_up() {
    let (_world, address) = with_bucket().await;
    tokio::task::spawn_blocking(move || {
        for extra in ["Connection: close\r\n", "Expect: 100-continue\r\n"] {
            let mut stream = std::net::TcpStream::connect(&address).unwrap();
            let head = format!(
                "PUT /v1/objects/b/o HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n{extra}\r\n"
            );
            let asked = Instant::now();
            stream.write_all(head.as_bytes()).unwrap();
            let head = read_head(&mut stream);
            assert!(head.starts_with("HTTP/1.1 307"), "{head}");
            assert!(asked.elapsed() < Duration::from_secs(3));
        }
    })
    .await
    .unwrap();
}

/// The next bytes could be the announced body, or the next request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_ends_with_the_answer_to_a_body_that_was_not_asked_for() {
    let (_world, address) = with_bucket().await;
    tokio::task::spawn_blocking(move || {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        let put = "PUT /v1/objects/b/o HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\
                   Expect: 100-continue\r\n\r\n";
        stream.write_all(put.as_bytes()).unwrap();
        let head = read_head(&mut stream);
        assert!(head.starts_with("HTTP/1.1 307"), "{head}");
        assert!(head.to_ascii_lowercase().contains("\r\nconnection: close\r\n"), "{head}");
        let _ = stream.write_all(b"GET /v1/daemon?what=smap HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert_eq!(String::from_utf8_lossy(&rest), "");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_goes_to_the_target_that_owns_most_of_it() {
    let w = World::new(1, 3).await;
    act(w.url(), "POST", "/v1/buckets/b", "create-bck", Value::Null).await.expect(200);
    let state = map(w.url()).await.unwrap().state;
    let info = BucketInfo::requested(Bucket::parse_uri("ais://b").unwrap().0, None);
    let id = |n: &str| placement::owner(&state, &info, n).unwrap().id.clone();
    let names: Vec<String> = (0..64).map(|i| format!("o{i}")).collect();
    let most = id(&names[0]);
    let mine: Vec<Value> = names
        .iter()
        .filter(|n| id(n) == most)
        .chain(names.iter().find(|n| id(n) != most))
        .map(|n| json!({"objname": n, "bucket": "b", "provider": "ais"}))
        .collect();
    let send_moss = async |path: &str, body: Value| {
        send(w.url(), "GET", path, &[("content-type", "application/json")], body.to_string()).await
    };
    let answer =
        send_moss("/v1/ml/moss?coloc=0", json!({"in": mine, "mime": ".tar"})).await.expect(307);
    let target = w.target(most.as_str());
    let want = format!("{}/v1/ml/moss?coloc=0&fbv=", target.url);
    assert!(answer.header("location").starts_with(&want), "{answer:?}");
    let e = send_moss("/v1/ml/moss", json!({"in": []})).await.expect(400).json();
    assert_eq!(e["message"], "moss: empty input");
    let missing = json!({"in": [{"objname": "o", "bucket": "nope", "provider": "ais"}]});
    let e = send_moss("/v1/ml/moss", missing).await.expect(404).json();
    assert_eq!(e["message"], "bucket \"ais://nope\" does not exist");
    let by_path = json!({"in": [{"objname": "o"}]});
    let answer = send_moss("/v1/ml/moss/b?provider=ais", by_path).await.expect(307);
    assert!(answer.header("location").contains("/v1/ml/moss/b?provider=ais&"), "{answer:?}");
}
