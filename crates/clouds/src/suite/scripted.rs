//! A server that plays cases that no emulator has: rejections, lost responses, odd pages.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// One request, as received by the server.
pub(super) struct Asked {
    pub(super) line: String,
    pub(super) headers: String,
    pub(super) body: usize,
    pub(super) content: Vec<u8>,
}

/// First lines of the requests so far.
pub(super) type Seen = Arc<Mutex<Vec<String>>>;

/// Responds to each request with the result of `answer`: the head behind "HTTP/1.1 ", then the
/// body. Returns the server's URL.
pub(super) fn serve(
    answer: impl Fn(&Asked) -> (String, String) + Send + 'static,
) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let seen = Seen::default();
    let kept = Arc::clone(&seen);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut line, mut headers) = (String::new(), String::from("\r\n"));
            reader.read_line(&mut line).unwrap();
            while !headers.ends_with("\r\n\r\n") && reader.read_line(&mut headers).unwrap() > 2 {}
            let headers = headers.to_ascii_lowercase();
            let length = headers.split("\r\ncontent-length: ").nth(1);
            let length = length.and_then(|l| l.split("\r\n").next()?.parse().ok()).unwrap_or(0);
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let asked =
                Asked { line: line.trim_end().to_owned(), headers, body: length, content: body };
            kept.lock().unwrap().push(asked.line.clone());
            let (head, text) = answer(&asked);
            let length = text.len();
            let end = format!("content-length: {length}\r\nconnection: close\r\n\r\n");
            let text = if asked.line.starts_with("HEAD") { String::new() } else { text };
            let _ = stream.write_all(format!("HTTP/1.1 {head}\r\n{end}{text}").as_bytes());
        }
    });
    (endpoint, seen)
}

/// Responds to each request with a head of this status, and then bytes without end. Returns the
/// server's URL, and how many bytes clients read.
pub(super) fn serve_endless(status: u16) -> (String, Arc<AtomicU64>) {
    let head = format!("HTTP/1.1 {status} X\r\nconnection: close\r\n\r\n");
    serve_endless_after(head, [b' '; 64 << 10].to_vec())
}

/// As [`serve_endless`], but the head of a response does not end: it has one header after the
/// other.
pub(super) fn serve_endless_heads() -> (String, Arc<AtomicU64>) {
    let header = format!("x-header: {}\r\n", "x".repeat((64 << 10) - 12));
    serve_endless_after("HTTP/1.1 200 X\r\n".into(), header.into_bytes())
}

fn serve_endless_after(head: String, chunk: Vec<u8>) -> (String, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let taken = Arc::<AtomicU64>::default();
    let counted = taken.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let (taken, head, chunk) = (counted.clone(), head.clone(), chunk.clone());
            std::thread::spawn(move || {
                let mut request = BufReader::new(stream.try_clone().unwrap());
                let mut line = String::new();
                while request.read_line(&mut line).is_ok_and(|n| n > 2) {
                    line.clear();
                }
                let mut sent = stream.write_all(head.as_bytes());
                while sent.is_ok() {
                    sent = stream.write_all(&chunk);
                    taken.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    (endpoint, taken)
}
