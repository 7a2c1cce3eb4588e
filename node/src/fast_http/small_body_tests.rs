//! Tests of a connection that reads small bodies below `hyper`, from the client's side.
#![allow(clippy::unwrap_used)]

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::connection_tests::{HEAD_TIMEOUT, connected, content, get, text};
use super::small_body::MAX_SMALL_BODY_BYTES;

fn put(path: &str, len: usize) -> Vec<u8> {
    let head = format!("PUT {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n");
    [head.into_bytes(), content(len)].concat()
}

#[tokio::test]
async fn a_small_body_is_taken_whole_however_it_comes() {
    let mut stream = connected().await;
    for (len, step) in [(1, 1), (300, 7), (10_000, 997), (65_536, 30_000), (65_536, 70_000)] {
        for part in put("/take", len).chunks(step) {
            stream.write_all(part).await.unwrap();
            tokio::task::yield_now().await;
        }
        assert_eq!(text(&mut stream).await, format!("take: {len} bytes"));
    }
}

#[tokio::test]
async fn requests_around_a_body_are_answered_in_their_order() {
    let mut stream = connected().await;
    let all = [
        put("/take", 5),
        get("/quick/1").into_bytes(),
        put("/take", 9_000),
        put("/other", 20),
        put("/take", 20_000),
        get("/wait").into_bytes(),
        put("/take", 0),
    ];
    stream.write_all(&all.concat()).await.unwrap();
    for refusal in [
        "take: 5 bytes",
        "quick: q",
        "take: 9000 bytes",
        "hyper: PUT /other 20",
        "take: 20000 bytes",
        "hyper: GET /wait",
        "hyper: PUT /take 0",
    ] {
        assert_eq!(text(&mut stream).await, refusal);
    }
}

#[tokio::test]
async fn a_large_body_is_hypers() {
    let mut stream = connected().await;
    let len = MAX_SMALL_BODY_BYTES as usize + 1;
    stream.write_all(&put("/take", len)).await.unwrap();
    assert_eq!(text(&mut stream).await, format!("hyper: PUT /take {len}"));
}

#[tokio::test]
async fn a_client_that_ends_its_data_within_its_body_gets_the_answer_of_hyper() {
    let mut stream = connected().await;
    stream.write_all(&put("/take", 1000)[..700]).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
    let rest = String::from_utf8(rest).unwrap();
    assert!(rest.contains("by: hyper") && rest.ends_with("broken"), "{rest}");
}

#[tokio::test]
async fn a_request_after_a_body_that_came_in_parts_is_answered() {
    let mut stream = connected().await;
    let first = put("/take", 9_000);
    for part in [&first[..50], &first[50..100], &first[100..]] {
        stream.write_all(part).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    stream.write_all(get("/quick/1").as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, "take: 9000 bytes");
    assert_eq!(text(&mut stream).await, "quick: q");
}

#[tokio::test]
async fn a_client_that_sends_nothing_more_of_its_body_is_let_go() {
    let mut stream = connected().await;
    stream.write_all(&put("/take", 1000)[..700]).await.unwrap();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(10 * HEAD_TIMEOUT, stream.read_to_end(&mut rest));
    let _ = end.await.expect("the server closes it");
    assert_eq!(String::from_utf8(rest).unwrap(), "");
}

#[tokio::test]
async fn what_was_taken_and_has_no_answer_ends_the_connection() {
    let mut stream = connected().await;
    let all = [put("/take/none", 10), get("/quick/1").into_bytes()];
    stream.write_all(&all.concat()).await.unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert_eq!(String::from_utf8(rest).unwrap(), "");
}

/// Sends the beginning of a PUT, then the rest byte by byte; returns everything received until the
/// end.
async fn dripped(path: &str, len: usize) -> String {
    let (mut reads, mut writes) = connected().await.into_split();
    let all = put(path, len);
    writes.write_all(&all[..200]).await.unwrap();
    let dripping = async {
        for byte in &all[200..] {
            tokio::time::sleep(HEAD_TIMEOUT / 30).await;
            if writes.write_all(&[*byte]).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    let mut answer = Vec::new();
    let ended = async {
        tokio::select! {
            _ = reads.read_to_end(&mut answer) => {}
            () = dripping => {}
        }
    };
    tokio::time::timeout(10 * HEAD_TIMEOUT, ended).await.expect("the server closes it");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn a_client_that_sends_its_body_byte_by_byte_is_let_go() {
    let (taken, read) = tokio::join!(dripped("/take", 10_000), dripped("/other", 100_000));
    assert_eq!(taken, "");
    assert!(read.ends_with("broken"), "{read}");
}
