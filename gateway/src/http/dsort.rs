//! Jobs that sort shards, over v1: one target runs each job, and any gateway reports its status.

use axum::Extension;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use forebay_core::access::Scope;
use forebay_core::job::{JobKind, JobSpec, JobStatus, Task};
use forebay_core::request::RequestContext;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::reply::{json, text};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{Grant, On, v1_jobs as rules};
use forebay_v1::dsort::{self, Filter, job_json, metrics_json, unknown_dsort};
use forebay_v1::query::Query;

use super::jobs::{JobsFront, own_id};
use super::{MAX_CONTROL, answered, done, read_body};
use crate::ids;
use crate::job_control::JobFilter;

pub(crate) fn router(state: JobsFront) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<JobsFront> {
    RouteSet::new()
        .on(&rules::SORTS, show)
        .on(&rules::SORT, start)
        .on(&rules::SORT_REMOVE, remove)
        .on(&rules::SORT_ABORT, abort)
}

/// `POST /v1/sort[?id=…]` with a spec: returns the id of the job. It is being planned when this
/// returns; if it cannot be planned, the job ends.
async fn start(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let result = async {
        let cluster = state.route.state();
        let body = read_body(body, MAX_CONTROL).await?;
        // Seeds are shown in reports, and AIStore's have 63 bits.
        let seed = rand::random::<u64>() >> 1;
        let spec = dsort::requested(&body, &cluster.settings, seed)?;
        let grant = rules::SORT.row().of(about.access());
        grant.require(On::Source, Scope::Prefix(&spec.source, ""))?;
        grant.require(On::Destination, Scope::Prefix(&spec.destination, ""))?;
        if !cluster.buckets.values().any(|info| info.bucket == spec.destination) {
            grant.require(On::Created, Scope::Bucket(&spec.destination))?;
        }
        let id = own_id(query.as_deref(), "dsort")?.unwrap_or_else(|| ids::mint("srt-"));
        let source = state.route.bucket(&spec.source).await?;
        state.route.bucket_or_new(&spec.destination).await?;
        let spec = JobSpec {
            bucket: Some(source.info.bucket.clone()),
            task: Task::Dsort(Box::new(spec)),
            ..JobSpec::new(JobKind::Dsort, id)
        };
        let (_, status) = state.jobs.launch_on_one(&source.state, spec).await?;
        Ok(text(status.id))
    };
    let result = result.await;
    answered("dsort", result)
}

/// `GET /v1/sort`: one job by `uuid`, target by target, or all jobs.
async fn show(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = async {
        let query = Query::parse(query.as_deref());
        let grant = rules::SORTS.row().of(about.access());
        if let Some(id) = query.get("uuid") {
            let job = find(&state, id).await?;
            if !grant.sees_job(&job) {
                return Err(unknown_dsort(id));
            }
            return Ok(json(&metrics_json(&job, unix_ns())));
        }
        let wanted = Filter::new(query.get("regex"), query.flag("only_active"))?;
        let kind = JobFilter { kind: Some(JobKind::Dsort), ..JobFilter::default() };
        let mut jobs = state.jobs.list(&kind).await?;
        jobs.retain(|job| wanted.matches(job) && grant.sees_job(job));
        let now = unix_ns();
        Ok(json(&jobs.iter().map(|job| job_json(job, now)).collect::<Vec<_>>()))
    };
    let result = result.await;
    answered("dsort_status", result)
}

/// `DELETE /v1/sort/abort?uuid=…`; a job that is over does not change.
async fn abort(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = async {
        let grant = rules::SORT_ABORT.row().of(about.access());
        let job = named(&state, &grant, query.as_deref()).await?;
        state.jobs.stop(&JobFilter { id: job.id, ..JobFilter::default() }).await?;
        Ok(done())
    };
    let result = result.await;
    answered("dsort_abort", result)
}

/// `DELETE /v1/sort?uuid=…`: removes a job that is over.
async fn remove(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = async {
        let grant = rules::SORT_REMOVE.row().of(about.access());
        let job = named(&state, &grant, query.as_deref()).await?;
        if !job.is_over() {
            let text = format!("dsort process {} still in progress and cannot be removed", job.id);
            return Err(Error::invalid(text).hint("abort it first"));
        }
        state.jobs.forget(&job.id).await?;
        Ok(done())
    };
    let result = result.await;
    answered("dsort_remove", result)
}

/// The job that the query names, if the sender may control it.
async fn named(state: &JobsFront, grant: &Grant<'_>, query: Option<&str>) -> Result<JobStatus> {
    let query = Query::parse(query);
    let job = find(state, query.get("uuid").ok_or_else(|| unknown_dsort(""))?).await;
    grant.require_job(job.as_ref().ok().and_then(|job| job.bucket.as_ref()))?;
    job
}

async fn find(state: &JobsFront, id: &str) -> Result<JobStatus> {
    // Ids are created here, so an id of another form is unknown; it would become part of a path.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !id.chars().all(fits) {
        return Err(unknown_dsort(id));
    }
    match state.jobs.status(id).await {
        Ok(job) if job.kind == JobKind::Dsort => Ok(job),
        Err(e) if e.code != ErrorCode::JobNotFound => Err(e),
        _ => Err(unknown_dsort(id)),
    }
}
