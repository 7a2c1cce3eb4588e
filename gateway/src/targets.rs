//! Requests to targets: to one, or the same to many.

use std::time::Duration;

use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{LIST_PATH, ListRequest};
use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, ErrorCode, NodeId, Result, native};
use forebay_node::auth::REDIRECT_VERSION;
use forebay_node::exchange;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;
use forebay_node::tls::NodeTls;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Timeout; after it, the target counts as down for the request.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);

/// The gateway's client for its targets; cheap to clone. Every request carries the version of the
/// state it is based on, so that a target with an older one catches up before it answers.
#[derive(Clone)]
pub(crate) struct Targets {
    peer: PeerClient,
    maps: Maps,
}

/// A target's id and its answer.
pub(crate) type Answer<T> = (NodeId, Result<T>);

impl Targets {
    pub(crate) fn new(identity: &Identity, maps: Maps) -> Self {
        let peer = PeerClient::new(identity.signer.clone()).working_for(exchange::id);
        Self { peer: peer.traced_by(exchange::trace_context), maps }
    }

    /// The same client, over TLS where the node uses TLS.
    #[must_use]
    pub(crate) fn secured_by(self, tls: Option<&NodeTls>) -> Self {
        match tls {
            Some(tls) => Self { peer: tls.secure(self.peer, &self.maps), ..self },
            None => self,
        }
    }

    fn versioned(&self, path: &str) -> String {
        format!("{path}?{REDIRECT_VERSION}={}", self.maps.version())
    }

    pub(crate) fn peer(&self) -> &PeerClient {
        &self.peer
    }

    pub(crate) async fn post<A, B>(&self, node: &Node, path: &str, request: &A) -> Result<B>
    where
        A: Serialize + Sync,
        B: DeserializeOwned,
    {
        within(node, self.peer.post_json(&node.url, &self.versioned(path), request)).await
    }

    /// Like [`Self::post`], for an answer that is not JSON.
    pub(crate) async fn post_for_bytes<A: Serialize + Sync>(
        &self,
        node: &Node,
        path: &str,
        request: &A,
    ) -> Result<Bytes> {
        within(node, self.peer.post_for_bytes(&node.url, &self.versioned(path), request)).await
    }

    pub(crate) async fn get<B: DeserializeOwned>(&self, node: &Node, path: &str) -> Result<B> {
        within(node, self.peer.get_json(&node.url, &self.versioned(path))).await
    }

    pub(crate) async fn delete(&self, node: &Node, path: &str) -> Result<()> {
        within(node, self.peer.delete(&node.url, &self.versioned(path))).await
    }

    /// Posts the same to all of `nodes` at once; answers are in their order.
    pub(crate) async fn post_all<'a, A, B>(
        &self,
        nodes: impl IntoIterator<Item = &'a Node>,
        path: &str,
        request: &A,
    ) -> Vec<Answer<B>>
    where
        A: Serialize + Sync,
        B: DeserializeOwned,
    {
        let asked = nodes
            .into_iter()
            .map(|node| async move { (node.id.clone(), self.post(node, path, request).await) });
        futures::future::join_all(asked).await
    }

    /// Requests the records of all of `nodes`; pages as bytes, in the order of nodes.
    pub(crate) async fn list_all(
        &self,
        nodes: &[&Node],
        request: &ListRequest,
    ) -> Vec<Answer<Bytes>> {
        let path = self.versioned(LIST_PATH);
        let asked = nodes.iter().map(|node| async {
            let answer = self.peer.post_for_bytes(&node.url, &path, request);
            (node.id.clone(), within(node, answer).await)
        });
        futures::future::join_all(asked).await
    }

    pub(crate) async fn get_all<'a, B: DeserializeOwned>(
        &self,
        nodes: impl IntoIterator<Item = &'a Node>,
        path: &str,
    ) -> Vec<Answer<B>> {
        let asked = nodes
            .into_iter()
            .map(|node| async move { (node.id.clone(), self.get(node, path).await) });
        futures::future::join_all(asked).await
    }

    pub(crate) async fn delete_all<'a>(
        &self,
        nodes: impl IntoIterator<Item = &'a Node>,
        path: &str,
    ) -> Vec<Answer<()>> {
        let asked = nodes
            .into_iter()
            .map(|node| async move { (node.id.clone(), self.delete(node, path).await) });
        futures::future::join_all(asked).await
    }
}

/// Applies the timeout, and names the node in failures that the node did not report itself.
async fn within<T>(
    node: &Node,
    answer: impl Future<Output = forebay_client::Result<T>>,
) -> Result<T> {
    let away = |why: &str| Error::unavailable(format!("target {} does not answer: {why}", node.id));
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(forebay_client::Error::Api(e))) => Err(e),
        Ok(Err(e)) => Err(away(&e.message())),
        Err(_) => Err(away("time-out")),
    }
}

/// All targets, for a request about native objects. An error while one of them is down, because its
/// part of the answer would be missing without notice. A target in maintenance is not needed once
/// all its objects were moved.
pub(crate) fn all_members(state: &ClusterState) -> Result<Vec<&Node>> {
    if let Some(dead) = state.holding_targets().find(|n| !n.alive) {
        return Err(Error::unavailable(format!("target {} is down", dead.id))
            .hint("its objects are not lost; the answer is complete again when it is back"));
    }
    alive(state)
}

/// The targets that together know all objects of a bucket. Native objects need all members; if the
/// bucket has a backend, the live targets suffice. If objects have copies, so many targets may be
/// down that one copy of each object is on the others.
pub(crate) fn holders<'a>(state: &'a ClusterState, info: &BucketInfo) -> Result<Vec<&'a Node>> {
    if info.has_backend() {
        return alive(state);
    }
    native::who_can_list(state, info).map_or_else(|| all_members(state), Ok)
}

/// The live targets; an error if there are none.
pub(crate) fn alive(state: &ClusterState) -> Result<Vec<&Node>> {
    let nodes: Vec<&Node> = state.alive_targets().collect();
    if !nodes.is_empty() {
        return Ok(nodes);
    }
    if state.targets().next().is_some() {
        return Err(Error::unavailable("no storage target of the cluster is alive"));
    }
    Err(Error::new(ErrorCode::InvalidArgument, "no storage targets in the cluster")
        .hint("start a target that joins this cluster"))
}
