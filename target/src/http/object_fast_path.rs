//! Requests for an object on the fast connection: a GET of what is on this target, and a PUT of an
//! object that belongs here.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::RequestContext;
use forebay_core::sign::GRANT_HEADER;
use forebay_core::v1::headers as v1;
use forebay_node::auth;
use forebay_node::listener::{Asked, Direct, Take};

use super::object_get::Wanted;
use super::object_write::{self, Sent};
use super::objects::{DecodedRequest, decode, finish};
use super::{Context, Shared, newer_state, object_get};

/// Headers that do not affect the response, and those that the fast connection or the edge handles.
/// A request with any other header takes the slow path.
const IGNORED_HEADERS: [&str; 8] = [
    "host",
    "authorization",
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
            let done = object_write::put(&context, request, Sent::Whole(bytes)).await;
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
    decode(context, about, request.into_parts().0).ok()
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
