//! The cluster with the reports of its nodes, from any gateway.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::intra::{ClusterInfo, NodeInfo, NodeUsage};
use forebay_core::state::ShownUrls;
use forebay_core::{Error, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;

use crate::cluster::leadership::{LeaderWatch, Leadership};
use crate::cluster::membership::FORWARDED_MARK;

/// If the leader does not answer within this time, its reports are omitted.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Reads the map and the reports together; cheap to clone.
#[derive(Clone)]
pub(crate) struct ClusterView {
    pub(crate) maps: Maps,
    pub(crate) leadership: LeaderWatch,
    pub(crate) peer: PeerClient,
    pub(crate) identity: Identity,
}

impl ClusterView {
    /// Returns the map and the reports; a gateway that does not lead gets the reports from the
    /// leader.
    pub(crate) async fn info(&self) -> Result<ClusterInfo> {
        let Leadership::Following(leader) = self.leadership.now() else { return self.info_here() };
        let path = format!("/api/v1/cluster?{FORWARDED_MARK}");
        match tokio::time::timeout(ANSWER_WITHIN, self.peer.get_json(&leader, &path)).await {
            Ok(Ok(info)) => Ok(info),
            // Without the leader, the map is still available here; only the reports are missing.
            _ => self.info_here(),
        }
    }

    /// Like [`Self::info`], without a request to another gateway.
    pub(crate) fn info_here(&self) -> Result<ClusterInfo> {
        match self.leadership.now() {
            Leadership::Leading(lead) => self.local(&lead.members.usage()),
            _ => self.local(&BTreeMap::new()),
        }
    }

    /// The same reports with these URLs of nodes.
    pub(crate) fn shown(&self, mut info: ClusterInfo, urls: &ShownUrls) -> ClusterInfo {
        let state = self.maps.load();
        for node in &mut info.nodes {
            match (state.node(&node.id), urls) {
                (Some(known), _) => urls.of(known).clone_into(&mut node.url),
                // The leader has a node that is new to this gateway.
                (None, ShownUrls::External { here }) => node.url.clone_from(here),
                (None, _) => {}
            }
        }
        info
    }

    fn local(&self, usage: &BTreeMap<NodeId, NodeUsage>) -> Result<ClusterInfo> {
        let state = self.maps.load();
        let primary = self
            .maps
            .primary()
            .ok_or_else(|| Error::unavailable("this gateway knows no leader yet"))?;
        let nodes = state.nodes.values().map(|node| {
            let mut usage = usage.get(&node.id).cloned().unwrap_or_default();
            if node.id == self.identity.id {
                usage.uptime_s = self.identity.started.elapsed().as_secs();
            }
            NodeInfo::of(node, usage)
        });
        Ok(ClusterInfo {
            cluster_id: state.cluster_id.clone(),
            version: state.version,
            primary,
            nodes: nodes.collect(),
            buckets: state.buckets.len(),
            led: Some(matches!(
                self.leadership.now(),
                Leadership::Leading(_) | Leadership::Following(_)
            )),
            clock_ns: unix_ns(),
        })
    }
}
