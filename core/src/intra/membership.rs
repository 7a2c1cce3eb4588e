//! Messages by which a node becomes and stays a member: joins, heartbeats, leaves.

use serde::{Deserialize, Serialize};

use super::{NodeUsage, is_first, is_zero};
use crate::name::NodeId;
use crate::quota::QuotaGrant;
use crate::sign::PublicKey;
use crate::state::{ClusterState, Role};

/// `POST /internal/v1/join`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub id: NodeId,
    pub role: Role,
    pub url: String,
    #[serde(default)]
    pub zone: String,
    /// Id of the process, random for each start; 0 from older nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
    /// Id of the cluster whose data is on the node's disks; empty if they hold none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// Whether all disks of the target are in use and empty, without a cluster id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
    /// As in [`Node::https`](crate::state::Node::https).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub https: String,
    /// As in [`Node::external`](crate::state::Node::external).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub external: String,
    /// The newest format of the cluster's state that the node reads; 0 from older nodes.
    #[serde(default, skip_serializing_if = "is_first")]
    pub state_format: u32,
    /// The node's own key; `None` from older nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
    /// Id of the join token that proves the request; the gateway that verified it sets this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
    /// Whether the node has no secret of the cluster, and needs the key of
    /// [`HeartbeatReply::s3_key`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub needs_s3_key: bool,
    /// Whether a scale-down drained this target, and its place is there again: the drain ends.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
}

/// `POST /internal/v1/heartbeat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    pub id: NodeId,
    /// Version of the node's state.
    pub version: u64,
    pub usage: NodeUsage,
    /// As in [`JoinRequest::instance`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
    /// As in [`JoinRequest::state_format`].
    #[serde(default, skip_serializing_if = "is_first")]
    pub state_format: u32,
    /// As in [`JoinRequest::key`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<PublicKey>,
}

/// Answer to a join or a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatReply {
    pub version: u64,
    pub primary: NodeId,
    /// Present if newer than the node's state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
    /// Whether the leading gateway received the report.
    #[serde(default)]
    pub lease: bool,
    /// How long ago, in milliseconds, a majority of the gateways confirmed the leader; the lease
    /// counts from then.
    #[serde(default)]
    pub confirmed_ms: u64,
    /// The node is not a member: it must join (again).
    #[serde(default)]
    pub unknown: bool,
    /// The clock of the leading gateway, unix nanoseconds; 0 if the leader did not reply itself,
    /// and from older gateways.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ns: u64,
    /// The key that opens secrets of S3 keys, for a target that joins without the secret of the
    /// cluster: encrypted for this target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s3_key: Option<String>,
    /// The answers to [`NodeUsage::quotas`]; `None` if there is nothing to answer, and from older
    /// gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quotas: Option<Vec<QuotaGrant>>,
}

/// `POST /internal/v1/leave`: a clean stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveRequest {
    pub id: NodeId,
    /// The node still serves for a moment: before it stops, others take over objects that they have
    /// copies of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// [`Node::alive_since`](crate::state::Node::alive_since) of the sending process, from its
    /// state; 0 from older nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
    /// As in [`JoinRequest::instance`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
}

/// Answer to a [`LeaveRequest`]; older gateways send no content.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeaveReply {
    /// The state without the node, by which the node redirects further requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
}

/// `POST /internal/v1/decommission`: a target whose place is gone moves its objects to others, and
/// leaves the cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DecommissionRequest {
    /// The sender itself.
    pub id: NodeId,
}

/// `POST /internal/v1/prestop`: a command beside a target reports that the target is about to stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrestopRequest {
    /// A line for the target's log; empty for none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    pub act: PrestopAct,
}

/// The effect of a [`PrestopRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrestopAct {
    /// Nothing but the line in the log.
    Log,
    /// The target leaves the cluster once its objects are moved.
    Leave,
    /// Waits a moment for the end of the move.
    Wait,
}

/// Answer to a [`PrestopRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PrestopReply {
    /// The target remains a member with its data.
    Stays,
    /// Its native objects move to other targets.
    Draining,
    /// It holds no native object any more.
    Drained,
}
