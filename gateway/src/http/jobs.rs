//! Jobs: the v1 requests (`what=status` and similar), start and stop, and Forebay's own paths.

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, RawQuery, State};
use axum::response::Response;
use forebay_core::access::Scope;
use forebay_core::ishard::IshardSpec;
use forebay_core::job::{JobKind, JobSpec, JobStatus};
use forebay_core::request::RequestContext;
use forebay_core::{Bucket, Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::reply::{json, text};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{Grant, On, native};
use forebay_v1::action::{ActionMsg, lower_keys, parse_json};
use forebay_v1::jobs::{snapshots_json, status_json, unknown_job};
use forebay_v1::query::Query;
use serde_json::Value;

use super::{MAX_CONTROL, answered, done, read_body};
use crate::ids;
use crate::job_control::{JobControl, JobFilter};
use crate::route::Route;
use crate::targets;

#[derive(Clone)]
pub(crate) struct JobsFront {
    pub(crate) route: Route,
    pub(crate) jobs: JobControl,
}

pub(crate) fn router(state: JobsFront) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<JobsFront> {
    RouteSet::new()
        .on(&native::ISHARD, ishard)
        .on(&native::JOBS, all)
        .on(&native::JOB, one)
        .on(&native::JOB_STOP, stop)
}

async fn all(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
) -> Response {
    let grant = native::JOBS.row().of(about.access());
    let list = state.jobs.list(&JobFilter::default()).await;
    let result = list.map(|list| json(&seen(&grant, list)));
    answered("jobs", result)
}

async fn one(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    Path(id): Path<String>,
) -> Response {
    let grant = native::JOB.row().of(about.access());
    let result = seen_job(&state.jobs, &grant, &id).await.map(|status| json(&status));
    answered("job", result)
}

/// The jobs that the sender sees.
fn seen(grant: &Grant<'_>, mut list: Vec<JobStatus>) -> Vec<JobStatus> {
    list.retain(|job| grant.sees_job(job));
    list
}

/// The status of a job; one that the sender does not see counts as unknown.
pub(super) async fn seen_job(jobs: &JobControl, grant: &Grant<'_>, id: &str) -> Result<JobStatus> {
    let job = jobs.status(id).await?;
    if grant.sees_job(&job) { Ok(job) } else { Err(unknown_job(id)) }
}

async fn stop(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    Path(id): Path<String>,
) -> Response {
    let result = async {
        let job = state.jobs.status(&id).await;
        let bucket = job.as_ref().ok().and_then(|job| job.bucket.as_ref());
        native::JOB_STOP.row().of(about.access()).require_job(bucket)?;
        job?;
        state.jobs.stop(&JobFilter { id, ..JobFilter::default() }).await?;
        Ok(done())
    };
    let result = result.await;
    answered("job_stop", result)
}

/// `POST /api/v1/ishard[?id=…]` with the job's spec. With an id chosen by the client, a retry does
/// not start a second job.
async fn ishard(
    State(state): State<JobsFront>,
    Extension(about): Extension<RequestContext>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Response {
    let grant = native::ISHARD.row().of(about.access());
    let result = start_ishard(&state, &grant, query.as_deref(), body).await;
    answered("ishard", result)
}

async fn start_ishard(
    state: &JobsFront,
    grant: &Grant<'_>,
    query: Option<&str>,
    body: Body,
) -> Result<Response> {
    // Parsed in its original order: the order of an external key map is the order of its rules.
    let spec: IshardSpec = serde_json::from_slice(&read_body(body, MAX_CONTROL).await?)
        .map_err(|e| Error::invalid(format!("ishard: the job's spec cannot be read: {e}")))?;
    spec.check()?;
    grant.require(On::Source, Scope::Prefix(&spec.source, &spec.prefix))?;
    let results = Scope::Prefix(&spec.destination, &spec.destination_prefix);
    grant.require(On::Destination, results)?;
    let id = own_id(query, "ishard")?.unwrap_or_else(|| ids::mint("ishard-"));
    let source = state.route.bucket(&spec.source).await?;
    match state.route.bucket(&spec.destination).await {
        // The bucket is created after the plan succeeds.
        Err(e) if spec.create && e.code == ErrorCode::BucketNotFound => {
            grant.require(On::Created, Scope::Bucket(&spec.destination))?;
        }
        Err(e) if e.code == ErrorCode::BucketNotFound => {
            return Err(e.hint("add --create, or make it first"));
        }
        other => drop(other?),
    }
    let id = state.jobs.start_ishard(id, &source, spec).await?;
    Ok(json(&serde_json::json!({ "id": id })))
}

/// The id that the client chose for its job, if any.
pub(super) fn own_id(query: Option<&str>, job: &str) -> Result<Option<String>> {
    match Query::parse(query).get("id") {
        None | Some("") => Ok(None),
        Some(id) => {
            let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
            if !(9..=64).contains(&id.len()) || !id.chars().all(fits) {
                return Err(Error::invalid(format!("{job}: invalid id \"{id}\""))
                    .hint("9 to 64 letters, digits, '-' or '_'"));
            }
            Ok(Some(id.to_owned()))
        }
    }
}

/// `PUT /v1/cluster`: of the many control actions of v1, start and stop of jobs.
pub(crate) async fn control(state: &JobsFront, grant: Grant<'_>, action: &ActionMsg) -> Response {
    let result = async {
        let question = Question::from_value(&action.value)?;
        match action.action.as_str() {
            "start" => start(state, &grant, &question).await,
            "stop" => {
                // A request with neither a kind nor an id matches nothing, not everything.
                if !question.kind_unknown && question.names_something() {
                    check_stop(state, &grant, &question.filter).await?;
                    state.jobs.stop(&question.filter).await?;
                }
                Ok(done())
            }
            other => Err(Error::unsupported(format!("action \"{other}\" is not served yet"))),
        }
    };
    let result = result.await;
    answered("control", result)
}

/// Returns an error unless the sender may stop all jobs that match.
async fn check_stop(state: &JobsFront, grant: &Grant<'_>, filter: &JobFilter) -> Result<()> {
    if filter.id.is_empty() {
        return grant.require_job(filter.bucket.as_ref());
    }
    let job = state.jobs.status(&filter.id).await;
    // An unknown job counts as one on the whole cluster, so that its sender learns nothing of it.
    grant.require_job(job.ok().and_then(|job| job.bucket).as_ref())
}

async fn start(state: &JobsFront, grant: &Grant<'_>, question: &Question) -> Result<Response> {
    grant.require_job(question.filter.bucket.as_ref())?;
    let kind = question.filter.kind.ok_or_else(|| match question.kind.as_str() {
        "" => Error::invalid("start: the job's kind is missing"),
        kind => Error::invalid(format!("unknown job kind \"{kind}\"")),
    })?;
    let mut spec = JobSpec::new(kind, ids::mint(kind.id_prefix()));
    let now = state.route.state();
    match kind {
        JobKind::Prefetch | JobKind::Scrub | JobKind::IndexShard => {
            let bucket = question.filter.bucket.as_ref().ok_or_else(|| needs_bucket(kind))?;
            let found = state.route.bucket(bucket).await?;
            Ok(text(state.jobs.start(&found, spec).await?))
        }
        JobKind::Lru | JobKind::Cleanup | JobKind::LoadMetadata => {
            if let Some(bucket) = &question.filter.bucket {
                spec.bucket = Some(state.route.bucket(bucket).await?.info.bucket.clone());
            }
            Ok(text(state.jobs.launch(spec, targets::alive(&now)?).await?))
        }
        JobKind::Rebalance => {
            grant.require_job(None)?;
            // A "g" and a number, the form that clients know.
            spec.id = format!("g{}", unix_ns());
            Ok(text(state.jobs.launch(spec, targets::all_members(&now)?).await?))
        }
        JobKind::Resilver => {
            grant.require_job(None)?;
            let id = question.filter.node.as_ref().ok_or_else(|| {
                Error::unsupported("resilver runs on one target, which the request must name")
            })?;
            let unknown = || {
                let text = format!("target {id} is not a member of the cluster");
                Error::new(ErrorCode::NodeNotFound, text)
            };
            let node = now.targets().find(|n| n.id == *id).ok_or_else(unknown)?;
            Ok(text(state.jobs.launch(spec, vec![node]).await?))
        }
        JobKind::EcEncode | JobKind::MakeCopies => {
            let bucket = question.filter.bucket.as_ref().ok_or_else(|| needs_bucket(kind))?;
            let found = state.route.bucket(bucket).await?;
            let is_set = match kind {
                JobKind::EcEncode => found.info.erasure.is_some(),
                _ => found.info.copies > 1,
            };
            if !is_set {
                let text = format!("{}: \"{bucket}\" has no such redundancy", kind.v1_kind());
                return Err(Error::invalid(text)
                    .hint("POST it to the bucket, with the number of slices or copies"));
            }
            Ok(text(state.jobs.start(&found, spec).await?))
        }
        JobKind::Rechunk => Err(Error::unsupported(format!("{} is not supported", kind.v1_kind()))
            .hint("objects lie in pieces as the store sees fit")),
        _ => Err(Error::invalid(format!("jobs of kind \"{}\" cannot be started", kind.v1_kind()))
            .hint("they start with what they are asked to do, on a bucket or an object")),
    }
}

fn needs_bucket(kind: JobKind) -> Error {
    Error::invalid(format!("a job of kind {} needs a bucket", kind.v1_kind()))
}

/// `GET /v1/cluster?what=…` for the four questions about jobs.
pub(crate) async fn answer(
    jobs: &JobControl,
    grant: Grant<'_>,
    what: &str,
    body: &[u8],
) -> Result<Response> {
    let question = if body.is_empty() {
        Question::default()
    } else {
        Question::from_value(&parse_json(body)?)?
    };
    let filter = &question.filter;
    let list = async || match question.kind_unknown {
        true => Ok(Vec::new()),
        false => jobs.list(filter).await.map(|list| seen(&grant, list)),
    };
    match what {
        "status" if !filter.id.is_empty() => {
            Ok(json(&status_json(&seen_job(jobs, &grant, &filter.id).await?)))
        }
        "status" => match list().await?.first() {
            Some(latest) => Ok(json(&status_json(latest))),
            None => Err(unknown_job(&question.kind)),
        },
        "status_all" => Ok(json(&list().await?.iter().map(status_json).collect::<Vec<_>>())),
        "running_all" => {
            let all = JobFilter { running_only: false, ..filter.clone() };
            let all = if question.kind_unknown { vec![] } else { jobs.list(&all).await? };
            let all = seen(&grant, all);
            let now = unix_ns();
            let running = all.iter().filter(|s| !s.is_over() || s.is_in_idle_grace(now));
            let names = running.map(|s| format!("{}[{}]", s.kind.v1_kind(), s.id));
            Ok(json(&names.collect::<Vec<_>>()))
        }
        "qryxstats" => {
            let mut parts = jobs.by_target(filter).await?;
            parts.values_mut().for_each(|list| list.retain(|job| grant.sees_job(job)));
            if question.kind_unknown {
                parts.values_mut().for_each(Vec::clear);
            }
            if !filter.id.is_empty() && parts.values().all(Vec::is_empty) {
                return Err(unknown_job(&filter.id));
            }
            if !filter.id.is_empty() {
                // For a single job, only the targets that have a part in it are listed.
                parts.retain(|_, list| !list.is_empty());
            }
            Ok(json(&snapshots_json(&parts)))
        }
        other => Err(Error::invalid(format!("what={other} is not about jobs"))),
    }
}

/// A client's query about jobs; keys are case-insensitive.
#[derive(Default)]
struct Question {
    filter: JobFilter,
    kind: String,
    /// The kind is unknown: no job matches.
    kind_unknown: bool,
}

impl Question {
    fn from_value(value: &Value) -> Result<Self> {
        let value = match value {
            Value::Null | Value::Object(_) => lower_keys(value.clone()),
            _ => return Err(Error::invalid("a question about jobs must be an object")),
        };
        let text = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(""),
            Some(Value::String(text)) => Ok(text.as_str()),
            Some(_) => Err(Error::invalid(format!("{key} must be a string"))),
        };
        let kind = text("kind")?.to_owned();
        let parsed = kind.parse::<JobKind>().ok();
        let bucket = match value.get("bck") {
            None | Some(Value::Null) => {
                // If there are several buckets, the first one is used.
                let first = value.get("buckets").and_then(Value::as_array).and_then(|b| b.first());
                first.map(bucket).transpose()?.flatten()
            }
            Some(one) => bucket(one)?,
        };
        let node = match (text("daemonid")?, text("node")?) {
            ("", "") => None,
            ("", id) | (id, _) => Some(NodeId::new(id)?),
        };
        let running_only = match value.get("show_active") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(flag)) => *flag,
            Some(_) => return Err(Error::invalid("show_active must be true or false")),
        };
        let filter =
            JobFilter { id: text("id")?.to_owned(), kind: parsed, bucket, running_only, node };
        Ok(Self { filter, kind_unknown: !kind.is_empty() && parsed.is_none(), kind })
    }

    fn names_something(&self) -> bool {
        !self.filter.id.is_empty() || self.filter.kind.is_some()
    }
}

/// Clients that mean no bucket may send one without a name.
fn bucket(value: &Value) -> Result<Option<Bucket>> {
    let value = lower_keys(value.clone());
    let part = |key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default();
    match part("name") {
        "" => Ok(None),
        name => Ok(Some(Bucket::from_parts(name, part("provider"), "")?)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn job_query_keys_are_case_insensitive_and_null_counts_as_absent() {
        let q = Question::from_value(&json!({"ID": "x", "Kind": "prefetch-objects",
            "Bck": {"Name": "b", "provider": "s3", "namespace": null}, "DaemonID": ""}))
        .unwrap();
        assert_eq!((q.filter.id.as_str(), q.filter.kind), ("x", Some(JobKind::Prefetch)));
        assert_eq!(q.filter.bucket.unwrap().to_string(), "s3://b");
        let q = Question::from_value(&json!({"id": "", "bck": null, "show_active": null})).unwrap();
        assert!(q.filter.bucket.is_none() && !q.filter.running_only && !q.kind_unknown);
        assert!(Question::from_value(&json!({"kind": "no-such"})).unwrap().kind_unknown);
        let lru = Question::from_value(&json!({"Kind": "lru-eviction"})).unwrap();
        assert_eq!(lru.filter.kind, Some(JobKind::Lru));
        for bad in [json!({"id": 7}), json!([1]), json!({"show_active": "x"}), json!("lru")] {
            assert!(Question::from_value(&bad).is_err(), "{bad}");
        }
        assert!(!Question::from_value(&json!({"bck": {}})).unwrap().names_something());
    }
}
