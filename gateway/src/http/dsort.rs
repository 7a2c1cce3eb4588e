//! Jobs that sort shards, over v1: one target runs each job, and any gateway reports its status.

use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use axum::routing::{delete, get};
use forebay_core::job::{JobKind, JobSpec, JobStatus, Task};
use forebay_core::v1::dsort::{self, Filter, job_json, metrics_json, unknown_dsort};
use forebay_core::v1::query::Query;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::reply::{json, text};

use super::jobs::{JobsFront, own_id};
use super::{MAX_CONTROL, counted, done, read_body};
use crate::ids;
use crate::job_control::JobFilter;

pub(crate) fn router(state: JobsFront) -> Router {
    let all = get(show).post(start).delete(remove);
    Router::new()
        .route(dsort::PATH, all.clone())
        .route("/v1/sort/", all)
        .route("/v1/sort/abort", delete(abort))
        .with_state(state)
}

/// `POST /v1/sort[?id=…]` with a spec: returns the id of the job. It is being planned when this
/// returns; if it cannot be planned, the job ends.
async fn start(State(state): State<JobsFront>, RawQuery(query): RawQuery, body: Body) -> Response {
    let result = async {
        let cluster = state.route.state();
        let body = read_body(body, MAX_CONTROL).await?;
        // Seeds are shown in reports, and AIStore's have 63 bits.
        let seed = rand::random::<u64>() >> 1;
        let spec = dsort::requested(&body, &cluster.settings, seed)?;
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
    counted(&state.metrics, "v1", "dsort", result)
}

/// `GET /v1/sort`: one job by `uuid`, target by target, or all jobs.
async fn show(State(state): State<JobsFront>, RawQuery(query): RawQuery) -> Response {
    let result = async {
        let query = Query::parse(query.as_deref());
        if let Some(id) = query.get("uuid") {
            return Ok(json(&metrics_json(&find(&state, id).await?, unix_ns())));
        }
        let wanted = Filter::new(query.get("regex"), query.flag("only_active"))?;
        let kind = JobFilter { kind: Some(JobKind::Dsort), ..JobFilter::default() };
        let mut jobs = state.jobs.list(&kind).await?;
        jobs.retain(|job| wanted.matches(job));
        let now = unix_ns();
        Ok(json(&jobs.iter().map(|job| job_json(job, now)).collect::<Vec<_>>()))
    };
    let result = result.await;
    counted(&state.metrics, "v1", "dsort_status", result)
}

/// `DELETE /v1/sort/abort?uuid=…`; a job that is over does not change.
async fn abort(State(state): State<JobsFront>, RawQuery(query): RawQuery) -> Response {
    let result = async {
        let job = named(&state, query.as_deref()).await?;
        state.jobs.stop(&JobFilter { id: job.id, ..JobFilter::default() }).await?;
        Ok(done())
    };
    let result = result.await;
    counted(&state.metrics, "v1", "dsort_abort", result)
}

/// `DELETE /v1/sort?uuid=…`: removes a job that is over.
async fn remove(State(state): State<JobsFront>, RawQuery(query): RawQuery) -> Response {
    let result = async {
        let job = named(&state, query.as_deref()).await?;
        if !job.is_over() {
            let text = format!("dsort process {} still in progress and cannot be removed", job.id);
            return Err(Error::invalid(text).hint("abort it first"));
        }
        state.jobs.forget(&job.id).await?;
        Ok(done())
    };
    let result = result.await;
    counted(&state.metrics, "v1", "dsort_remove", result)
}

async fn named(state: &JobsFront, query: Option<&str>) -> Result<JobStatus> {
    let query = Query::parse(query);
    find(state, query.get("uuid").ok_or_else(|| unknown_dsort(""))?).await
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
