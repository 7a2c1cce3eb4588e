//! Passes a request on to the node that can answer it, and the answer back, as they stream by.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use forebay_client::PeerClient;
use forebay_core::intra::MAP_HEADER;
use forebay_core::sign::{NODE_AUTH_HEADER, relay_subject};
use forebay_core::{Error, Result};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::clock::unix_s;
use crate::head::MAX_HEADERS;
use crate::identity::Identity;
use crate::s3::{FRONT, PEER, USER};

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// A node that has taken a request without a body has this long to begin its answer: a cold read
/// of a slow cloud is the longest of them.
const BEGIN_WITHIN: Duration = Duration::from_secs(120);
/// How long an unused connection is kept.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// What belongs to one connection and not to the request.
static HOP_BY_HOP: [HeaderName; 6] =
    [CONNECTION, EXPECT, TE, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// Connections to other nodes for requests that are passed on; cheap to clone.
#[derive(Clone)]
pub struct Relay {
    http: Client<HttpConnector, Body>,
    identity: Arc<Identity>,
    peer: PeerClient,
}

impl Relay {
    pub fn new(identity: &Identity, peer: &PeerClient) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_WITHIN));
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Self { http, identity: Arc::new(identity.clone()), peer: peer.clone() }
    }

    /// Sends a request of S3 on to the node at `url` as it came, its `Host` included, with this
    /// node's proof of a relay and the version of the state that chose the node. `user` is who sent it
    /// where that is known for sure: the other node asks no more who it was.
    pub async fn pass(
        &self,
        url: &str,
        version: u64,
        user: Option<&str>,
        request: Request,
    ) -> Result<Response> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
        parts.uri = format!("{url}{path}")
            .parse::<Uri>()
            .map_err(|e| Error::invalid(format!("the request's URL cannot be passed on: {e}")))?;
        clean(&mut parts.headers);
        self.peer.learn_format(url).await;
        let peer = parts.headers.get(&PEER).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let subject = relay_subject(user, peer);
        let (signer, method) = (&self.identity.signer, parts.method.as_str());
        let proof = signer.s3_relay(method, &path, &subject, url, unix_s());
        let proof = HeaderValue::try_from(proof)
            .map_err(|_| Error::internal("a signature cannot stand in a header"))?;
        parts.headers.insert(NODE_AUTH_HEADER, proof);
        parts.headers.insert(MAP_HEADER, version.into());
        // What nodes of the first version know a forwarded request by.
        parts.headers.insert(&FRONT, HeaderValue::from_static("/"));
        parts.headers.remove(&USER);
        if let Some(user) = user {
            let user = HeaderValue::from_str(user)
                .map_err(|_| Error::invalid("the user's name cannot stand in a header"))?;
            parts.headers.insert(&USER, user);
        }
        let bodiless = matches!(parts.method, Method::GET | Method::HEAD | Method::DELETE);
        let answer = self.http.request(Request::from_parts(parts, body));
        let answer = if bodiless {
            tokio::time::timeout(BEGIN_WITHIN, answer)
                .await
                .map_err(|_| away(url, "it is silent"))?
        } else {
            answer.await
        };
        let mut answer = answer.map_err(|e| away(url, &e.to_string()))?.map(Body::new);
        clean(answer.headers_mut());
        Ok(answer)
    }

    /// A request of this node's own to another, for [`Self::pass`].
    pub fn request(method: Method, path: &str, headers: HeaderMap, body: Body) -> Result<Request> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() =
            path.parse().map_err(|e| Error::invalid(format!("cannot ask for {path}: {e}")))?;
        *request.headers_mut() = headers;
        request.headers_mut().remove(HOST);
        Ok(request)
    }
}

fn clean(headers: &mut HeaderMap) {
    for name in &HOP_BY_HOP {
        headers.remove(name);
    }
}

fn away(url: &str, why: &str) -> Error {
    Error::unavailable(format!("the node at {url} does not answer: {why}"))
}
