//! Buckets over v1: one path, the action in the body.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::MethodRouter;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::cloud_rules::Compose;
use forebay_core::job::JobKind;
use forebay_core::state::Command;
use forebay_core::v1::action::ActionMsg;
use forebay_core::v1::bucket::requested_backend;
use forebay_core::v1::headers as v1;
use forebay_core::v1::query::{Query, split_path};
use forebay_core::{Bucket, Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::metrics::Metrics;
use forebay_node::reply::{json, text};

use super::{MAX_CONTROL, bucket_jobs, counted, done, list, naming_no_effect, read_body, summary};
use crate::bucket_props;
use crate::changes::Changes;
use crate::inventory::Inventories;
use crate::job_control::JobControl;
use crate::route::{Found, Route};
use crate::targets::Targets;

/// Actions of v1 that exist but are not served yet; any other action is unknown.
const NOT_SERVED: [&str; 2] = ["summary-shard", "blob-download"];

#[derive(Clone)]
pub(crate) struct Buckets {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
    pub(crate) changes: Changes,
    pub(crate) jobs: JobControl,
    pub(crate) metrics: Metrics,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) fn router(state: Buckets) -> Router {
    let methods = MethodRouter::new()
        .get(handle)
        .head(handle)
        .post(handle)
        .put(handle)
        .delete(handle)
        .patch(handle);
    Router::new()
        .route("/v1/buckets", methods.clone())
        .route("/v1/buckets/", methods.clone())
        .route("/v1/buckets/{*bucket}", methods)
        .with_state(state)
}

/// A request about buckets, decoded.
pub(super) struct Call {
    parts: Parts,
    pub(super) query: Query,
    /// Empty in requests about all buckets.
    bucket: String,
    /// The part of the path after the bucket.
    rest: String,
    pub(super) action: ActionMsg,
}

impl Call {
    /// The bucket of the request; an error if the request names none.
    pub(super) fn bucket(&self) -> Result<Bucket> {
        if !self.rest.is_empty() {
            let name = format!("{}/{}", self.bucket, self.rest);
            return Err(Error::new(
                ErrorCode::InvalidName,
                format!("invalid bucket name \"{name}\": it has a slash"),
            ));
        }
        self.query.bucket(&self.bucket)
    }
}

async fn handle(State(state): State<Buckets>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match decode(parts, body).await {
        Ok(call) => {
            let op = match call.action.action.as_str() {
                "" => "head_bucket".to_owned(),
                action if is_known(action) => action.to_owned(),
                _ => "unknown".to_owned(),
            };
            let result = answer(&state, call).await;
            counted(&state.metrics, "v1", &op, result)
        }
        Err(e) => counted(&state.metrics, "v1", "unknown", Err(e)),
    }
}

async fn decode(parts: Parts, body: Body) -> Result<Call> {
    let (bucket, rest) = split_path(parts.uri.path(), "buckets")?;
    let body = read_body(body, MAX_CONTROL).await?;
    let is_json = parts
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|t| t.to_str().is_ok_and(|t| t.contains("json")));
    let action = if parts.method == Method::HEAD {
        ActionMsg::default()
    } else if parts.method == Method::GET && body.is_empty() && !is_json {
        ActionMsg { action: "list".into(), ..ActionMsg::default() }
    } else {
        forebay_node::off_worker(body.len(), || ActionMsg::parse(&body))?
    };
    let query = Query::parse(parts.uri.query());
    Ok(Call { parts, query, bucket, rest, action })
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

fn is_known(action: &str) -> bool {
    NOT_SERVED.contains(&action) || SERVED.iter().any(|(_, actions)| actions.contains(&action))
}

async fn answer(state: &Buckets, call: Call) -> Result<Response> {
    let (method, action) = (call.parts.method.clone(), call.action.action.as_str());
    match (method.as_str(), action) {
        ("HEAD", _) => head(state, &call).await,
        ("GET", "list") if call.bucket.is_empty() => {
            list::buckets(&state.route.state(), &call.query, &call.action.name)
        }
        ("GET", "list") => {
            let (bucket, value) = (call.bucket()?, &call.action.value);
            list::objects(&state.route, &state.targets, &bucket, value, &call.parts.headers).await
        }
        ("GET", "summary-bck") => summarize(state, &call).await,
        (
            "GET" | "POST" | "DELETE",
            "show-inventory" | "create-inventory" | "destroy-inventory",
        ) => inventory(state, &call).await,
        ("POST", "create-bck") => create(state, &call).await,
        ("DELETE", "destroy-bck") => destroy(state, &call.bucket()?).await,
        ("DELETE", "evict-remote-bck") => evict(state, &call).await,
        ("PATCH", "set-bprops") => {
            let change = |info: &mut _| bucket_props::apply(info, &call.action.value);
            set_props(state, &call.bucket()?, change).await
        }
        ("PATCH", "reset-bprops") => {
            let change = |info: &mut _| {
                bucket_props::reset(info, &state.route.state());
                Ok(())
            };
            set_props(state, &call.bucket()?, change).await
        }
        ("POST", "copy-bck") => bucket_jobs::copy_bucket(state, &call, false).await,
        ("POST", "move-bck") => bucket_jobs::rename(state, &call).await,
        ("POST", "etl-bck") => bucket_jobs::copy_bucket(state, &call, true).await,
        ("POST", "etl-listrange") => bucket_jobs::copy_objects(state, &call, true).await,
        ("POST", "copy-listrange") => bucket_jobs::copy_objects(state, &call, false).await,
        ("PUT", "archive") => bucket_jobs::archive(state, &call).await,
        ("POST", "prefetch-listrange") => bucket_jobs::prefetch(state, &call).await,
        ("POST", "scrub") => bucket_jobs::each(state, JobKind::Scrub, &call).await,
        ("POST", "index-shard") => bucket_jobs::each(state, JobKind::IndexShard, &call).await,
        ("POST", "write-back") => bucket_jobs::write_back(state, &call).await,
        ("POST", "make-n-copies") => bucket_jobs::make_copies(state, &call).await,
        ("POST", "ec-encode") => bucket_jobs::encode(state, &call).await,
        ("POST", "rechunk") => bucket_jobs::lacking(state, &call).await,
        ("DELETE", "evict-listrange") => bucket_jobs::each(state, JobKind::Evict, &call).await,
        ("DELETE", "delete-listrange") => bucket_jobs::each(state, JobKind::Delete, &call).await,
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
        let found = state.route.bucket(&bucket).await?;
        return summary::info(&state.targets, &found, &call.rest, &call.query).await;
    }
    call.bucket()?;
    let info = if call.query.flag("dont_add_remote_bck_md") && bucket.is_remote() {
        match state.route.known(&bucket) {
            Ok(found) => found.info,
            Err(e) if e.code == ErrorCode::RemoteBucketNotFound => {
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
        let found = state.route.bucket(&call.bucket()?).await?;
        return summary::summary(&state.targets, &found, &call.action.value).await;
    }
    summary::all(&state.route, &state.targets, &call.query, &call.action.value).await
}

/// The three actions on a bucket's inventory.
async fn inventory(state: &Buckets, call: &Call) -> Result<Response> {
    let inventories = Inventories { route: &state.route, targets: &state.targets };
    if call.bucket.is_empty() && call.action.action == "show-inventory" {
        let provider = call.query.get("provider").map(str::parse).transpose()?;
        return Ok(json(&inventories.show_all(provider).await?));
    }
    let found = state.route.bucket(&call.bucket()?).await?;
    let (value, name) = (&call.action.value, call.action.name.as_str());
    match (call.parts.method.as_str(), call.action.action.as_str()) {
        ("GET", "show-inventory") => Ok(json(&inventories.show(&found, name).await?)),
        ("POST", "create-inventory") => {
            Ok(text(inventories.create(&state.changes, &state.jobs, &found, value).await?))
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
    let bucket = call.bucket()?;
    let value = &call.action.value;
    let mut info = state.route.state().requested(bucket.clone(), requested_backend(value)?);
    let default = info.clone();
    bucket_props::apply(&mut info, value)?;
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

async fn set_props(
    state: &Buckets,
    bucket: &Bucket,
    change: impl FnOnce(&mut BucketInfo) -> Result<()>,
) -> Result<Response> {
    let before = state.route.bucket(bucket).await?.info;
    let mut info = Arc::unwrap_or_clone(before.clone());
    change(&mut info)?;
    if info.cloud.compose() != before.cloud.compose() && info.cloud.compose() == Compose::On {
        // Temporary objects must not be written to every bucket.
        state.route.check_backend(&info).await?;
    }
    state.route.judge_endpoint(&mut info).await;
    let job = bucket_jobs::made_necessary(&before, &info);
    let kept = bucket_props::without_effect(&before, &info);
    state.changes.commit(Command::SetBucket { info: Box::new(info) }).await?;
    let answer = match job {
        Some(kind) => bucket_jobs::follow_up(state, bucket, kind).await?,
        None => done(),
    };
    Ok(naming_no_effect(answer, &kept))
}
