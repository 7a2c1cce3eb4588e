//! The cluster as clients and operators see it: map, leader, nodes.

use serde::{Deserialize, Serialize};

use super::NodeUsage;
use crate::name::NodeId;
use crate::state::{ClusterState, Node, Role};

/// `GET /api/v1/map`: everything that a client needs to send requests directly to owners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapReply {
    pub state: ClusterState,
    pub primary: NodeId,
    /// Value of the `Forebay-Grant` header of direct requests.
    pub grant: String,
    pub grant_expires_s: u64,
    /// Version of the gateway's program; absent from older gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Oldest version of a client that the cluster serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_client: Option<String>,
}

/// A gateway's role in the group (`GET /api/v1/leader`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderReply {
    /// Whether it leads, and a majority recently confirmed that.
    pub leads: bool,
    /// The term in which it leads; no two gateways ever lead in the same term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// The current or last known leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<NodeId>,
}

/// One node in `GET /api/v1/cluster`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeInfo {
    pub id: NodeId,
    pub role: Role,
    pub url: String,
    pub alive: bool,
    /// As in [`Node::maintenance`](crate::state::Node::maintenance).
    #[serde(default)]
    pub maintenance: bool,
    /// As in [`Node::emptied`](crate::state::Node::emptied).
    #[serde(default)]
    pub emptied: bool,
    pub usage: NodeUsage,
}

impl NodeInfo {
    /// A member of the cluster with its reported usage.
    pub fn of(node: &Node, usage: NodeUsage) -> Self {
        Self {
            id: node.id.clone(),
            role: node.role,
            url: node.url.clone(),
            alive: node.alive,
            maintenance: node.maintenance,
            emptied: node.emptied,
            usage,
        }
    }
}

/// `GET /api/v1/cluster`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterInfo {
    pub cluster_id: String,
    pub version: u64,
    pub primary: NodeId,
    pub nodes: Vec<NodeInfo>,
    pub buckets: usize,
    /// Whether a gateway leads with a majority of the gateways: without one nothing changes, and
    /// this is the last known state. `None` from older gateways.
    #[serde(default)]
    pub led: Option<bool>,
    /// The clock of the gateway that replies, unix nanoseconds; 0 from older gateways.
    #[serde(default)]
    pub clock_ns: u64,
}
