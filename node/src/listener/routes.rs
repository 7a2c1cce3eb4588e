//! The router as a handler: unknown paths and refusals of extractors get the node's error format.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use forebay_core::request::{Protocol, RequestContext};
use forebay_core::state::Role;
use forebay_core::{Error, ErrorCode};
use tower_service::Service;

use super::{Handler, Peer};
use crate::reply::Failure;
use crate::routing::GuardedRouter;

/// Maximum bytes of an extractor's error text.
const MAX_REJECTION: usize = 8 << 10;

/// The routes of a node; an unknown path gets the v1 error. Handlers find the [`RequestContext`] in
/// the extensions of their request.
pub struct Routes(Router);

impl Routes {
    pub fn new(router: GuardedRouter, role: Role) -> Self {
        let router = router.into_inner();
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
