//! Requests of gateways about a bucket: its backend, and the removal of its data.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::backend_access::AccessRequest;
use forebay_core::bill::BillRequest;
use forebay_core::intra::{BackendChangesRequest, BackendHeadRequest, BackendListRequest};
use forebay_core::warmth::WarmthRequest;
use forebay_node::maps::Maps;
use forebay_node::reply::{Failure, json, with_type};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;

use super::synced::{Current, Synced};
use crate::object::ObjectService;

/// The services for requests about buckets; cheap to clone.
#[derive(Clone)]
pub(crate) struct BucketsApi {
    pub(crate) objects: ObjectService,
    pub(crate) maps: Maps,
}

pub(crate) fn routes() -> RouteSet<Synced<BucketsApi>> {
    RouteSet::new()
        .on(&rules::BACKEND_HEAD, Current(backend_head))
        .on(&rules::BACKEND_LIST, Current(backend_list))
        .on(&rules::BACKEND_CHANGES, Current(backend_changes))
        .on(&rules::BACKEND_ACCESS, Current(backend_access))
        .on(&rules::BACKEND_BILL, Current(backend_bill))
        .on(&rules::BUCKET_WARMTH, Current(bucket_warmth))
        .on(&rules::BUCKET_DROP, Current(drop_bucket))
}

/// Whether a bucket exists at its backend.
async fn backend_head(
    State(api): State<BucketsApi>,
    Json(request): Json<BackendHeadRequest>,
) -> Result<Response, Failure> {
    match request.endpoint_only {
        true => api.objects.cold_cache().check_endpoint(&request.info).await?,
        false => api.objects.cold_cache().head_backend(&request.info).await?,
    }
    Ok(json(&serde_json::Value::Null))
}

/// A page of the backend's listing.
async fn backend_list(
    State(api): State<BucketsApi>,
    Json(request): Json<BackendListRequest>,
) -> Result<Response, Failure> {
    let page = api.objects.listing().backend_page(&request).await?;
    Ok(with_type(request.detail.media_type(), page))
}

/// The writes of this target to a bucket's backend.
async fn backend_changes(
    State(api): State<BucketsApi>,
    Json(request): Json<BackendChangesRequest>,
) -> Response {
    json(&api.objects.listing().backend_changes(&request))
}

/// The access of this target to a bucket's backend, and its identity.
async fn backend_access(
    State(api): State<BucketsApi>,
    Json(request): Json<AccessRequest>,
) -> Result<Response, Failure> {
    Ok(json(&api.objects.cold_cache().backend_access(&request).await?))
}

/// The bill of a bucket's cloud, for the part that this target caused.
async fn backend_bill(
    State(api): State<BucketsApi>,
    Json(request): Json<BillRequest>,
) -> Result<Response, Failure> {
    let state = api.maps.load();
    let bill = api.objects.cold_cache().bill(state.bucket(&request.bucket)?);
    Ok(json(&bill.map(|bill| bill.total()).unwrap_or_default()))
}

/// The warmth of one bucket or of all buckets, for the part of this target.
async fn bucket_warmth(
    State(api): State<BucketsApi>,
    Json(request): Json<WarmthRequest>,
) -> Result<Response, Failure> {
    let state = api.maps.load();
    let bucket = request.bucket.as_ref();
    let id = bucket.map(|bucket| state.bucket(bucket).map(|info| info.id)).transpose()?;
    Ok(json(&api.objects.warmth(id).await?))
}

/// Drops the data of a destroyed (or evicted) bucket.
async fn drop_bucket(
    State(api): State<BucketsApi>,
    Path(id): Path<u64>,
) -> Result<Response, Failure> {
    api.objects.drop_bucket(id).await?;
    Ok(json(&serde_json::Value::Null))
}
