//! Buckets over v1: one path, the action in the body.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use forebay_core::access::Scope;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::cloud_rules::Compose;
use forebay_core::job::JobKind;
use forebay_core::state::Command;
use forebay_core::{Bucket, Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::reply::{json, text};
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{On, v1_buckets as rules};
use forebay_v1::bucket::requested_backend;
use forebay_v1::headers as v1;
use forebay_v1::list::ListMsg;

use super::bucket_call::{Call, check_backend_access, check_mask_access, decode};
use super::bucket_jobs::{self, BucketJobs};
use super::{answered, done, list, naming_no_effect, summary};
use crate::bucket_props;
use crate::changes::Changes;
use crate::inventory::Inventories;
use crate::route::{Found, Route, is_in_cloud_namespace, require_registration};
use crate::targets::Targets;

/// Actions of v1 that exist but are not served yet; any other action is unknown.
const NOT_SERVED: [&str; 2] = ["summary-shard", "blob-download"];

#[derive(Clone)]
pub(crate) struct Buckets {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
    pub(crate) changes: Changes,
    pub(crate) jobs: BucketJobs,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) fn router(state: Buckets) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Buckets> {
    RouteSet::new()
        .on(&rules::GET, handle)
        .on(&rules::HEAD, handle)
        .on(&rules::POST, handle)
        .on(&rules::PUT, handle)
        .on(&rules::DELETE, handle)
        .on(&rules::PATCH, handle)
}

async fn handle(State(state): State<Buckets>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match decode(parts, body).await {
        Ok(call) => {
            let operation = match call.action.action.as_str() {
                "" => "head_bucket",
                action => served_name(action).unwrap_or("unknown"),
            };
            answered(operation, answer(&state, call).await)
        }
        Err(e) => answered("unknown", Err(e)),
    }
}

/// Served actions, by method.
const SERVED: [(&str, &[&str]); 5] = [
    ("GET", &["list", "summary-bck", "show-inventory"]),
    (
        "POST",
        &[
            "create-bck",
            "copy-bck",
            "move-bck",
            "copy-listrange",
            "etl-bck",
            "etl-listrange",
            "prefetch-listrange",
            "scrub",
            "index-shard",
            "make-n-copies",
            "write-back",
            "ec-encode",
            "rechunk",
            "create-inventory",
        ],
    ),
    ("PUT", &["archive"]),
    (
        "DELETE",
        &[
            "destroy-bck",
            "evict-remote-bck",
            "delete-listrange",
            "evict-listrange",
            "destroy-inventory",
        ],
    ),
    ("PATCH", &["set-bprops", "reset-bprops"]),
];

/// The name of an action in metrics.
fn served_name(action: &str) -> Option<&'static str> {
    let served = SERVED.iter().flat_map(|(_, actions)| actions.iter());
    served.chain(&NOT_SERVED).find(|name| **name == action).copied()
}

async fn answer(state: &Buckets, call: Call) -> Result<Response> {
    let (method, action) = (call.parts.method.clone(), call.action.action.as_str());
    let jobs = &state.jobs;
    match (method.as_str(), action) {
        ("HEAD", _) => head(state, &call).await,
        ("GET", "list") if call.bucket.is_empty() => {
            list::buckets(&state.route.state(), &call.query, &call.action.name, &call.access)
        }
        ("GET", "list") => {
            let (bucket, value) = (call.bucket()?, &call.action.value);
            if !call.is_open() {
                let prefix = ListMsg::from_value(value)?.prefix;
                call.grant()?.require(On::Selected, Scope::Prefix(&bucket, &prefix))?;
            }
            list::objects(&state.route, &state.targets, &bucket, value, &call.parts.headers).await
        }
        ("GET", "summary-bck") => summarize(state, &call).await,
        (
            "GET" | "POST" | "DELETE",
            "show-inventory" | "create-inventory" | "destroy-inventory",
        ) => inventory(state, &call).await,
        ("POST", "create-bck") => create(state, &call).await,
        ("DELETE", "destroy-bck") => {
            let bucket = call.bucket()?;
            call.grant()?.require(On::Bucket, Scope::Bucket(&bucket))?;
            destroy(state, &bucket).await
        }
        ("DELETE", "evict-remote-bck") => {
            call.grant()?.require(On::Bucket, Scope::Bucket(&call.bucket()?))?;
            evict(state, &call).await
        }
        ("PATCH", "set-bprops") => {
            let change = |info: &mut _| bucket_props::apply(info, &call.action.value);
            set_props(state, &call, change).await
        }
        ("PATCH", "reset-bprops") => {
            let change = |info: &mut _| {
                bucket_props::reset(info, &state.route.state());
                Ok(())
            };
            set_props(state, &call, change).await
        }
        ("POST", "copy-bck") => bucket_jobs::copy_bucket(jobs, &call, false).await,
        ("POST", "move-bck") => bucket_jobs::rename(jobs, &call).await,
        ("POST", "etl-bck") => bucket_jobs::copy_bucket(jobs, &call, true).await,
        ("POST", "etl-listrange") => bucket_jobs::copy_objects(jobs, &call, true).await,
        ("POST", "copy-listrange") => bucket_jobs::copy_objects(jobs, &call, false).await,
        ("PUT", "archive") => bucket_jobs::archive(jobs, &call).await,
        ("POST", "prefetch-listrange") => bucket_jobs::prefetch(jobs, &call).await,
        ("POST", "scrub") => bucket_jobs::each(jobs, JobKind::Scrub, &call).await,
        ("POST", "index-shard") => bucket_jobs::each(jobs, JobKind::IndexShard, &call).await,
        ("POST", "write-back") => bucket_jobs::write_back(jobs, &call).await,
        ("POST", "make-n-copies") => bucket_jobs::make_copies(jobs, &call).await,
        ("POST", "ec-encode") => bucket_jobs::encode(jobs, &call).await,
        ("POST", "rechunk") => bucket_jobs::lacking(jobs, &call).await,
        ("DELETE", "evict-listrange") => bucket_jobs::each(jobs, JobKind::Evict, &call).await,
        ("DELETE", "delete-listrange") => bucket_jobs::each(jobs, JobKind::Delete, &call).await,
        (_, other) => {
            // An invalid name is reported before an unknown action.
            call.bucket()?;
            Err(match SERVED.iter().find(|(_, actions)| actions.contains(&other)) {
                Some((method, _)) => {
                    Error::invalid(format!("action \"{other}\" goes with {method}"))
                }
                None if NOT_SERVED.contains(&other) => {
                    Error::unsupported(format!("action \"{other}\" is not served yet"))
                }
                None => Error::invalid(format!("unknown action \"{other}\"")),
            })
        }
    }
}

async fn head(state: &Buckets, call: &Call) -> Result<Response> {
    let bucket = call.query.bucket(&call.bucket)?;
    if call.query.has("bsumm_remote") {
        let row = rules::HEAD.by_query(&call.query).of(&call.access);
        let prefix = summary::prefix_of_info(&call.rest, &call.query)?;
        row.require(On::Selected, Scope::Prefix(&bucket, &prefix))?;
        let found = state.route.bucket(&bucket).await?;
        return summary::info(&state.targets, &found, &call.rest, &call.query).await;
    }
    call.bucket()?;
    let info = if call.query.flag("dont_add_remote_bck_md") && bucket.is_remote() {
        match state.route.known(&bucket) {
            Ok(found) => found.info,
            Err(e) if e.code == ErrorCode::RemoteBucketNotFound => {
                require_registration(&bucket)?;
                let info = BucketInfo::requested(bucket, None);
                state.route.check_backend(&info).await?;
                info.into()
            }
            Err(e) => return Err(e),
        }
    } else {
        state.route.bucket(&bucket).await?.info
    };
    let props = HeaderValue::try_from(bucket_props::shown(&info).to_string())
        .map_err(|_| Error::internal("bucket properties cannot stand in a header"))?;
    Ok([(HeaderName::from_static(v1::BUCKET_PROPS), props)].into_response())
}

async fn summarize(state: &Buckets, call: &Call) -> Result<Response> {
    if !call.bucket.is_empty() {
        let (bucket, prefix) = (call.bucket()?, summary::prefix_of(&call.action.value)?);
        call.grant()?.require(On::Selected, Scope::Prefix(&bucket, &prefix))?;
        let found = state.route.bucket(&bucket).await?;
        return summary::summary(&state.targets, &found, &call.action.value).await;
    }
    let grant = call.grant()?;
    summary::all(&state.route, &state.targets, &call.query, &call.action.value, grant).await
}

/// The three actions on a bucket's inventory.
async fn inventory(state: &Buckets, call: &Call) -> Result<Response> {
    let inventories = Inventories { route: &state.route, targets: &state.targets };
    if call.bucket.is_empty() && call.action.action == "show-inventory" {
        let provider = call.query.get("provider").map(str::parse).transpose()?;
        let grant = call.grant()?;
        let is_shown = |bucket: &Bucket| grant.has(On::Selected, Scope::Prefix(bucket, ""));
        return Ok(json(&inventories.show_all(provider, is_shown).await?));
    }
    let bucket = call.bucket()?;
    if !call.is_open() {
        call.grant()?.require(On::Selected, Scope::Prefix(&bucket, ""))?;
    }
    let found = state.route.bucket(&bucket).await?;
    let (value, name) = (&call.action.value, call.action.name.as_str());
    match (call.parts.method.as_str(), call.action.action.as_str()) {
        ("GET", "show-inventory") => Ok(json(&inventories.show(&found, name).await?)),
        ("POST", "create-inventory") => {
            Ok(text(inventories.create(&state.changes, &state.jobs.control, &found, value).await?))
        }
        ("DELETE", "destroy-inventory") => {
            inventories.destroy(&found, name).await?;
            Ok(done())
        }
        (method, action) => {
            Err(Error::invalid(format!("action \"{action}\" goes not with {method}")))
        }
    }
}

async fn create(state: &Buckets, call: &Call) -> Result<Response> {
    let (bucket, grant) = (call.bucket()?, call.grant()?);
    grant.require(On::Bucket, Scope::Bucket(&bucket))?;
    let value = &call.action.value;
    let backend = requested_backend(value)?;
    let is_named = backend.is_some();
    let mut info = state.route.state().requested(bucket.clone(), backend);
    let default = info.clone();
    bucket_props::apply(&mut info, value)?;
    // A namespace gives a bucket of a cloud another name, and so other rights.
    let is_other = is_named || is_in_cloud_namespace(&bucket) || info.backend != default.backend;
    if let Some(backend) = info.backend.as_ref().filter(|_| is_other) {
        check_backend_access(&grant, &bucket, backend)?;
    }
    check_mask_access(&grant, &default, &info)?;
    let kept = bucket_props::without_effect(&default, &info);
    if let Ok(found) = state.route.known(&bucket) {
        return Err(Error::new(
            ErrorCode::BucketExists,
            format!("bucket \"{}\" already exists", found.info.bucket),
        ));
    }
    match call.query.flag("dont_head_remote_bck") {
        true => state.route.check_endpoint(&info).await?,
        false => state.route.check_backend(&info).await?,
    }
    let command = Command::CreateBucket { info: Box::new(info), now_ns: unix_ns() };
    state.changes.commit(command).await?;
    Ok(naming_no_effect(done(), &kept))
}

async fn destroy(state: &Buckets, bucket: &Bucket) -> Result<Response> {
    let found = state.route.known(bucket)?;
    if bucket.is_remote() {
        return Err(Error::unsupported(format!(
            "cannot destroy \"{bucket}\": it lives in a cloud"
        ))
        .hint("evict it: the cluster forgets it, the cloud keeps it"));
    }
    found.info.check_access(BucketChange::Destroy)?;
    forget(state, &found).await?;
    Ok(done())
}

/// Removes the bucket from the map, then makes targets drop its data. Targets that miss the second
/// step drop the data when they get the map.
pub(crate) async fn forget(state: &Buckets, found: &Found) -> Result<()> {
    let bucket = found.info.bucket.clone();
    state.changes.commit(Command::DestroyBucket { bucket }).await?;
    let (targets, snapshot, id) = (state.targets.clone(), found.state.clone(), found.info.id);
    state.lifecycle.spawn(async move {
        let path = format!("/internal/v1/bucket/{id}");
        for (node, dropped) in targets.delete_all(snapshot.alive_targets(), &path).await {
            if let Err(e) = dropped {
                tracing::debug!(node = %node, bucket_id = id, error = %e, "data not dropped yet");
            }
        }
    });
    Ok(())
}

/// Drops what is cached of a bucket. If the bucket is kept, it gets a new id: cached data of the
/// old id on an unreachable target is never served again.
async fn evict(state: &Buckets, call: &Call) -> Result<Response> {
    let bucket = call.bucket()?;
    let found = match state.route.known(&bucket) {
        Ok(found) if !found.info.has_backend() => {
            return Err(Error::invalid(format!("cannot evict \"{bucket}\": it has no backend"))
                .hint("its objects live only here; destroy the bucket to be rid of them"));
        }
        Ok(found) => found,
        Err(e) if e.code == ErrorCode::RemoteBucketNotFound => return Ok(done()),
        Err(e) => return Err(e),
    };
    forget(state, &found).await?;
    if call.query.flag("keep_bck_md") {
        let info = Box::new(Arc::unwrap_or_clone(found.info));
        match state.changes.commit(Command::CreateBucket { info, now_ns: unix_ns() }).await {
            // A concurrent request has registered the bucket again.
            Err(e) if e.code != ErrorCode::BucketExists => return Err(e),
            _ => {}
        }
    }
    Ok(done())
}

/// Gives a bucket another account or endpoint. It gets a new id, so that nothing cached of the former
/// source is served as content of the new one.
async fn replace(state: &Buckets, call: &Call, info: &BucketInfo) -> Result<Response> {
    // With id 0, targets do not keep the client of a change that may fail.
    let asked = BucketInfo { id: 0, ..info.clone() };
    match call.query.flag("dont_head_remote_bck") {
        true => state.route.check_endpoint(&asked).await?,
        false => state.route.check_backend(&asked).await?,
    }
    state.changes.check_readable(info).await?;
    let found = state.route.known(&info.bucket)?;
    let kept = bucket_props::without_effect(&found.info, info);
    forget(state, &found).await?;
    let command = Command::CreateBucket { info: Box::new(asked), now_ns: unix_ns() };
    state.changes.commit(command).await?;
    Ok(naming_no_effect(done(), &kept))
}

async fn set_props(
    state: &Buckets,
    call: &Call,
    change: impl FnOnce(&mut BucketInfo) -> Result<()>,
) -> Result<Response> {
    let (bucket, grant) = (&call.bucket()?, call.grant()?);
    grant.require(On::Bucket, Scope::Bucket(bucket))?;
    let before = state.route.bucket(bucket).await?.info;
    let mut info = Arc::unwrap_or_clone(before.clone());
    change(&mut info)?;
    check_mask_access(&grant, &before, &info)?;
    if let Some(backend) = info.backend.as_ref().filter(|_| info.backend != before.backend) {
        check_backend_access(&grant, bucket, backend)?;
    }
    let now = info.backend.as_ref().zip(before.backend.as_ref());
    if now.is_some_and(|(now, before)| !now.is_same_source(before)) {
        return replace(state, call, &info).await;
    }
    if info.backend != before.backend {
        state.route.check_backend(&info).await?;
    }
    if info.cloud.compose() != before.cloud.compose() && info.cloud.compose() == Compose::On {
        // Temporary objects must not be written to every bucket.
        state.route.check_backend(&info).await?;
    }
    state.route.judge_endpoint(&mut info).await;
    let job = bucket_jobs::made_necessary(&before, &info);
    let kept = bucket_props::without_effect(&before, &info);
    state.changes.commit(Command::SetBucket { info: Box::new(info) }).await?;
    let answer = match job {
        Some(kind) => bucket_jobs::follow_up(&state.jobs, bucket, kind).await?,
        None => done(),
    };
    Ok(naming_no_effect(answer, &kept))
}
