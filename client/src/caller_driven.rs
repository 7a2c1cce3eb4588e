//! Connections that the reader of an answer drives itself: no other task stands between the reader
//! and the socket. Large answers need no thread switch for each chunk, and their chunks reuse one
//! buffer that stays in the CPU's caches.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::locks::MutexExt;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Parts};
use hyper_util::rt::TokioIo;

use crate::body::Upload;
use crate::error::{Error, Reason};
use crate::tls::{ClientStream, Connector, TlsProblem};

/// Bytes read from a socket at once.
pub(crate) const READ: usize = 128 << 10;
/// Maximum number of idle connections kept to one node.
const MAX_IDLE_CONNECTIONS: usize = 64;
/// How long an idle connection is kept: slightly shorter than the node's own idle timeout.
const KEEP_IDLE: Duration = Duration::from_secs(20);

/// Why there is no answer.
pub(crate) enum Failure {
    Connect(io::Error),
    Broken(io::Error),
}

impl Failure {
    /// As the failure of a request to the node at `base`.
    pub(crate) fn of(self, base: &str) -> Error {
        let endpoint = base.to_owned();
        let (Self::Connect(e) | Self::Broken(e)) = &self;
        if let Some(problem) = TlsProblem::of(base, e) {
            return Error::Tls(problem);
        }
        let source = Reason::of(e);
        match &self {
            Self::Connect(e) => {
                Error::Connect { endpoint, is_refused: Reason::is_refusal(e), source }
            }
            Self::Broken(_) => Error::Broken { endpoint, source },
        }
    }
}

/// A pool of caller-driven connections. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct CallerDrivenPool {
    connector: Connector,
    idle: Idle,
}

/// Idle connections by the scheme and authority of their node.
type Idle = Arc<Mutex<HashMap<String, Vec<(Instant, Connection)>>>>;

impl CallerDrivenPool {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, idle: Idle::default() }
    }

    /// Sends a request, which must be idempotent, and waits for the head of its answer. The body
    /// arrives while its [`Driver`] is driven.
    pub(crate) async fn send(
        &self,
        request: Request<Bytes>,
    ) -> Result<(Response<Incoming>, Driver), Failure> {
        let origin = origin(request.uri());
        while let Some(mut connection) = self.kept(&origin) {
            if !connection.is_usable().await {
                continue;
            }
            // The node may close this connection at the same moment; that says nothing about the
            // request.
            if let Ok(answer) = connection.exchange(&request).await {
                return Ok((answer, self.driver(origin, connection)));
            }
        }
        let mut connection = self.connect(request.uri()).await?;
        let answer = connection.exchange(&request).await.map_err(broken)?;
        Ok((answer, self.driver(origin, connection)))
    }

    fn driver(&self, origin: String, connection: Connection) -> Driver {
        Driver { connection, home: Home { origin, idle: self.idle.clone() } }
    }

    fn kept(&self, origin: &str) -> Option<Connection> {
        let mut idle = self.idle.locked();
        let list = idle.get_mut(origin)?;
        list.retain(|(since, _)| since.elapsed() < KEEP_IDLE);
        list.pop().map(|(_, connection)| connection)
    }

    async fn connect(&self, url: &Uri) -> Result<Connection, Failure> {
        let stream = self.connector.connect(url).await.map_err(Failure::Connect)?;
        Connection::over(stream).await.map_err(broken)
    }
}

fn broken(error: hyper::Error) -> Failure {
    Failure::Broken(io::Error::other(error))
}

/// Scheme and authority of a URL.
fn origin(url: &Uri) -> String {
    let authority = url.authority().map_or("", |a| a.as_str());
    format!("{}://{authority}", url.scheme_str().unwrap_or("http"))
}

/// One connection; it makes progress only while it is polled.
struct Connection {
    sender: http1::SendRequest<Upload>,
    http: Http,
    is_plain: bool,
}

/// `None` once it is over.
type Http = Option<Box<http1::Connection<TokioIo<ClientStream>, Upload>>>;

/// Makes all progress that is possible now. The sender and the body report how the connection
/// ended.
fn drive(http: &mut Http, cx: &mut Context<'_>) {
    if http.as_mut().is_some_and(|http| Pin::new(&mut **http).poll(cx).is_ready()) {
        *http = None;
    }
}

impl Connection {
    /// Starts HTTP on a stream that has no request in progress.
    async fn over(stream: ClientStream) -> hyper::Result<Self> {
        let is_plain = stream.is_plain();
        let mut http = http1::Builder::new();
        http.read_buf_exact_size(Some(READ));
        let (sender, http) = http.handshake(TokioIo::new(stream)).await?;
        Ok(Self { sender, http: Some(Box::new(http)), is_plain })
    }

    /// Whether the connection is open and its last answer is complete.
    async fn is_usable(&mut self) -> bool {
        poll_fn(|cx| {
            drive(&mut self.http, cx);
            Poll::Ready(self.http.is_some() && self.sender.is_ready())
        })
        .await
    }

    async fn exchange(&mut self, request: &Request<Bytes>) -> hyper::Result<Response<Incoming>> {
        let mut answer = pin!(self.sender.send_request(for_the_wire(request)));
        poll_fn(|cx| match answer.as_mut().poll(cx) {
            Poll::Pending => {
                drive(&mut self.http, cx);
                answer.as_mut().poll(cx)
            }
            ready => ready,
        })
        .await
    }
}

/// The request with its path alone, and its host in a header.
fn for_the_wire(request: &Request<Bytes>) -> Request<Upload> {
    let (mut parts, body) = request.clone().into_parts();
    let host = parts.uri.authority().map(|a| HeaderValue::from_str(a.as_str()));
    if let Some(Ok(host)) = host {
        parts.headers.insert(HOST, host);
    }
    let path = parts.uri.path_and_query().cloned();
    parts.uri = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Request::from_parts(parts, Upload::from(body))
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Connection")
    }
}

/// Drives the body of one answer. Dropping it before the end of the body closes the connection.
pub(crate) struct Driver {
    connection: Connection,
    home: Home,
}

impl Driver {
    /// Makes all progress that is possible now; wakes the task when more is possible.
    pub(crate) fn drive(&mut self, cx: &mut Context<'_>) {
        drive(&mut self.connection.http, cx);
    }

    /// Returns the connection to the pool after the whole body was read.
    pub(crate) fn release(self) {
        self.home.keep(self.connection);
    }

    /// Whether the bytes on the socket are those of the body, so that [`Self::bare`] helps.
    pub(crate) fn is_plain(&self) -> bool {
        self.connection.is_plain
    }

    /// Takes a plain connection out of HTTP, unless it has ended; body bytes received so far stay
    /// in the body.
    pub(crate) fn bare(self) -> Option<Bare> {
        let Parts { io, read_buf, .. } = self.connection.http?.into_parts();
        let ClientStream::Plain(stream) = io.into_inner() else { return None };
        Some(Bare { stream, ahead: read_buf, home: self.home })
    }
}

/// A raw connection in the middle of an answer's body. Dropping it closes it.
pub(crate) struct Bare {
    pub(crate) stream: tokio::net::TcpStream,
    /// Bytes that were read from the socket and not delivered yet.
    pub(crate) ahead: Bytes,
    home: Home,
}

impl Bare {
    /// Returns the connection to the pool after the whole body was read.
    pub(crate) async fn release(self) {
        if let Ok(connection) = Connection::over(ClientStream::Plain(self.stream)).await {
            self.home.keep(connection);
        }
    }
}

/// The pool entry that a connection returns to when it is idle.
struct Home {
    origin: String,
    idle: Idle,
}

impl Home {
    fn keep(self, connection: Connection) {
        if connection.http.is_none() {
            return;
        }
        let mut idle = self.idle.locked();
        let list = idle.entry(self.origin).or_default();
        if list.len() < MAX_IDLE_CONNECTIONS {
            list.push((Instant::now(), connection));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures::StreamExt;
    use http::{Method, StatusCode};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::transport::{Download, Transport, request};

    /// The script of one connection: the node sends these bytes for each request, then closes it.
    type Script = &'static [&'static [u8]];

    const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n12345";
    const HALF: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n12345";
    const CHUNKS: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n12\r\n3\r\n345\r\n0\r\n\r\n";

    /// A node that plays one script for each connection and reports when the client of a connection
    /// has gone.
    async fn node(scripts: &'static [Script]) -> (String, tokio::sync::mpsc::Receiver<usize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (gone, is_gone) = tokio::sync::mpsc::channel(10);
        tokio::spawn(async move {
            for (number, script) in scripts.iter().enumerate() {
                let (mut stream, _) = listener.accept().await.unwrap();
                for answer in *script {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.unwrap());
                    }
                    assert!(head.starts_with(b"POST /p HTTP/1.1\r\n"), "{head:?}");
                    stream.write_all(answer).await.unwrap();
                }
                if script.last() == Some(&HALF) {
                    let left = stream.read(&mut [0; 10]).await;
                    assert!(!matches!(left, Ok(n) if n > 0));
                }
                gone.send(number).await.unwrap();
            }
        });
        (url, is_gone)
    }

    async fn ask(transport: &Transport, url: &str) -> Response<Download> {
        let request = request(Method::POST, url, "/p").body(Bytes::new()).unwrap();
        let answer = transport.send_ok_caller_driven(url, request).await;
        answer.map_err(|(e, _)| e).unwrap()
    }

    fn transport() -> Transport {
        Transport::new(Duration::from_secs(1), Duration::from_secs(5))
    }

    #[tokio::test]
    async fn a_connection_whose_answer_was_read_serves_the_next_request() {
        let (url, _gone) = node(&[&[WHOLE, CHUNKS, WHOLE]]).await;
        let transport = transport();
        for _ in 0..3 {
            let answer = ask(&transport, &url).await;
            assert_eq!(answer.status(), StatusCode::OK);
            assert_eq!(answer.into_body().collect().await.unwrap(), "12345");
        }
    }

    #[tokio::test]
    async fn a_connection_that_its_node_closed_meanwhile_is_replaced() {
        let (url, mut gone) = node(&[&[WHOLE], &[WHOLE]]).await;
        let transport = transport();
        for number in 0..2 {
            let answer = ask(&transport, &url).await;
            assert_eq!(answer.into_body().collect().await.unwrap(), "12345");
            assert_eq!(gone.recv().await, Some(number));
        }
    }

    #[tokio::test]
    async fn an_answer_that_is_dropped_closes_its_connection() {
        let (url, mut gone) = node(&[&[HALF], &[WHOLE]]).await;
        let transport = transport();
        let mut answer = ask(&transport, &url).await.into_body();
        assert_eq!(answer.next().await.unwrap().unwrap(), "12345");
        drop(answer);
        assert_eq!(gone.recv().await, Some(0));
        let answer = ask(&transport, &url).await;
        assert_eq!(answer.into_body().collect().await.unwrap(), "12345");
    }

    #[tokio::test]
    async fn a_node_that_is_not_there_or_silent_is_an_error() {
        let transport = transport().with_idle(Duration::from_millis(100));
        let send = |url: String| {
            let transport = transport.clone();
            async move {
                let request = request(Method::POST, &url, "/p").body(Bytes::new()).unwrap();
                transport.send_ok_caller_driven(&url, request).await.err().unwrap().0
            }
        };
        let (url, _gone) = node(&[]).await;
        tokio::task::yield_now().await;
        assert!(matches!(send(url).await, Error::Connect { .. }));
        let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert!(send(url).await.to_string().contains("no bytes for"));
    }
}
