//! The HTTP server of both kinds of node: limits, errors in one format, panics confined to their
//! request, and a graceful stop.

use std::convert::Infallible;
use std::future::Future;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::config::LimitsConfig;
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::{Protocol, RequestContext, Route};
use forebay_core::sign::{FORMAT, NODE_AUTH_HEADER, PROOF_FORMAT_PATH};
use forebay_core::state::Role;
use forebay_core::v1::error::ErrorBody;
use forebay_core::v1::headers as v1;
use forebay_core::{Error, ErrorCode, Result};
use futures::FutureExt;
use futures::future::{BoxFuture, Either, Ready};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;
use tower_service::Service;

use crate::activity::User;
use crate::answered::{Answered, NotifyOnDrop};
use crate::connections::{Connection, Connections};
use crate::drain::{DrainedBody, Waits};
use crate::edge::Edge;
use crate::head::{MAX_HEAD, MAX_HEADERS, Refusal};
use crate::head_timeout::{HeadTimeout, HeadTimer};
use crate::lifecycle::Lifecycle;
use crate::quick::QuickServer;
use crate::reply::{self, Failure};
use crate::sender::Sender;
use crate::stall::ClientPace;
use crate::wire::Wire;

pub use crate::head::Asked;
pub use crate::outgoing::{Direct, Streamed};

/// Timeout for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum bytes of an extractor's error text.
const MAX_REJECTION: usize = 8 << 10;

/// Send buffer of a connection in bytes; the kernel doubles it for its own use. Written data stays
/// in the CPU's cache until it is sent: with the kernel's own choice of megabytes a large GET takes
/// twice the CPU time.
const SEND_BUFFER: u32 = 128 << 10;
/// Minimum interval between warnings about connections that are not accepted.
const WARN_INTERVAL: Duration = Duration::from_secs(10);
/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Listens on `address:port`.
pub async fn bind(address: &str) -> Result<TcpListener> {
    listen(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            Error::new(ErrorCode::Conflict, format!("{address} is in use by another process"))
                .hint("choose another port, or stop the process that listens there")
        }
        _ => Error::invalid(format!("cannot listen on {address}: {e}")),
    })
}

/// Listens on the first available address of the name.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let mut refusal = std::io::ErrorKind::AddrNotAvailable.into();
    for address in tokio::net::lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit it.
        socket.set_send_buffer_size(SEND_BUFFER)?;
        match socket.bind(address).and_then(|()| socket.listen(BACKLOG)) {
            Ok(listener) => return Ok(listener),
            Err(e) => refusal = e,
        }
    }
    Err(refusal)
}

/// Ends the connection of a request immediately, even in the middle of an answer. An extension of
/// each request that comes through `hyper`.
#[derive(Clone, Debug, Default)]
pub struct Hangup(CancellationToken);

impl Hangup {
    /// Ends the connection: the client sees a reset.
    pub fn hang_up(&self) {
        self.0.cancel();
    }

    /// Waits until the connection is hung up.
    pub async fn ended(&self) {
        self.0.cancelled().await;
    }
}

/// The address that a request came from.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// Turns requests into answers. Errors are extensions of the answers, as [`Failure`] puts them.
/// Every call gets the context that the [`Edge`] built for the request.
pub trait Handler: Send + Sync + 'static {
    fn answer(
        &self,
        about: RequestContext,
        request: Request,
        peer: Peer,
    ) -> impl Future<Output = Response> + Send;

    /// Answers a GET without `hyper`. If no wait is needed, returns the whole body, with the status
    /// line and headers in `out`; for a large body, returns a stream. Either head omits the final
    /// empty line. `None`, now or later: use [`Self::answer`]; nothing was done or counted.
    fn fast_path(
        &self,
        _about: RequestContext,
        _get: &Asked<'_, '_>,
        _out: &mut Vec<u8>,
    ) -> Option<Direct> {
        None
    }

    /// Accepts a PUT with a small body without `hyper`, before the body has arrived. `None`: use
    /// [`Self::answer`]; nothing was done or counted.
    fn take(&self, _about: RequestContext, _put: &Asked<'_, '_>) -> Option<Take> {
        None
    }
}

/// Answers an accepted PUT once its body has arrived.
pub type Take = Box<dyn FnOnce(Bytes) -> BoxFuture<'static, Response> + Send>;

/// An answer that may be ready already. The future of an answer that waits is on the heap: a
/// request's future is moved into its connection, and a small read should not carry its size.
pub type Answer<'a> = Either<Ready<Response>, BoxFuture<'a, Response>>;

/// The routes of a node; an unknown path gets the v1 error. Handlers find the [`RequestContext`] in
/// the extensions of their request.
pub struct Routes(Router);

impl Routes {
    pub fn new(router: Router, role: Role) -> Self {
        Self(match role {
            Role::Gateway => router.fallback(unknown_to_gateway),
            Role::Target => router.fallback(unknown_to_target),
        })
    }
}

impl Handler for Routes {
    async fn answer(&self, about: RequestContext, mut request: Request, _: Peer) -> Response {
        let is_api = about.protocol != Protocol::Operations;
        request.extensions_mut().insert(about);
        let Ok(response) = self.0.clone().call(request).await;
        let kind = response.headers().get(header::CONTENT_TYPE);
        let is_rejection = response.status().is_client_error() && kind.is_some_and(is_plain_text);
        if is_api && is_rejection { rejection(response).await } else { response }
    }
}

fn is_plain_text(value: &HeaderValue) -> bool {
    value.as_bytes().starts_with(b"text/plain")
}

/// Converts the refusal of an extractor, which is plain text, into an error like all others.
async fn rejection(response: Response) -> Response {
    let (mut parts, body) = response.into_parts();
    if parts.extensions.get::<Error>().is_some() {
        return Response::from_parts(parts, body);
    }
    let text = axum::body::to_bytes(body, MAX_REJECTION).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let error = match parts.status {
        // JSON of another shape is the same client error as invalid JSON.
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::UNSUPPORTED_MEDIA_TYPE => {
            Error::invalid(format!("the request's body cannot be read: {text}"))
        }
        status => Error::new(ErrorCode::from_status(status.as_u16()), text.into_owned()),
    };
    parts.status = StatusCode::from_u16(error.code.status()).unwrap_or(parts.status);
    parts.extensions.insert(error);
    Response::from_parts(parts, Body::empty())
}

/// The state that all connections share.
pub(crate) struct Server<H> {
    pub(crate) handler: H,
    pub(crate) edge: Edge,
    lifecycle: Lifecycle,
    pace: ClientPace,
}

/// Answers with `handler` until the node stops; open connections then finish their request.
pub async fn serve(
    listener: TcpListener,
    handler: impl Handler,
    edge: Edge,
    lifecycle: Lifecycle,
    limits: LimitsConfig,
) {
    let stop = lifecycle.token();
    let connections = Connections::new(limits.connections);
    let pace = ClientPace::of(&limits);
    let server = Arc::new(Server { handler, edge, lifecycle: lifecycle.clone(), pace });
    let mut warned: Option<Instant> = None;
    let mut is_due = || {
        let due = warned.is_none_or(|at| at.elapsed() > WARN_INTERVAL);
        if due {
            warned = Some(Instant::now());
        }
        due
    };
    loop {
        let (stream, from) = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(e) => {
                    // Usually out of descriptors: wait until some are released.
                    if is_due() {
                        tracing::warn!(error = %e, "accept failed");
                    }
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let (peer, server) = (Peer(from.ip()), server.clone());
        match connections.enter(&stop) {
            Ok(entered) => drop(lifecycle.spawn(connection(stream, peer, server, entered))),
            Err(refusal) => {
                if is_due() {
                    let cap = connections.cap();
                    tracing::warn!(cap, "connections are refused: there are as many as may be");
                }
                lifecycle.spawn(async move {
                    refusal.send(stream, &server.edge.identity().label()).await;
                });
            }
        }
    }
}

async fn connection(
    stream: TcpStream,
    peer: Peer,
    server: Arc<Server<impl Handler>>,
    entered: Connection,
) {
    let _ = stream.set_nodelay(true);
    let pace = server.pace;
    let hangup = Hangup::default();
    let ended = hangup.clone();
    let user = Arc::new(OnceLock::new());
    let (answered, head_timeout) =
        (Arc::new(Answered::default()), Arc::new(HeadTimeout::new(HEAD_TIMEOUT)));
    let quick = QuickServer::new(server.clone(), user.clone());
    let wire = Wire::new(stream, quick, answered.clone(), head_timeout.clone(), pace);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (server, answered) = (server.clone(), answered.clone());
        if user.get().is_none() && !is_from_node(&request) {
            server.meet(&user);
        }
        let waits = Waits::new(request.headers().contains_key(header::EXPECT));
        let mut request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(DrainedBody::new(body, waits.clone(), pace)),
        });
        request.extensions_mut().insert(hangup.clone());
        async move {
            let response = server.answer(request, peer, waits, answered.refusal()).await;
            Ok::<_, Infallible>(response.map(|body| NotifyOnDrop::new(body, answered)))
        }
    });
    let conn = hyper::server::conn::http1::Builder::new()
        .timer(HeadTimer(head_timeout))
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD.max(256 << 10))
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(wire), service);
    tokio::pin!(conn);
    let result = tokio::select! {
        biased;
        result = conn.as_mut() => result,
        () = ended.ended() => return,
        () = entered.end.cancelled() => {
            conn.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                result = conn => result,
                () = ended.ended() => return,
            }
        }
    };
    if let Err(e) = result {
        tracing::debug!(error = %e, "connection ended");
    }
}

/// The reply to a request whose head no handler may see; `refusal` is set if the request is a
/// stand-in for a refused one.
fn unserved(request: &Request, refusal: Option<Refusal>) -> Option<Response> {
    if let Some(refusal) = refusal {
        return Some(Failure(refused(refusal)).into_response());
    }
    let headers = request.headers();
    let bytes = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    if bytes.sum::<usize>() + target > MAX_HEAD {
        let text = format!("the request's head has more than {MAX_HEAD} bytes");
        let mut response = Failure(Error::invalid(text)).into_response();
        *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some(response);
    }
    // A body with another coding would be stored in its encoded form.
    let mut codings = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_other = codings.any(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked"));
    is_other.then(|| Failure(refused(Refusal::Coding)).into_response())
}

fn refused(why: Refusal) -> Error {
    match why {
        Refusal::Lengths => Error::invalid(
            "the request has more than one of Content-Length and Transfer-Encoding: \
             its body has no certain end",
        ),
        Refusal::Coding => {
            Error::unsupported("the request's body has a transfer coding other than chunked")
        }
        Refusal::Host => Error::invalid("the request has no Host header, or more than one"),
    }
}

/// Whether a request looks like one of another node; such requests do not keep an unused process
/// running.
fn is_from_node<B>(request: &hyper::Request<B>) -> bool {
    let is_signed = request.headers().contains_key(NODE_AUTH_HEADER);
    is_signed || request.uri().path() == PROOF_FORMAT_PATH
}

/// Whether another node asks which format of proofs this node reads.
fn says_format(about: &RequestContext, request: &Request) -> bool {
    about.protocol == Protocol::Internal && request.uri().path() == PROOF_FORMAT_PATH
}

fn unknown_uri(request: &Request) -> Error {
    let (method, path) = (request.method(), request.uri().path());
    Error::invalid(format!("invalid request URI: '{method} {path}'"))
}

async fn unknown_to_gateway(request: Request) -> Failure {
    Failure(unknown_uri(&request))
}

async fn unknown_to_target(request: Request) -> Failure {
    let hint = "this node is a target; send the request to a gateway";
    Failure(unknown_uri(&request).hint(hint))
}

/// The header on every answer.
static OWN_MAP: HeaderName = HeaderName::from_static(MAP_HEADER);

impl<H: Handler> Server<H> {
    /// Registers a client that is not a node of the cluster, until its connection ends.
    pub(crate) fn meet(&self, user: &OnceLock<User>) {
        user.get_or_init(|| self.lifecycle.activity().enter());
    }

    /// Runs the handler, then adds the headers that every answer has.
    async fn answer(
        &self,
        mut request: Request,
        peer: Peer,
        waits: Waits,
        refusal: Option<Refusal>,
    ) -> Response {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let answer = async {
            if let Some(refusal) = unserved(&request, refusal) {
                return refusal;
            }
            match self.edge.admit(&mut request) {
                Ok(about) if says_format(&about, &request) => reply::text(FORMAT),
                // Requests for objects cause no log lines that name their sender.
                Ok(about) if about.route == Route::Objects => {
                    self.handler.answer(about, request, peer).await
                }
                Ok(about) => {
                    let sender = Sender::new(&about, peer);
                    sender.scope(self.handler.answer(about, request, peer)).await
                }
                Err(e) => Failure(e).into_response(),
            }
        };
        let mut response = self.finished(answer, &method, uri.path()).await;
        let version = HeaderValue::from(self.edge.maps().version());
        response.headers_mut().insert(&OWN_MAP, version);
        if waits.still() {
            // No `100 Continue` was sent, so the client may omit its body: its next bytes on this
            // connection could be that body or another request. The AWS command line also mistakes
            // this status for that of the connection's next answer, and waits forever.
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The handler's answer; an error or a panic is converted to the format of v1.
    pub(crate) async fn finished(
        &self,
        answer: impl Future<Output = Response>,
        method: &Method,
        path: &str,
    ) -> Response {
        let mut response = AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| {
            tracing::error!(%method, path, "handler panicked");
            Failure(Error::internal("the node failed to answer; see its log")).into_response()
        });
        if !response.status().is_success() {
            self.explain(&mut response, method, path);
        }
        response
    }

    /// Writes the error of an answer as a v1 body and to the log.
    fn explain(&self, response: &mut Response, method: &Method, path: &str) {
        let error = response.extensions().get::<Error>().cloned().or_else(|| {
            // The router's own refusal has no body yet.
            let bare = !response.headers().contains_key(header::CONTENT_TYPE);
            let refused = response.status() == StatusCode::METHOD_NOT_ALLOWED;
            (refused && bare).then(|| {
                let text = format!("{method} is not served at {path}");
                Error::new(ErrorCode::MethodNotAllowed, text)
            })
        });
        let Some(error) = error else { return };
        if error.code == ErrorCode::Internal {
            tracing::error!(%method, path, error = %error, "request failed");
        } else {
            tracing::debug!(%method, path, error = %error, "request refused");
        }
        let body = ErrorBody::new(&error, method.as_str(), path, &self.edge.identity().label());
        write_error(response, method, body);
    }
}

fn write_error(response: &mut Response, method: &Method, body: ErrorBody) {
    let text = body.to_json();
    if *method == Method::HEAD {
        v1::set(response.headers_mut(), v1::HDR_ERROR, text.trim_end());
        return;
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(text);
}
