//! The gateway's HTTP: one file per subject, each with its routes and their state.

pub(crate) mod admin;
pub(crate) mod api;
pub(crate) mod backend_access;
pub(crate) mod batch;
pub(crate) mod bill;
mod bucket_jobs;
pub(crate) mod buckets;
pub(crate) mod cluster;
pub(crate) mod daemon;
pub(crate) mod disks;
pub(crate) mod download;
pub(crate) mod dsort;
pub(crate) mod easy_url;
pub(crate) mod etl;
pub(crate) mod internal;
pub(crate) mod jobs;
pub(crate) mod list;
mod list_stream;
pub(crate) mod node_status;
mod object_jobs;
pub(crate) mod objects;
mod removal;
pub(crate) mod summary;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::settings::{NO_EFFECT_HEADER, no_effect_value};
use forebay_core::{Error, Result};
use forebay_node::auth;
use forebay_node::body_budget::read_admitted;
use forebay_node::identity::Identity;
use forebay_node::metrics::{Metrics, result_of};
use forebay_node::reply::Failure;

/// Maximum bytes of a control message: a job may name many objects.
pub(crate) const MAX_CONTROL: usize = 64 << 20;

/// Counts an answer and formats a failure.
pub(crate) fn counted(
    metrics: &Metrics,
    api: &str,
    op: &str,
    result: Result<Response>,
) -> Response {
    metrics.http_request(api, op, result_of(&result));
    result.unwrap_or_else(|e| Failure(e).into_response())
}

/// Reads a whole request body of at most `limit` bytes, within the budget of all such bodies.
pub(crate) async fn read_body(body: Body, limit: usize) -> Result<Bytes> {
    read_admitted(body, limit).await
}

/// Like [`read_body`], for messages of nodes: they do not use the budget of client bodies.
pub(crate) async fn read_message(body: Body) -> Result<Bytes> {
    axum::body::to_bytes(body, MAX_CONTROL).await.map_err(|e| {
        Error::invalid(format!("the request's body cannot be read: {e}"))
            .hint(format!("at most {MAX_CONTROL} bytes"))
    })
}

/// Redirects the client to a target with the same path and query.
pub(crate) fn redirect(
    identity: &Identity,
    version: u64,
    method: &Method,
    uri: &Uri,
    target_url: &str,
) -> Result<Response> {
    let location = auth::redirect_location(identity, version, method, uri, target_url)?;
    let location = HeaderValue::try_from(location)
        .map_err(|_| Error::invalid("the request's URL cannot stand in a header"))?;
    let status = if *method == Method::GET && uri.path().starts_with("/v1/objects/") {
        StatusCode::MOVED_PERMANENTLY
    } else {
        StatusCode::TEMPORARY_REDIRECT
    };
    Ok((status, [(header::LOCATION, location)]).into_response())
}

/// 200 without a body.
pub(crate) fn done() -> Response {
    Response::new(Body::empty())
}

/// Adds to the answer of a change, and to the log, the names of its settings that have no effect.
pub(crate) fn naming_no_effect(mut answer: Response, names: &[String]) -> Response {
    if let Some(value) = no_effect_value(names) {
        tracing::info!(settings = value, "stored without effect");
        if let Ok(value) = HeaderValue::try_from(value) {
            answer.headers_mut().insert(HeaderName::from_static(NO_EFFECT_HEADER), value);
        }
    }
    answer
}
