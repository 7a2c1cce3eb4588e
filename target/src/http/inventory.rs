//! Requests of gateways to the target that owns an inventory.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use forebay_core::inventory::{InventoryQuery, InventoryRequest};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;

use super::synced::{Current, Synced};
use crate::inventory;
use crate::job::Jobs;
use crate::object::ObjectService;

/// The services for inventories; cheap to clone.
#[derive(Clone)]
pub(crate) struct InventoriesApi {
    pub(crate) objects: ObjectService,
    pub(crate) jobs: Jobs,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) fn routes() -> RouteSet<Synced<InventoriesApi>> {
    RouteSet::new()
        .on(&rules::INVENTORY_CREATE, Current(create))
        .on(&rules::INVENTORY_INFO, Current(info))
        .on(&rules::INVENTORY_PAGE, Current(page))
        .on(&rules::INVENTORY_DESTROY, Current(destroy))
}

/// Starts to take an inventory.
async fn create(
    State(api): State<InventoriesApi>,
    Json(request): Json<InventoryRequest>,
) -> Result<Response, Failure> {
    api.lifecycle.spawn(inventory::create(&api.objects, &api.jobs, request)?);
    Ok(json(&serde_json::Value::Null))
}

async fn info(
    State(api): State<InventoriesApi>,
    Json(query): Json<InventoryQuery>,
) -> Result<Response, Failure> {
    Ok(json(&inventory::info(&api.objects, &query.object).await?))
}

async fn page(
    State(api): State<InventoriesApi>,
    Json(query): Json<InventoryQuery>,
) -> Result<Response, Failure> {
    Ok(json(&inventory::page(&api.objects, &query).await?))
}

async fn destroy(
    State(api): State<InventoriesApi>,
    Json(query): Json<InventoryQuery>,
) -> Result<Response, Failure> {
    inventory::destroy(&api.objects, &query.object).await?;
    Ok(json(&serde_json::Value::Null))
}
