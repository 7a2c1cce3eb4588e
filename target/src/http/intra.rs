//! Requests of gateways to a target.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::backend_access::AccessRequest;
use forebay_core::bill::BillRequest;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{
    BackendChangesRequest, BackendHeadRequest, BackendListRequest, DiskCommand, ListPage,
    ListRequest,
};
use forebay_core::job::JobSpec;
use forebay_core::list_columns::Columns;
use forebay_core::list_page::Detail;
use forebay_core::shard_build::{BuildRequest, HoldRequest, UnpackRequest};
use forebay_core::state::ClusterState;
use forebay_core::{Error, history, native};
use forebay_node::reply::{Failure, json, with_type};

use super::{Context, Shared};

/// Receives a newer state of the cluster, ahead of the next heartbeat.
pub(super) async fn state(
    State(context): State<Shared>,
    Json(state): Json<ClusterState>,
) -> Response {
    context.maps.offer(state);
    json(&serde_json::Value::Null)
}

/// The id of this process.
pub(super) async fn instance(State(context): State<Shared>) -> Response {
    json(&context.identity.instance)
}

/// The records on this target, in name order; with the members of shards if requested.
pub(super) async fn list(
    State(context): State<Shared>,
    Json(request): Json<ListRequest>,
) -> Result<Response, Failure> {
    check_listing(&context, &request).await?;
    let response = listed(&context, &request).await?;
    // If this target stood still and counted as dead meanwhile, the page may have removed objects.
    check_listing(&context, &request).await?;
    Ok(response)
}

/// Returns an error if a listing would silently lack a part of the native objects, or contain
/// removed ones.
async fn check_listing(context: &Context, request: &ListRequest) -> Result<(), Error> {
    let id = history::bucket_id(request.bucket_id);
    let state = context.maps.load();
    let native = |info: &&Arc<BucketInfo>| info.id == id && !info.has_backend();
    let Some(info) = state.buckets.values().find(native) else { return Ok(()) };
    if !request.in_part {
        context.objects.check_whole()?;
    }
    if request.chosen_by == 0 {
        return Ok(());
    }
    if info.has_copies() {
        context.maps.leased().await?;
    }
    native::check_choice(&context.maps.load(), request.chosen_by, context.objects.me())
}

async fn listed(context: &Context, request: &ListRequest) -> Result<Response, Error> {
    if request.parts && !request.archive {
        let page = context.objects.listing().page_of_copies(request).await?;
        return Ok(match request.detail {
            Detail::Size => {
                let sizes = Columns::from(&page.entries[..]).encode(page.more);
                with_type(request.detail.media_type(), sizes)
            }
            Detail::All => with_type(request.detail.media_type(), page.encode(request.detail)?),
        });
    }
    if request.detail == Detail::Size && !request.archive {
        let (sizes, more) = context.objects.listing().sizes_here(request).await?;
        return Ok(with_type(request.detail.media_type(), sizes.encode(more)));
    }
    let page = if request.archive {
        let state = context.maps.load();
        let info = state.buckets.values().find(|info| info.id == request.bucket_id);
        match info {
            Some(info) => context.shards.page_here(&context.objects, info, request).await?,
            // Dropped meanwhile: none of it is served.
            None => ListPage::default(),
        }
    } else {
        context.objects.listing().page_here(request).await?
    };
    Ok(with_type(request.detail.media_type(), page.encode(request.detail)?))
}

/// Whether a bucket exists at its backend.
pub(super) async fn backend_head(
    State(context): State<Shared>,
    Json(request): Json<BackendHeadRequest>,
) -> Result<Response, Failure> {
    match request.endpoint_only {
        true => context.objects.cold_cache().check_endpoint(&request.info).await?,
        false => context.objects.cold_cache().head_backend(&request.info).await?,
    }
    Ok(json(&serde_json::Value::Null))
}

/// A page of the backend's listing.
pub(super) async fn backend_list(
    State(context): State<Shared>,
    Json(request): Json<BackendListRequest>,
) -> Result<Response, Failure> {
    let page = context.objects.listing().backend_page(&request).await?;
    Ok(with_type(request.detail.media_type(), page))
}

/// The writes of this target to a bucket's backend.
pub(super) async fn backend_changes(
    State(context): State<Shared>,
    Json(request): Json<BackendChangesRequest>,
) -> Response {
    json(&context.objects.listing().backend_changes(&request))
}

/// The access of this target to a bucket's backend, and its identity.
pub(super) async fn backend_access(
    State(context): State<Shared>,
    Json(request): Json<AccessRequest>,
) -> Result<Response, Failure> {
    Ok(json(&context.objects.cold_cache().backend_access(&request).await?))
}

/// The bill of a bucket's cloud, for the part that this target caused.
pub(super) async fn backend_bill(
    State(context): State<Shared>,
    Json(request): Json<BillRequest>,
) -> Result<Response, Failure> {
    let state = context.maps.load();
    let bill = context.objects.cold_cache().bill(state.bucket(&request.bucket)?);
    Ok(json(&bill.map(|bill| bill.total()).unwrap_or_default()))
}

/// A command about the disks of this target.
pub(super) async fn disks(
    State(context): State<Shared>,
    Json(command): Json<DiskCommand>,
) -> Result<Response, Failure> {
    Ok(json(&context.disks.act(command).await?))
}

pub(super) async fn start_job(
    State(context): State<Shared>,
    Json(spec): Json<JobSpec>,
) -> Result<Response, Failure> {
    Ok(json(&context.jobs.start(spec).await?))
}

pub(super) async fn jobs(State(context): State<Shared>) -> Response {
    json(&context.jobs.all())
}

pub(super) async fn job(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&context.jobs.get(&id)?))
}

pub(super) async fn stop_job(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&context.jobs.stop(&id)?))
}

pub(super) async fn forget_job(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    context.jobs.forget(&id)?;
    Ok(json(&serde_json::Value::Null))
}

/// Ends this process, as a signal would.
pub(super) async fn stop(State(context): State<Shared>) -> Response {
    tracing::info!("stopping: this target leaves the cluster, or received a stop request");
    context.lifecycle.token().cancel();
    json(&serde_json::Value::Null)
}

/// Starts to build a shard that belongs on this target.
pub(super) async fn start_build(
    State(context): State<Shared>,
    Json(request): Json<BuildRequest>,
) -> Result<Response, Failure> {
    context.builds.start(request)?;
    Ok(json(&serde_json::Value::Null))
}

pub(super) async fn build(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&context.builds.wait(&id).await?))
}

pub(super) async fn stop_build(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&context.builds.stop(&id).await?))
}

pub(super) async fn publish_build(
    State(context): State<Shared>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&context.builds.publish(&id)?))
}

pub(super) async fn hold_builds(
    State(context): State<Shared>,
    Json(request): Json<HoldRequest>,
) -> Response {
    context.builds.hold(&request);
    context.shards.hold_unpacked(&request.job, request.keep);
    json(&serde_json::Value::Null)
}

pub(super) async fn unpack(
    State(context): State<Shared>,
    Json(request): Json<UnpackRequest>,
) -> Result<Response, Failure> {
    let info = context.maps.load().bucket(&request.bucket)?.clone();
    context.shards.unpack(&info, request.shard.as_str(), &request.job).await?;
    Ok(json(&serde_json::Value::Null))
}

/// Drops the data of a destroyed (or evicted) bucket.
pub(super) async fn drop_bucket(
    State(context): State<Shared>,
    Path(id): Path<u64>,
) -> Result<Response, Failure> {
    context.objects.drop_bucket(id).await?;
    Ok(json(&serde_json::Value::Null))
}
