//! Requests of gateways about the jobs of this target.

use axum::Json;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::job::JobSpec;
use forebay_node::reply::{Failure, json};
use forebay_node::routing::RouteSet;
use forebay_routes::internal as rules;

use super::synced::{Current, Synced};
use crate::job::Jobs;

pub(crate) fn routes() -> RouteSet<Synced<Jobs>> {
    RouteSet::new()
        .on(&rules::JOB_START, Current(start))
        .on(&rules::JOBS, Current(all))
        .on(&rules::JOB, Current(one))
        .on(&rules::JOB_STOP, Current(stop))
        .on(&rules::JOB_FORGET, Current(forget))
}

async fn start(State(jobs): State<Jobs>, Json(spec): Json<JobSpec>) -> Result<Response, Failure> {
    Ok(json(&jobs.start(spec).await?))
}

async fn all(State(jobs): State<Jobs>) -> Response {
    json(&jobs.all())
}

async fn one(State(jobs): State<Jobs>, Path(id): Path<String>) -> Result<Response, Failure> {
    Ok(json(&jobs.get(&id)?))
}

async fn stop(State(jobs): State<Jobs>, Path(id): Path<String>) -> Result<Response, Failure> {
    Ok(json(&jobs.stop(&id)?))
}

async fn forget(State(jobs): State<Jobs>, Path(id): Path<String>) -> Result<Response, Failure> {
    jobs.forget(&id)?;
    Ok(json(&serde_json::Value::Null))
}
