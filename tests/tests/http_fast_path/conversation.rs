//! A client over raw TCP: the steps that it takes, and the answers that it receives.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use forebay_core::intra::MAP_HEADER;
use forebay_core::request::REQUEST_ID_HEADER;
use forebay_tests::{Cluster, http};
use forebay_v1::headers::ATIME;

/// Longest wait for bytes of an answer.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Headers whose values differ from one answer to the next, or between clusters by the second in
/// which each of them got the object.
const VARYING: [&str; 5] = ["date", MAP_HEADER, ATIME, "etag", "last-modified"];
/// Headers that have the id of the request, which the body of an error has, too.
const IDS: [&str; 2] = [REQUEST_ID_HEADER, "x-amz-request-id"];
/// The request that shows whether a connection is still open.
const PROBE: &str = "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n";

/// A step of a client.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Vec<u8>),
    SendByteByByte(Vec<u8>),
    /// Reads the answer to a request with this method.
    Read(&'static str),
    /// Ends the data of the client. Answers may follow.
    End,
}

/// The steps of a client over one connection.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    steps: Vec<Step>,
}

/// The bytes that the client received, as answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Received {
    /// One for each step that reads; none after the connection's end.
    pub(super) answers: Vec<Option<Answer>>,
    /// Answers between the last step and the end of the connection. An open connection answers the
    /// probe.
    pub(super) rest: Vec<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status_line: String,
    headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Case {
    pub(super) fn new(name: impl Into<String>, steps: impl Into<Vec<Step>>) -> Self {
        Self { name: name.into(), steps: steps.into() }
    }

    /// One request with one answer.
    pub(super) fn one(
        name: impl Into<String>,
        method: &'static str,
        request: impl Into<Vec<u8>>,
    ) -> Self {
        Self::new(name, [Step::Send(request.into()), Step::Read(method)])
    }

    /// Sends the case to the node of `cluster` at `url`.
    pub(super) fn run(&self, cluster: &Cluster, url: &str) -> Received {
        let address = http::split(url).0;
        let mut client = Client::connect(address, &self.name);
        let (mut answers, mut has_ended) = (Vec::new(), false);
        for step in &self.steps {
            match step {
                Step::Send(bytes) => client.send(bytes),
                Step::SendByteByByte(bytes) => {
                    bytes.iter().for_each(|byte| client.send(std::slice::from_ref(byte)));
                }
                Step::Read(method) => answers.push(client.answer(method)),
                Step::End => {
                    has_ended = true;
                    let _ = client.stream.shutdown(Shutdown::Write);
                }
            }
        }
        if !has_ended {
            client.send(PROBE.as_bytes());
        }
        let rest = std::iter::from_fn(|| client.answer("GET")).collect();
        let received = Received { answers, rest };
        received.without_addresses(cluster)
    }
}

impl Received {
    /// Replaces addresses of nodes and varying values, and removes signatures of URLs.
    fn without_addresses(mut self, cluster: &Cluster) -> Self {
        let nodes = cluster.gateways.iter().chain(&cluster.targets);
        let nodes: Vec<_> =
            nodes.map(|node| (http::split(&node.url).0, node.id.as_str())).collect();
        let replaced = |text: &str| {
            nodes.iter().fold(text.to_owned(), |text, (address, id)| text.replace(address, id))
        };
        for answer in self.answers.iter_mut().flatten().chain(&mut self.rest) {
            let is_id = |name: &str| IDS.iter().any(|id| name.eq_ignore_ascii_case(id));
            // `hyper` refuses a head that it cannot parse without any of our headers.
            let id = answer.headers.iter().find(|(name, _)| is_id(name)).cloned();
            let replaced = |text: &str| match &id {
                Some((_, id)) => replaced(text).replace(id, "*"),
                None => replaced(text),
            };
            answer.body = replaced(&answer.body);
            for (name, value) in &mut answer.headers {
                if VARYING.iter().any(|varying| name.eq_ignore_ascii_case(varying)) {
                    "*".clone_into(value);
                } else if name.eq_ignore_ascii_case("location") {
                    let path = value.split('?').next().unwrap_or_default();
                    *value = replaced(path);
                } else {
                    *value = replaced(value);
                }
            }
            answer.headers.sort();
        }
        self
    }
}

/// A client that reads answers as RFC 9112 bounds them.
struct Client<'a> {
    stream: TcpStream,
    /// Bytes that were received and not read yet.
    ahead: Vec<u8>,
    case: &'a str,
}

impl<'a> Client<'a> {
    fn connect(address: &str, case: &'a str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
        Self { stream, ahead: Vec::new(), case }
    }

    /// A connection that the server has closed takes no bytes; the missing answers show it.
    fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    /// Receives more bytes; false at the end of the connection.
    fn receive(&mut self) -> bool {
        let mut bytes = [0; 64 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(n) => {
                self.ahead.extend_from_slice(&bytes[..n]);
                true
            }
            Err(e) if matches!(e.kind(), std::io::ErrorKind::ConnectionReset) => false,
            Err(e) => panic!("{}: no answer within {READ_TIMEOUT:?}: {e}", self.case),
        }
    }

    /// The next `len` bytes, or all until the end of the connection.
    fn take(&mut self, len: usize) -> Vec<u8> {
        while self.ahead.len() < len && self.receive() {}
        self.ahead.drain(..len.min(self.ahead.len())).collect()
    }

    /// The next bytes with `end`, or all until the end of the connection.
    fn take_to(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.ahead.windows(end.len()).position(|bytes| bytes == end) {
                return self.ahead.drain(..at + end.len()).collect();
            }
            if !self.receive() {
                return std::mem::take(&mut self.ahead);
            }
        }
    }

    /// The answer to a request with this method; `None` at the end of the connection.
    fn answer(&mut self, method: &str) -> Option<Answer> {
        let head = self.take_to(b"\r\n\r\n");
        if head.is_empty() {
            return None;
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let mut lines = head.trim_end().split("\r\n");
        let status_line = lines.next().unwrap_or_default().to_owned();
        let pairs = lines.filter_map(|line| line.split_once(": "));
        let headers: Vec<_> =
            pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let value = |name: &str| {
            let found = headers.iter().find(|(own, _)| own.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        let status = status_line.split(' ').nth(1).unwrap_or_default();
        let body =
            if method == "HEAD" || status.starts_with('1') || ["204", "304"].contains(&status) {
                Vec::new()
            } else if value("transfer-encoding").is_some() {
                self.chunks()
            } else if let Some(len) = value("content-length") {
                self.take(len.parse().unwrap())
            } else {
                self.take(usize::MAX)
            };
        let body = String::from_utf8_lossy(&body).into_owned();
        Some(Answer { status_line, headers, body })
    }

    /// The content of a chunked body. The sizes of the chunks are the server's affair.
    fn chunks(&mut self) -> Vec<u8> {
        let mut content = Vec::new();
        loop {
            let size = self.take_to(b"\r\n");
            let size = std::str::from_utf8(&size).unwrap().trim();
            let Ok(size) = usize::from_str_radix(size, 16) else { return content };
            content.extend(self.take(size));
            self.take_to(b"\r\n");
            if size == 0 {
                return content;
            }
        }
    }
}
