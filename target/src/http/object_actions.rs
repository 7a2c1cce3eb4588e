//! Actions on objects beside reads and writes: copy, rename, the lock's state, blob downloads,
//! locations, and deliveries of other targets.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::cache_rules::Admission;
use forebay_core::etl::EtlCall;
use forebay_core::job::JobKind;
use forebay_core::object::ObjectMeta;
use forebay_core::request::Principal;
use forebay_core::routes::v1_objects as rules;
use forebay_core::v1::action::ActionMsg;
use forebay_core::v1::object::{BlobArgs, CopyArgs, Presence};
use forebay_core::v1::query::{Query, split_path};
use forebay_core::{Error, ErrorCode, ObjectName, Result, placement};
use forebay_node::auth::Caller;
use forebay_node::reply::{Failure, text};
use futures::{StreamExt, TryStreamExt};

use super::objects::{ObjectRequest, owned_elsewhere, read_action, unknown_action, without_proof};
use super::{Context, Shared};
use crate::job::Registration;
use crate::object::{BlobOptions, CopyOptions, Delivery, KEPT, Label, not_remote};

/// A PUT that is a copy of the object in its path.
pub(super) async fn copy(
    context: &Context,
    request: &ObjectRequest,
    to: CopyArgs,
) -> Result<Response> {
    let target = context.maps.load().bucket(&to.bucket)?.clone();
    if !target.has_backend() {
        to.name.check_v1_native()?;
    }
    let how = CopyOptions { latest: to.latest, sync: to.sync, keep_existing: false };
    let from = (&*request.info, request.name.as_str());
    if let Some(call) = EtlCall::from_query(&request.query)? {
        let mut info = BucketInfo::clone(&request.info);
        if to.latest || to.sync {
            info.freshness = Freshness::Always;
        }
        let copy = (&*target, to.name.as_str());
        context.etls.copy((&info, from.1), copy, &call, None).await?;
        return Ok(Response::new(Body::empty()));
    }
    context.objects.copy(from, (&*target, to.name.as_str()), how).await?;
    Ok(Response::new(Body::empty()))
}

/// The actions of POST on one object.
pub(super) async fn post(
    context: &Context,
    request: &ObjectRequest,
    action: &ActionMsg,
) -> Result<Response> {
    let (info, name) = (&request.info, request.name.as_str());
    let mut response = Response::new(Body::empty());
    match action.action.as_str() {
        "check-lock" => {
            if context.objects.is_being_written(info, name) {
                *response.status_mut() = StatusCode::LOCKED;
            }
        }
        "rename-obj" => {
            let to = ObjectName::new(&action.name)?;
            if !info.has_backend() {
                to.check_v1_native()?;
            }
            context.objects.rename(info, name, to.as_str()).await?;
        }
        other => return Err(unknown_action(other)),
    }
    Ok(response)
}

/// The actions of POST on a bucket that name their object in the body.
pub(super) async fn on_bucket(
    context: &Context,
    (parts, sender): (&Parts, &Principal),
    body: Body,
) -> Result<Response> {
    let (caller, access) = (sender.caller, &sender.access);
    let query = Query::parse(parts.uri.query());
    let action = read_action(body, caller, &query).await?;
    if action.action != "blob-download" {
        return Err(Error::invalid(format!("unknown action \"{}\" on objects", action.action)));
    }
    let (bucket, _) = split_path(parts.uri.path(), "objects")?;
    let bucket = query.bucket(&bucket)?;
    let name = ObjectName::new(&action.name)?;
    rules::POST.require_action(access, &bucket, "", &action)?;
    let args = BlobArgs::from_value(&action.value)?;
    let info = context.maps.load().bucket(&bucket)?.clone();
    let user = sender.user.as_deref();
    let elsewhere =
        owned_elsewhere(context, &info, &name, caller, user, &parts.method, &parts.uri)?;
    if let Some(elsewhere) = elsewhere.filter(|_| caller != Caller::Node) {
        return Ok(without_proof(access, &parts.method, elsewhere));
    }
    if !info.has_backend() {
        return Err(not_remote(&info));
    }
    if info.cache.admission == Admission::Never {
        return Err(Error::invalid(format!(
            "bucket \"{}\" has cache.admission never: nothing of it is kept",
            info.bucket
        )));
    }
    Ok(text(blob_job(context, &info, name.as_str(), args.into()).await?))
}

/// A GET whose object is to be fetched by several ranges at once: starts the fetch. The read itself
/// then follows the fetch like any other.
pub(super) async fn blob_get(
    context: &Context,
    request: &ObjectRequest,
    args: BlobArgs,
) -> Result<()> {
    let (info, name) = (&request.info, request.name.as_str());
    if !info.has_backend() {
        return Err(not_remote(info));
    }
    if args.threshold > 0 && context.objects.head(info, name).await?.size < args.threshold {
        return Ok(());
    }
    blob_job(context, info, name, args.into()).await.map(drop)
}

/// Starts the download as a job, which ends at once if the object is present. Returns the job's id.
async fn blob_job(
    context: &Context,
    info: &BucketInfo,
    name: &str,
    how: BlobOptions,
) -> Result<String> {
    let following = context.objects.cold_cache().blob_begin(info, name, how).await?;
    let what = Registration::new(JobKind::BlobDownload).bucket(&info.bucket);
    let job = context.jobs.register(what)?;
    let id = job.id().to_owned();
    let Some(following) = following else {
        job.end(Ok(()));
        return Ok(id);
    };
    job.expect(1, following.meta.size);
    context.lifecycle.spawn(async move {
        let stop = job.stop_token();
        let outcome = tokio::select! {
            fetched = following.finished() => fetched.map(|bytes| job.done(bytes)),
            () = stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "stopped")),
        };
        job.end(outcome);
    });
    Ok(id)
}

/// The metadata for a HEAD, and whether its properties are requested.
pub(super) async fn look(context: &Context, request: &ObjectRequest) -> Result<(ObjectMeta, bool)> {
    let (info, name) = (&request.info, request.name.as_str());
    let presence = Presence::parse(&request.query)?;
    let objects = &context.objects;
    let meta = if request.caller == Caller::Node || presence.here && info.has_backend() {
        objects.head_local(info, name).await?
    } else if presence.outside {
        objects.head_outside(info, name).await?
    } else if request.query.flag("latest-ver") && info.has_backend() {
        objects.head_latest(info, name).await?
    } else {
        objects.head(info, name).await?
    };
    Ok((meta, presence.props))
}

/// Accepts an object that another target made and this target owns.
pub(super) async fn accept(
    State(context): State<Shared>,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, body) = request.into_parts();
    let (info, name) = delivered(&context, &parts)?;
    let Label { custom, keep_existing } = Label::read(&parts.headers)?;
    let len = http_body::Body::size_hint(&body).exact();
    let body = body
        .into_data_stream()
        .map_err(|e| Error::invalid(format!("the other target stopped sending: {e}")))
        .boxed();
    let delivery = Delivery { body, len, custom, keep_existing };
    let written = context.objects.accept(&info, name.as_str(), delivery).await?;
    let mut response = Response::new(Body::empty());
    if written.is_none() {
        response.headers_mut().insert(KEPT, HeaderValue::from(1));
    }
    Ok(response)
}

/// Removes an object for another target.
pub(super) async fn remove(
    State(context): State<Shared>,
    request: Request,
) -> Result<Response, Failure> {
    let (parts, _) = request.into_parts();
    let (info, name) = delivered(&context, &parts)?;
    context.objects.delete(&info, name.as_str()).await?;
    Ok(Response::new(Body::empty()))
}

/// The object of another target's request. It must belong on this target.
fn delivered(context: &Context, parts: &Parts) -> Result<(Arc<BucketInfo>, ObjectName)> {
    let path = parts.uri.path();
    let (bucket, name) = split_path(path.strip_prefix("/internal").unwrap_or(path), "objects")?;
    let bucket = Query::parse(parts.uri.query()).bucket(&bucket)?;
    let name = ObjectName::new(name)?;
    let state = context.maps.load();
    let info = state.bucket(&bucket)?.clone();
    let owner = placement::owner(&state, &info, name.as_str())?;
    if owner.id != context.identity.id {
        let uri = info.bucket.object_uri(name.as_str());
        let text = format!("{uri} belongs to target {}", owner.id);
        return Err(Error::new(ErrorCode::WrongOwner, text));
    }
    Ok((info, name))
}
