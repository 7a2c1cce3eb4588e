//! Transforms: registered, monitored, stopped and removed. A registered transform is part of the
//! cluster's state, so every target knows it before a request for it arrives.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::Uri;
use axum::response::Response;
use forebay_core::etl::{Etl, EtlPart, EtlQuestion, Stage, check_name, etl_exists};
use forebay_core::state::Command;
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::identity::Identity;
use forebay_node::reply::{json, text};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{native, v1_jobs as rules, v1_objects::ETL_OBJECT};
use forebay_v1::etl::{details_json, health_json, list_json, logs_json, pulled_object, requested};
use forebay_v1::query::{Query, object_uri};
use serde_json::Value;

use super::{MAX_CONTROL, answered, done, read_body, redirect};
use crate::changes::Changes;
use crate::ids;
use crate::route::Route;
use crate::targets::{self, Targets};

/// Path at which a target checks whether a transform can be used.
const CHECK: &str = "/internal/v1/etl";
/// Path at which a target reports on a transform.
const PART: &str = "/internal/v1/etl/part";

#[derive(Clone)]
pub(crate) struct Etls {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
    pub(crate) changes: Changes,
    pub(crate) identity: Identity,
}

pub(crate) fn router(state: Etls) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Etls> {
    RouteSet::new()
        .on(&rules::ETL_INIT, init)
        .on(&rules::ETLS, list)
        .on(&ETL_OBJECT, pulled)
        .on(&rules::ETL, view)
        .on(&rules::ETL_DELETE, remove)
        .on(&rules::ETL_PART, part)
        .on(&rules::ETL_ORDER, order)
        .on(&rules::ETL_LOGS, logs_of)
        .on(&native::ETLS, list)
        .on(&native::ETL_INIT, register)
}

/// `PUT /v1/etl`: returns the id of the job that the transform runs as.
async fn init(State(state): State<Etls>, body: Body) -> Response {
    let result = create(&state, body).await.map(|etl| text(etl.job));
    answered("etl_init", result)
}

/// `POST /api/v1/etl`: the same, with a JSON answer.
async fn register(State(state): State<Etls>, body: Body) -> Response {
    let result = create(&state, body).await;
    let result = result.map(|etl| json(&serde_json::json!({"name": etl.name, "id": etl.job})));
    answered("etl", result)
}

async fn create(state: &Etls, body: Body) -> Result<Etl> {
    let etl = requested(&read_body(body, MAX_CONTROL).await?, ids::mint("etl-"))?;
    if state.route.state().etls.contains_key(&etl.name) {
        return Err(etl_exists(&etl.name));
    }
    // Before the service is called: errors of the service contain its URL.
    Command::CreateEtl { etl: Box::new(etl.clone()) }.check_limits(&state.route.state())?;
    check(state, &etl).await?;
    state.changes.commit(Command::CreateEtl { etl: Box::new(etl.clone()) }).await?;
    Ok(etl)
}

/// Checks that every target can use the transform: any target may own the next object.
async fn check(state: &Etls, etl: &Etl) -> Result<()> {
    let cluster = state.route.state();
    let nodes = targets::alive(&cluster)?;
    for (target, answer) in state.targets.post_all::<_, Value>(nodes, CHECK, etl).await {
        answer.map_err(|e| Error {
            message: format!("etl job {}: target {target}: {}", etl.name, e.message),
            ..e
        })?;
    }
    Ok(())
}

async fn list(State(state): State<Etls>) -> Response {
    let result = async {
        let cluster = state.route.state();
        let mut rows = Vec::new();
        for etl in cluster.etls.values() {
            let question = EtlQuestion { name: etl.name.clone(), ..EtlQuestion::default() };
            let mut sum = EtlPart::default();
            for part in ask(&state, &question).await?.values() {
                sum.objects += part.objects;
                sum.in_bytes += part.in_bytes;
                sum.out_bytes += part.out_bytes;
            }
            rows.push((etl, sum));
        }
        Ok(json(&list_json(rows)))
    };
    let result = result.await;
    answered("etl_list", result)
}

/// Collects the reports of all live targets on one transform. A target that does not answer is
/// omitted.
async fn ask(state: &Etls, question: &EtlQuestion) -> Result<BTreeMap<NodeId, EtlPart>> {
    let cluster = state.route.state();
    let nodes = targets::alive(&cluster)?;
    let mut parts = BTreeMap::new();
    for (target, answer) in state.targets.post_all::<_, EtlPart>(nodes, PART, question).await {
        match answer {
            Ok(part) => drop(parts.insert(target, part)),
            Err(e) => tracing::warn!(node = %target, error = %e, "target did not report on an etl"),
        }
    }
    Ok(parts)
}

/// `GET /v1/etl/NAME[?uuid=JOB]`.
async fn view(
    State(state): State<Etls>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Response {
    let result = async {
        let etl = known(&state, &name)?;
        let job = Query::parse(query.as_deref()).get("uuid").map(str::to_owned);
        let parts = ask(&state, &EtlQuestion { name, job, look: false }).await?;
        Ok(json(&details_json(&etl, &parts)))
    };
    let result = result.await;
    answered("etl_view", result)
}

/// `GET /v1/etl/NAME/logs` and `/health`.
async fn part(State(state): State<Etls>, Path((name, what)): Path<(String, String)>) -> Response {
    let result = async {
        known(&state, &name)?;
        match what.as_str() {
            "logs" => Ok(json(&logs_json(&ask(&state, &about(&name)).await?))),
            "health" => {
                let question = EtlQuestion { look: true, ..about(&name) };
                Ok(json(&health_json(&ask(&state, &question).await?)))
            }
            "metrics" => Err(Error::unsupported(
                "etl: this cluster does not run the service; ask the service for its metrics",
            )),
            other => Err(Error::invalid(format!("invalid request URI: /v1/etl/{name}/{other}"))),
        }
    };
    let result = result.await;
    answered("etl_part", result)
}

async fn logs_of(
    State(state): State<Etls>,
    Path((name, target)): Path<(String, String)>,
) -> Response {
    let result = async {
        known(&state, &name)?;
        let mut parts = ask(&state, &about(&name)).await?;
        parts.retain(|id, _| id.as_str() == target);
        if parts.is_empty() {
            return Err(Error::new(
                ErrorCode::NodeNotFound,
                format!("unknown target \"{target}\""),
            ));
        }
        Ok(json(&logs_json(&parts)))
    };
    let result = result.await;
    answered("etl_part", result)
}

fn about(name: &str) -> EtlQuestion {
    EtlQuestion { name: name.to_owned(), ..EtlQuestion::default() }
}

fn known(state: &Etls, name: &str) -> Result<Etl> {
    check_name(name)?;
    state.route.state().etl(name).cloned()
}

/// `POST /v1/etl/NAME/start` and `/stop`.
async fn order(State(state): State<Etls>, Path((name, what)): Path<(String, String)>) -> Response {
    let result = async {
        let etl = known(&state, &name)?;
        match what.as_str() {
            "stop" => stop(&state, etl).await.map(|()| done()),
            "start" if etl.stage == Stage::Running => Err(Error::invalid(format!(
                "can't start etl job {name} during {} stage",
                etl.stage.v1_name()
            ))),
            "start" => {
                let etl = Etl { stage: Stage::Running, job: ids::mint("etl-"), ..etl };
                check(&state, &etl).await?;
                let job = etl.job.clone();
                state.changes.commit(Command::SetEtl { etl: Box::new(etl) }).await?;
                Ok(text(job))
            }
            other => Err(Error::invalid(format!("invalid operation: {other}"))),
        }
    };
    let result = result.await;
    answered("etl_order", result)
}

async fn stop(state: &Etls, etl: Etl) -> Result<()> {
    if etl.stage == Stage::Stopped {
        return Ok(());
    }
    let etl = Box::new(Etl { stage: Stage::Stopped, ..etl });
    state.changes.commit(Command::SetEtl { etl }).await.map(drop)
}

async fn remove(State(state): State<Etls>, Path(name): Path<String>) -> Response {
    let result = async {
        known(&state, &name)?;
        state.changes.commit(Command::DeleteEtl { name }).await?;
        Ok(done())
    };
    let result = result.await;
    answered("etl_delete", result)
}

/// Serves the reads of a pulling service that uses this gateway as its `AIS_TARGET_URL` (with
/// `/v1/etl/_object` after it): returns the untransformed object from its owner.
async fn pulled(State(state): State<Etls>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let result = async {
        let (bucket, object) = pulled_object(parts.uri.path())?;
        let found = state.route.bucket(&bucket).await?;
        let owner = found.owner(object.as_str())?;
        let uri: Uri = object_uri(&bucket, object.as_str())
            .parse()
            .map_err(|_| Error::invalid("the object's name cannot stand in a URL"))?;
        redirect(&state.identity, found.state.version, &parts, &uri, &owner.url)
    };
    let result = result.await;
    answered("etl_object", result)
}
