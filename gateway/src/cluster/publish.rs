//! Pushes every new version of the state to the other nodes immediately, and records which nodes
//! have it.
//!
//! After a client created a bucket, it may use the bucket through any gateway or (foreign clients
//! that compute owners themselves) at any target. Therefore changes of buckets wait here until all
//! live nodes have the new version.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_core::state::{ClusterState, Node};
use forebay_core::{Error, NodeId};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use tokio::sync::watch;

use super::port_probe;
use crate::targets::Targets;

/// Path at which a node accepts a pushed state.
pub(crate) const STATE_PATH: &str = "/internal/v1/state";
/// Timeout of a push; after it, the node gets the version with its next heartbeat.
const PUSH_WITHIN: Duration = Duration::from_secs(1);
/// Maximum time that a slow node delays a change.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// The acknowledged version of each node; cheap to clone.
#[derive(Clone)]
pub(crate) struct Publisher {
    me: NodeId,
    maps: Maps,
    targets: Targets,
    acknowledged: watch::Sender<BTreeMap<NodeId, u64>>,
}

impl Publisher {
    pub(crate) fn new(me: NodeId, maps: Maps, targets: Targets) -> Self {
        Self { me, maps, targets, acknowledged: watch::Sender::default() }
    }

    /// Records that `id` acts by `version` or a newer one.
    pub(crate) fn note(&self, id: &NodeId, version: u64) {
        self.acknowledged.send_if_modified(|acknowledged| {
            let known = acknowledged.entry(id.clone()).or_default();
            let newer = version > *known;
            *known = version.max(*known);
            newer
        });
    }

    /// Drops the version recorded for a node that restarted.
    pub(crate) fn forget(&self, id: &NodeId) {
        self.acknowledged.send_modify(|acknowledged| {
            acknowledged.remove(id);
        });
    }

    /// Waits until every live node acts by `version`, at most [`PUBLISH_TIMEOUT`].
    pub(crate) async fn wait_published(&self, version: u64) {
        let mut acknowledged = self.acknowledged.subscribe();
        let all =
            |acknowledged: &BTreeMap<NodeId, u64>| self.behind(acknowledged, version).is_empty();
        if tokio::time::timeout(PUBLISH_TIMEOUT, acknowledged.wait_for(all)).await.is_err() {
            let nodes = self.behind(&self.acknowledged.borrow(), version).join(" ");
            tracing::warn!(version, nodes, "nodes are slow to acknowledge a change");
        }
    }

    fn behind(&self, acknowledged: &BTreeMap<NodeId, u64>, version: u64) -> Vec<String> {
        let state = self.maps.load();
        let behind = others(&state, &self.me).filter(|n| lags(acknowledged, n, version));
        behind.map(|n| n.id.to_string()).collect()
    }

    /// Pushes each new version until the node stops.
    pub(crate) async fn run(self, lifecycle: Lifecycle) {
        let stop = lifecycle.token();
        let mut versions = self.maps.subscribe();
        loop {
            let state = self.maps.load();
            for node in others(&state, &self.me) {
                if lags(&self.acknowledged.borrow(), node, state.version) {
                    let (this, node, state) = (self.clone(), node.clone(), state.clone());
                    lifecycle.spawn(async move { this.push(&node, &state).await });
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                changed = versions.changed() => if changed.is_err() { return },
            }
        }
    }

    async fn push(&self, node: &Node, state: &ClusterState) {
        let pushed = self.targets.post::<_, serde_json::Value>(node, STATE_PATH, state);
        let pushed = tokio::time::timeout(PUSH_WITHIN, pushed).await;
        match pushed.unwrap_or_else(|_| Err(Error::unavailable("time-out"))) {
            Ok(_) => self.note(&node.id, state.version),
            // No process there can act by an older state; a process that starts there joins first.
            Err(_) if port_probe::is_refused(&node.url).await => self.note(&node.id, state.version),
            Err(e) => tracing::debug!(node = %node.id, error = %e, "state not pushed"),
        }
    }
}

fn others<'a>(state: &'a ClusterState, me: &'a NodeId) -> impl Iterator<Item = &'a Node> {
    state.nodes.values().filter(move |n| n.alive && n.id != *me)
}

fn lags(acknowledged: &BTreeMap<NodeId, u64>, node: &Node, version: u64) -> bool {
    acknowledged.get(&node.id).is_none_or(|known| *known < version)
}
