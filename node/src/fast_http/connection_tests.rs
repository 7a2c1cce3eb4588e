//! Tests of a connection that answers some requests below `hyper`, from the client's side.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::{Method, Uri};
use bytes::Bytes;
use forebay_core::request::RequestId;
use futures::StreamExt;
use http_body_util::BodyExt;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::accept;
use super::connection::FastPath;
use super::head::RequestHead;
use super::piece::{FilePart, Held, Instead, Piece};
use super::response_writer::{FastAnswer, StreamedAnswer};
use super::small_body::Taker;
use crate::drain::{DrainedBody, Waits};
use crate::exchange::Exchange;
use crate::listener::Peer;
use crate::stall::ClientPace;

pub(crate) const HEAD_TIMEOUT: Duration = Duration::from_secs(3);
/// Longer than `HEAD_TIMEOUT`: a client may read slowly for longer than it may be idle.
pub(crate) const PACE: ClientPace =
    ClientPace { timeout: Duration::from_secs(6), bytes_per_second: 1 << 10 };

/// A request that nobody measures.
fn exchange() -> Exchange {
    let peer = Peer(IpAddr::from([127, 0, 0, 1]));
    Exchange::begin(&Arc::default(), RequestId(1), Method::GET, Uri::from_static("/"), peer)
}

/// Answers `/quick/LENGTH` with that many bytes, `/pieces/LENGTH` with bytes and a file in turns,
/// `/short/LENGTH` with fewer bytes than announced, `/broken/LENGTH` with an error in the middle;
/// `/later` after a while; anything else is not answered.
struct Lengths;

impl FastPath for Lengths {
    fn answer(&self, request: &RequestHead<'_, '_>, out: &mut Vec<u8>) -> Option<FastAnswer> {
        if request.target == "/later" {
            return Some(FastAnswer::Streamed(Box::pin(async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                None
            })));
        }
        let (how, len) = request.target.strip_prefix('/')?.split_once('/')?;
        let len: usize = len.parse().ok()?;
        let head = format!("HTTP/1.1 200 OK\r\nby: {how}\r\ncontent-length: {len}\r\n\r\n");
        if how == "quick" {
            out.extend_from_slice(head.as_bytes());
            return Some(FastAnswer::Whole(vec![b'q'; len].into()));
        }
        let end: Option<forebay_core::Result<Piece>> = match how {
            "pieces" => None,
            "short" => Some(Ok(Bytes::new().into())),
            "broken" => Some(Err(forebay_core::Error::internal("damaged"))),
            _ => return None,
        };
        let most = if end.is_some() { len / 2 } else { len };
        Some(FastAnswer::Streamed(Box::pin(async move {
            tokio::task::yield_now().await;
            let body = futures::stream::iter(pieces(most).into_iter().map(Ok).chain(end)).boxed();
            Some(StreamedAnswer { head: head.into(), len: len as u64, body })
        })))
    }

    /// Accepts requests to `/take`, and answers what was received; `/take/none` gives no answer.
    fn take(&self, request: &RequestHead<'_, '_>) -> Option<Taker> {
        let none = request.target.strip_prefix("/take")? == "/none";
        Some(Box::new(move |body| {
            Box::pin(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let read = format!("{} bytes", body.len());
                assert!(body == content(body.len()));
                let head = format!(
                    "HTTP/1.1 200 OK\r\nby: take\r\ncontent-length: {}\r\n\r\n",
                    read.len()
                );
                let len = read.len() as u64;
                let body = futures::stream::iter([Ok(Piece::from(Bytes::from(read)))]).boxed();
                (!none).then(|| StreamedAnswer { head: head.into(), len, body })
            })
        }))
    }
}

/// The content that [`Lengths`] sends.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / 7 % 251) as u8).collect()
}

/// A file whose bytes from 900,000 on become unavailable just before they are sent.
struct OnDisk(std::fs::File);

impl AsFd for OnDisk {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Held for OnDisk {
    fn is_here(&self, start: u64, _: u64) -> bool {
        start < 900_000
    }
}

/// The same content, every second piece from a file.
fn pieces(len: usize) -> Vec<Piece> {
    let content = content(len);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&content).unwrap();
    let file = Arc::new(OnDisk(file));
    let starts = (0..len).step_by(200_000);
    let pieces = starts.map(|start| {
        let end = (start + 200_000).min(len);
        match start / 200_000 % 2 {
            0 => {
                let (start, end) = (start as u64, end as u64);
                let content = content.clone();
                let instead = move |from: u64| {
                    let rest = Bytes::copy_from_slice(&content[from as usize..end as usize]);
                    futures::stream::iter([Ok(Piece::from(rest))]).boxed()
                };
                let instead: Option<Instead> = Some(Box::new(instead));
                // The last check of the page cache is too old.
                let seen = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
                Piece::File(FilePart { file: file.clone(), start, end, seen, instead })
            }
            _ => Bytes::copy_from_slice(&content[start..end]).into(),
        }
    });
    pieces.collect()
}

/// Answers with the request and the length of its body; `/large` is 3 MB, `/drain` reads nothing.
async fn slow(request: Request<DrainedBody>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let what = format!("{} {}", parts.method, parts.uri.path());
    let body = match parts.uri.path() {
        "/large" => Body::from(vec![b'l'; 3_000_000]),
        "/unread" => Body::from(what),
        "/huge" => Body::from(vec![b'l'; 40_000_000]),
        "/wait" => {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Body::from(what)
        }
        _ => match body.collect().await {
            Ok(read) => Body::from(format!("{what} {}", read.to_bytes().len())),
            Err(_) => Body::from("broken"),
        },
    };
    Response::builder().header("by", "hyper").body(body).unwrap()
}

pub(crate) async fn connected() -> TcpStream {
    connected_to(true).await
}

/// A connection to a server with the fast path on or off.
pub(crate) async fn connected_to(is_on: bool) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let (stream, head_timer, progress) = accept(stream, Lengths, PACE, HEAD_TIMEOUT, is_on);
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let progress = progress.clone();
            let refusal = progress.refusal();
            let request = request.map(|body| DrainedBody::new(body, Waits::new(false), PACE));
            async move {
                let answer = match refusal {
                    Some(_) => Response::new(Body::from("refused")),
                    None => slow(request).await,
                };
                Ok::<_, Infallible>(answer.map(|body| progress.watch(body, exchange())))
            }
        });
        let _ = hyper::server::conn::http1::Builder::new()
            .timer(head_timer)
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(TokioIo::new(stream), service)
            .await;
    });
    TcpStream::connect(address).await.unwrap()
}

/// The next answer: its server, and its body.
async fn answer(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let value = |name: &str| {
        let line = head.lines().find(|line| line.to_ascii_lowercase().starts_with(name));
        line.map(|line| line.split(": ").nth(1).unwrap().to_owned()).unwrap_or_default()
    };
    let mut body = vec![0; value("content-length").parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    (value("by"), body)
}

pub(crate) async fn text(stream: &mut TcpStream) -> String {
    let (by, body) = answer(stream).await;
    format!("{by}: {}", String::from_utf8(body).unwrap())
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[tokio::test]
async fn both_answer_on_one_connection_in_turns() {
    let mut stream = connected().await;
    for _ in 0..5 {
        stream.write_all(get("/quick/3").as_bytes()).await.unwrap();
        assert_eq!(text(&mut stream).await, "quick: qqq");
        stream.write_all(get("/quick/none").as_bytes()).await.unwrap();
        assert_eq!(text(&mut stream).await, "hyper: GET /quick/none 0");
        stream.write_all(get("/wait").as_bytes()).await.unwrap();
        assert_eq!(text(&mut stream).await, "hyper: GET /wait");
    }
}

#[tokio::test]
async fn a_fast_path_that_is_off_leaves_every_request_to_hyper() {
    let mut stream = connected_to(false).await;
    let put = "PUT /take HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc";
    let all = format!("{}{put}{}", get("/quick/5"), get("/wait"));
    stream.write_all(all.as_bytes()).await.unwrap();
    for expected in ["hyper: GET /quick/5 0", "hyper: PUT /take 3", "hyper: GET /wait"] {
        assert_eq!(text(&mut stream).await, expected);
    }
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let mut stream = connected().await;
    let asked = ["/quick/1", "/wait", "/quick/2", "/quick/3", "/a", "/b", "/large", "/quick/20000"];
    let all: String = asked.iter().map(|path| get(path)).collect();
    stream.write_all(all.as_bytes()).await.unwrap();
    for path in asked {
        let (by, body) = answer(&mut stream).await;
        match path.strip_prefix("/quick/") {
            Some(len) => assert_eq!((&*by, body.len()), ("quick", len.parse().unwrap())),
            None if path == "/large" => assert_eq!((&*by, body.len()), ("hyper", 3_000_000)),
            None => {
                assert!(by == "hyper" && body.starts_with(format!("GET {path}").as_bytes()));
            }
        }
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_its_answers_back_and_gets_them_all() {
    let mut stream = connected().await;
    let (count, len) = (3_000, 10_000);
    let (mut reading, mut writing) = stream.split();
    let asked = get(&format!("/quick/{len}")).repeat(count);
    let asking = async {
        writing.write_all(asked.as_bytes()).await.unwrap();
    };
    let answers = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let one = "HTTP/1.1 200 OK\r\nby: quick\r\ncontent-length: 10000\r\n\r\n".len() + len;
        let mut all = vec![0; one * count];
        reading.read_exact(&mut all).await.unwrap();
        assert!(all.chunks(one).all(|answer| answer == &all[..one]));
    };
    tokio::join!(asking, answers);
}

#[tokio::test]
async fn a_request_head_may_arrive_in_pieces() {
    let mut stream = connected().await;
    for path in ["/quick/2", "/slow", "/quick/4"] {
        for byte in get(path).as_bytes() {
            stream.write_all(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        let read = text(&mut stream).await;
        assert!(read == "quick: qq" || read == "quick: qqqq" || read == "hyper: GET /slow 0");
    }
}

#[tokio::test]
async fn requests_in_a_body_are_bytes() {
    let mut stream = connected().await;
    let inner = get("/quick/9");
    let put =
        format!("PUT /in HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{inner}", inner.len());
    stream.write_all((put.clone() + &get("/quick/1") + &put).as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, format!("hyper: PUT /in {}", inner.len()));
    assert_eq!(text(&mut stream).await, "quick: q");
    assert_eq!(text(&mut stream).await, format!("hyper: PUT /in {}", inner.len()));
    // A body without an announced length; between its chunks, and as its trailer, too.
    let chunked = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
    let put = format!("PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}");
    stream.write_all((put + &get("/quick/1")).as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, format!("hyper: PUT /c {}", inner.len()));
    assert_eq!(text(&mut stream).await, "quick: q");
}

#[tokio::test]
async fn chunked_bodies_of_any_size_leave_the_connection_to_the_next_request() {
    let mut stream = connected().await;
    for sizes in [&[1_000_000, 3, 70_000][..], &[1; 500], &[], &[8191, 8192, 8193]] {
        let head = "PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let mut all = head.as_bytes().to_vec();
        for size in sizes {
            all.extend_from_slice(format!("{size:X};x=y\r\n").as_bytes());
            all.extend(std::iter::repeat_n(b'b', *size));
            all.extend_from_slice(b"\r\n");
        }
        all.extend_from_slice(b"0\r\nsum: 1\r\n\r\n");
        all.extend_from_slice(get("/quick/2").as_bytes());
        let (mut reading, mut writing) = stream.split();
        let sent = async { writing.write_all(&all).await.unwrap() };
        let answers = async {
            let mut read = Vec::new();
            while !read.ends_with(b"qq") {
                assert!(reading.read_buf(&mut read).await.unwrap() > 0, "{read:?}");
            }
            String::from_utf8(read).unwrap()
        };
        let (read, ()) = tokio::join!(answers, sent);
        let size: usize = sizes.iter().sum();
        assert!(read.contains(&format!("PUT /c {size}")) && read.contains("by: quick"), "{read}");
    }
}

#[tokio::test]
async fn a_request_that_is_refused_by_its_head_is_answered_and_ends_the_connection() {
    let both = "Content-Length: 20\r\nTransfer-Encoding: chunked\r\n";
    let many: String = (0..100).map(|n| format!("h{n}: x\r\n")).collect();
    let long = format!("long: {}\r\n", "x".repeat(30_000));
    let chunked = "PUT /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for before in [String::new(), get("/quick/1"), chunked.to_owned()] {
        for lines in ["", "Host: a\r\nHost: b\r\n"].map(str::to_owned).into_iter().chain([
            format!("Host: h\r\n{both}"),
            format!("Host: h\r\n{many}{both}"),
            format!("{long}Host: h\r\n{both}"),
            "Host: h\r\nTransfer-Encoding: gzip\r\n".to_owned(),
        ]) {
            let mut stream = connected().await;
            let bad = format!("PUT /bad HTTP/1.1\r\n{lines}\r\n0\r\n\r\n{}", get("/quick/1"));
            stream.write_all((before.clone() + &bad).as_bytes()).await.unwrap();
            let mut all = String::new();
            stream.read_to_string(&mut all).await.unwrap();
            let answers = all.matches("HTTP/1.1 ").count();
            assert_eq!(answers, 1 + usize::from(!before.is_empty()), "{lines}: {all}");
            assert!(all.ends_with("refused"), "{lines}: {all}");
        }
    }
}

#[tokio::test]
async fn a_large_body_goes_through_whole() {
    let mut stream = connected().await;
    let (body, len) = (vec![b'b'; 5_000_000], 5_000_000);
    let head = format!("PUT /large-in HTTP/1.1\r\nHost: h\r\nContent-Length: {len}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&body).await.unwrap();
    stream.write_all(get("/quick/2").as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, format!("hyper: PUT /large-in {len}"));
    assert_eq!(text(&mut stream).await, "quick: qq");
}

#[tokio::test]
async fn a_body_that_nobody_reads_is_not_taken_for_requests() {
    let mut stream = connected().await;
    let inner = get("/quick/9");
    let put =
        format!("PUT /unread HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n", 2 * inner.len());
    stream.write_all((put + &inner).as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, "hyper: PUT /unread");
    // The rest of the body; the connection may fail now, but there is no answer.
    let _ = stream.write_all(inner.as_bytes()).await;
    let mut rest = Vec::new();
    let _ = tokio::time::timeout(Duration::from_millis(300), stream.read_to_end(&mut rest)).await;
    assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
}

#[tokio::test]
async fn what_is_no_request_is_refused_by_hyper() {
    let mut stream = connected().await;
    stream.write_all(get("/quick/1").as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, "quick: q");
    stream.write_all(b"no request at all\r\n\r\n").await.unwrap();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.starts_with("HTTP/1.1 400"), "{rest}");
}

#[tokio::test]
async fn a_head_longer_than_what_is_read_ahead_is_hypers() {
    let mut stream = connected().await;
    let long = format!("GET /quick/1 HTTP/1.1\r\nHost: h\r\nlong: {}\r\n\r\n", "x".repeat(20_000));
    stream.write_all(long.as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, "hyper: GET /quick/1 0");
}

#[tokio::test]
async fn a_client_that_closes_its_side_gets_what_it_asked_for() {
    let mut stream = connected().await;
    stream.write_all(get("/quick/1").repeat(100).as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).await.unwrap();
    assert_eq!(all.matches("\r\n\r\nq").count(), 100);
}

#[tokio::test]
async fn a_connection_without_requests_ends_and_one_with_them_stays() {
    let mut stream = connected().await;
    for _ in 0..4 {
        tokio::time::sleep(HEAD_TIMEOUT / 2).await;
        stream.write_all(get("/quick/1").as_bytes()).await.unwrap();
        assert_eq!(text(&mut stream).await, "quick: q");
    }
    stream.write_all(b"GET /quick/1 HT").await.unwrap();
    let mut rest = Vec::new();
    let end = tokio::time::timeout(10 * HEAD_TIMEOUT, stream.read_to_end(&mut rest));
    let _ = end.await.expect("the server closes it");
}

#[tokio::test]
async fn bodies_come_from_memory_and_from_files_in_their_order() {
    let mut stream = connected().await;
    let asked = ["/pieces/1500001", "/quick/2", "/pieces/0", "/later", "/pieces/200000", "/wait"];
    let all: String = asked.iter().map(|path| get(path)).collect();
    stream.write_all(all.as_bytes()).await.unwrap();
    for path in asked {
        let (by, body) = answer(&mut stream).await;
        match path.strip_prefix("/pieces/") {
            Some(len) => assert!(by == "pieces" && body == content(len.parse().unwrap()), "{path}"),
            None if path == "/quick/2" => assert_eq!((&*by, &*body), ("quick", &b"qq"[..])),
            None => assert!(by == "hyper" && body.starts_with(format!("GET {path}").as_bytes())),
        }
    }
}

#[tokio::test]
async fn a_slow_reader_of_a_large_body_is_waited_for() {
    let mut stream = connected().await;
    stream.write_all(get("/pieces/9000000").as_bytes()).await.unwrap();
    tokio::time::sleep(HEAD_TIMEOUT * 3 / 2).await;
    assert!(answer(&mut stream).await.1 == content(9_000_000));
    stream.write_all(get("/quick/1").as_bytes()).await.unwrap();
    assert_eq!(text(&mut stream).await, "quick: q");
}

#[tokio::test]
async fn a_body_that_cannot_be_ended_ends_the_connection_short_of_its_length() {
    for path in ["/short/900000", "/broken/900000"] {
        let mut stream = connected().await;
        stream.write_all((get(path) + &get("/quick/1")).as_bytes()).await.unwrap();
        let mut all = Vec::new();
        let end = tokio::time::timeout(10 * HEAD_TIMEOUT, stream.read_to_end(&mut all));
        let _ = end.await.expect("the server closes it");
        assert!(all.len() < 900_000 && !all.ends_with(b"q"), "{path}: {}", all.len());
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_let_go() {
    // By `hyper`, from memory, and from files; by `hyper` alone.
    let requests =
        [(true, "/huge"), (true, "/quick/40000000"), (true, "/pieces/40000000"), (false, "/huge")];
    let drain = requests.map(|(is_on, path)| async move {
        let mut stream = connected_to(is_on).await;
        stream.write_all(get(path).as_bytes()).await.unwrap();
        // The write fails once the connection is closed.
        while stream.write_all(b"G").await.is_ok() {
            tokio::time::sleep(HEAD_TIMEOUT / 50).await;
        }
    });
    let closed = futures::future::join_all(drain);
    tokio::time::timeout(10 * HEAD_TIMEOUT, closed).await.expect("the server closes them");
}
