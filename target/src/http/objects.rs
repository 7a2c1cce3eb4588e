//! Objects over v1: `/v1/objects/BUCKET/NAME`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::date::format_http;
use forebay_core::intra::{HEDGED_HEADER, MAP_HEADER};
use forebay_core::object::{ObjectMeta, SYSTEM_PREFIX, is_system_key};
use forebay_core::request::RequestContext;
use forebay_core::sign::GRANT_HEADER;
use forebay_core::v1::action::ActionMsg;
use forebay_core::v1::headers as v1;
use forebay_core::v1::object::CopyArgs;
use forebay_core::v1::query::{Query, split_path};
use forebay_core::v1::uploads::{self as actions, AppendQuery, MemberQuery, PartQuery};
use forebay_core::{Error, ErrorCode, ObjectName, Result, placement};
use forebay_node::auth::{self, Caller};
use forebay_node::listener::{Answer, Asked, Direct, Take};
use forebay_node::metrics::result_of;
use forebay_node::reply::Failure;
use futures::future::ready;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::object_get::Wanted;
use super::{Context, Shared, caught_up, newer_state, object_actions, object_get, uploads};
use crate::object::PutRequest;

/// Headers that do not affect the response, and those that the fast connection handles. A request
/// with any other header takes the slow path.
const IGNORED_HEADERS: [&str; 7] = [
    "host",
    "user-agent",
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
];
static RECOGNIZED: [HeaderName; 5] = [
    HeaderName::from_static(MAP_HEADER),
    HeaderName::from_static(GRANT_HEADER),
    header::RANGE,
    HeaderName::from_static(v1::CHECKSUM_TYPE),
    HeaderName::from_static(v1::CHECKSUM_VALUE),
];

static HEDGED: HeaderName = HeaderName::from_static(HEDGED_HEADER);

/// Largest control message.
const MAX_ACTION: usize = 1 << 20;
/// Names that a selective HEAD may ask for.
const HEAD_PROPS: [&str; 12] = [
    "name",
    "size",
    "version",
    "checksum",
    "atime",
    "copies",
    "ec",
    "custom",
    "location",
    "chunked",
    "last-modified",
    "etag",
];

/// A request for one object, decoded.
pub(super) struct ObjectRequest {
    pub(super) info: Arc<BucketInfo>,
    pub(super) name: ObjectName,
    pub(super) query: Query,
    pub(super) caller: Caller,
    method: Method,
    uri: Uri,
    pub(super) headers: HeaderMap,
}

/// A request for an object, decoded as far as possible without waiting.
enum DecodedRequest {
    Answered(Response),
    /// The request is for the bucket.
    OnBucket(Parts, Caller),
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
    let caller = about.caller();
    let method = request.method().clone();
    let (parts, body) = request.into_parts();
    if let Err(e) = auth::check_sender(about, &method, parts.uri.path()) {
        return Answer::Left(ready(finish(context, &method, Err(e))));
    }
    if newer_state(context, &parts.headers, &parts.uri).is_some() {
        return later(context, method, async move {
            caught_up(context, &parts.headers, &parts.uri).await?;
            resume(context, decode(context, caller, parts)?, body).await
        });
    }
    let result = match decode(context, caller, parts).and_then(|started| started.fast_path(context))
    {
        Ok(DecodedRequest::Answered(response)) => Ok(response),
        Ok(started) => return later(context, method, resume(context, started, body)),
        Err(e) => Err(e),
    };
    Answer::Left(ready(finish(context, &method, result)))
}

/// Responds to a GET of an object on this target. A small one in memory is returned at once, with
/// the response's head, without its end, in `out`; a large part in files as a stream. `None` for
/// all other requests.
pub(super) fn fast_path(
    context: &Shared,
    about: &RequestContext,
    get: &Asked<'_, '_>,
    out: &mut Vec<u8>,
) -> Option<Direct> {
    let started = quick(context, about, Method::GET, get)?;
    let DecodedRequest::Get(request, wanted) = started else { return None };
    let found = match wanted.fast_path(context, &request).ok()? {
        Ok(found) => found,
        Err(Wanted::Looked(range, Some(record))) => {
            let work = object_get::streamed(context.clone(), request, range, record)?;
            return Some(Direct::Streamed(Box::pin(work)));
        }
        Err(_) => return None,
    };
    context.metrics.object_request(&Method::GET, "ok");
    found.write_head(out, request.caller);
    Some(Direct::Whole(found.body()))
}

/// Accepts a PUT of an object that belongs on this target, before its bytes arrive. `None` for all
/// other requests.
pub(super) fn take(context: &Shared, about: &RequestContext, put: &Asked<'_, '_>) -> Option<Take> {
    let started = quick(context, about, Method::PUT, put)?;
    let DecodedRequest::Other(request) = started else { return None };
    let context = context.clone();
    Some(Box::new(move |bytes| {
        Box::pin(async move {
            let done = put_object(&context, request, Sent::Whole(bytes)).await;
            finish(&context, &Method::PUT, done)
        })
    }))
}

/// Decodes a request of the fast connection. `None`: it has to take the slow path.
fn quick(
    context: &Context,
    about: &RequestContext,
    method: Method,
    asked: &Asked<'_, '_>,
) -> Option<DecodedRequest> {
    let mut request = axum::http::Request::new(());
    *request.method_mut() = method;
    *request.uri_mut() = asked.target.parse().ok()?;
    auth::check_sender(about, request.method(), request.uri().path()).ok()?;
    *request.headers_mut() = recognized(asked)?;
    if newer_state(context, request.headers(), request.uri()).is_some() {
        return None;
    }
    decode(context, about.caller(), request.into_parts().0).ok()
}

/// The recognized headers of a request; `None` if there are others.
fn recognized(asked: &Asked<'_, '_>) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    for (name, value) in asked.headers() {
        if IGNORED_HEADERS.iter().any(|ignored| name.eq_ignore_ascii_case(ignored)) {
            continue;
        }
        let recognized =
            RECOGNIZED.iter().find(|recognized| name.eq_ignore_ascii_case(recognized.as_str()))?;
        headers.append(recognized, HeaderValue::from_bytes(value).ok()?);
    }
    Some(headers)
}

fn later<'a>(
    context: &'a Context,
    method: Method,
    work: impl Future<Output = Result<Response>> + Send + 'a,
) -> Answer<'a> {
    Answer::Right(Box::pin(async move { finish(context, &method, work.await) }))
}

fn finish(context: &Context, method: &Method, result: Result<Response>) -> Response {
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

fn decode(context: &Context, caller: Caller, parts: Parts) -> Result<DecodedRequest> {
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let (bucket, name) = split_path(parts.uri.path(), "objects")?;
    if name.is_empty() && parts.method == Method::POST {
        return Ok(DecodedRequest::OnBucket(parts, caller));
    }
    let query = Query::parse(parts.uri.query());
    let bucket = query.bucket(&bucket)?;
    let name = ObjectName::new(name)?;
    let info = context.maps.load().bucket(&bucket)?.clone().with_request_rules(&parts.headers)?;
    if reads && caller == Caller::Client && parts.headers.contains_key(&HEDGED) {
        context.objects.check_hedged(&info, name.as_str())?;
    } else if caller != Caller::Node
        && let Some(elsewhere) =
            owned_elsewhere(context, &info, &name, caller, &parts.method, &parts.uri)?
    {
        return Ok(DecodedRequest::Answered(elsewhere));
    }
    let (method, uri, headers) = (parts.method, parts.uri, parts.headers);
    let mut request = ObjectRequest { info, name, query, caller, method, uri, headers };
    if request.method != Method::GET {
        return Ok(DecodedRequest::Other(request));
    }
    let wanted = Wanted::of(&mut request)?;
    Ok(DecodedRequest::Get(request, wanted))
}

async fn resume(context: &Context, started: DecodedRequest, body: Body) -> Result<Response> {
    let request = match started {
        DecodedRequest::Answered(response) => return Ok(response),
        DecodedRequest::OnBucket(parts, caller) => {
            return Box::pin(object_actions::on_bucket(context, &parts, caller, body)).await;
        }
        DecodedRequest::Get(request, wanted) => {
            return object_get::get(context, request, wanted).await;
        }
        DecodedRequest::Other(request) => request,
    };
    // Boxed: the future is as large as its largest variant.
    match request.method {
        Method::HEAD => Box::pin(head(context, request)).await,
        Method::PUT => Box::pin(put_object(context, request, Sent::Stream(body))).await,
        Method::DELETE => Box::pin(delete(context, request, body)).await,
        Method::PATCH => Box::pin(patch(context, request, body)).await,
        Method::POST => Box::pin(post(context, request, body)).await,
        ref other => Err(Error::new(
            ErrorCode::MethodNotAllowed,
            format!("{other} is not served for objects"),
        )),
    }
}

/// The redirect if another target owns the object.
pub(super) fn owned_elsewhere(
    context: &Context,
    info: &BucketInfo,
    name: &ObjectName,
    caller: Caller,
    method: &Method,
    uri: &Uri,
) -> Result<Option<Response>> {
    let state = context.maps.load();
    let owner = placement::owner(&state, info, name.as_str())?;
    if owner.id == context.identity.id {
        return Ok(None);
    }
    let location =
        auth::redirect_location(&context.identity, state.version, method, uri, &owner.url)?;
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

async fn head(context: &Context, request: ObjectRequest) -> Result<Response> {
    let props: Option<Vec<&str>> =
        request.query.get("props").map(|p| p.split(',').map(str::trim).collect());
    if let Some(unknown) =
        props.iter().flatten().find(|p| !p.is_empty() && !HEAD_PROPS.contains(*p))
    {
        return Err(Error::invalid(format!("invalid property \"{unknown}\" of an object"))
            .hint(HEAD_PROPS.join(", ")));
    }
    let (meta, tells_props) = object_actions::look(context, &request).await?;
    let mut response = Response::new(Body::empty());
    if !tells_props {
        return Ok(response);
    }
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(meta.size));
    v1::set(headers, v1::PRESENT, if meta.present { "true" } else { "false" });
    write_props(headers, context, &request, &meta, props.as_deref());
    Ok(response)
}

/// The requested headers; all of them for a legacy HEAD (no `props`).
fn write_props(
    headers: &mut HeaderMap,
    context: &Context,
    request: &ObjectRequest,
    meta: &ObjectMeta,
    props: Option<&[&str]>,
) {
    let wants = |prop: &str| props.is_none_or(|list| list.contains(&prop));
    let mut all = HeaderMap::new();
    v1::put_object_meta(&mut all, meta);
    let groups: [(&str, &[&str]); 3] = [
        ("checksum", &[v1::CHECKSUM_TYPE, v1::CHECKSUM_VALUE]),
        ("version", &[v1::VERSION]),
        ("atime", &[v1::ATIME]),
    ];
    for (prop, names) in groups {
        for name in names.iter().filter(|_| wants(prop)) {
            if let Some(value) = all.get(*name).and_then(|v| v.to_str().ok()) {
                v1::set(headers, name, value);
            }
        }
    }
    if wants("custom") {
        v1::put_custom(headers, meta);
    }
    if wants("location") {
        v1::set(headers, v1::LOCATION, &format!("{}:mp[]", context.identity.label()));
    }
    if wants("copies") {
        v1::set(headers, v1::MIRROR_COPIES, "1");
    }
    if let Some(erasure) = request.info.erasure.filter(|_| wants("ec")) {
        v1::set(headers, v1::EC_GENERATION, &meta.mtime_ns.to_string());
        v1::set(headers, v1::EC_DATA, &erasure.data.to_string());
        v1::set(headers, v1::EC_PARITY, &erasure.parity.to_string());
        v1::set(headers, v1::EC_REPLICATED, &erasure.copies(meta.size).to_string());
    }
    if wants("chunked") && !meta.parts.is_empty() {
        v1::set(headers, v1::CHUNKS_COUNT, &meta.parts.count().to_string());
        v1::set(headers, v1::CHUNKS_MAX_SIZE, &meta.parts.largest().to_string());
    }
    if wants("last-modified") {
        v1::set(headers, "last-modified", &format_http(meta.mtime_ns));
    }
    if wants("etag")
        && let Some(etag) = v1::etag(meta)
    {
        v1::set(headers, "etag", &format!("\"{etag}\""));
    }
    if props.is_none() {
        v1::set(headers, v1::NAME, request.name.as_str());
        v1::set(headers, v1::BUCKET_NAME, &request.info.bucket.name);
        v1::set(headers, v1::BUCKET_PROVIDER, request.info.bucket.provider.as_str());
    }
}

impl ObjectRequest {
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

/// The kind of a PUT's content.
enum Sent {
    Stream(Body),
    Whole(Bytes),
}

impl Sent {
    fn body(self) -> Body {
        match self {
            Self::Stream(body) => body,
            Self::Whole(bytes) => Body::from(bytes),
        }
    }

    fn put(self) -> PutRequest {
        match self {
            Self::Stream(body) => {
                let (body, len) = body_of(body);
                PutRequest { len, ..PutRequest::new(body) }
            }
            Self::Whole(bytes) => PutRequest::whole(bytes),
        }
    }
}

async fn put_object(context: &Context, request: ObjectRequest, sent: Sent) -> Result<Response> {
    // Boxed: most writes are none of these.
    if let Some(copy) = CopyArgs::parse(&request.query)? {
        return Box::pin(object_actions::copy(context, &request, copy)).await;
    }
    if let Some(part) = PartQuery::parse(&request.query)? {
        return Box::pin(uploads::part(context, &request, part, sent.body())).await;
    }
    if let Some(member) = MemberQuery::parse(&request.query, &request.headers)? {
        return Box::pin(uploads::member(context, &request, member, sent.body())).await;
    }
    if let Some(append) = AppendQuery::parse(&request.query)? {
        return Box::pin(uploads::append(context, &request, append, sent.body())).await;
    }
    request.check_new_name()?;
    let announced = v1::announced_checksum(&request.headers)?;
    let put = PutRequest { announced, ..sent.put() };
    let meta = match context.objects.put(&request.info, request.name.as_str(), put).await {
        Err(e) => return moved_meanwhile(context, &request, e),
        Ok(meta) => meta,
    };
    let mut response = Response::new(Body::empty());
    if let Some(meta) = meta {
        v1::put_object_meta(response.headers_mut(), &meta);
    }
    Ok(response)
}

async fn delete(context: &Context, request: ObjectRequest, body: Body) -> Result<Response> {
    let name = request.name.as_str();
    let action = read_action(body).await?;
    match action.action.as_str() {
        "" | "delete" if request.caller == Caller::Node => {
            context.objects.delete_local(&request.info, name).await?;
        }
        "" | "delete" => {
            if let Err(e) = context.objects.delete(&request.info, name).await {
                return moved_meanwhile(context, &request, e);
            }
        }
        "evict-listrange" => {
            context.objects.evict(&request.info, name).await?;
        }
        actions::ABORT => return uploads::abort(context, &request).await,
        other => return Err(unknown_action(other)),
    }
    Ok(Response::new(Body::empty()))
}

async fn patch(context: &Context, request: ObjectRequest, body: Body) -> Result<Response> {
    let action = read_action(body).await?;
    let pairs: BTreeMap<String, String> = serde_json::from_value(action.value).map_err(|e| {
        Error::invalid(format!("custom metadata must be an object of strings: {e}"))
    })?;
    if let Some(key) = pairs.keys().find(|key| is_system_key(key)) {
        return Err(Error::invalid(format!("custom metadata \"{key}\" cannot be set"))
            .hint(format!("keys that begin with \"{SYSTEM_PREFIX}\" are the S3 front's own")));
    }
    let replace = request.query.flag("set-new-custom");
    let name = request.name.as_str();
    match context.objects.set_custom(&request.info, name, pairs, replace).await {
        Err(e) => moved_meanwhile(context, &request, e),
        Ok(()) => Ok(Response::new(Body::empty())),
    }
}

/// Redirects a write if the object's owner changed after the request was sent and nothing was done
/// yet.
fn moved_meanwhile(context: &Context, request: &ObjectRequest, e: Error) -> Result<Response> {
    let ObjectRequest { info, name, caller, method, uri, .. } = request;
    match e.code {
        ErrorCode::WrongOwner if *caller != Caller::Node => {
            owned_elsewhere(context, info, name, *caller, method, uri)?.ok_or(e)
        }
        _ => Err(e),
    }
}

async fn post(context: &Context, request: ObjectRequest, body: Body) -> Result<Response> {
    let action = read_action(body).await?;
    match action.action.as_str() {
        actions::BEGIN => uploads::begin(context, &request).await,
        actions::COMPLETE => uploads::complete(context, &request, &action).await,
        _ => object_actions::post(context, &request, &action).await,
    }
}

pub(super) fn unknown_action(action: &str) -> Error {
    Error::invalid(format!("unknown action \"{action}\" on an object"))
}

pub(super) async fn read_action(body: Body) -> Result<ActionMsg> {
    let bytes = axum::body::to_bytes(body, MAX_ACTION)
        .await
        .map_err(|e| Error::invalid(format!("the request's body cannot be read: {e}")))?;
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
