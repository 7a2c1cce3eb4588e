//! S3 on a target: handles requests for objects that belong on this target, and forwards all
//! others.

mod acl;
mod attributes;
mod body;
mod call;
mod copy;
mod meta;
mod parts;
mod read;
mod source;
mod tags;
mod write;

use axum::body::Body;
use axum::extract::Request;
use axum::http::Method;
use axum::http::request::Parts;
use axum::response::Response;
use forebay_core::request::{Caller, RequestContext, RequestId};
use forebay_core::{ObjectName, placement};
use forebay_node::exchange;
use forebay_node::listener::Peer;
use forebay_node::s3::{self, USER};
use forebay_s3::access::Verdict;
use forebay_s3::auth::{Identity, Payload};
use forebay_s3::{Front, Operation, Request as S3Request, S3Code, S3Error, S3Result};

use self::call::Call;
pub(crate) use self::call::S3Api;
use crate::http::objects::admission;

/// Handles a request that arrived at `front`.
pub(crate) async fn answer(
    api: &S3Api,
    about: &RequestContext,
    front: &Front,
    request: Request,
    peer: Peer,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let door = &api.door;
    let done = match s3::parse(&parts, front) {
        Ok(request) => {
            exchange::set_operation(request.operation.name());
            s3::note_peer(&mut parts, peer);
            dispatch(api, about, front, parts, body, request).await
        }
        Err(e) => Err(e),
    };
    done.unwrap_or_else(|e| door.failure(about.id, &e, &method, &path))
}

async fn dispatch(
    api: &S3Api,
    about: &RequestContext,
    front: &Front,
    parts: Parts,
    body: Body,
    request: S3Request,
) -> S3Result<Response> {
    let is_relay = about.caller() == Caller::S3Relay;
    api.sync.catch_up(&parts.headers, &parts.uri).await?;
    let state = api.maps.load();
    if request.key.is_empty() || request.operation == Operation::Preflight {
        if is_relay {
            return Err(S3Code::ServiceUnavailable.into());
        }
        let gateway = state.gateways().find(|node| node.alive);
        let gateway = gateway.ok_or_else(|| S3Error::from(S3Code::ServiceUnavailable))?;
        let request = Request::from_parts(parts, body);
        return Ok(api.relay.pass(&gateway.url, state.version, None, request).await?);
    }
    let known = s3::bucket(&state, &request.bucket);
    if let Ok(info) = known {
        let owner = placement::owner(&state, info, &request.key)?;
        if owner.id != *api.objects.me() {
            if is_relay {
                return Err(S3Error::new(
                    S3Code::ServiceUnavailable,
                    "the object moves: try again",
                ));
            }
            let request = Request::from_parts(parts, body);
            return Ok(api.relay.pass(&owner.url, state.version, None, request).await?);
        }
    }
    let trusted = parts.headers.get(&USER).filter(|_| is_relay).and_then(|u| u.to_str().ok());
    let from_node = trusted.is_some();
    let (who, payload) = match trusted {
        Some(user) => (s3::identity(user), Payload::Unsigned),
        None => {
            let caller = api.door.authenticate(&parts, front);
            let caller = caller.map_err(|e| s3::or_out_of_time(e, about))?;
            (caller.identity, caller.payload)
        }
    };
    let hidden = |e| api.door.hide_missing_bucket(&who, &request.bucket, e);
    let info = known.map_err(hidden)?.clone().with_request_rules(&parts.headers)?;
    exchange::set_bucket(&info);
    let name = ObjectName::new(&request.key)?;
    let door = &api.door;
    let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
    let verdict = door.authorize(&who, &info, &request, &parts);
    let mut call =
        Call { info, name, request, parts, payload, who, verdict: Verdict::ByObject, from_node };
    let done = match verdict {
        Ok(verdict) => {
            call.verdict = verdict;
            perform_in_turn(api, &call, body).await
        }
        Err(e) => Err(e),
    };
    let mut response = match done {
        Ok(response) => response,
        Err(e) => refusal(api, about.id, &call, e, &method, &path).await,
    };
    s3::put_cors(&call.info, &method, &call.parts.headers, response.headers_mut());
    Ok(response)
}

/// The response to a failed request.
async fn refusal(
    api: &S3Api,
    id: RequestId,
    call: &Call,
    e: S3Error,
    method: &Method,
    path: &str,
) -> Response {
    use Operation as O;
    let door = &api.door;
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
        let marker = api.objects.versions().marker(&call.info, call.name.as_str()).await;
        let marker = marker.ok().flatten();
        let out = response.headers_mut();
        s3::set(out, "x-amz-delete-marker", if marker.is_some() { "true" } else { "false" });
        if let Some(version) = marker {
            s3::set(out, "x-amz-version-id", &version);
        }
    }
    response
}

/// Performs a request once the limits of its bucket and user allow it, and its bytes pass at their rate.
async fn perform_in_turn(api: &S3Api, call: &Call, body: Body) -> S3Result<Response> {
    let user = user_of(call);
    let pass = match api.maps.rates().limits(&call.info, user) {
        true => admission(&api.maps, call.info.clone(), user.map(str::to_owned)).await?,
        false => None,
    };
    let body = match &pass {
        Some(pass) => pass.shape(body),
        None => body,
    };
    // Awaited at one place only: rustc checks this large future again for each.
    let response = perform(api, call, body).await?;
    Ok(match pass {
        Some(pass) => pass.shape_response(response),
        None => response,
    })
}

/// Name of the user who signed a request, also of one that another node passed on.
fn user_of(call: &Call) -> Option<&str> {
    match &call.who {
        Identity::Key(user) => Some(user),
        Identity::Anonymous => None,
    }
}

async fn perform(api: &S3Api, call: &Call, body: Body) -> S3Result<Response> {
    use Operation as O;
    match &call.request.operation {
        O::GetObject(asked) => read::get(api, call, asked).await,
        O::HeadObject(asked) => read::head(api, call, asked).await,
        O::PutObject => write::put(api, call, body).await,
        O::DeleteObject(version) => write::delete(api, call, version).await,
        O::CopyObject(source) => copy::object(api, call, source).await,
        O::UploadPartCopy(part, source) => copy::part(api, call, part, source).await,
        O::CreateMultipartUpload => parts::create(api, call).await,
        O::UploadPart(part) => parts::put(api, call, body, part).await,
        O::CompleteMultipartUpload(upload) => parts::complete(api, call, body, upload).await,
        O::AbortMultipartUpload(upload) => parts::abort(api, call, upload).await,
        O::ListParts(asked) => parts::list(api, call, asked).await,
        O::GetObjectAttributes(version) => attributes::get(api, call, version).await,
        O::GetObjectTagging(version) => tags::get(api, call, version).await,
        O::PutObjectTagging(version) => tags::put(api, call, body, version).await,
        O::DeleteObjectTagging(version) => tags::delete(api, call, version).await,
        O::GetObjectAcl(version) => acl::get(api, call, version).await,
        O::PutObjectAcl(version) => acl::put(api, call, body, version).await,
        O::Unsupported(name) => Err(S3Error::not_implemented(name)),
        other => Err(S3Error::not_implemented(other.name())),
    }
}
