//! Promotions over HTTP: requests of gateways to a target.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use forebay_core::intra::PromoteRequest;
use forebay_core::promote::PromoteArgs;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;

use super::synced::{Current, Synced};
use crate::promote::Promotions;

pub(crate) fn routes() -> RouteSet<Synced<Promotions>> {
    RouteSet::new().on(&rules::PROMOTE, Current(start)).on(&rules::PROMOTE_SCAN, Current(scan))
}

/// This target's view of the source.
async fn scan(
    State(promotions): State<Promotions>,
    Json(args): Json<PromoteArgs>,
) -> Result<Response, Failure> {
    Ok(json(&promotions.scan(args).await?))
}

async fn start(
    State(promotions): State<Promotions>,
    Json(request): Json<PromoteRequest>,
) -> Result<Response, Failure> {
    promotions.start(request).await?;
    Ok(json(&serde_json::Value::Null))
}
