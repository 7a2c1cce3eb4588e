//! S3 on a target: requests for objects are answered where the object belongs, all others are
//! passed on.

mod attributes;
mod body;
mod copy;
mod meta;
mod parts;
mod read;
mod source;
mod tags;
mod write;

use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use forebay_core::bucket::BucketInfo;
use forebay_core::s3::answers::Owner;
use forebay_core::s3::auth::{Identity, Payload};
use forebay_core::s3::{Front, Operation, Request as S3Request, S3Code, S3Error, S3Result};
use forebay_core::settings::S3_API_VIA_ROOT;
use forebay_core::{ObjectName, placement};
use forebay_node::auth::{self, Caller};
use forebay_node::relay::Relay;
use forebay_node::s3::{self, S3Door, USER};

use crate::http::{Context, caught_up};

/// What S3 needs beside the rest of a target.
pub(crate) struct S3 {
    pub(crate) door: S3Door,
    pub(crate) relay: Relay,
}

/// A request for an object that belongs here, from somebody who may come in.
struct Call {
    info: BucketInfo,
    name: ObjectName,
    parts: Parts,
    /// What the signature says of the body.
    payload: Payload,
    /// The access key of who asks.
    user: String,
    /// Another node asks on its own account.
    from_node: bool,
}

/// Whether the cluster serves S3 at `/` too (AIStore's feature flag `S3-API-via-Root`).
pub(crate) fn at_root(context: &Context) -> bool {
    context.maps.load().settings.has(S3_API_VIA_ROOT)
}

/// Who owns everything here.
fn owner() -> Owner {
    Owner { id: "forebay".into(), display_name: "forebay".into() }
}

/// Answers a request that came to `front`.
pub(crate) async fn answer(context: &Context, front: &Front, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let door = &context.s3.door;
    let mut name = "unknown";
    let done = match s3::parse(&parts, front) {
        Ok(request) => {
            name = request.operation.name();
            dispatch(context, front, parts, body, request).await
        }
        Err(e) => Err(e),
    };
    let result = if done.is_ok() { "ok" } else { "error" };
    context.metrics.http_request("s3", name, result);
    door.stamp(done.unwrap_or_else(|e| door.failure(&e, &method, &path)))
}

async fn dispatch(
    context: &Context,
    front: &Front,
    parts: Parts,
    body: Body,
    request: S3Request,
) -> S3Result<Response> {
    caught_up(context, &parts.headers, &parts.uri).await?;
    let sender = auth::caller(&parts.method, &parts.uri, &parts.headers, &context.identity);
    let is_node = sender == Caller::Node;
    let state = context.maps.load();
    if request.key.is_empty() || request.operation == Operation::Preflight {
        if is_node {
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
            if is_node {
                return Err(S3Error::new(
                    S3Code::ServiceUnavailable,
                    "the object moves: try again",
                ));
            }
            let request = Request::from_parts(parts, body);
            return Ok(context.s3.relay.pass(&owner.url, state.version, None, request).await?);
        }
    }
    let trusted = parts.headers.get(&USER).filter(|_| is_node).and_then(|u| u.to_str().ok());
    let trusted = trusted.map(str::to_owned);
    let from_node = trusted.is_some();
    let (user, payload) = match trusted {
        Some(user) => (user, Payload::Unsigned),
        None => {
            let caller = context.s3.door.authenticate(&parts, front)?;
            let info = match (&known, &caller.identity) {
                (Ok(info), _) => *info,
                // Only who may come in hears what is not there.
                (Err(_), Identity::Anonymous) => return Err(S3Code::AccessDenied.into()),
                (Err(e), Identity::Key(_)) => return Err(e.clone()),
            };
            let door = &context.s3.door;
            (door.authorize(&caller.identity, info, &request, &parts)?, caller.payload)
        }
    };
    let info = known?.clone();
    let name = ObjectName::new(&request.key)?;
    let call = Call { info, name, parts, payload, user, from_node };
    let done = perform(context, &call, body, request.operation).await;
    let (method, asked) = (&call.parts.method, &call.parts.headers);
    let mut response =
        done.unwrap_or_else(|e| context.s3.door.failure(&e, method, call.parts.uri.path()));
    s3::put_cors(&call.info, method, asked, response.headers_mut());
    Ok(response)
}

async fn perform(
    context: &Context,
    call: &Call,
    body: Body,
    operation: Operation,
) -> S3Result<Response> {
    use Operation as O;
    match operation {
        O::GetObject(asked) => read::get(context, call, &asked).await,
        O::HeadObject(asked) => read::head(context, call, &asked).await,
        O::PutObject => write::put(context, call, body).await,
        O::DeleteObject(version) => write::delete(context, call, &version).await,
        O::CopyObject(source) => copy::object(context, call, &source).await,
        O::UploadPartCopy(part, source) => copy::part(context, call, &part, &source).await,
        O::CreateMultipartUpload => parts::create(context, call).await,
        O::UploadPart(part) => parts::put(context, call, body, &part).await,
        O::CompleteMultipartUpload(upload) => parts::complete(context, call, body, &upload).await,
        O::AbortMultipartUpload(upload) => parts::abort(context, call, &upload).await,
        O::ListParts(asked) => parts::list(context, call, &asked).await,
        O::GetObjectAttributes(version) => attributes::get(context, call, &version).await,
        O::GetObjectTagging(version) => tags::get(context, call, &version).await,
        O::PutObjectTagging(version) => tags::put(context, call, body, &version).await,
        O::DeleteObjectTagging(version) => tags::delete(context, call, &version).await,
        O::GetObjectAcl(version) => {
            read::stat(context, call, &version.version_id).await?;
            let text = forebay_core::s3::answers::acl(&owner(), false, false);
            Ok(s3::xml(StatusCode::OK, text))
        }
        O::PutObjectAcl(version) => {
            read::stat(context, call, &version.version_id).await?;
            s3::check_acl(&call.parts.headers)?;
            Ok(s3::empty(StatusCode::OK))
        }
        O::Unsupported(name) => Err(S3Error::not_implemented(name)),
        other => Err(S3Error::not_implemented(other.name())),
    }
}
