//! The HTTP server of both kinds of node: limits, errors in one format, panics confined to their
//! request, and a graceful stop.

mod answer;
mod external;
mod handler;
mod kept_body;
mod routes;
mod server;

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, header};
use forebay_core::config::{HttpConfig, LimitsConfig};
use forebay_core::sign::{NODE_AUTH_HEADER, PROOF_FORMAT_PATH};
use forebay_core::{Error, ErrorCode, Result};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use self::external::{BodyIsKept, shown_urls};
pub(crate) use self::handler::OverTls;
pub use self::handler::{Answer, Handler, Hangup, Peer, Take};
pub use self::routes::Routes;
pub(crate) use self::server::Server;
use crate::connections::{Connection, Connections};
use crate::drain::{DrainedBody, Waits};
use crate::edge::{Edge, LastSender};
use crate::fast_http::{self, ByteStream, FastServer, MAX_HEAD, MAX_HEADERS};
use crate::forwarded::FORWARDED_PROTO;
use crate::lifecycle::Lifecycle;
use crate::stall::ClientPace;
use crate::tls::{Accepted, NodeTls};

/// Timeout for a client to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
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

/// Answers with `handler` until the node stops; open connections then finish their request.
pub async fn serve(
    listener: TcpListener,
    handler: impl Handler,
    edge: Edge,
    lifecycle: Lifecycle,
    limits: LimitsConfig,
    http: HttpConfig,
) {
    let stop = lifecycle.token();
    let connections = Connections::new(limits.connections);
    let pace = Arc::new(ArcSwap::from_pointee(ClientPace::of(&limits)));
    let followed = pace.clone();
    lifecycle.on_reload(move |config| followed.store(Arc::new(ClientPace::of(&config.limits))));
    let server = Arc::new(Server { handler, edge, lifecycle: lifecycle.clone(), pace, http });
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
            Ok(entered) => match server.edge.tls().cloned() {
                None => {
                    let _ = stream.set_nodelay(true);
                    drop(lifecycle.spawn(connection(stream, peer, server, entered, false)));
                }
                Some(tls) => {
                    drop(lifecycle.spawn(start(stream, peer, server, entered, tls)));
                }
            },
            Err(refusal) => {
                if is_due() {
                    let cap = connections.cap();
                    tracing::warn!(cap, "connections are refused: there are as many as may be");
                }
                lifecycle.spawn(async move {
                    if server.edge.tls().is_some() {
                        // The refusal is plain HTTP.
                        return;
                    }
                    let label = server.edge.identity().label();
                    refusal.send(stream, &label, server.edge.observer()).await;
                });
            }
        }
    }
}

/// Serves a connection that may be TLS.
async fn start(
    stream: TcpStream,
    peer: Peer,
    server: Arc<Server<impl Handler>>,
    entered: Connection,
    tls: NodeTls,
) {
    let _ = stream.set_nodelay(true);
    let label = server.edge.identity().label();
    let refusing = (label.as_str(), &**server.edge.observer());
    match Box::pin(tls.accept(stream, peer, refusing, &entered.end)).await {
        Accepted::Plain(stream) => connection(stream, peer, server, entered, false).await,
        Accepted::Tls(stream) => connection(*stream, peer, server, entered, true).await,
        Accepted::Ended => {}
    }
}

/// Serves a connection; `is_tls`: inside TLS.
async fn connection(
    stream: impl ByteStream,
    peer: Peer,
    server: Arc<Server<impl Handler>>,
    entered: Connection,
    is_tls: bool,
) {
    let pace = **server.pace.load();
    let hangup = Hangup::default();
    let ended = hangup.clone();
    let user = Arc::new(OnceLock::new());
    let sender = Arc::new(LastSender::default());
    let fast = FastServer::new(server.clone(), user.clone(), sender.clone(), peer, is_tls);
    let is_on = server.http.fast_path;
    let (stream, head_timer, progress) = fast_http::accept(stream, fast, pace, HEAD_TIMEOUT, is_on);
    let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let (server, progress, sender) = (server.clone(), progress.clone(), sender.clone());
        if user.get().is_none() && !is_from_node(&request) {
            server.meet(&user);
        }
        let waits = Waits::new(request.headers().contains_key(header::EXPECT));
        let mut request = request.map(|body| match body.is_end_stream() {
            true => Body::empty(),
            false => Body::new(DrainedBody::new(body, waits.clone(), pace)),
        });
        request.extensions_mut().insert(hangup.clone());
        if is_tls {
            request.extensions_mut().insert(OverTls);
            let headers = request.headers_mut();
            headers.entry(&FORWARDED_PROTO).or_insert(HeaderValue::from_static("https"));
        }
        async move {
            let refusal = progress.refusal();
            let answer = server.answer(request, peer, waits, refusal, &sender).await;
            let (response, exchange) = answer;
            Ok::<_, Infallible>(response.map(|body| progress.watch(body, exchange)))
        }
    });
    let conn = hyper::server::conn::http1::Builder::new()
        .timer(head_timer)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD.max(256 << 10))
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
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

/// Whether a request looks like one of another node; such requests do not keep an unused process
/// running.
fn is_from_node<B>(request: &hyper::Request<B>) -> bool {
    let is_signed = request.headers().contains_key(NODE_AUTH_HEADER);
    is_signed || request.uri().path() == PROOF_FORMAT_PATH
}
