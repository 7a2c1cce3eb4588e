//! Requests for an object on the fast connection: a GET of what is on this target, and a PUT of an
//! object that belongs here.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::RequestContext;
use forebay_core::sign::GRANT_HEADER;
use forebay_core::timing::TIMING_HEADER;
use forebay_core::trace::TRACEPARENT_HEADER;
use forebay_node::auth;
use forebay_node::fast_http::{FastAnswer, RequestHead};
use forebay_node::listener::Take;
use forebay_v1::headers as v1;

use super::get_request::{GetRequest, Lookup};
use super::object_write::Sent;
use super::objects::{DecodedRequest, ObjectsApi};

/// Headers that do not affect the response, and those that the fast connection or the edge handles.
/// A request with any other header takes the slow path.
const IGNORED_HEADERS: [&str; 9] = [
    "host",
    "authorization",
    "user-agent",
    "accept",
    "accept-encoding",
    "connection",
    "content-length",
    "content-type",
    TRACEPARENT_HEADER,
];
static RECOGNIZED: [HeaderName; 6] = [
    HeaderName::from_static(MAP_HEADER),
    HeaderName::from_static(GRANT_HEADER),
    header::RANGE,
    HeaderName::from_static(v1::CHECKSUM_TYPE),
    HeaderName::from_static(v1::CHECKSUM_VALUE),
    HeaderName::from_static(TIMING_HEADER),
];

impl ObjectsApi {
    /// Responds to a GET of an object on this target. A small one in memory is returned at once,
    /// with the response's head, without its end, in `out`; a large part in files as a stream.
    /// `None` for all other requests.
    pub(super) fn fast_path(
        &self,
        about: &RequestContext,
        get: &RequestHead<'_, '_>,
        out: &mut Vec<u8>,
    ) -> Option<FastAnswer> {
        let decoded = self.decode_fast(about, Method::GET, get)?;
        let DecodedRequest::Get(request, get) = decoded else { return None };
        if self.is_limited(&request.sender, &request.info) {
            return None;
        }
        let found = match self.reads.fast_path(&request, get).ok()? {
            Ok(found) => found,
            Err(GetRequest::Bytes(range, Lookup::Fresh(record))) => {
                let work = self.reads.clone().streamed(request, range, record)?;
                return Some(FastAnswer::Streamed(Box::pin(work)));
            }
            Err(_) => return None,
        };
        found.write_head(out, request.caller());
        Some(FastAnswer::Whole(found.body()))
    }

    /// Accepts a PUT of an object that belongs on this target, before its bytes arrive. `None` for
    /// all other requests.
    pub(super) fn take(
        self: &Arc<Self>,
        about: &RequestContext,
        put: &RequestHead<'_, '_>,
    ) -> Option<Take> {
        let decoded = self.decode_fast(about, Method::PUT, put)?;
        let DecodedRequest::Other(request) = decoded else { return None };
        if self.is_limited(&request.sender, &request.info) {
            return None;
        }
        let api = self.clone();
        Some(Box::new(move |bytes| {
            Box::pin(async move {
                let done = api.writes.put(request, Sent::Whole(bytes)).await;
                api.finish(&Method::PUT, done)
            })
        }))
    }

    /// Decodes a request of the fast connection. `None`: it has to take the slow path.
    fn decode_fast(
        &self,
        about: &RequestContext,
        method: Method,
        asked: &RequestHead<'_, '_>,
    ) -> Option<DecodedRequest> {
        let mut request = axum::http::Request::new(());
        *request.method_mut() = method;
        *request.uri_mut() = asked.target.parse().ok()?;
        auth::check_sender(about, request.method(), request.uri().path()).ok()?;
        *request.headers_mut() = recognized(asked)?;
        if self.sync.newer(request.headers(), request.uri()).is_some() {
            return None;
        }
        self.decode(about, request.into_parts().0).ok()
    }
}

/// The recognized headers of a request; `None` if there are others.
fn recognized(asked: &RequestHead<'_, '_>) -> Option<HeaderMap> {
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
