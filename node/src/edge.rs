//! The edge of a node: every request passes it before a handler. It determines the protocol, checks
//! the proofs, and removes headers that only nodes may send.

mod body;
mod boundary;
mod clients;
mod last_sender;
mod replay;
mod signers;
mod users;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use forebay_core::boundary::OwnNames;
use forebay_core::clock_offset::out_of_time;
use forebay_core::cloud_rules::RETRY_HEADER;
use forebay_core::config::{NodeConfig, S3Config};
use forebay_core::intra::{HEDGED_HEADER, MAP_HEADER};
use forebay_core::request::{
    Address, Caller, Principal, Protocol, REQUEST_ID_HEADER, Refusal, RequestContext, RequestId,
    Route,
};
use forebay_core::settings::S3_API_VIA_ROOT;
use forebay_core::sign::{
    Claims, GRANT_HEADER, NO_BODY, NODE_AUTH_HEADER, NODE_AUTH_TTL_S, Proof, Purpose,
    UNSIGNED_BODY, not_a_node, relay_subject,
};
use forebay_core::timing::TIMING_HEADER;
use forebay_core::trace::{TRACEPARENT_HEADER, TraceContext};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_s3::Front;

use self::body::Verified;
use self::boundary::Boundary;
pub use self::boundary::{CrossSiteForm, unsigned_form};
pub(crate) use self::last_sender::LastSender;
use self::last_sender::SentProofs;
use self::replay::Replays;
pub(crate) use self::users::s3_token;
use crate::access::Authenticator;
use crate::audit::Audit;
use crate::clock::{unix_ns, unix_s};
use crate::exchange::Observer;
use crate::fast_http::RequestHead;
use crate::identity::Identity;
use crate::maps::Maps;
use crate::relay::Relay;
use crate::s3::{FRONT, PEER, USER};
use crate::tls::NodeTls;

/// Prefix of Forebay's own headers.
const OWN_HEADERS: &str = "forebay-";
/// Own headers that clients may send; only nodes send the others.
const CLIENT_HEADERS: [&str; 5] =
    [GRANT_HEADER, MAP_HEADER, HEDGED_HEADER, RETRY_HEADER, TIMING_HEADER];
/// Prefix of the own headers of a forwarded S3 request.
const RELAY_HEADERS: &str = "forebay-s3-";
/// A batch request changes nothing, and clients may send it again on another connection.
const BATCH_PATH: &str = "/api/v1/batch";

static NODE_AUTH: HeaderName = HeaderName::from_static(NODE_AUTH_HEADER);
static TRACEPARENT: HeaderName = HeaderName::from_static(TRACEPARENT_HEADER);
static GRANT: HeaderName = HeaderName::from_static(GRANT_HEADER);

/// Makes the context of every request of one node.
pub struct Edge {
    identity: Identity,
    maps: Maps,
    s3: Front,
    s3_at_root: bool,
    boundary: Boundary,
    /// The names under which clients outside of the cluster's network reach this node.
    external: OwnNames,
    relay: Option<Relay>,
    replays: Replays,
    audit: Audit,
    observer: Arc<Observer>,
    tls: Option<NodeTls>,
    users: Option<Arc<Authenticator>>,
    /// Makes ids differ between nodes.
    first_id: u64,
    requests: AtomicU64,
}

/// A valid proof of a node.
struct Proven {
    principal: Principal,
    /// The expected hash of the body.
    body: String,
}

impl Edge {
    pub fn new(config: &S3Config, identity: &Identity, maps: &Maps) -> Self {
        let domains = config.domains.iter().map(|d| d.to_ascii_lowercase()).collect();
        Self {
            identity: identity.clone(),
            maps: maps.clone(),
            s3: Front::new("", domains),
            s3_at_root: config.root,
            boundary: Boundary::new(config, identity),
            external: OwnNames::default(),
            relay: None,
            replays: Replays::default(),
            audit: Audit::default(),
            observer: Arc::default(),
            tls: None,
            users: None,
            first_id: unix_ns(),
            requests: AtomicU64::new(0),
        }
    }

    /// Keeps the audit records of this node's requests.
    #[must_use]
    pub fn audited_by(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// Measures and logs this node's requests.
    #[must_use]
    pub fn observed_by(self, observer: Observer) -> Self {
        Self { observer: Arc::new(observer), ..self }
    }

    /// Accepts TLS connections.
    #[must_use]
    pub fn with_tls(self, tls: Option<NodeTls>) -> Self {
        Self { tls, ..self }
    }

    pub(crate) fn tls(&self) -> Option<&NodeTls> {
        self.tls.as_ref()
    }

    /// Accepts requests under all names that this configuration has for the node.
    #[must_use]
    pub fn named_by(self, config: &NodeConfig) -> Self {
        let boundary = Boundary::of(config, &self.identity);
        let mut external = OwnNames::default();
        config.listen.external_hosts.iter().for_each(|host| external.add_pattern(host));
        Self { boundary, external, ..self }
    }

    /// Relays data of nodes that clients outside of the cluster's network cannot reach.
    #[must_use]
    pub fn relaying(self, relay: Relay) -> Self {
        Self { relay: Some(relay), ..self }
    }

    pub(crate) fn relay(&self) -> Option<&Relay> {
        self.relay.as_ref()
    }

    /// Whether a request with this `Host` comes from outside of the cluster's network.
    pub(crate) fn is_external(&self, host: &[u8]) -> bool {
        self.external.lists(host) || self.identity.is_external(host)
    }

    /// Determines the users of this node's requests.
    #[must_use]
    pub fn with_users(self, users: Arc<Authenticator>) -> Self {
        Self { users: Some(users), ..self }
    }

    pub(crate) fn audit(&self) -> &Audit {
        &self.audit
    }

    pub(crate) fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    /// An id for a request of a client. The ids are spread evenly over all numbers.
    pub(crate) fn new_id(&self) -> RequestId {
        let n = self.requests.fetch_add(1, Ordering::Relaxed);
        RequestId(self.first_id.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    pub(crate) fn identity(&self) -> &Identity {
        &self.identity
    }

    pub(crate) fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Builds the context of a request that came through `hyper`, and keeps its sender in `last`. `id` is
    /// a new one of this node; a node that proved itself may send that of the client's request. Removes proofs of nodes and headers that only nodes may send, except those that a valid proof
    /// covers.
    pub(crate) fn admit(
        &self,
        id: RequestId,
        request: &mut Request,
        last: &LastSender,
    ) -> Result<RequestContext> {
        let version = self.maps.version();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let headers = request.headers_mut();
        if headers.get_all(header::HOST).iter().nth(1).is_some() {
            return Err(Error::invalid("the request has more than one Host header"));
        }
        let proof = headers.remove(&NODE_AUTH);
        let proven = proof.map(|proof| self.node(&method, &uri, headers, &proof));
        let is_client = proven.is_none();
        let is_relay = |proven: &Proven| proven.principal.caller == Caller::S3Relay;
        let relayed = proven.as_ref().is_some_and(|p| p.as_ref().is_ok_and(is_relay));
        let host = headers.get(header::HOST).map(HeaderValue::as_bytes);
        let protocol = self.protocol(uri.path(), host, relayed);
        let grant = headers.remove(&GRANT);
        let grant = grant.as_ref().map(HeaderValue::as_bytes);
        let mut id = id;
        let principal = match proven {
            Some(Ok(proven)) => {
                let sent = headers.remove(REQUEST_ID_HEADER);
                let sent = sent.as_ref().and_then(|sent| RequestId::parse(sent.to_str().ok()?));
                id = sent.unwrap_or(id);
                drop_headers(headers, proven.principal.caller);
                self.cover_body(request, proven.body)?;
                proven.principal
            }
            other => {
                drop_headers(headers, Caller::Anonymous);
                let client = self.client(&method, uri.path(), uri.query(), grant);
                match other.and_then(Result::<_, Refusal>::err) {
                    Some(refusal) => Principal { refusal: Some(Arc::new(refusal)), ..client },
                    None => client,
                }
            }
        };
        let permissions = self.permissions(protocol, request, &principal, grant)?;
        let principal = permissions.given_to(principal);
        if is_client && !protocol.is_s3() {
            let authorization = request.headers().get(header::AUTHORIZATION);
            let authorization = authorization.map(HeaderValue::as_bytes);
            let proofs = SentProofs { grant, authorization };
            self.keep(uri.query(), proofs, version, &principal, last);
        }
        let trace = sender_span(request.headers());
        Ok(context(id, protocol, uri.path(), principal, trace))
    }

    /// Refuses an admitted request that came under a foreign name, or from a page of another site.
    /// With users there is no such check: a page of another site has no token.
    pub(crate) fn check_boundary(
        &self,
        about: &RequestContext,
        request: &mut Request,
    ) -> Result<()> {
        let state = self.maps.load();
        if self.needs_user(&state) { Ok(()) } else { self.boundary.check(about, request, &state) }
    }

    /// Builds the context of a v1 object request that may be answered before `hyper` sees it.
    /// `last` is the sender of the connection's last request. `None`: only [`Self::admit`] can decide.
    pub(crate) fn quick(
        &self,
        method: &Method,
        asked: &RequestHead<'_, '_>,
        last: &LastSender,
    ) -> Option<RequestContext> {
        let (path, query) = match asked.target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (asked.target, None),
        };
        let (mut host, mut grant, mut authorization, mut trace) = (None, None, None, None);
        for (name, value) in asked.headers() {
            if name.eq_ignore_ascii_case("host") {
                if host.replace(value).is_some() {
                    return None;
                }
            } else if name.eq_ignore_ascii_case(GRANT_HEADER) {
                grant = Some(value);
            } else if name.eq_ignore_ascii_case("authorization") {
                if authorization.replace(value).is_some() {
                    return None;
                }
            } else if name.eq_ignore_ascii_case(TRACEPARENT_HEADER) {
                trace = trace_of(value);
            } else if name.eq_ignore_ascii_case(NODE_AUTH_HEADER) || is_of_a_page(name) {
                return None;
            }
        }
        // The answer may need external URLs.
        if host.is_some_and(|host| self.is_external(host)) {
            return None;
        }
        if !self.boundary.is_surely_own(host) && !self.needs_user(&self.maps.load()) {
            return None;
        }
        let protocol = self.protocol(path, host, false);
        if protocol.route(path) != Route::Objects {
            return None;
        }
        let proofs = SentProofs { grant, authorization };
        let principal = self.quick_sender(method, path, query, proofs, last)?;
        Some(context(self.new_id(), protocol, path, principal, trace))
    }

    fn protocol(&self, path: &str, host: Option<&[u8]>, is_s3_relay: bool) -> Protocol {
        let is_bucket_host = !self.s3.domains.is_empty()
            && host
                .and_then(|host| std::str::from_utf8(host).ok())
                .is_some_and(|host| self.s3.host_bucket(host).is_some());
        Address { path, is_bucket_host, is_s3_relay }
            .protocol(|| self.s3_at_root || self.maps.load().settings.has(S3_API_VIA_ROOT))
    }

    /// Checks the proof of a node.
    fn node(
        &self,
        method: &Method,
        uri: &Uri,
        headers: &HeaderMap,
        proof: &HeaderValue,
    ) -> Result<Proven, Refusal> {
        let text = proof.to_str().map_err(|_| not_a_node())?;
        let target = uri.path_and_query().map_or(uri.path(), |p| p.as_str());
        let (state, now) = (self.maps.load(), unix_s());
        let trust = self.trust(&state);
        let Some(proof) = Proof::parse(text) else {
            // A node of an earlier version, whose proof does not name its receiver.
            if !trust.verify_first_node(method.as_str(), target, text, now) {
                return Err(not_a_node().into());
            }
            let relayed = headers.contains_key(&FRONT);
            let caller = if relayed { Caller::S3Relay } else { Caller::Node };
            let body = UNSIGNED_BODY.to_owned();
            return Ok(Proven { principal: Principal::new(caller), body });
        };
        let value = |name: &HeaderName| headers.get(name).and_then(|v| v.to_str().ok());
        let subject = relay_subject(value(&USER), value(&PEER).unwrap_or_default());
        let call = Claims {
            purpose: Purpose::NodeCall,
            method: method.as_str(),
            target,
            subject: "",
            body: proof.body,
            sender: proof.sender,
            receiver: proof.receiver,
            nonce: proof.nonce,
            expiry: proof.expiry,
        };
        let relay = Claims { purpose: Purpose::S3Relay, subject: &subject, ..call };
        let mut cases = [(call, Caller::Node), (relay, Caller::S3Relay)];
        if headers.contains_key(&FRONT) {
            cases.reverse();
        }
        let found = cases.iter().find(|(claims, _)| trust.verify(&proof, claims));
        let join_token = match found {
            Some(_) => None,
            None => self.join_token(&proof, &call, &state),
        };
        let caller = found.map(|(_, caller)| *caller).or(join_token.as_ref().map(|_| Caller::Node));
        let Some(caller) = caller else {
            // A node without a state, which is about to join, has no keys of others.
            if state.version > 0 {
                tracing::warn!(sender = proof.sender, %method, path = uri.path(), "proof refused");
            }
            return Err(not_a_node().into());
        };
        let node = NodeId::new(proof.sender).map_err(|_| not_a_node())?;
        self.check_time(&proof, now)?;
        self.check_receiver(&proof)?;
        let is_read = matches!(*method, Method::GET | Method::HEAD) || uri.path() == BATCH_PATH;
        if !is_read && !self.replays.is_first(&node, proof.nonce, now) {
            let text = format!("a request that node {node} signed came for a second time");
            return Err(Error::new(ErrorCode::AccessDenied, text)
                .hint("every request of a node needs a signature of its own")
                .into());
        }
        let principal = Principal { node: Some(node), join_token, ..Principal::new(caller) };
        Ok(Proven { principal, body: proof.body.to_owned() })
    }

    fn check_time(&self, proof: &Proof<'_>, now: u64) -> Result<(), Refusal> {
        let signed = proof.expiry.saturating_sub(NODE_AUTH_TTL_S);
        if signed.abs_diff(now) <= NODE_AUTH_TTL_S {
            return Ok(());
        }
        let (sender, me) = (proof.sender, self.identity.id.as_str());
        let late = out_of_time("the request", sender, signed, me, now, NODE_AUTH_TTL_S);
        Err(Refusal::OutOfTime(late))
    }

    /// Rejects a proof for another node of the cluster. A URL that belongs to no node may be
    /// another name of this one, such as a service in front of the gateways.
    fn check_receiver(&self, proof: &Proof<'_>) -> Result<()> {
        let is_other = || self.maps.load().nodes.values().any(|node| node.url == proof.receiver);
        // A node without a map names this one by the scheme that it uses.
        if self.identity.https == proof.receiver {
            return Ok(());
        }
        if proof.receiver != self.identity.url && is_other() {
            let text = format!("the request was signed for the node at {}", proof.receiver);
            return Err(Error::new(ErrorCode::AccessDenied, text));
        }
        Ok(())
    }

    /// Makes the body fail at its end unless it is the one that was signed.
    fn cover_body(&self, request: &mut Request, signed: String) -> Result<()> {
        let body = request.body_mut();
        match signed.as_str() {
            UNSIGNED_BODY => {}
            NO_BODY if axum::body::HttpBody::is_end_stream(body) => {}
            _ => *body = Body::new(Verified::new(std::mem::take(body), signed)),
        }
        Ok(())
    }
}

fn context(
    id: RequestId,
    protocol: Protocol,
    path: &str,
    principal: Principal,
    trace: Option<TraceContext>,
) -> RequestContext {
    RequestContext { id, protocol, route: protocol.route(path), principal, trace }
}

/// The span of the sender, in the headers of a request.
fn sender_span(headers: &HeaderMap) -> Option<TraceContext> {
    headers.get(&TRACEPARENT).and_then(|value| trace_of(value.as_bytes()))
}

/// The span of the sender, in the header of this value.
fn trace_of(header: &[u8]) -> Option<TraceContext> {
    std::str::from_utf8(header).ok().and_then(TraceContext::parse)
}

/// Whether only browsers send this header.
fn is_of_a_page(name: &str) -> bool {
    name.eq_ignore_ascii_case("origin") || name.eq_ignore_ascii_case("sec-fetch-site")
}

/// Removes the grant of a client, and the headers that only nodes may send.
fn drop_client_headers(headers: &mut HeaderMap) {
    headers.remove(&GRANT);
    drop_headers(headers, Caller::Anonymous);
}

/// Removes the headers that this sender may not send.
fn drop_headers(headers: &mut HeaderMap, caller: Caller) {
    let may_send = |name: &str| match caller {
        Caller::Node => !name.starts_with(RELAY_HEADERS),
        Caller::S3Relay => name.starts_with(RELAY_HEADERS) || CLIENT_HEADERS.contains(&name),
        _ => CLIENT_HEADERS.contains(&name),
    };
    let dropped: Vec<HeaderName> = headers
        .keys()
        .filter(|name| name.as_str().starts_with(OWN_HEADERS) && !may_send(name.as_str()))
        .cloned()
        .collect();
    for name in dropped {
        headers.remove(name);
    }
}

#[cfg(test)]
#[path = "edge/tests.rs"]
mod tests;
