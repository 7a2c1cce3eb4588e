//! A web server as small as a test needs: a function from requests to answers.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    pub method: String,
    /// Path and query, as they stood in the request.
    pub target: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// A response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: body.into() }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    pub(crate) fn write(&self, to: &mut impl Write) -> Option<()> {
        let mut head = format!("HTTP/1.1 {} x\r\nconnection: close\r\n", self.status);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !matches!(self.status, 204 | 304) {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        to.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        to.write_all(&self.body).ok()?;
        to.flush().ok()
    }
}

impl Received {
    /// Sends it on; its body in one piece.
    pub(crate) fn write(&self, to: &mut impl Write) -> Option<()> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        let length = ["content-length", "transfer-encoding"];
        for (name, value) in self.headers.iter().filter(|(n, _)| !length.contains(&n.as_str())) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if !self.body.is_empty() || matches!(self.method.as_str(), "PUT" | "POST") {
            head.push_str(&format!("content-length: {}\r\n", self.body.len()));
        }
        to.write_all(format!("{head}\r\n").as_bytes()).ok()?;
        to.write_all(&self.body).ok()
    }
}

/// The server; its threads end with the test's process.
pub struct Web {
    pub url: String,
}

impl Web {
    pub fn start(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let answer = Arc::new(answer);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let answer = answer.clone();
                std::thread::spawn(move || serve(stream, &*answer));
            }
        });
        Self { url }
    }
}

/// Serves one request on one connection; an error of the client is ignored.
fn serve(stream: TcpStream, answer: &dyn Fn(&Received) -> Reply) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let received = read(&mut reader)?;
    answer(&received).write(&mut { stream })
}

/// Reads a whole request; `None` if the client closes the connection before its end.
pub(crate) fn read(reader: &mut impl BufRead) -> Option<Received> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let mut words = line.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let mut body = Vec::new();
    if let Some(length) = headers.get("content-length") {
        body.resize(length.parse().ok()?, 0);
        reader.read_exact(&mut body).ok()?;
    } else if headers.contains_key("transfer-encoding") {
        loop {
            line.clear();
            reader.read_line(&mut line).ok()?;
            let size = usize::from_str_radix(line.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            reader.read_exact(&mut chunk).ok()?;
            if size == 0 {
                break;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }
    Some(Received { method, target, headers, body })
}
