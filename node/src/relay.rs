//! Forwards a request to the node that can answer it, and streams the answer back.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONNECTION, EXPECT, HOST, TE, TRANSFER_ENCODING, UPGRADE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use axum::response::Response;
use forebay_client::PeerClient;
use forebay_client::tls::PooledConnector;
use forebay_core::intra::MAP_HEADER;
use forebay_core::request::REQUEST_ID_HEADER;
use forebay_core::sign::{NODE_AUTH_HEADER, relay_subject};
use forebay_core::trace::TRACEPARENT_HEADER;
use forebay_core::{Error, Result};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::clock::unix_s;
use crate::exchange;
use crate::fast_http::MAX_HEADERS;
use crate::forwarded::FORWARDED_PROTO;
use crate::identity::Identity;
use crate::s3::{FRONT, PEER, USER};

/// Longest wait for a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(2);
/// How long a node that has accepted a request without a body may take to begin its answer: a cold
/// read of a slow cloud takes longest.
const BEGIN_WITHIN: Duration = Duration::from_secs(120);
/// How long an unused connection is kept.
const KEEP_IDLE: Duration = Duration::from_secs(30);

/// Headers that belong to one connection and not to the request.
static HOP_BY_HOP: [HeaderName; 6] =
    [CONNECTION, EXPECT, TE, TRANSFER_ENCODING, UPGRADE, HeaderName::from_static("keep-alive")];

/// Connections to other nodes for forwarded requests; cheap to clone.
#[derive(Clone)]
pub struct Relay {
    http: Client<PooledConnector, Body>,
    identity: Arc<Identity>,
    peer: PeerClient,
}

impl Relay {
    pub fn new(identity: &Identity, peer: &PeerClient) -> Self {
        let connector = PooledConnector::new(peer.tls().clone(), CONNECT_WITHIN);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(KEEP_IDLE)
            .http1_max_headers(MAX_HEADERS)
            .build(connector);
        Self { http, identity: Arc::new(identity.clone()), peer: peer.clone() }
    }

    /// Forwards an S3 request to the node at `url` unchanged, including its `Host`, with this
    /// node's relay proof and the version of the state that chose the node. `user` is the
    /// authenticated sender, if known; the other node does not authenticate the sender again.
    pub async fn pass(
        &self,
        url: &str,
        version: u64,
        user: Option<&str>,
        request: Request,
    ) -> Result<Response> {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |p| p.as_str()).to_owned();
        parts.uri = format!("{}{path}", self.peer.reached_at(url))
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
        if let Some(Ok(id)) = exchange::id().map(|id| HeaderValue::from_bytes(&id.digits())) {
            parts.headers.insert(REQUEST_ID_HEADER, id);
        }
        if let Some(Ok(trace)) = exchange::trace_context().map(|t| t.to_header().parse()) {
            parts.headers.insert(TRACEPARENT_HEADER, trace);
        }
        // The scheme of the client, not that of this connection.
        parts.headers.entry(&FORWARDED_PROTO).or_insert(HeaderValue::from_static("http"));
        // Header by which nodes of the first version recognize a forwarded request.
        parts.headers.insert(&FRONT, HeaderValue::from_static("/"));
        parts.headers.remove(&USER);
        if let Some(user) = user {
            let user = HeaderValue::from_str(user)
                .map_err(|_| Error::invalid("the user's name cannot stand in a header"))?;
            parts.headers.insert(&USER, user);
        }
        let bodiless = matches!(parts.method, Method::GET | Method::HEAD | Method::DELETE);
        let within = bodiless.then_some(BEGIN_WITHIN);
        self.send(url, Request::from_parts(parts, body), within).await
    }

    /// Reads what a redirect names from the node at `url`, in place of the client. `target` is the path and
    /// query of the redirect, with the proof that [`redirect_location`](crate::auth::redirect_location)
    /// makes.
    pub async fn read(&self, url: &str, target: &str, headers: HeaderMap) -> Result<Response> {
        let target = format!("{}{target}", self.peer.reached_at(url));
        let mut request = Self::request(Method::GET, &target, headers, Body::empty())?;
        if let Some(Ok(trace)) = exchange::trace_context().map(|t| t.to_header().parse()) {
            request.headers_mut().insert(TRACEPARENT_HEADER, trace);
        }
        self.send(url, request, Some(BEGIN_WITHIN)).await
    }

    /// Sends a request of a client where a redirect names, in place of the client. `target` is the path
    /// and query of the redirect, with its proof.
    pub async fn follow(
        &self,
        url: &str,
        target: &str,
        method: Method,
        mut headers: HeaderMap,
        body: Body,
    ) -> Result<Response> {
        let bodiless = matches!(method, Method::GET | Method::HEAD | Method::DELETE);
        clean(&mut headers);
        let target = format!("{}{target}", self.peer.reached_at(url));
        let mut request = Self::request(method, &target, headers, body)?;
        if let Some(Ok(trace)) = exchange::trace_context().map(|t| t.to_header().parse()) {
            request.headers_mut().insert(TRACEPARENT_HEADER, trace);
        }
        self.send(url, request, bodiless.then_some(BEGIN_WITHIN)).await
    }

    async fn send(
        &self,
        url: &str,
        request: Request,
        within: Option<Duration>,
    ) -> Result<Response> {
        let answer = self.http.request(request);
        let answer = match within {
            Some(within) => {
                tokio::time::timeout(within, answer).await.map_err(|_| away(url, "it is silent"))?
            }
            None => answer.await,
        };
        let mut answer = answer.map_err(|e| away(url, &e.to_string()))?.map(Body::new);
        clean(answer.headers_mut());
        Ok(answer)
    }

    /// A request of this node to another, for [`Self::pass`].
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
