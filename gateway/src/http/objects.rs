//! Objects over v1: the gateway finds the owner and redirects the client. No object bytes pass
//! through.

use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, header};
use axum::response::Response;
use forebay_core::access::Access;
use forebay_core::origin::Origin;
use forebay_core::{ObjectName, Provider, Result};
use forebay_node::identity::Identity;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::listener::BodyIsKept;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::{Rule, native, v1_objects as rules};
use forebay_v1::action::ActionMsg;
use forebay_v1::archive::ArchiveQuery;
use forebay_v1::object::CopyArgs;
use forebay_v1::query::{ORIGINAL_URL, Query, split_path};
use http_body_util::BodyExt;

use super::object_jobs::{self, ObjectJobs};
use super::{MAX_CONTROL, access_of, answered, auth, read_body, redirect};
use crate::route::Route;
use crate::targets::Targets;

/// Idle timeout while draining: after it, the client is assumed not to send the rest.
const DRAIN_IDLE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(crate) struct Objects {
    pub(crate) route: Route,
    pub(crate) targets: Targets,
    pub(crate) jobs: ObjectJobs,
    pub(crate) identity: Identity,
    pub(crate) lifecycle: Lifecycle,
}

pub(crate) fn router(state: Objects) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Objects> {
    RouteSet::new()
        .on(&rules::GET, handle)
        .on(&rules::HEAD, handle)
        .on(&rules::PUT, handle)
        .on(&rules::POST, handle)
        .on(&rules::DELETE, handle)
        .on(&rules::PATCH, handle)
        .on(&rules::BUCKET_POST, on_bucket)
        .on(&native::SHARD, shard_index)
}

async fn handle(State(state): State<Objects>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method == Method::POST
        && split_path(parts.uri.path(), "objects").is_ok_and(|(_, object)| object.is_empty())
    {
        return on_bucket(State(state), Request::from_parts(parts, body)).await;
    }
    let operation = operation_of(&parts.method);
    if access_of(&parts.extensions) != Access::Open
        && let Some(rule) = rule_of_actions(&parts.method)
    {
        let result = send_on_action(&state, rule, parts, body).await;
        return answered(operation, result);
    }
    let result = send_on(&state, &parts).await;
    if parts.extensions.get::<BodyIsKept>().is_none() {
        drain(&state.lifecycle, &parts.headers, body);
    }
    answered(operation, result)
}

/// Handles actions of v1 on a bucket's objects that are named in the body.
async fn on_bucket(State(state): State<Objects>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let result = async {
        let body = read_body(body, MAX_CONTROL).await?;
        let action = forebay_node::off_worker(body.len(), || ActionMsg::parse(&body))?;
        object_jobs::on_bucket(&state.jobs, &parts, &action, &body).await
    };
    let result = result.await;
    answered("post", result)
}

/// The name of a request for an object in metrics.
fn operation_of(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::PUT => "put",
        Method::POST => "post",
        Method::DELETE => "delete",
        Method::PATCH => "patch",
        _ => "unknown",
    }
}

/// The rule of a method whose action is in the body.
fn rule_of_actions(method: &Method) -> Option<&'static Rule> {
    match *method {
        Method::POST => Some(&rules::POST),
        Method::DELETE => Some(&rules::DELETE),
        _ => None,
    }
}

/// Redirects an action on an object of a cluster with users. The redirect is for this body only,
/// because the target does not get the token of the user.
async fn send_on_action(
    state: &Objects,
    rule: &'static Rule,
    mut parts: Parts,
    body: Body,
) -> Result<Response> {
    let body = read_body(body, MAX_CONTROL).await?;
    let action = match body.is_empty() {
        true => ActionMsg::default(),
        false => forebay_node::off_worker(body.len(), || ActionMsg::parse(&body))?,
    };
    let (bucket, object) = split_path(parts.uri.path(), "objects")?;
    let bucket = Query::parse(parts.uri.query()).bucket(&bucket)?;
    rule.require_action(&access_of(&parts.extensions), &bucket, &object, &action)?;
    parts.uri = auth::with_body(&parts.uri, &body)?;
    send_on(state, &parts).await
}

async fn send_on(state: &Objects, parts: &Parts) -> Result<Response> {
    let (bucket, object) = split_path(parts.uri.path(), "objects")?;
    let query = Query::parse(parts.uri.query());
    let bucket = query.bucket(&bucket)?;
    let object = ObjectName::new(object)?;
    if let Some(copy) = CopyArgs::parse(&query)? {
        // This registers a cloud bucket that is not known yet.
        state.route.bucket(&copy.bucket).await?;
    }
    if parts.method == Method::GET {
        ArchiveQuery::parse(&query)?;
    }
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let on_the_web = reads && bucket.provider == Provider::Ht;
    let found = match query.get(ORIGINAL_URL).filter(|_| on_the_web) {
        Some(url) => state.route.origin(&bucket, &Origin::of_object(url, object.as_str())?).await?,
        None => state.route.bucket(&bucket).await?,
    };
    if !found.info.has_backend() {
        check_native_name(&parts.method, &object)?;
    }
    let owner = found.owner(object.as_str())?;
    state.targets.peer().learn_format(&owner.url).await;
    redirect(&state.identity, found.state.version, parts, &parts.uri, &owner.url)
}

/// Redirects to the owner, which has the index of the shard.
async fn shard_index(State(state): State<Objects>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let result = async {
        let path = parts.uri.path();
        let (bucket, object) = split_path(path.strip_prefix("/api").unwrap_or(path), "shard")?;
        let bucket = Query::parse(parts.uri.query()).bucket(&bucket)?;
        let object = ObjectName::new(object)?;
        let found = state.route.bucket(&bucket).await?;
        let owner = found.owner(object.as_str())?;
        redirect(&state.identity, found.state.version, &parts, &parts.uri, &owner.url)
    };
    let result = result.await;
    answered("shard", result)
}

/// Checks a native name. HEAD may use a name with a trailing slash, to learn that there is no such
/// object.
fn check_native_name(method: &Method, object: &ObjectName) -> Result<()> {
    match object.as_str().strip_suffix('/') {
        Some(probed) if *method == Method::HEAD && !probed.is_empty() => {
            ObjectName::new(probed)?.check_v1_native()
        }
        _ => object.check_v1_native(),
    }
}

/// Reads and discards what the client still sends although the answer does not need it. The answer
/// is sent immediately; a client that writes its whole body before it reads would otherwise see a
/// reset connection.
/// A client that waits for `100 Continue` sends nothing, so there is nothing to drain.
fn drain(lifecycle: &Lifecycle, headers: &HeaderMap, mut body: Body) {
    if body.is_end_stream() || headers.contains_key(header::EXPECT) {
        return;
    }
    let stop = lifecycle.token();
    lifecycle.spawn(async move {
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                frame = tokio::time::timeout(DRAIN_IDLE, body.frame()) => match frame {
                    Ok(Some(Ok(_))) => {}
                    _ => return,
                },
            }
        }
    });
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_a_head_may_probe_a_trailing_slash() {
        let name = |n: &str| ObjectName::new(n).unwrap();
        assert!(check_native_name(&Method::HEAD, &name("a/")).is_ok());
        assert!(check_native_name(&Method::GET, &name("a/")).is_err());
        assert!(check_native_name(&Method::HEAD, &name("/")).is_err());
        assert!(check_native_name(&Method::HEAD, &name("a/../")).is_err());
    }
}
