//! Promotions over HTTP: requests of gateways to a target.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use forebay_core::intra::PromoteRequest;
use forebay_core::promote::PromoteArgs;
use forebay_node::reply::{Failure, json};

use super::Shared;

/// This target's view of the source.
pub(super) async fn scan(
    State(context): State<Shared>,
    Json(args): Json<PromoteArgs>,
) -> Result<Response, Failure> {
    Ok(json(&context.promotions.scan(args).await?))
}

pub(super) async fn start(
    State(context): State<Shared>,
    Json(request): Json<PromoteRequest>,
) -> Result<Response, Failure> {
    context.promotions.start(request).await?;
    Ok(json(&serde_json::Value::Null))
}
