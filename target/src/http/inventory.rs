//! Requests of gateways to the target that owns an inventory.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use forebay_core::inventory::{InventoryQuery, InventoryRequest};
use forebay_node::reply::{Failure, json};

use super::Shared;
use crate::inventory;

/// Starts to take an inventory.
pub(super) async fn create(
    State(context): State<Shared>,
    Json(request): Json<InventoryRequest>,
) -> Result<Response, Failure> {
    context.lifecycle.spawn(inventory::create(&context.objects, &context.jobs, request)?);
    Ok(json(&serde_json::Value::Null))
}

pub(super) async fn info(
    State(context): State<Shared>,
    Json(query): Json<InventoryQuery>,
) -> Result<Response, Failure> {
    Ok(json(&inventory::info(&context.objects, &query.object).await?))
}

pub(super) async fn page(
    State(context): State<Shared>,
    Json(query): Json<InventoryQuery>,
) -> Result<Response, Failure> {
    Ok(json(&inventory::page(&context.objects, &query).await?))
}

pub(super) async fn destroy(
    State(context): State<Shared>,
    Json(query): Json<InventoryQuery>,
) -> Result<Response, Failure> {
    inventory::destroy(&context.objects, &query.object).await?;
    Ok(json(&serde_json::Value::Null))
}
