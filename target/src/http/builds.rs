//! Requests of targets that build shards to the targets that own them.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::shard_build::{BuildRequest, HoldRequest, UnpackRequest};
use forebay_node::maps::Maps;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;

use super::synced::{Current, Synced};
use crate::job::build::builds::Builds;
use crate::shard::Shards;

/// The services for builds of shards; cheap to clone.
#[derive(Clone)]
pub(crate) struct BuildsApi {
    pub(crate) builds: Builds,
    pub(crate) shards: Shards,
    pub(crate) maps: Maps,
}

pub(crate) fn routes() -> RouteSet<Synced<BuildsApi>> {
    RouteSet::new()
        .on(&rules::BUILD_START, Current(start))
        .on(&rules::BUILD, Current(wait))
        .on(&rules::BUILD_STOP, Current(stop))
        .on(&rules::BUILD_PUBLISH, Current(publish))
        .on(&rules::BUILD_HOLD, Current(hold))
        .on(&rules::BUILD_UNPACK, Current(unpack))
}

/// Starts to build a shard that belongs on this target.
async fn start(
    State(api): State<BuildsApi>,
    Json(request): Json<BuildRequest>,
) -> Result<Response, Failure> {
    api.builds.start(request)?;
    Ok(json(&serde_json::Value::Null))
}

async fn wait(State(api): State<BuildsApi>, Path(id): Path<String>) -> Result<Response, Failure> {
    Ok(json(&api.builds.wait(&id).await?))
}

async fn stop(State(api): State<BuildsApi>, Path(id): Path<String>) -> Result<Response, Failure> {
    Ok(json(&api.builds.stop(&id).await?))
}

async fn publish(
    State(api): State<BuildsApi>,
    Path(id): Path<String>,
) -> Result<Response, Failure> {
    Ok(json(&api.builds.publish(&id)?))
}

async fn hold(State(api): State<BuildsApi>, Json(request): Json<HoldRequest>) -> Response {
    api.builds.hold(&request);
    api.shards.hold_unpacked(&request.job, request.keep);
    json(&serde_json::Value::Null)
}

async fn unpack(
    State(api): State<BuildsApi>,
    Json(request): Json<UnpackRequest>,
) -> Result<Response, Failure> {
    let info = api.maps.load().bucket(&request.bucket)?.clone();
    api.shards.unpack(&info, request.shard.as_str(), &request.job).await?;
    Ok(json(&serde_json::Value::Null))
}
