//! The cluster with what its nodes reported of themselves, from any gateway.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_client::PeerClient;
use forebay_core::intra::{ClusterInfo, NodeInfo, NodeUsage};
use forebay_core::{Error, NodeId, Result};
use forebay_node::identity::Identity;
use forebay_node::maps::Maps;

use crate::cluster::members::Members;

/// A primary that does not answer within this time is left out.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Where the reports are: with the primary gateway.
#[derive(Clone)]
pub(crate) enum Reports {
    Here(Arc<Members>),
    At { peer: Box<PeerClient>, primary_url: String },
}

/// Reads the map and the reports together; cheap to clone.
#[derive(Clone)]
pub(crate) struct ClusterView {
    pub(crate) maps: Maps,
    pub(crate) reports: Reports,
    pub(crate) identity: Identity,
}

impl ClusterView {
    pub(crate) async fn info(&self) -> Result<ClusterInfo> {
        match &self.reports {
            Reports::Here(members) => self.local(&members.usage()),
            Reports::At { peer, primary_url } => {
                let asked = peer.get_json(primary_url, "/api/v1/cluster");
                match tokio::time::timeout(ANSWER_WITHIN, asked).await {
                    Ok(Ok(info)) => Ok(info),
                    // The map is known here too; only the numbers are not.
                    _ => self.local(&BTreeMap::new()),
                }
            }
        }
    }

    fn local(&self, usage: &BTreeMap<NodeId, NodeUsage>) -> Result<ClusterInfo> {
        let state = self.maps.load();
        let primary = self
            .maps
            .primary()
            .ok_or_else(|| Error::unavailable("this gateway has not heard from the primary yet"))?;
        let nodes = state.nodes.values().map(|node| {
            let mut usage = usage.get(&node.id).cloned().unwrap_or_default();
            if node.id == self.identity.id {
                usage.uptime_s = self.identity.started.elapsed().as_secs();
            }
            NodeInfo {
                id: node.id.clone(),
                role: node.role,
                url: node.url.clone(),
                alive: node.alive,
                usage,
            }
        });
        Ok(ClusterInfo {
            cluster_id: state.cluster_id.clone(),
            version: state.version,
            primary,
            nodes: nodes.collect(),
            buckets: state.buckets.len(),
        })
    }
}
