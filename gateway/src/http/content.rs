//! Bytes of objects and indexes of shards through the gateway, for pages in a browser: a page may read
//! from its own origin only, so it cannot follow a redirect to a target. The bytes are streamed and not
//! stored here.

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use forebay_core::request::RequestContext;
use forebay_core::url::{encode_path, encode_query};
use forebay_core::{Bucket, Error, ObjectName, Result};
use forebay_node::auth;
use forebay_node::identity::Identity;
use forebay_node::relay::Relay;
use forebay_node::routing::{GuardedRouter, RouteSet};
use forebay_routes::native;
use forebay_v1::query::{Query, object_uri, split_path};

use super::answered;
use crate::route::{Found, Route};

/// Most targets that one read goes to: a target that no longer owns the object redirects to the owner.
const MAX_HOPS: usize = 3;
/// Headers of a target's answer that the client gets.
const PASSED_HEADERS: [HeaderName; 4] =
    [header::CONTENT_LENGTH, header::CONTENT_RANGE, header::ETAG, header::RETRY_AFTER];
/// An object is data and never a page of this origin, whatever its bytes are.
const HEADERS: [(HeaderName, HeaderValue); 4] = [
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// The services for reads through the gateway.
#[derive(Clone)]
pub(crate) struct Contents {
    pub(crate) route: Route,
    pub(crate) identity: Identity,
    pub(crate) relay: Relay,
}

pub(crate) fn router(state: Contents) -> GuardedRouter {
    routes().with_state(state)
}

pub(crate) fn routes() -> RouteSet<Contents> {
    RouteSet::new().on(&native::CONTENT, content).on(&native::MEMBERS, members)
}

/// `GET /api/v1/content/BUCKET/NAME?provider=…[&archpath=MEMBER]`, with `Range`.
async fn content(State(state): State<Contents>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let target = |bucket: &Bucket, name: &ObjectName, query: &Query| {
        let mut target = object_uri(bucket, name.as_str());
        for key in ["archpath", "archmime"] {
            if let Some(value) = query.get(key) {
                target.push_str(&format!("&{key}={}", encode_query(value)));
            }
        }
        target
    };
    let answer = state.read(&parts, "content", "application/octet-stream", target).await;
    answered("content", answer)
}

/// `GET /api/v1/members/BUCKET/NAME?provider=…`: the answer of `GET /api/v1/shard/BUCKET/NAME`.
async fn members(State(state): State<Contents>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let target = |bucket: &Bucket, name: &ObjectName, _: &Query| {
        let uri = object_uri(bucket, name.as_str());
        uri.replacen("/v1/objects/", "/api/v1/shard/", 1)
    };
    answered("members", state.read(&parts, "members", "application/json", target).await)
}

impl Contents {
    /// Reads from the owner of the object in the path of the request; `target` returns the path and
    /// query there.
    async fn read(
        &self,
        parts: &Parts,
        collection: &str,
        media_type: &'static str,
        target: impl Fn(&Bucket, &ObjectName, &Query) -> String,
    ) -> Result<Response> {
        let path = parts.uri.path();
        let (bucket, name) = split_path(path.strip_prefix("/api").unwrap_or(path), collection)?;
        let query = Query::parse(parts.uri.query());
        let bucket = query.bucket(&bucket)?;
        let name = ObjectName::new(name)?;
        let found = self.route.bucket(&bucket).await?;
        let target = target(&bucket, &name, &query);
        let answer = self.owner_answer(&found, &name, parts, &target).await?;
        Ok(shown(answer, media_type))
    }

    /// The answer of the owner to a GET of `target`, with the rights of the sender.
    async fn owner_answer(
        &self,
        found: &Found,
        name: &ObjectName,
        parts: &Parts,
        target: &str,
    ) -> Result<Response> {
        let uri: Uri = target
            .parse()
            .map_err(|_| Error::invalid("the name of the object cannot stand in a URL"))?;
        let about = parts.extensions.get::<RequestContext>();
        let user = about.and_then(|about| about.principal.user.as_deref());
        let mut headers = HeaderMap::new();
        if let Some(range) = parts.headers.get(header::RANGE) {
            headers.insert(header::RANGE, range.clone());
        }
        let mut node = found.owner(name.as_str())?;
        let version = found.state.version;
        let location =
            auth::redirect_location(&self.identity, version, user, &parts.method, &uri, &node.url)?;
        let mut target = location.strip_prefix(&node.url).unwrap_or(&location).to_owned();
        for _ in 0..MAX_HOPS {
            let answer = self.relay.read(&node.url, &target, headers.clone()).await?;
            if !answer.status().is_redirection() {
                return Ok(answer);
            }
            let location = answer.headers().get(header::LOCATION);
            let location = location.and_then(|location| location.to_str().ok()).unwrap_or_default();
            let next = found.state.targets().find_map(|node| {
                let rest = location.strip_prefix(node.url.as_str())?;
                rest.starts_with('/').then_some((node, rest))
            });
            let Some((owner, rest)) = next else { break };
            (node, target) = (owner, rest.to_owned());
        }
        let name = encode_path(name.as_str());
        Err(Error::unavailable(format!("the owner of {name} changes now")).retry_after(1))
    }
}

/// A target's answer as the client gets it: the bytes of a success are data, a failure is JSON.
fn shown(answer: Response, media_type: &'static str) -> Response {
    let (from, body) = answer.into_parts();
    let is_success = matches!(from.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT);
    let media_type = if is_success { media_type } else { "application/json" };
    let mut shown = Body::new(body).into_response();
    *shown.status_mut() = from.status;
    let headers = shown.headers_mut();
    for name in &PASSED_HEADERS {
        if let Some(value) = from.headers.get(name) {
            headers.insert(name, value.clone());
        }
    }
    headers.extend(HEADERS);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_object_are_never_a_page() {
        let evil = [
            (header::CONTENT_TYPE, "text/html"),
            (header::CONTENT_RANGE, "bytes 0-3/9"),
            (header::SET_COOKIE, "a=b"),
        ];
        let answer = (StatusCode::PARTIAL_CONTENT, evil, "<scr").into_response();
        let shown = shown(answer, "application/octet-stream");
        assert_eq!(shown.status(), 206);
        let header = |name: &str| shown.headers().get(name).and_then(|value| value.to_str().ok());
        assert_eq!(header("content-type"), Some("application/octet-stream"));
        assert_eq!(header("content-range"), Some("bytes 0-3/9"));
        assert_eq!(header("x-content-type-options"), Some("nosniff"));
        assert_eq!(header("content-security-policy"), Some("default-src 'none'; sandbox"));
        assert_eq!(header("set-cookie"), None);
    }
}
