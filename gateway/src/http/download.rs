//! Downloads over v1: started on all targets, each of which fetches the objects that it owns, and
//! reported as one job.

use std::collections::BTreeMap;

use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::response::Response;
use forebay_core::access::{Access, Scope};
use forebay_core::download::{DownloadSpec, DownloadStatus, What, merge};
use forebay_core::request::RequestContext;
use forebay_core::state::{Node, Summary};
use forebay_core::{Error, NodeId, Result};
use forebay_node::reply::json;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{On, v1_jobs as rules};
use forebay_v1::download::{
    Question, is_unknown, job_json, requested, status_json, unknown_download,
};
use serde_json::Value;

use super::{MAX_CONTROL, answered, done, read_body};
use crate::changes;
use crate::ids;
use crate::route::{Found, Route};
use crate::targets::{self, Targets};

/// Path at which a target handles downloads.
const DOWNLOADS: &str = "/internal/v1/download";

#[derive(Clone)]
pub(crate) struct Downloads {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
}

pub(crate) fn router(state: Downloads) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Downloads> {
    RouteSet::new()
        .on(&rules::DOWNLOADS, show)
        .on(&rules::DOWNLOAD, start)
        .on(&rules::DOWNLOAD_ORDER, order)
}

/// `POST /v1/download`: the id of the job.
async fn start(
    State(state): State<Downloads>,
    Extension(about): Extension<RequestContext>,
    body: Body,
) -> Response {
    let result = async {
        let spec = requested(&read_body(body, MAX_CONTROL).await?, ids::mint("dnl-"))?;
        check_access(&state, &spec, about.access())?;
        let found = state.route.bucket_or_new(&spec.bucket).await?;
        check_backend(&spec, &found)?;
        let nodes = targets::holders(&found.state, &found.info)?;
        let started = state.targets.post_all::<_, Value>(nodes.iter().copied(), DOWNLOADS, &spec);
        if let Some(e) = started.await.into_iter().find_map(|(_, answer)| answer.err()) {
            // A partial job would look like a complete one.
            abort(&state, &nodes, &spec.id).await?;
            return Err(e);
        }
        let detail = format!("kind=download, bucket={}", spec.bucket);
        changes::log(&Summary::new("job started", &spec.id).with(detail), Ok(None));
        Ok(json(&serde_json::json!({"id": spec.id})))
    };
    let result = result.await;
    answered("download", result)
}

/// Returns an error unless the sender may write each object of the download.
fn check_access(state: &Downloads, spec: &DownloadSpec, access: &Access) -> Result<()> {
    let (grant, bucket) = (rules::DOWNLOAD.row().of(access), &spec.bucket);
    match &spec.what {
        What::Objects(objects) => objects.iter().try_for_each(|(name, _)| {
            grant.require(On::Destination, Scope::Object(bucket, name))
        })?,
        What::Range { subdir, .. } => {
            grant.require(On::Destination, Scope::Prefix(bucket, subdir))?;
        }
        What::Backend { prefix, .. } => {
            grant.require(On::Destination, Scope::Prefix(bucket, prefix))?;
        }
    }
    if *access == Access::Open || bucket.is_remote() || state.route.known(bucket).is_ok() {
        return Ok(());
    }
    grant.require(On::Created, Scope::Bucket(bucket))
}

fn check_backend(spec: &DownloadSpec, found: &Found) -> Result<()> {
    let needed = match &spec.what {
        What::Backend { .. } => true,
        What::Objects(objects) => objects.iter().any(|(_, link)| link.is_empty()),
        What::Range { .. } => false,
    };
    if needed && !found.info.has_backend() {
        return Err(Error::invalid(format!(
            "bucket download requires a remote bucket: \"{}\" has no backend",
            found.info.bucket
        )));
    }
    Ok(())
}

/// `GET /v1/download`: one job with its objects, or all jobs.
async fn show(State(state): State<Downloads>, body: Body) -> Response {
    let result = async {
        let question = Question::parse(&read_body(body, MAX_CONTROL).await?)?;
        if question.id.is_empty() {
            return all(&state, &question).await;
        }
        let path = path(&question.id)?;
        let cluster = state.route.state();
        let nodes = targets::alive(&cluster)?;
        let answers = state.targets.get_all::<DownloadStatus>(nodes, &path).await;
        let mut parts = BTreeMap::new();
        for (target, answer) in answers {
            match answer {
                Ok(part) => drop(parts.insert(target, part)),
                Err(e) if is_unknown(&e) => {}
                Err(e) => return Err(e),
            }
        }
        let status = merge(&parts).ok_or_else(|| unknown_download(&question.id))?;
        Ok(json(&status_json(&status, question.only_active)))
    };
    let result = result.await;
    answered("download_status", result)
}

async fn all(state: &Downloads, question: &Question) -> Result<Response> {
    let cluster = state.route.state();
    let nodes = targets::alive(&cluster)?;
    let mut jobs: BTreeMap<String, BTreeMap<NodeId, DownloadStatus>> = BTreeMap::new();
    for (target, answer) in state.targets.get_all::<Vec<DownloadStatus>>(nodes, DOWNLOADS).await {
        for status in answer? {
            jobs.entry(status.id.clone()).or_default().insert(target.clone(), status);
        }
    }
    let mut list: Vec<_> = jobs.values().filter_map(merge).collect();
    list.retain(|status| question.matches(status));
    list.sort_by_key(|status| (status.is_over(), status.finished_ns, status.started_ns));
    Ok(json(&list.iter().map(job_json).collect::<Vec<_>>()))
}

/// `DELETE /v1/download/abort` and `/remove`.
async fn order(State(state): State<Downloads>, Path(order): Path<String>, body: Body) -> Response {
    let result = async {
        let question = Question::parse(&read_body(body, MAX_CONTROL).await?)?;
        let path = path(question.one()?)?;
        let cluster = state.route.state();
        let nodes = targets::alive(&cluster)?;
        let answers = match order.as_str() {
            "abort" => abort(&state, &nodes, &question.id).await?,
            "remove" => state.targets.delete_all(nodes, &path).await,
            other => return Err(Error::invalid(format!("unknown action \"{other}\""))),
        };
        let mut known = false;
        for (_, answer) in answers {
            match answer {
                Ok(()) => known = true,
                Err(e) if is_unknown(&e) => {}
                Err(e) => return Err(e),
            }
        }
        if known { Ok(done()) } else { Err(unknown_download(&question.id)) }
    };
    let result = result.await;
    answered("download_order", result)
}

async fn abort(state: &Downloads, nodes: &[&Node], id: &str) -> Result<Vec<targets::Answer<()>>> {
    let path = format!("{}/abort", path(id)?);
    let answers = state.targets.post_all::<_, Value>(nodes.iter().copied(), &path, &Value::Null);
    Ok(answers.await.into_iter().map(|(id, answer)| (id, answer.map(drop))).collect())
}

/// Path of a job on targets. Ids are created here, so an id of another form is unknown.
fn path(id: &str) -> Result<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if id.chars().all(fits) { Ok(format!("{DOWNLOADS}/{id}")) } else { Err(unknown_download(id)) }
}
