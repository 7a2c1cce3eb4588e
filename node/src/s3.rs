//! What gateways and targets share in serving S3: where it is served, whose keys count, and the
//! form of answers.

mod rights;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use forebay_core::bucket::BucketInfo;
use forebay_core::config::{S3Config, S3Key};
use forebay_core::s3::auth::{self, Caller, Identity, SecretKey};
use forebay_core::s3::{Front, Request as S3Request, RequestHead, S3Code, S3Error, S3Result, cors};
use forebay_core::state::ClusterState;
use forebay_core::{Bucket, Provider};

pub use self::rights::{ObjectRights, USER, identity, judged_by, name_of, note_peer, owner_of};
use crate::clock::{unix_ns, unix_s};

/// Set by a node that passes a request of S3 on: the front it came to, `/s3` or `/`.
pub static FRONT: HeaderName = HeaderName::from_static("forebay-s3-front");

/// Paths of a node that are never those of a bucket at the root.
const OWN: [&str; 6] = ["/v1/", "/api/", "/internal/", "/healthz", "/readyz", "/metrics"];

/// Most bytes of a body of XML or JSON.
pub const MAX_BODY: usize = forebay_core::s3::bodies::MAX_BODY;

/// A node's S3 front; cheap to clone.
#[derive(Clone)]
pub struct S3Door(Arc<Inner>);

struct Inner {
    config: S3Config,
    keys: BTreeMap<String, SecretKey>,
    /// By access key.
    users: BTreeMap<String, String>,
    prefixed: Front,
    root: Front,
    /// Makes request ids differ between nodes.
    node: u64,
    count: AtomicU64,
}

impl S3Door {
    pub fn new(config: &S3Config) -> Self {
        let keys = config
            .keys()
            .iter()
            .map(|key| (key.access.clone(), SecretKey::new(key.secret.clone())))
            .collect();
        let user = |key: &S3Key| (key.access.clone(), key.user().to_owned());
        let users = config.keys().iter().map(user).collect();
        let domains: Vec<String> = config.domains.iter().map(|d| d.to_ascii_lowercase()).collect();
        Self(Arc::new(Inner {
            config: config.clone(),
            keys,
            users,
            prefixed: Front::new("/s3", domains.clone()),
            root: Front::new("", domains),
            node: unix_ns(),
            count: AtomicU64::new(0),
        }))
    }

    pub fn config(&self) -> &S3Config {
        &self.0.config
    }

    /// The front that a request came to; `None` when it is not for S3. `at_root` says whether the
    /// cluster serves S3 at `/` too.
    pub fn front(&self, request: &Request, at_root: bool) -> Option<&Front> {
        let (path, headers) = (request.uri().path(), request.headers());
        if !self.0.root.domains.is_empty() {
            let host = headers.get(header::HOST).and_then(|h| h.to_str().ok()).unwrap_or("");
            // Behind a bucket's host the whole path is the key, even one that begins with `s3/`.
            if self.0.root.host_bucket(host).is_some() {
                return Some(&self.0.root);
            }
        }
        if self.0.prefixed.strip(path).is_some() {
            return Some(&self.0.prefixed);
        }
        if headers.contains_key(&FRONT) {
            return Some(&self.0.root);
        }
        let own = OWN.iter().any(|own| path.starts_with(own));
        let at_root = at_root || self.0.config.root;
        (at_root && !own).then_some(&self.0.root)
    }

    /// Who sent a request. A cluster without keys takes everybody for its owner.
    pub fn authenticate(&self, parts: &Parts, front: &Front) -> S3Result<Caller> {
        let head = head(parts);
        if !self.0.keys.is_empty() {
            let caller = auth::authenticate(&head, front, &self.0.keys, unix_s())?;
            return Ok(Caller { identity: self.user_of(caller.identity), ..caller });
        }
        Ok(Caller { identity: Identity::Key("anyone".into()), ..auth::open(&head)? })
    }

    /// The user whose key it is.
    pub fn user_of(&self, identity: Identity) -> Identity {
        match identity {
            Identity::Key(access) => match self.0.users.get(&access) {
                Some(user) => Identity::Key(user.clone()),
                None => Identity::Key(access),
            },
            Identity::Anonymous => Identity::Anonymous,
        }
    }

    /// Whether somebody of this name holds a key.
    fn knows(&self, user: &str) -> bool {
        self.0.users.values().any(|u| u == user)
    }

    /// The keys that signatures are checked with.
    pub fn keys(&self) -> &BTreeMap<String, SecretKey> {
        &self.0.keys
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.0.keys.is_empty()
    }

    /// The answer to a request that failed; `path` is the path as received.
    pub fn failure(&self, e: &S3Error, method: &Method, path: &str) -> Response {
        let status = StatusCode::from_u16(e.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let id = self.request_id();
        let bodiless = *method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
        let mut response = if bodiless {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = status;
            response
        } else {
            xml(status, e.to_xml(path, &id))
        };
        if let Ok(id) = HeaderValue::try_from(id) {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        if e.code == S3Code::InternalError {
            tracing::error!(%method, path, error = %e, "s3 request failed");
        } else {
            tracing::debug!(%method, path, error = %e, "s3 request refused");
        }
        response
    }

    /// Gives an answer the id that every answer has.
    pub fn stamp(&self, mut response: Response) -> Response {
        if !response.headers().contains_key("x-amz-request-id")
            && let Ok(id) = HeaderValue::try_from(self.request_id())
        {
            response.headers_mut().insert("x-amz-request-id", id);
        }
        response
    }

    fn request_id(&self) -> String {
        let n = self.0.count.fetch_add(1, Ordering::Relaxed);
        format!("{:016X}", self.0.node.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }
}

/// A request as it came, for [`forebay_core::s3`].
pub fn head(parts: &Parts) -> RequestHead<'_> {
    RequestHead {
        method: &parts.method,
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or(""),
        headers: &parts.headers,
    }
}

/// Understands a request that came to `front`.
pub fn parse(parts: &Parts, front: &Front) -> S3Result<S3Request> {
    S3Request::parse(&head(parts), front)
}

/// The bucket of this name, whatever its provider: names are unique over all of them.
pub fn bucket<'a>(state: &'a ClusterState, name: &str) -> S3Result<&'a Arc<BucketInfo>> {
    const PROVIDERS: [Provider; 5] =
        [Provider::Ais, Provider::Aws, Provider::Gcp, Provider::Azure, Provider::Ht];
    PROVIDERS
        .into_iter()
        .filter_map(|provider| Bucket::new(provider, name).ok())
        .find_map(|bucket| state.bucket(&bucket).ok())
        .ok_or_else(|| S3Error::from(S3Code::NoSuchBucket).detail("BucketName", name))
}

/// Adds what a browser wants to know of an answer to this request.
pub fn put_cors(info: &BucketInfo, method: &Method, asked: &HeaderMap, answer: &mut HeaderMap) {
    if info.s3.cors.is_empty() || !asked.contains_key(header::ORIGIN) {
        return;
    }
    for (name, value) in cors::answer(&info.s3.cors, method.as_str(), asked) {
        set(answer, name, &value);
    }
}

/// An answer of XML.
pub fn xml(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    let xml = HeaderValue::from_static("application/xml");
    response.headers_mut().insert(header::CONTENT_TYPE, xml);
    response
}

/// An answer without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

/// Sets a header whose text comes from data; text that no header may hold is left out.
pub fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) =
        (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes()))
    {
        headers.insert(name, value);
    }
}

/// A small body, whole.
pub async fn read_body(body: Body, limit: usize) -> S3Result<bytes::Bytes> {
    axum::body::to_bytes(body, limit)
        .await
        .map_err(|_| S3Error::from(S3Code::MaxMessageLengthExceeded))
}
