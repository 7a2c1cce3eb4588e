//! The HTTP server that both kinds of node run: limits, one error form, panics kept to their
//! request, and a graceful stop.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use forebay_core::intra::MAP_HEADER;
use forebay_core::v1::error::ErrorBody;
use forebay_core::v1::headers as v1;
use forebay_core::{Error, ErrorCode, Result};
use futures::FutureExt;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};

use crate::identity::Identity;
use crate::lifecycle::Lifecycle;
use crate::maps::Maps;
use crate::reply::Failure;

/// A client has this long to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest head of a request, bytes.
const MAX_HEAD: usize = 64 << 10;

/// Listens on `address:port`.
pub async fn bind(address: &str) -> Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::AddrInUse => {
            Error::new(ErrorCode::Conflict, format!("{address} is in use by another process"))
                .hint("choose another port, or stop the process that listens there")
        }
        _ => Error::invalid(format!("cannot listen on {address}: {e}")),
    })
}

#[derive(Clone)]
struct Shared {
    identity: Identity,
    maps: Maps,
}

/// Serves `router` until the node stops; open connections then finish their request.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    identity: Identity,
    maps: Maps,
    lifecycle: Lifecycle,
) {
    let router = router
        .fallback(unknown_uri)
        .layer(middleware::from_fn_with_state(Shared { identity, maps }, finish));
    let stop = lifecycle.token();
    loop {
        let stream = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(e) => {
                    // Out of descriptors, usually: wait for some to be returned.
                    tracing::warn!(error = %e, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        lifecycle.spawn(connection(stream, router.clone(), lifecycle.clone()));
    }
}

async fn connection(stream: TcpStream, router: Router, lifecycle: Lifecycle) {
    let _ = stream.set_nodelay(true);
    let conn = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD.max(256 << 10))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let stop = lifecycle.token();
    tokio::pin!(conn);
    let result = tokio::select! {
        result = conn.as_mut() => result,
        () = stop.cancelled() => {
            conn.as_mut().graceful_shutdown();
            conn.await
        }
    };
    if let Err(e) = result {
        tracing::debug!(error = %e, "connection ended");
    }
}

async fn unknown_uri(request: Request) -> Failure {
    Failure(Error::invalid(format!(
        "invalid request URI: '{} {}'",
        request.method(),
        request.uri().path()
    )))
}

/// Runs the handler, then gives the answer what every answer has.
async fn finish(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            tracing::error!(%method, path, "handler panicked");
            Failure(Error::internal("the node failed to answer; see its log")).into_response()
        }
    };
    if response.status() == axum::http::StatusCode::METHOD_NOT_ALLOWED
        && response.extensions().get::<Error>().is_none()
    {
        let e =
            Error::new(ErrorCode::MethodNotAllowed, format!("{method} is not served at {path}"));
        response.extensions_mut().insert(e);
    }
    if let Some(error) = response.extensions().get::<Error>().cloned() {
        if error.code == ErrorCode::Internal {
            tracing::error!(%method, path, error = %error, "request failed");
        } else {
            tracing::debug!(%method, path, error = %error, "request refused");
        }
        let body = ErrorBody::new(&error, method.as_str(), &path, &shared.identity.label());
        write_error(&mut response, &method, body);
    }
    response
        .headers_mut()
        .insert(HeaderName::from_static(MAP_HEADER), HeaderValue::from(shared.maps.version()));
    response
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
