//! Members of the cluster: their role, their properties and their status.

use serde::{Deserialize, Serialize};

use super::is_zero;
use crate::name::NodeId;

/// The two kinds of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Gateway,
    Target,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Target => "target",
        }
    }
}

/// A member of the cluster. Membership determines ownership; `alive` says whether the node answers
/// now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub role: Role,
    /// Base URL for clients and for other nodes, `http://host:port` or `https://host:port`. It also
    /// names the node in signatures and among the gateways.
    pub url: String,
    pub alive: bool,
    /// Version of the state at which it last became alive: cached copies validated before that may
    /// be stale, since another target owned their objects meanwhile.
    pub alive_since: u64,
    /// Relative capacity; equal weights give the placement of AIStore v1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Owns nothing until an operator ends the maintenance: its objects move to the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
    /// All its native objects were moved; it gets none while it is in maintenance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
    /// It was away and may have missed writes of objects that have copies elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lagging: bool,
    /// How the node ends when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
    /// Id of the process that joined last, random for each start; 0 if an older gateway admitted
    /// it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
    /// Base URL for HTTPS, `https://host:port`; empty if the node serves plain HTTP only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// Base URL for clients outside of the cluster's network, `https://host` or with a port; empty if
    /// they reach the node through others only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub external: String,
}

/// How a node in maintenance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// Its process stops; it remains a member.
    Stop,
    /// Its process stops, and it is no longer a member.
    Remove,
}

/// The status of a node for operators: whether it replies, and whether it may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    Alive,
    Down,
    /// In maintenance: its native objects move to other targets.
    Draining,
    /// In maintenance, and all its native objects were moved.
    Drained,
}

impl NodeStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Down, Self::Draining, Self::Drained];

    /// Its name in tables, JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }

    /// The status of a node with these properties, named as in [`Node`].
    pub fn of(alive: bool, maintenance: bool, emptied: bool) -> Self {
        match (alive, maintenance, emptied) {
            (false, ..) => Self::Down,
            (true, true, true) => Self::Drained,
            (true, true, false) => Self::Draining,
            (true, false, _) => Self::Alive,
        }
    }
}

impl Node {
    /// The node's status for operators.
    pub fn status(&self) -> NodeStatus {
        NodeStatus::of(self.alive, self.maintenance, self.emptied)
    }
}

fn one() -> u32 {
    1
}

fn is_one(weight: &u32) -> bool {
    *weight == 1
}
