//! A minimal HTTP/1.1 client: one connection per request, no redirects, no retries, and only the
//! headers that the test sets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::request_ids;

/// A request being put together.
#[derive(Clone, Debug)]
pub struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    within: Option<Duration>,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

pub fn request(method: &str, url: &str) -> Request {
    let (headers, body) = (Vec::new(), Vec::new());
    Request { method: method.into(), url: url.into(), headers, body, within: None }
}

pub fn get(url: &str) -> Answer {
    request("GET", url).send()
}

/// `host:port` and the rest of an `http://` URL.
pub fn split(url: &str) -> (&str, &str) {
    let rest = url.strip_prefix("http://").unwrap_or_else(|| panic!("not an http URL: {url}"));
    match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, "/"),
    }
}

/// `host:port` of a node's URL, with or without TLS.
pub fn address_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

impl Request {
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    #[must_use]
    pub fn json(self, value: &serde_json::Value) -> Self {
        self.header("content-type", "application/json").body(value.to_string())
    }

    /// Timeout of connecting and of each read.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.within = Some(timeout);
        self
    }

    /// Sends it and reads the whole answer.
    #[track_caller]
    pub fn send(self) -> Answer {
        let said = format!("{} {}", self.method, self.url);
        self.try_send().unwrap_or_else(|e| panic!("{said}: {e}"))
    }

    pub fn try_send(self) -> std::io::Result<Answer> {
        self.send_in_halves(|| {})
    }

    /// Sends it, and calls `between` when half of the body is sent.
    pub fn send_in_halves(self, between: impl FnOnce()) -> std::io::Result<Answer> {
        let (address, path) = split(&self.url);
        let mut stream = match (self.within, address.parse()) {
            (Some(timeout), Ok(address)) => TcpStream::connect_timeout(&address, timeout)?,
            _ => TcpStream::connect(address)?,
        };
        stream.set_read_timeout(Some(self.within.unwrap_or(Duration::from_secs(60))))?;
        let mut head = format!("{} {path} HTTP/1.1\r\n", self.method);
        if !self.headers.iter().any(|(name, _)| name == "host") {
            head.push_str(&format!("host: {address}\r\n"));
        }
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "PUT" | "POST") {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        head.push_str("connection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        // A server may answer (a redirect, an error) without reading all of the body.
        let (first, rest) = self.body.split_at(self.body.len() / 2);
        let sent = stream.write_all(first);
        between();
        let sent = sent.and_then(|()| stream.write_all(rest));
        let answer = read_answer(stream, &self.method).or_else(|e| sent.and(Err(e)))?;
        request_ids::note(address, format!("{} {}", self.method, self.url), &answer);
        Ok(answer)
    }

    /// Sends it, and follows one redirect (301 or 307).
    #[track_caller]
    pub fn follow(self) -> Answer {
        let first = self.clone().send();
        if !matches!(first.status, 301 | 307) {
            return first;
        }
        let url = first.header("location").expect("a redirect says where to").to_owned();
        Self { url, ..self }.send()
    }
}

fn read_answer(stream: TcpStream, method: &str) -> std::io::Result<Answer> {
    let mut reader = BufReader::new(stream);
    let bad = |what: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, what.to_owned());
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status =
        line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(|| bad("no status"))?;
    let mut headers = Vec::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let mut answer = Answer { status, headers, body: Vec::new() };
    if method == "HEAD" || status == 204 || status == 304 {
        return Ok(answer);
    }
    if answer.header("transfer-encoding").is_some_and(|v| v.eq_ignore_ascii_case("chunked")) {
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let size = line.trim().split(';').next().unwrap_or("");
            let size = usize::from_str_radix(size, 16).map_err(|_| bad("body cut short"))?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk)?;
            if size == 0 {
                return Ok(answer);
            }
            answer.body.extend_from_slice(&chunk[..size]);
        }
    }
    match answer.header("content-length").map(str::to_owned) {
        Some(length) => {
            let length = length.parse().map_err(|_| bad("bad content-length"))?;
            answer.body = vec![0; length];
            reader.read_exact(&mut answer.body)?;
        }
        None => {
            reader.read_to_end(&mut answer.body)?;
        }
    }
    Ok(answer)
}

impl Answer {
    /// A header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// All headers, names in lower case.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("not JSON ({e}): {} {}", self.status, self.text()))
    }

    /// The `message` of an error body.
    #[track_caller]
    pub fn message(&self) -> String {
        self.json()["message"].as_str().expect("an error body has a message").to_owned()
    }
}

/// Value of the first metric line that starts with `start` and has all of `labels`.
pub fn metric(text: &str, start: &str, labels: &[&str]) -> f64 {
    text.lines()
        .filter(|line| line.starts_with(start) && labels.iter().all(|label| line.contains(label)))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}
