//! S3 code that gateways and targets share: where it is served, whose keys count, and the format of
//! answers.

mod rights;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use forebay_core::access::Access;
use forebay_core::bucket::BucketInfo;
use forebay_core::config::{S3Config, S3Key};
use forebay_core::request::{Protocol, Refusal, RequestContext, RequestId};
use forebay_core::state::ClusterState;
use forebay_core::{Bucket, Provider};
use forebay_s3::auth::{self, Caller, Identity, Keys, SecretKey};
use forebay_s3::{Front, Request as S3Request, RequestHead, S3Code, S3Error, S3Result, cors};

pub(crate) use self::rights::PEER;
pub use self::rights::{ObjectRights, USER, identity, judged_by, name_of, note_peer, owner_of};
use crate::access::Authenticator;
use crate::clock::unix_s;
use crate::edge::s3_token;
use crate::exchange::ErrorText;
use crate::maps::Maps;
use crate::reply;

/// Set by nodes of the first version on a request of S3 that they pass on.
pub(crate) static FRONT: HeaderName = HeaderName::from_static("forebay-s3-front");

/// Maximum bytes of an XML or JSON body.
pub const MAX_BODY: usize = forebay_s3::bodies::MAX_BODY;

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
    /// With the cluster's state, for users of the cluster.
    cluster: Option<(Arc<Authenticator>, Maps)>,
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
            cluster: None,
        }))
    }

    /// Also accepts keys and tokens of the cluster's users.
    #[must_use]
    pub fn with_users(self, users: Arc<Authenticator>, maps: &Maps) -> Self {
        let Inner { config, keys, users: names, prefixed, root, .. } = &*self.0;
        Self(Arc::new(Inner {
            config: config.clone(),
            keys: keys.clone(),
            users: names.clone(),
            prefixed: prefixed.clone(),
            root: root.clone(),
            cluster: Some((users, maps.clone())),
        }))
    }

    /// Users of the cluster, if it has some.
    fn cluster_users(&self) -> Option<(&Arc<Authenticator>, Arc<ClusterState>)> {
        let (users, maps) = self.0.cluster.as_ref()?;
        let state = maps.load();
        users.is_enforced(&state).then_some((users, state))
    }

    pub fn config(&self) -> &S3Config {
        &self.0.config
    }

    /// The front of a request of this protocol; `None` when it is not S3.
    pub fn front(&self, protocol: Protocol) -> Option<&Front> {
        match protocol {
            Protocol::S3Prefixed => Some(&self.0.prefixed),
            Protocol::S3Root => Some(&self.0.root),
            _ => None,
        }
    }

    /// Authenticates the sender of a request. A cluster without keys treats everybody as its owner.
    pub fn authenticate(&self, parts: &Parts, front: &Front) -> S3Result<Caller> {
        let head = head(parts);
        if let Some(user) = self.token_user(&parts.headers)? {
            return Ok(Caller { identity: Identity::Key(user), ..auth::open(&head)? });
        }
        if !self.is_open() {
            let caller = auth::authenticate(&head, front, self, unix_s())?;
            return Ok(Caller { identity: self.user_of(caller.identity), ..caller });
        }
        Ok(Caller { identity: Identity::Key("anyone".into()), ..auth::open(&head)? })
    }

    /// The user of the request's token, if the cluster has users and the request has a token.
    fn token_user(&self, headers: &HeaderMap) -> S3Result<Option<String>> {
        let Some((users, state)) = self.cluster_users() else { return Ok(None) };
        let Some(token) = s3_token(headers) else { return Ok(None) };
        Ok(Some(users.token(token, &state)?.access.name.clone()))
    }

    /// The user that owns this key.
    pub fn user_of(&self, identity: Identity) -> Identity {
        match identity {
            Identity::Key(access) => match self.0.users.get(&access) {
                Some(user) => Identity::Key(user.clone()),
                None => {
                    let of_cluster = self.cluster_users();
                    let user = of_cluster.and_then(|(users, _)| users.s3_user_of(&access));
                    Identity::Key(user.unwrap_or(access))
                }
            },
            Identity::Anonymous => Identity::Anonymous,
        }
    }

    /// Whether a user of this name has a key.
    fn knows(&self, user: &str) -> bool {
        self.0.users.values().any(|u| u == user)
            || self.cluster_users().is_some_and(|(_, state)| state.access.users.contains_key(user))
    }

    /// The permissions of a user of the cluster; `None` for users that only the configuration has.
    fn rights_of(&self, user: &str) -> Option<Access> {
        let (users, state) = self.cluster_users()?;
        let access = users.s3_user(user, &state);
        matches!(access, Access::User(_)).then_some(access)
    }

    /// Whether everybody may do everything.
    pub fn is_open(&self) -> bool {
        self.0.keys.is_empty() && self.cluster_users().is_none()
    }

    /// The answer to a request that failed; `path` is the path as received.
    pub fn failure(&self, id: RequestId, e: &S3Error, method: &Method, path: &str) -> Response {
        failure(id, e, method, path)
    }
}

/// The answer to a request that failed; `path` is the path as received.
pub(crate) fn failure(id: RequestId, e: &S3Error, method: &Method, path: &str) -> Response {
    let status = StatusCode::from_u16(e.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let id = id.to_string();
    let bodiless = *method == Method::HEAD || status == StatusCode::NOT_MODIFIED;
    let mut response = if bodiless {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = status;
        response
    } else {
        xml(status, e.to_xml(path, &id))
    };
    reply::put_retry_after(&mut response, e.retry_after_s);
    response.extensions_mut().insert(ErrorText(e.to_string()));
    response
}

impl Keys for S3Door {
    fn secret(&self, access_key: &str) -> Option<SecretKey> {
        let configured = self.0.keys.get(access_key).cloned();
        configured.or_else(|| self.cluster_users()?.0.secret(access_key))
    }
}

/// A request as it came, for [`forebay_s3`].
pub fn head(parts: &Parts) -> RequestHead<'_> {
    RequestHead {
        method: &parts.method,
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or(""),
        headers: &parts.headers,
    }
}

/// Parses a request that came to `front`.
pub fn parse(parts: &Parts, front: &Front) -> S3Result<S3Request> {
    S3Request::parse(&head(parts), front)
}

/// The bucket of this name, of any provider: names are unique over all providers.
pub fn bucket<'a>(state: &'a ClusterState, name: &str) -> S3Result<&'a Arc<BucketInfo>> {
    const PROVIDERS: [Provider; 5] =
        [Provider::Ais, Provider::Aws, Provider::Gcp, Provider::Azure, Provider::Ht];
    PROVIDERS
        .into_iter()
        .filter_map(|provider| Bucket::new(provider, name).ok())
        .find_map(|bucket| state.bucket(&bucket).ok())
        .ok_or_else(|| S3Error::from(S3Code::NoSuchBucket).detail("BucketName", name))
}

/// The error for a request whose signature is invalid. If another node forwarded the request and
/// its proof is out of time, the error names the clocks of the two nodes, even if other things are
/// missing too.
pub fn or_out_of_time(e: S3Error, about: &RequestContext) -> S3Error {
    match about.principal.refusal.as_deref() {
        Some(Refusal::OutOfTime(late)) => {
            S3Error::new(S3Code::RequestTimeTooSkewed, late.to_string())
        }
        _ => e,
    }
}

/// Adds the CORS headers for an answer to this request.
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

/// Sets a header whose text comes from data; a text that is no valid header value is omitted.
pub fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) =
        (HeaderName::try_from(name), HeaderValue::from_bytes(value.as_bytes()))
    {
        headers.insert(name, value);
    }
}

/// Reads a small body completely.
pub async fn read_body(body: Body, limit: usize) -> S3Result<bytes::Bytes> {
    axum::body::to_bytes(body, limit)
        .await
        .map_err(|_| S3Error::from(S3Code::MaxMessageLengthExceeded))
}
