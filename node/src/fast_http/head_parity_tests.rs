//! Compares the parser of the fast connection with `hyper`: both get the same bytes, and must find
//! the same requests in them. A difference is a way to smuggle a request past one of them.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::http::Uri;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use httparse::EMPTY_HEADER;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::chunks::Chunks;
use super::head::{Kind, MAX_HEAD, MAX_HEADERS, Message, Next, Refusal, next};

/// Names and values of headers.
type Lines = Vec<(String, Vec<u8>)>;

/// A request as `hyper` passes it to its service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    method: String,
    target: String,
    headers: Lines,
    /// `None`: the body ended early, or its coding is invalid.
    body: Option<Vec<u8>>,
}

/// The requests that `hyper` finds in these bytes, and its answers, with the settings of the
/// listener.
async fn by_hyper(bytes: &[u8]) -> (Vec<Seen>, String) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let found = seen.clone();
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let found = found.clone();
        async move {
            let (parts, body) = request.into_parts();
            let headers = parts.headers.iter();
            let mut one = Seen {
                method: parts.method.to_string(),
                target: parts.uri.to_string(),
                headers: headers
                    .map(|(name, value)| (name.to_string(), value.as_bytes().to_vec()))
                    .collect(),
                body: None,
            };
            one.body = body.collect().await.ok().map(|body| body.to_bytes().to_vec());
            found.lock().unwrap().push(one);
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let (mut client, server) = tokio::io::duplex(1 << 20);
    let serving = async move {
        let builder = hyper::server::conn::http1::Builder::new()
            .max_buf_size(MAX_HEAD.max(256 << 10))
            .max_headers(MAX_HEADERS)
            // The client sends no more; the answers must still come.
            .half_close(true)
            .serve_connection(TokioIo::new(server), service);
        let _ = builder.await;
    };
    let talking = async move {
        let _ = client.write_all(bytes).await;
        let _ = client.shutdown().await;
        let mut answers = Vec::new();
        let _ = client.read_to_end(&mut answers).await;
        String::from_utf8_lossy(&answers).into_owned()
    };
    let (answers, ()) = tokio::join!(talking, serving);
    let seen = seen.lock().unwrap().clone();
    (seen, answers)
}

/// The first item that the parser of the fast connection finds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Ours {
    Request {
        head: usize,
        /// `None`: chunked.
        body: Option<u64>,
        /// Target and headers, if the fast path may answer the request.
        fast: Option<(&'static str, String, Lines)>,
    },
    Refused(Refusal),
    /// More bytes are needed.
    More,
    /// `hyper` gets all bytes.
    Undecided,
}

fn by_us(bytes: &[u8]) -> Ours {
    let mut headers = vec![EMPTY_HEADER; MAX_HEADERS];
    match next(bytes, &mut headers) {
        Next::Message(Message { head, body, kind }) => {
            let (method, asked) = match &kind {
                Kind::Get(asked) => ("GET", Some(asked)),
                Kind::Put(asked) => ("PUT", Some(asked)),
                Kind::Other => ("", None),
            };
            let fast = asked.map(|asked| {
                let lines = asked.headers().map(|(n, v)| (n.to_ascii_lowercase(), v.to_vec()));
                (method, asked.target.to_owned(), lines.collect())
            });
            Ours::Request { head, body, fast }
        }
        Next::Refused(refused) => Ours::Refused(refused.why),
        Next::More => Ours::More,
        Next::Crowded | Next::Unclear => Ours::Undecided,
    }
}

/// The end of the first request in `bytes`; `None`: it is not there, or the body is invalid.
fn end_of(bytes: &[u8], head: usize, body: Option<u64>) -> Option<usize> {
    match body {
        Some(body) => {
            let end = head.checked_add(usize::try_from(body).ok()?)?;
            (end <= bytes.len()).then_some(end)
        }
        None => {
            let mut chunks = Chunks::new();
            let taken = chunks.take(&bytes[head..]);
            (chunks == Chunks::End).then_some(head + taken)
        }
    }
}

/// Fails if the two parsers disagree about these bytes.
async fn check(bytes: &[u8]) {
    let (seen, answers) = by_hyper(bytes).await;
    let shown = String::from_utf8_lossy(bytes).escape_debug().to_string();
    let shown = &shown[..shown.len().min(600)];
    let ours = by_us(bytes);
    let first = seen.first();
    match &ours {
        Ours::Request { head, body, fast } => {
            if let Some((method, target, headers)) = fast {
                // The handler of the fast path declines a target that is no URI, or has a host.
                if target.parse::<Uri>().is_err() || !target.starts_with('/') {
                    return;
                }
                let first = first.unwrap_or_else(|| panic!("hyper refuses {shown}: {answers}"));
                assert_eq!((first.method.as_str(), &first.target), (*method, target), "{shown}");
                let sorted = |headers: &[(String, Vec<u8>)]| {
                    let mut headers = headers.to_vec();
                    headers.sort();
                    headers
                };
                assert_eq!(sorted(&first.headers), sorted(headers), "{shown}");
            }
            let Some(first) = first else { return };
            let end = end_of(bytes, *head, *body);
            let Some(end) = end else {
                return assert_eq!(first.body, None, "{shown}");
            };
            if first.body.is_none() {
                // `hyper` refuses what follows the last chunk, and with it the connection.
                return assert_eq!(seen.len(), 1, "{shown}");
            }
            if let (Some(_), Some(content)) = (body, &first.body) {
                assert_eq!(content, &bytes[*head..end], "{shown}");
            }
            // Both find the next request at the same byte.
            let (rest, _) = by_hyper(&bytes[end..]).await;
            if seen.len() > 1 {
                assert_eq!(rest.first(), seen.get(1), "{shown}");
            }
        }
        // These are refused before `hyper` sees them, whatever it would do.
        Ours::Refused(_) | Ours::Undecided => {}
        Ours::More => assert!(first.is_none(), "we wait for more of {shown}"),
    }
}

const NEXT: &str = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n";

/// Heads that parsers are known to disagree about, each with what this parser does with it.
fn corpus() -> Vec<(String, &'static str)> {
    let get = |lines: &str| format!("GET /v1/objects/b/o HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
    let put = |lines: &str, body: &str| {
        format!("PUT /v1/objects/b/o HTTP/1.1\r\nHost: h\r\n{lines}\r\n{body}")
    };
    let chunked = "Transfer-Encoding: chunked\r\n";
    let (refused, taken, left) = ("refused", "taken", "left");
    vec![
        (get(""), taken),
        (get("content-length: 0\r\n"), taken),
        (put("Content-Length: 5\r\n", "hello"), taken),
        (put("CONTENT-LENGTH: 5\r\n", "hello"), taken),
        (put("Content-Length:5\r\n", "hello"), taken),
        (put("Content-Length: \t 5 \t\r\n", "hello"), taken),
        (put("Content-Length: 005\r\n", "hello"), taken),
        // Two lengths, or a length and a coding.
        (put("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), refused),
        (put("Content-Length: 5\r\nContent-Length: 6\r\n", "hello"), refused),
        (put("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: chunked\r\ncontent-length:\r\n", "0\r\n\r\n"), refused),
        // Lengths that are no number.
        (put("Content-Length: 5, 5\r\n", "hello"), left),
        (put("Content-Length: +5\r\n", "hello"), left),
        (put("Content-Length: -1\r\n", "hello"), left),
        (put("Content-Length: 0x5\r\n", "hello"), left),
        (put("Content-Length: 5 5\r\n", "hello"), left),
        (put("Content-Length:\r\n", "hello"), left),
        (put("Content-Length: 18446744073709551616\r\n", "hello"), left),
        (put("Content-Length: \u{665}\r\n", "hello"), left),
        // Codings.
        (put(chunked, "5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put("Transfer-Encoding: Chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put("Transfer-Encoding:\tchunked \r\n", "5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put("Transfer-Encoding: identity\r\n", "hello"), refused),
        (put("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: identity, chunked\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), refused),
        (
            put("Transfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n", "0\r\n\r\n"),
            refused,
        ),
        (put("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n"), refused),
        (put("Transfer-Encoding: \u{b}chunked\r\n", "0\r\n\r\n"), left),
        (put("Transfer-Encoding : chunked\r\n", "0\r\n\r\n"), left),
        (put(" Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), left),
        (put("x: y\r\n Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), left),
        (put("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), left),
        (put("Transfer\u{0}-Encoding: chunked\r\n", "0\r\n\r\n"), left),
        (put("Transfer_Encoding: chunked\r\n", ""), taken),
        // Chunks.
        (put(chunked, "5;ext=1\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "5;ext=\"\n\"\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "5\nhello\n0\n\n"), "chunked"),
        (put(chunked, "5 \r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, " 5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "+5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "0x5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "5\r\nhelloX\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "5\r\nhello0\r\n\r\n"), "chunked"),
        (put(chunked, "FFFFFFFFFFFFFFFFF\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "00000000000000005\r\nhello\r\n0\r\n\r\n"), "chunked"),
        (put(chunked, "0\r\nContent-Length: 5\r\n\r\n"), "chunked"),
        (put(chunked, "0\r\nsum: 1\n\n"), "chunked"),
        (put(chunked, "0\r\n\r"), "chunked"),
        (put(chunked, "5\r\nhello\r\n"), "chunked"),
        (put(chunked, "\r\n5\r\nhello\r\n0\r\n\r\n"), "chunked"),
        // Lines.
        ("GET /v1/objects/b/o HTTP/1.1\nHost: h\n\n".into(), taken),
        ("GET /v1/objects/b/o HTTP/1.1\rHost: h\r\r".into(), left),
        (get("x: a\rb\r\n"), left),
        (get("x: a\nb: c\r\n"), taken),
        (get("x: a\u{0}b\r\n"), left),
        (get("x: a\u{7f}b\r\n"), left),
        (get("x: \u{e4}\r\n"), taken),
        (get("\u{e4}: x\r\n"), left),
        (get("x : y\r\n"), left),
        (get(": y\r\n"), left),
        (get("no colon\r\n"), left),
        (get("x: y\r\n z\r\n"), left),
        (format!("\r\n\r\n{}", get("")), taken),
        (format!(" {}", get("")), left),
        // Request lines.
        ("GET  /v1/objects/b/o HTTP/1.1\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o  HTTP/1.1\r\nHost: h\r\n\r\n".into(), left),
        ("GET\t/v1/objects/b/o HTTP/1.1\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o HTTP/1.1 \r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o HTTP/2.0\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o HTTP/1.2\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o http/1.1\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/o\u{0} HTTP/1.1\r\nHost: h\r\n\r\n".into(), left),
        ("GET /v1/objects/b/\u{e4} HTTP/1.1\r\nHost: h\r\n\r\n".into(), taken),
        ("GET /v1/objects/b/\"{}|^` HTTP/1.1\r\nHost: h\r\n\r\n".into(), taken),
        ("GET /v1/objects/b/o#f HTTP/1.1\r\nHost: h\r\n\r\n".into(), taken),
        ("GET http://h/v1/objects/b/o HTTP/1.1\r\nHost: h\r\n\r\n".into(), taken),
        ("GET v1/objects/b/o HTTP/1.1\r\nHost: h\r\n\r\n".into(), taken),
        ("GET * HTTP/1.1\r\nHost: h\r\n\r\n".into(), taken),
        // Hosts, and versions without.
        ("GET /v1/objects/b/o HTTP/1.1\r\n\r\n".into(), refused),
        (get("Host: h\r\n"), refused),
        (get("HOST: other\r\n"), refused),
        ("GET /v1/objects/b/o HTTP/1.0\r\n\r\n".into(), taken),
        (format!("PUT /v1/objects/b/o HTTP/1.0\r\n{chunked}\r\n0\r\n\r\n"), left),
        // Sizes.
        (get(&"x: y\r\n".repeat(MAX_HEADERS - 1)), taken),
        (get(&"x: y\r\n".repeat(MAX_HEADERS)), left),
        (get(&format!("x: {}\r\n", "y".repeat(60_000))), taken),
        (format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", "y".repeat(60_000)), taken),
    ]
}

#[tokio::test]
async fn both_parsers_find_the_same_requests_in_ambiguous_bytes() {
    for (bytes, expected) in corpus() {
        let found = match by_us(bytes.as_bytes()) {
            Ours::Request { body: None, .. } => "chunked",
            Ours::Request { .. } => "taken",
            Ours::Refused(_) => "refused",
            Ours::Undecided => "left",
            Ours::More => "more",
        };
        let start: String = bytes.chars().take(300).collect();
        assert_eq!(found, expected, "{start:?}");
        check(bytes.as_bytes()).await;
        // With another request after it, which one of the parsers may take for its body.
        check(format!("{bytes}{NEXT}").as_bytes()).await;
    }
}

#[tokio::test]
async fn both_parsers_wait_for_the_same_end_of_a_head() {
    for (bytes, _) in corpus().into_iter().filter(|(bytes, _)| bytes.len() < 300) {
        for end in 0..bytes.len() {
            check(&bytes.as_bytes()[..end]).await;
        }
    }
}

/// `FOREBAY_FUZZ_SECONDS` and `FOREBAY_FUZZ_SEED` as in the fuzz tests of `core`.
#[tokio::test]
async fn fuzz_both_parsers_find_the_same_requests_in_mutated_bytes() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seconds: f64 = number("FOREBAY_FUZZ_SECONDS").unwrap_or(0.5);
    let seed = number("FOREBAY_FUZZ_SEED").unwrap_or(1.0) as u64;
    let mut random = StdRng::seed_from_u64(seed);
    let corpus = corpus();
    let edges = [
        "\r\n",
        "\n",
        "\r",
        " ",
        "\t",
        "\0",
        ":",
        ": ",
        ",",
        ";",
        "0",
        "5\r\n",
        "Content-Length: 5\r\n",
        "Transfer-Encoding: chunked\r\n",
        "Host: h\r\n",
        "HTTP/1.0",
        "\u{e4}",
        "Connection: close\r\n",
        "Expect: 100-continue\r\n",
        NEXT,
    ];
    let started = std::time::Instant::now();
    let mut inputs = 0u64;
    while inputs < 200 || started.elapsed().as_secs_f64() < seconds {
        inputs += 1;
        let (seed_bytes, _) = &corpus[random.random_range(0..corpus.len())];
        if seed_bytes.len() > 2000 {
            continue;
        }
        let mut bytes = seed_bytes.as_bytes().to_vec();
        for _ in 0..random.random_range(1..4) {
            let at = random.random_range(0..=bytes.len());
            match random.random_range(0..4) {
                0 => bytes.insert(at, random.random()),
                1 => drop(bytes.drain(at..(at + 2).min(bytes.len()))),
                2 if at < bytes.len() => bytes[at] ^= 1 << random.random_range(0..8),
                _ => {
                    let edge = edges[random.random_range(0..edges.len())].bytes();
                    drop(bytes.splice(at..at, edge));
                }
            }
        }
        bytes.extend_from_slice(NEXT.as_bytes());
        check(&bytes).await;
    }
}
