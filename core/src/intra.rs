//! Messages between nodes, and between nodes and our own client; JSON over HTTP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::list_page::Detail;
use crate::name::NodeId;
use crate::object::ListEntry;
use crate::state::{ClusterState, Role};

/// Header on every answer of a node: the version of the state it acts by.
pub const MAP_HEADER: &str = "forebay-map";

/// `GET /api/v1/map`: everything a client needs to go directly to owners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapReply {
    pub state: ClusterState,
    pub primary: NodeId,
    /// Goes into the `Forebay-Grant` header of direct requests.
    pub grant: String,
    pub grant_expires_s: u64,
}

/// `POST /internal/v1/join`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JoinRequest {
    pub id: NodeId,
    pub role: Role,
    pub url: String,
    #[serde(default)]
    pub zone: String,
}

/// `POST /internal/v1/heartbeat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    pub id: NodeId,
    /// Version of the state that the node has.
    pub version: u64,
    pub usage: NodeUsage,
}

/// Answer to a join or a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatReply {
    pub version: u64,
    pub primary: NodeId,
    /// Present when newer than what the node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
    /// The node is not a member: it must join (again).
    #[serde(default)]
    pub unknown: bool,
}

/// `POST /internal/v1/leave`: a clean stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveRequest {
    pub id: NodeId,
}

/// What a node reports of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeUsage {
    pub uptime_s: u64,
    pub objects: u64,
    pub bytes: u64,
    /// Bytes it may use.
    pub budget: u64,
    pub hit_bytes: u64,
    pub miss_bytes: u64,
    pub backend_reads: u64,
    #[serde(default)]
    pub disks: Vec<String>,
    /// Objects known to be damaged with no other copy; at most 1,000 are known.
    #[serde(default)]
    pub lost: u64,
    /// The first few of them.
    #[serde(default)]
    pub lost_names: Vec<String>,
    #[serde(default)]
    pub machine: Machine,
    /// What each disk holds; the paths are those of `disks`.
    #[serde(default)]
    pub mountpaths: Vec<DiskUsage>,
    /// Requests answered so far, by the names of v1 such as `get.n` and `err.get.n`.
    #[serde(default)]
    pub tracker: BTreeMap<String, u64>,
}

/// The machine of a node, for people to look at.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Bytes that the node's process holds.
    pub mem_used: u64,
    /// Bytes that all processes could still have.
    pub mem_avail: u64,
    pub pct_mem_used: f64,
    /// Of one processor, by the node's process.
    pub pct_cpu_used: f64,
    /// Percent of all processors, by all processes.
    pub cpu_util: u64,
    /// Load averages over 1, 5 and 15 minutes.
    pub loads: [f64; 3],
}

/// One disk of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    pub path: String,
    /// Bytes used of the node's budget there.
    pub used: u64,
    /// Bytes it may use.
    pub budget: u64,
}

/// One node in `GET /api/v1/cluster`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeInfo {
    pub id: NodeId,
    pub role: Role,
    pub url: String,
    pub alive: bool,
    pub usage: NodeUsage,
}

/// `GET /api/v1/cluster`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterInfo {
    pub cluster_id: String,
    pub version: u64,
    pub primary: NodeId,
    pub nodes: Vec<NodeInfo>,
    pub buckets: usize,
}

/// `POST /internal/v1/list` on a target: the records it holds of one bucket, in name order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListRequest {
    /// Id of the bucket: a bucket created again under the same name is another one.
    pub bucket_id: u64,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    /// Names not greater than this, when given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    pub limit: usize,
    /// Whether the members of shards are listed behind them.
    #[serde(default)]
    pub archive: bool,
    /// The answer is a [`ListPage`] encoded so.
    #[serde(default)]
    pub detail: Detail,
}

/// `POST /internal/v1/backend/list` on a target: what the backend has of one bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendListRequest {
    pub info: BucketInfo,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    pub limit: usize,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage {
    pub entries: Vec<ListEntry>,
    /// Whether names after the last entry exist.
    pub more: bool,
}

/// `POST /internal/v1/backend/head`: does this bucket exist at its backend?
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendHeadRequest {
    pub info: BucketInfo,
}

/// What a target sees of the files of a promotion. `POST /internal/v1/promote/scan` with
/// [`PromoteArgs`](crate::v1::object::PromoteArgs) asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromoteScan {
    pub files: u64,
    /// Of names, sizes and times: equal where targets see the same files.
    pub digest: u64,
    /// There are more than were looked at.
    pub more: bool,
}

/// `POST /internal/v1/promote`: begins it on one target, under an id that all have in common.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PromoteRequest {
    pub id: String,
    pub bucket: crate::name::Bucket,
    pub args: crate::v1::object::PromoteArgs,
    /// All targets see the same files: each takes those whose objects it owns.
    pub shared: bool,
}

/// `POST /internal/v1/settle`: the target is to take over a native object that belongs to it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettleRequest {
    pub bucket: crate::name::Bucket,
    pub name: String,
}
