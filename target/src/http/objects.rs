//! Objects over v1: `/v1/objects/BUCKET/NAME`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::access::Access;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::HEDGED_HEADER;
use forebay_core::request::{Principal, RequestContext};
use forebay_core::routes::Rule;
use forebay_core::sign::GrantUser;
use forebay_core::v1::action::ActionMsg;
use forebay_core::v1::query::{Query, split_path};
use forebay_core::{Error, ErrorCode, ObjectName, Result, placement};
use forebay_node::auth::{self, Caller};
use forebay_node::listener::Answer;
use forebay_node::metrics::result_of;
use forebay_node::reply::Failure;
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::object_get::Wanted;
use super::object_write::Sent;
use super::{
    Context, OBJECT_RULES, caught_up, newer_state, object_actions, object_get, object_head,
    object_write,
};

static HEDGED: HeaderName = HeaderName::from_static(HEDGED_HEADER);

/// Largest control message.
const MAX_ACTION: usize = 1 << 20;

/// A request for one object, decoded.
pub(super) struct ObjectRequest {
    pub(super) info: Arc<BucketInfo>,
    pub(super) name: ObjectName,
    pub(super) query: Query,
    pub(super) caller: Caller,
    /// The rights of the sender.
    pub(super) access: Access,
    /// The user of the sender, for a redirect.
    user: Option<Arc<GrantUser>>,
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
}

/// A request for an object, decoded as far as possible without waiting.
pub(super) enum DecodedRequest {
    Answered(Response),
    /// The request is for the bucket.
    OnBucket(Parts, Principal),
    Get(ObjectRequest, Wanted),
    Other(ObjectRequest),
}

impl DecodedRequest {
    /// Completes a GET of a small object in memory.
    fn fast_path(self, context: &Context) -> Result<Self> {
        let Self::Get(request, wanted) = self else { return Ok(self) };
        Ok(match wanted.fast_path(context, &request)? {
            Ok(found) => Self::Answered(found.response(request.caller)),
            Err(wanted) => Self::Get(request, wanted),
        })
    }
}

/// Handles all methods of an object. For a small object in memory the response is ready when this
/// returns.
pub(super) fn handle<'a>(
    context: &'a Context,
    about: &RequestContext,
    request: Request,
) -> Answer<'a> {
    let method = request.method().clone();
    let (parts, body) = request.into_parts();
    if let Err(e) = auth::check_sender(about, &method, parts.uri.path()) {
        return Answer::Left(ready(finish(context, &method, Err(e))));
    }
    if newer_state(context, &parts.headers, &parts.uri).is_some() {
        let about = about.clone();
        return later(context, method, async move {
            caught_up(context, &parts.headers, &parts.uri).await?;
            resume(context, decode(context, &about, parts)?, body).await
        });
    }
    let result = match decode(context, about, parts).and_then(|started| started.fast_path(context))
    {
        Ok(DecodedRequest::Answered(response)) => Ok(response),
        Ok(started) => return later(context, method, resume(context, started, body)),
        Err(e) => Err(e),
    };
    Answer::Left(ready(finish(context, &method, result)))
}

fn later<'a>(
    context: &'a Context,
    method: Method,
    work: impl Future<Output = Result<Response>> + Send + 'a,
) -> Answer<'a> {
    Answer::Right(Box::pin(async move { finish(context, &method, work.await) }))
}

pub(super) fn finish(context: &Context, method: &Method, result: Result<Response>) -> Response {
    context.metrics.object_request(method, result_of(&result));
    result.unwrap_or_else(|e| {
        let code = match e.code {
            // A client that was not redirected gets `Unavailable`, so that it retries.
            ErrorCode::WrongOwner => ErrorCode::Unavailable,
            code => code,
        };
        Failure(Error { code, ..e }).into_response()
    })
}

/// Decodes a request that its sender may send.
pub(super) fn decode(
    context: &Context,
    about: &RequestContext,
    parts: Parts,
) -> Result<DecodedRequest> {
    let caller = about.caller();
    if *about.access() != Access::Open {
        rule_of(&parts.method)?.admit(about, parts.uri.path(), parts.uri.query())?;
    }
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let (bucket, name) = split_path(parts.uri.path(), "objects")?;
    if name.is_empty() && parts.method == Method::POST {
        return Ok(DecodedRequest::OnBucket(parts, about.principal.clone()));
    }
    let query = Query::parse(parts.uri.query());
    let bucket = query.bucket(&bucket)?;
    let name = ObjectName::new(name)?;
    let info = context.maps.load().bucket(&bucket)?.clone().with_request_rules(&parts.headers)?;
    let user = about.principal.user.as_deref();
    if reads && caller == Caller::Client && parts.headers.contains_key(&HEDGED) {
        context.objects.replication().check_hedged(&info, name.as_str())?;
    } else if caller != Caller::Node
        && let Some(elsewhere) =
            owned_elsewhere(context, &info, &name, caller, user, &parts.method, &parts.uri)?
    {
        let elsewhere = without_proof(about.access(), &parts.method, elsewhere);
        return Ok(DecodedRequest::Answered(elsewhere));
    }
    let (method, uri, headers) = (parts.method, parts.uri, parts.headers);
    let (access, user) = (about.access().clone(), about.principal.user.clone());
    let mut request =
        ObjectRequest { info, name, query, caller, access, user, method, uri, headers };
    if request.method != Method::GET {
        return Ok(DecodedRequest::Other(request));
    }
    let wanted = Wanted::of(&mut request)?;
    Ok(DecodedRequest::Get(request, wanted))
}

async fn resume(context: &Context, started: DecodedRequest, body: Body) -> Result<Response> {
    let request = match started {
        DecodedRequest::Answered(response) => return Ok(response),
        DecodedRequest::OnBucket(parts, sender) => {
            return Box::pin(object_actions::on_bucket(context, (&parts, &sender), body)).await;
        }
        DecodedRequest::Get(request, wanted) => {
            return object_get::get(context, request, wanted).await;
        }
        DecodedRequest::Other(request) => request,
    };
    // Boxed: the future is as large as its largest variant.
    match request.method {
        Method::HEAD => Box::pin(object_head::head(context, request)).await,
        Method::PUT => Box::pin(object_write::put(context, request, Sent::Stream(body))).await,
        Method::DELETE => Box::pin(object_write::delete(context, request, body)).await,
        Method::PATCH => Box::pin(object_write::patch(context, request, body)).await,
        Method::POST => Box::pin(object_write::post(context, request, body)).await,
        ref other => Err(not_served(other)),
    }
}

/// The redirect if another target owns the object.
pub(super) fn owned_elsewhere(
    context: &Context,
    info: &BucketInfo,
    name: &ObjectName,
    caller: Caller,
    user: Option<&GrantUser>,
    method: &Method,
    uri: &Uri,
) -> Result<Option<Response>> {
    let state = context.maps.load();
    let owner = placement::owner(&state, info, name.as_str())?;
    if owner.id == context.identity.id {
        return Ok(None);
    }
    let location =
        auth::redirect_location(&context.identity, state.version, user, method, uri, &owner.url)?;
    let mut response = if caller.knows_the_map() {
        Failure(Error::new(
            ErrorCode::WrongOwner,
            format!("{} belongs to target {}", info.bucket.object_uri(name.as_str()), owner.id),
        ))
        .into_response()
    } else if *method == Method::GET {
        StatusCode::MOVED_PERMANENTLY.into_response()
    } else {
        StatusCode::TEMPORARY_REDIRECT.into_response()
    };
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(Some(response))
}

/// The rule of a method.
fn rule_of(method: &Method) -> Result<&'static Rule> {
    let rule = OBJECT_RULES.into_iter().find(|rule| rule.verb.name() == method.as_str());
    rule.ok_or_else(|| not_served(method))
}

fn not_served(method: &Method) -> Error {
    Error::new(ErrorCode::MethodNotAllowed, format!("{method} is not served for objects"))
}

/// The redirect of a request whose body has an action, without its proof if a user sent it: the proof
/// does not cover the body, so the owner would accept any action.
pub(super) fn without_proof(access: &Access, method: &Method, mut elsewhere: Response) -> Response {
    if *access == Access::Open || !matches!(*method, Method::POST | Method::DELETE) {
        return elsewhere;
    }
    elsewhere.headers_mut().remove(header::LOCATION);
    if elsewhere.status().is_redirection() {
        let text = "another target owns the object: send the request to a gateway";
        return Failure(Error::unavailable(text)).into_response();
    }
    elsewhere
}

impl ObjectRequest {
    /// Reads the action in the body, if its sender may send it.
    pub(super) async fn read_action(&self, rule: &'static Rule, body: Body) -> Result<ActionMsg> {
        let action = read_action(body, self.caller, &self.query).await?;
        if self.access != Access::Open {
            let (bucket, name) = (&self.info.bucket, self.name.as_str());
            rule.require_action(&self.access, bucket, name, &action)?;
        }
        Ok(action)
    }

    /// Rejects names that v1 clients could not request again.
    pub(super) fn check_new_name(&self) -> Result<()> {
        if self.info.has_backend() { Ok(()) } else { self.name.check_v1_native() }
    }
}

/// The body of a request, and its length if that is known.
pub(super) fn body_of(body: Body) -> (BoxStream<'static, Result<Bytes>>, Option<u64>) {
    let len = http_body::Body::size_hint(&body).exact();
    let stream = body
        .into_data_stream()
        .map_err(|e| Error::invalid(format!("the client stopped sending: {e}")))
        .boxed();
    (stream, len)
}

/// Redirects a write if the object's owner changed after the request was sent and nothing was done
/// yet.
pub(super) fn moved_meanwhile(
    context: &Context,
    request: &ObjectRequest,
    e: Error,
) -> Result<Response> {
    let ObjectRequest { info, name, caller, access, user, method, uri, .. } = request;
    let user = user.as_deref();
    match e.code {
        ErrorCode::WrongOwner if *caller != Caller::Node => {
            let elsewhere = owned_elsewhere(context, info, name, *caller, user, method, uri)?;
            Ok(without_proof(access, method, elsewhere.ok_or(e)?))
        }
        _ => Err(e),
    }
}

pub(super) fn unknown_action(action: &str) -> Error {
    Error::invalid(format!("unknown action \"{action}\" on an object"))
}

pub(super) async fn read_action(body: Body, caller: Caller, query: &Query) -> Result<ActionMsg> {
    let bytes = axum::body::to_bytes(body, MAX_ACTION)
        .await
        .map_err(|e| Error::invalid(format!("the request's body cannot be read: {e}")))?;
    auth::check_body(caller, query, &bytes)?;
    if bytes.is_empty() {
        return Ok(ActionMsg::default());
    }
    forebay_node::off_worker(bytes.len(), || ActionMsg::parse(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request's future is moved several times before it runs in its connection.
    #[test]
    fn a_request_for_an_object_is_cheap_to_hand_on() {
        let size = size_of::<Answer<'_>>();
        assert!(size <= 512, "{size} bytes");
    }
}
