//! The changes of the cluster's state, in the form in which the Raft log stores them.

use serde::{Deserialize, Serialize};

use super::{FORMAT_OF_KEYS, FORMAT_OF_USERS, Leaving, Role, format_of, is_zero};
use crate::access::AccessChange;
use crate::bucket::BucketInfo;
use crate::egress::EndpointTrust;
use crate::etl::Etl;
use crate::name::{Bucket, NodeId};
use crate::settings::Change;
use crate::sign::PublicKey;

/// A change of the cluster's state, as logged. Append only: stored logs contain these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Command {
    /// First command of every log.
    Init {
        cluster_id: String,
        now_ns: u64,
    },
    /// A node joins, or returns with the same id (perhaps at another address).
    Join {
        id: NodeId,
        role: Role,
        url: String,
        weight: u32,
        zone: String,
        /// Id of the process; 0 from older nodes.
        #[serde(default, skip_serializing_if = "is_zero")]
        instance: u64,
        /// As in [`Node::https`](super::Node::https).
        #[serde(default, skip_serializing_if = "String::is_empty")]
        https: String,
        /// As in [`Node::external`](super::Node::external).
        #[serde(default, skip_serializing_if = "String::is_empty")]
        external: String,
    },
    SetAlive {
        id: NodeId,
        alive: bool,
        /// It will stop soon: from now on the others own the objects of which they have copies.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        yields: bool,
    },
    /// The node's data is permanently gone.
    Remove {
        id: NodeId,
    },
    CreateBucket {
        info: Box<BucketInfo>,
        now_ns: u64,
    },
    SetBucket {
        info: Box<BucketInfo>,
    },
    DestroyBucket {
        bucket: Bucket,
    },
    /// Changes settings of the cluster; `reset` drops all earlier changes.
    Configure {
        change: Change,
        reset: bool,
        now_ns: u64,
    },
    /// An operator starts or ends a node's maintenance.
    SetMaintenance {
        id: NodeId,
        on: bool,
    },
    /// Renames a native bucket. Its objects stay on their targets until they are moved.
    RenameBucket {
        from: Bucket,
        to: Bucket,
    },
    CreateEtl {
        etl: Box<Etl>,
    },
    SetEtl {
        etl: Box<Etl>,
    },
    DeleteEtl {
        name: String,
    },
    /// Adds another cluster under an alias, or changes the URL of an existing alias.
    AttachCluster {
        alias: String,
        url: String,
        /// Whether the URL was checked against the rule for destinations.
        #[serde(default, skip_serializing_if = "EndpointTrust::is_accepted")]
        endpoint_trust: EndpointTrust,
    },
    DetachCluster {
        alias: String,
    },
    /// Stops a target once its objects are moved.
    Retire {
        id: NodeId,
        leaving: Leaving,
    },
    /// The rebalance for the placement of this version is complete.
    #[serde(rename = "settled")]
    RebalanceComplete {
        placed: u64,
        /// Targets that got everything they missed, and since when they were alive meanwhile.
        #[serde(default)]
        repaired: Vec<(NodeId, u64)>,
    },
    /// Changes users, roles, keys or tokens.
    Access {
        change: Box<AccessChange>,
        now_ns: u64,
    },
    /// Records the public key of a node that joins, or that joined with an earlier version.
    NodeKey {
        id: NodeId,
        role: Role,
        key: PublicKey,
        now_s: u64,
        /// Id of the join token by which the node joins, and which is used up thereby.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<String>,
    },
}

impl Command {
    /// The format that a program has to read to apply this command; see
    /// [`STATE_FORMAT`](super::STATE_FORMAT).
    pub fn format(&self) -> u32 {
        match self {
            Self::Access { .. } => FORMAT_OF_USERS,
            Self::NodeKey { .. } => FORMAT_OF_KEYS,
            Self::CreateBucket { info, .. } | Self::SetBucket { info } => format_of(info),
            _ => 0,
        }
    }
}
