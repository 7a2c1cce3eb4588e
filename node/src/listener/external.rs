//! Requests of clients outside of the cluster's network. Their answers have external URLs of nodes;
//! a redirect to a node without one is followed here, because the client cannot follow it.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use forebay_core::batch::{self, BatchRequest};
use forebay_core::sign::NODE_AUTH_HEADER;
use forebay_core::state::{ClusterState, Node, Role, ShownUrls};
use forebay_core::{Error, Result};

use super::kept_body::{KeptBody, MAX_KEPT_BYTES};
use crate::edge::Edge;
use crate::forwarded::is_https;
use crate::reply::Failure;

/// The base URL by which a client outside of the cluster's network reached this node. Only the
/// listener sets it.
static EXTERNAL: HeaderName = HeaderName::from_static("forebay-external");

/// Path of native batches, which only targets serve.
const BATCH_PATH: &str = "/api/v1/batch";
/// Maximum number of redirects that are followed for one request: nodes may have different states.
const MAX_HOPS: usize = 3;

/// An extension of a request whose body the listener may send to another node: a handler that
/// answers with a redirect does not read the body.
#[derive(Clone, Copy, Debug)]
pub struct BodyIsKept;

/// The URLs of nodes by which the sender of a request reaches them.
pub fn shown_urls(headers: &HeaderMap) -> ShownUrls {
    match headers.get(&EXTERNAL).and_then(|here| here.to_str().ok()) {
        Some(here) => ShownUrls::External { here: here.to_owned() },
        None if is_https(headers) => ShownUrls::Https,
        None => ShownUrls::Own,
    }
}

/// A request of a client outside of the cluster's network, while it is answered.
pub(super) struct ExternalRequest {
    here: HeaderValue,
    /// The parts of the request for another node; `None` if all nodes have external URLs.
    again: Option<Again>,
}

struct Again {
    method: Method,
    path: String,
    headers: HeaderMap,
    body: KeptBody,
}

impl ExternalRequest {
    /// Recognizes a request by its `Host`. Nodes use internal names only.
    pub(super) fn of(edge: &Edge, request: &mut Request) -> Option<Self> {
        let here = here(edge, request.headers())?;
        let state = edge.maps().load();
        let relays = state.nodes.values().any(|node| node.external.is_empty());
        let again = relays.then(|| {
            let (method, headers) = (request.method().clone(), request.headers().clone());
            let path = request.uri().path().to_owned();
            let body = KeptBody::new(std::mem::take(request.body_mut()));
            *request.body_mut() = body.reader();
            request.extensions_mut().insert(BodyIsKept);
            Again { method, path, headers, body }
        });
        Some(Self { here, again })
    }

    /// Marks the admitted request for its handler.
    pub(super) fn mark(this: Option<&Self>, request: &mut Request) {
        let headers = request.headers_mut();
        match this {
            Some(this) => drop(headers.insert(&EXTERNAL, this.here.clone())),
            None => drop(headers.remove(&EXTERNAL)),
        }
    }

    /// The answer with external URLs, or that of the node to which it redirects.
    pub(super) async fn finish(self, edge: &Edge, mut response: Response) -> Response {
        if self.is_batch_of_target(edge, &response) {
            return match self.batch(edge).await {
                Ok(answer) => answer,
                Err(e) => Failure(e).into_response(),
            };
        }
        let Some(location) = response.headers().get(header::LOCATION) else { return response };
        let Some(location) = location.to_str().ok().map(str::to_owned) else { return response };
        let state = edge.maps().load();
        let Some((node, rest)) = node_of(&state, &location) else { return response };
        let is_redirect = response.status().is_redirection();
        let base = match node.external.as_str() {
            "" if is_redirect && node.id != edge.identity().id => {
                return match self.follow(edge, &state, node, rest).await {
                    Ok(answer) => answer,
                    Err(e) => Failure(e).into_response(),
                };
            }
            "" => self.here.to_str().unwrap_or_default(),
            external => external,
        };
        match HeaderValue::try_from(format!("{base}{rest}")) {
            Ok(location) => drop(response.headers_mut().insert(header::LOCATION, location)),
            // The URL of the inside must not be sent instead.
            Err(_) => {
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                response.headers_mut().remove(header::LOCATION);
            }
        }
        response
    }

    /// Whether this is a native batch that a gateway does not serve.
    fn is_batch_of_target(&self, edge: &Edge, response: &Response) -> bool {
        let is_batch = |again: &Again| again.method == Method::POST && again.path == BATCH_PATH;
        edge.identity().role == Role::Gateway
            && self.again.as_ref().is_some_and(is_batch)
            && matches!(response.status(), StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND)
    }

    /// Sends a native batch to the target that owns its entries. Clients send one for each owner, and here
    /// come those of the targets without an external URL.
    async fn batch(self, edge: &Edge) -> Result<Response> {
        let state = edge.maps().load();
        let body = self.again.as_ref().and_then(|again| again.body.again()).unwrap_or_default();
        let body = axum::body::to_bytes(body, MAX_KEPT_BYTES).await.map_err(|e| {
            let hint = "set listen.external of every target, or ask for fewer objects at once";
            Error::invalid(format!("the batch cannot be passed on: {e}")).hint(hint)
        })?;
        let request: BatchRequest = serde_json::from_slice(&body)
            .map_err(|e| Error::invalid(format!("invalid batch: {e}")))?;
        request.check_size()?;
        let owner_of = |index| batch::plan(&state, &request, [index]).by_owner.into_keys().next();
        let owner = (0..request.entries.len()).find_map(owner_of);
        let node = owner.and_then(|id| state.nodes.get(&id));
        let node = node.ok_or_else(|| {
            Error::unavailable("no target owns an object of the batch").retry_after(1)
        })?;
        self.follow(edge, &state, node, BATCH_PATH).await
    }

    /// Sends the request where a redirect names, in place of the client.
    async fn follow(
        self,
        edge: &Edge,
        state: &ClusterState,
        mut node: &Node,
        rest: &str,
    ) -> Result<Response> {
        let (Some(again), Some(relay)) = (&self.again, edge.relay()) else {
            return Err(unreachable_node(node));
        };
        let mut rest = rest.to_owned();
        for _ in 0..MAX_HOPS {
            // Also of a GET: clients of AIStore send batches so.
            let body = again.body.again().ok_or_else(|| unreachable_node(node))?;
            let (method, headers) = (again.method.clone(), again.headers.clone());
            let answer = relay.follow(&node.url, &rest, method, headers, body).await?;
            let location = answer.headers().get(header::LOCATION).and_then(|v| v.to_str().ok());
            let next = location.filter(|_| answer.status().is_redirection());
            let Some(next) = next.map(str::to_owned) else { return Ok(answer) };
            let Some((to, path)) = node_of(state, &next) else { return Ok(answer) };
            (node, rest) = (to, path.to_owned());
        }
        let text = "the nodes redirect the request to each other: their states differ";
        Err(Error::unavailable(text).retry_after(1))
    }
}

/// The base URL by which a client outside of the cluster's network reached this node; `None` for
/// other clients, and for nodes.
fn here(edge: &Edge, headers: &HeaderMap) -> Option<HeaderValue> {
    let host = headers.get(header::HOST).filter(|host| edge.is_external(host.as_bytes()))?;
    if headers.contains_key(NODE_AUTH_HEADER) {
        return None;
    }
    let scheme = if is_https(headers) { "https" } else { "http" };
    HeaderValue::try_from(format!("{scheme}://{}", host.to_str().ok()?)).ok()
}

/// The node that a URL names, and the rest of the URL.
fn node_of<'a, 'b>(state: &'a ClusterState, location: &'b str) -> Option<(&'a Node, &'b str)> {
    state.nodes.values().find_map(|node| {
        let bases = [&node.url, &node.https].into_iter().filter(|base| !base.is_empty());
        let mut rests = bases.filter_map(|base| location.strip_prefix(base.as_str()));
        rests.find(|rest| rest.starts_with('/')).map(|rest| (node, rest))
    })
}

fn unreachable_node(node: &Node) -> Error {
    let text = format!(
        "{} has no external URL, and this node cannot send it the request in place of the client",
        node.id
    );
    Error::unavailable(text).hint("set listen.external of that node, or send smaller requests")
}
