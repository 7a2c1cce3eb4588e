//! Requests of gateways about downloads.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::Result;
use forebay_core::download::DownloadSpec;
use forebay_node::reply::{Failure, json};
use serde_json::Value;

use super::Shared;

pub(super) async fn start(
    State(context): State<Shared>,
    Json(spec): Json<DownloadSpec>,
) -> Result<Response, Failure> {
    context.downloads.start(spec)?;
    Ok(json(&Value::Null))
}

pub(super) async fn all(State(context): State<Shared>) -> Response {
    json(&context.downloads.all())
}

pub(super) async fn one(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&context.downloads.status(&id)?))
}

pub(super) async fn abort(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    context.downloads.abort(&id).await?;
    Ok(json(&Value::Null))
}

pub(super) async fn remove(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    context.downloads.remove(&id)?;
    Ok(json(&Value::Null))
}
