//! S3 on a target: handles requests for objects that belong on this target, and forwards all
//! others.

mod acl;
mod attributes;
mod body;
mod copy;
mod meta;
mod parts;
mod read;
mod source;
mod tags;
mod write;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use forebay_core::bucket::BucketInfo;
use forebay_core::request::{Caller, RequestContext, RequestId};
use forebay_core::s3::access::Verdict;
use forebay_core::s3::auth::{Identity, Payload};
use forebay_core::s3::{Front, Operation, Request as S3Request, S3Code, S3Error, S3Result};
use forebay_core::{ObjectName, placement};
use forebay_node::listener::Peer;
use forebay_node::relay::Relay;
use forebay_node::s3::{self, ObjectRights, S3Door, USER};

use crate::http::{Context, caught_up};

/// Services that S3 needs beside the rest of a target.
pub(crate) struct S3 {
    pub(crate) door: S3Door,
    pub(crate) relay: Relay,
}

/// A request for an object that belongs on this target, which the bucket does not forbid.
struct Call {
    info: Arc<BucketInfo>,
    name: ObjectName,
    request: S3Request,
    parts: Parts,
    /// The checksum or signature of the body, from the request's signature.
    payload: Payload,
    who: Identity,
    /// Whether the rights of the object decide.
    verdict: Verdict,
    /// Another node sends the request for itself.
    from_node: bool,
}

impl Call {
    /// Rejects callers without the right to do this to an object with these rights.
    fn check(&self, context: &Context, rights: &ObjectRights) -> S3Result<()> {
        match self.verdict {
            Verdict::Allowed => Ok(()),
            Verdict::ByObject => context.s3.door.authorize_object(
                &self.who,
                &self.info,
                &self.request,
                &self.parts,
                rights,
            ),
        }
    }

    /// The rights that a new object gets from this request.
    fn new_rights(&self, context: &Context) -> S3Result<ObjectRights> {
        let door = &context.s3.door;
        let acl = door.acl_of_headers(&self.parts.headers)?.unwrap_or_default();
        // Objects of a bucket without an owner belong to all key holders together.
        let bucket_owner = self.info.s3.owner.as_ref();
        let owner = bucket_owner.and_then(|of| door.new_owner(&self.who).filter(|me| me != of));
        let acl = acl.without(owner.as_ref().or(bucket_owner).map_or("", String::as_str));
        Ok(ObjectRights { owner, acl, ..ObjectRights::default() })
    }
}

/// Handles a request that arrived at `front`.
pub(crate) async fn answer(
    context: &Context,
    about: &RequestContext,
    front: &Front,
    request: Request,
    peer: Peer,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let door = &context.s3.door;
    let mut name = "unknown";
    let done = match s3::parse(&parts, front) {
        Ok(request) => {
            name = request.operation.name();
            s3::note_peer(&mut parts, peer);
            dispatch(context, about, front, parts, body, request).await
        }
        Err(e) => Err(e),
    };
    let result = if done.is_ok() { "ok" } else { "error" };
    context.metrics.http_request("s3", name, result);
    door.stamp(about.id, done.unwrap_or_else(|e| door.failure(about.id, &e, &method, &path)))
}

async fn dispatch(
    context: &Context,
    about: &RequestContext,
    front: &Front,
    parts: Parts,
    body: Body,
    request: S3Request,
) -> S3Result<Response> {
    let is_relay = about.caller() == Caller::S3Relay;
    caught_up(context, &parts.headers, &parts.uri).await?;
    let state = context.maps.load();
    if request.key.is_empty() || request.operation == Operation::Preflight {
        if is_relay {
            return Err(S3Code::ServiceUnavailable.into());
        }
        let gateway = state.gateways().find(|node| node.alive);
        let gateway = gateway.ok_or_else(|| S3Error::from(S3Code::ServiceUnavailable))?;
        let request = Request::from_parts(parts, body);
        return Ok(context.s3.relay.pass(&gateway.url, state.version, None, request).await?);
    }
    let known = s3::bucket(&state, &request.bucket);
    if let Ok(info) = known {
        let owner = placement::owner(&state, info, &request.key)?;
        if owner.id != context.identity.id {
            if is_relay {
                return Err(S3Error::new(
                    S3Code::ServiceUnavailable,
                    "the object moves: try again",
                ));
            }
            let request = Request::from_parts(parts, body);
            return Ok(context.s3.relay.pass(&owner.url, state.version, None, request).await?);
        }
    }
    let trusted = parts.headers.get(&USER).filter(|_| is_relay).and_then(|u| u.to_str().ok());
    let from_node = trusted.is_some();
    let (who, payload) = match trusted {
        Some(user) => (s3::identity(user), Payload::Unsigned),
        None => {
            let caller = context.s3.door.authenticate(&parts, front);
            let caller = caller.map_err(|e| s3::or_out_of_time(e, about))?;
            (caller.identity, caller.payload)
        }
    };
    let hidden = |e| context.s3.door.hide_missing_bucket(&who, &request.bucket, e);
    let info = known.map_err(hidden)?.clone().with_request_rules(&parts.headers)?;
    let name = ObjectName::new(&request.key)?;
    let door = &context.s3.door;
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let verdict = door.authorize(&who, &info, &request, &parts);
    let mut call =
        Call { info, name, request, parts, payload, who, verdict: Verdict::ByObject, from_node };
    let done = match verdict {
        Ok(verdict) => {
            call.verdict = verdict;
            perform(context, &call, body).await
        }
        Err(e) => Err(e),
    };
    let mut response = match done {
        Ok(response) => response,
        Err(e) => refusal(context, about.id, &call, e, &method, &path).await,
    };
    s3::put_cors(&call.info, &method, &call.parts.headers, response.headers_mut());
    Ok(response)
}

/// The response to a failed request.
async fn refusal(
    context: &Context,
    id: RequestId,
    call: &Call,
    e: S3Error,
    method: &Method,
    path: &str,
) -> Response {
    use Operation as O;
    let door = &context.s3.door;
    let e = door.hide_missing(&call.who, &call.info, &call.request, &call.parts, e);
    let mut response = door.failure(id, &e, method, path);
    if e.code == S3Code::InvalidRange
        && let Some(size) = e.detail_of("ActualObjectSize")
    {
        s3::set(response.headers_mut(), "content-range", &format!("bytes */{size}"));
    }
    if e.code == S3Code::NoSuchKey
        && let O::GetObject(asked) | O::HeadObject(asked) = &call.request.operation
        && asked.version_id.is_none()
    {
        let marker = context.objects.marker(&call.info, call.name.as_str()).await;
        let marker = marker.ok().flatten();
        let out = response.headers_mut();
        s3::set(out, "x-amz-delete-marker", if marker.is_some() { "true" } else { "false" });
        if let Some(version) = marker {
            s3::set(out, "x-amz-version-id", &version);
        }
    }
    response
}

async fn perform(context: &Context, call: &Call, body: Body) -> S3Result<Response> {
    use Operation as O;
    match &call.request.operation {
        O::GetObject(asked) => read::get(context, call, asked).await,
        O::HeadObject(asked) => read::head(context, call, asked).await,
        O::PutObject => write::put(context, call, body).await,
        O::DeleteObject(version) => write::delete(context, call, version).await,
        O::CopyObject(source) => copy::object(context, call, source).await,
        O::UploadPartCopy(part, source) => copy::part(context, call, part, source).await,
        O::CreateMultipartUpload => parts::create(context, call).await,
        O::UploadPart(part) => parts::put(context, call, body, part).await,
        O::CompleteMultipartUpload(upload) => parts::complete(context, call, body, upload).await,
        O::AbortMultipartUpload(upload) => parts::abort(context, call, upload).await,
        O::ListParts(asked) => parts::list(context, call, asked).await,
        O::GetObjectAttributes(version) => attributes::get(context, call, version).await,
        O::GetObjectTagging(version) => tags::get(context, call, version).await,
        O::PutObjectTagging(version) => tags::put(context, call, body, version).await,
        O::DeleteObjectTagging(version) => tags::delete(context, call, version).await,
        O::GetObjectAcl(version) => acl::get(context, call, version).await,
        O::PutObjectAcl(version) => acl::put(context, call, body, version).await,
        O::Unsupported(name) => Err(S3Error::not_implemented(name)),
        other => Err(S3Error::not_implemented(other.name())),
    }
}
