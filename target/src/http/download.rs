//! Requests of gateways about downloads.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::Result;
use forebay_core::download::DownloadSpec;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;
use serde_json::Value;

use super::synced::{Current, Synced};
use crate::download::Downloads;

pub(crate) fn routes() -> RouteSet<Synced<Downloads>> {
    RouteSet::new()
        .on(&rules::DOWNLOAD_START, Current(start))
        .on(&rules::DOWNLOADS, Current(all))
        .on(&rules::DOWNLOAD, Current(one))
        .on(&rules::DOWNLOAD_REMOVE, Current(remove))
        .on(&rules::DOWNLOAD_ABORT, Current(abort))
}

async fn start(
    State(downloads): State<Downloads>,
    Json(spec): Json<DownloadSpec>,
) -> Result<Response, Failure> {
    downloads.start(spec)?;
    Ok(json(&Value::Null))
}

async fn all(State(downloads): State<Downloads>) -> Response {
    json(&downloads.all())
}

async fn one(
    State(downloads): State<Downloads>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&downloads.status(&id)?))
}

async fn abort(
    State(downloads): State<Downloads>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    downloads.abort(&id).await?;
    Ok(json(&Value::Null))
}

async fn remove(
    State(downloads): State<Downloads>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    downloads.remove(&id)?;
    Ok(json(&Value::Null))
}
