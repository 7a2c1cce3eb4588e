//! Messages between nodes, and between nodes and our own client; JSON over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::BucketInfo;
use crate::clock_offset::ClockOffset;
use crate::list_page::Detail;
use crate::name::{Bucket, NodeId};
use crate::object::ListEntry;
use crate::placement;
use crate::size::ByteSize;
use crate::state::{ClusterState, Node, Role};

/// Header on every answer of a node: the version of the state it acts by.
pub const MAP_HEADER: &str = "forebay-map";
/// Header of a read that goes to the target which answers next for an object, while the one that answers
/// for it is silent.
pub const HEDGED_HEADER: &str = "forebay-standby";
/// Where a target lists the records that it holds: [`ListRequest`], answered by a page in the form
/// of its detail.
pub const LIST_PATH: &str = "/internal/v1/list";
/// Where a target lists what a backend has: [`BackendListRequest`], answered in the same way. A page
/// that has nothing and says that more follow asks for patience.
pub const BACKEND_LIST_PATH: &str = "/internal/v1/backend/list";

/// `GET /api/v1/map`: everything a client needs to go directly to owners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapReply {
    pub state: ClusterState,
    pub primary: NodeId,
    /// Goes into the `Forebay-Grant` header of direct requests.
    pub grant: String,
    pub grant_expires_s: u64,
}

/// What a gateway says of its part in the group (`GET /api/v1/leader`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaderReply {
    /// It leads, and a majority confirmed that a moment ago.
    pub leads: bool,
    /// The term in which it leads; no two gateways ever lead in the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// The gateway that it takes for the leader, or did last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub primary: Option<NodeId>,
}

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
    /// Id of the cluster whose data the node's disks hold; empty where they hold none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cluster: String,
    /// The disks of the target are all in use and hold nothing, not even a note of a cluster.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

/// `POST /internal/v1/heartbeat`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Heartbeat {
    pub id: NodeId,
    /// Version of the state that the node has.
    pub version: u64,
    pub usage: NodeUsage,
    /// As in [`JoinRequest::instance`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
}

/// Answer to a join or a heartbeat.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HeartbeatReply {
    pub version: u64,
    pub primary: NodeId,
    /// Present when newer than what the node has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
    /// The gateway that leads has heard of the node.
    #[serde(default)]
    pub lease: bool,
    /// How long ago, in milliseconds, a majority of the gateways confirmed that it leads; the lease
    /// counts from then.
    #[serde(default)]
    pub confirmed_ms: u64,
    /// The node is not a member: it must join (again).
    #[serde(default)]
    pub unknown: bool,
    /// The clock of the gateway that leads, unix nanoseconds; 0 where it did not reply itself, and from
    /// older gateways.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub clock_ns: u64,
}

/// `POST /internal/v1/leave`: a clean stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveRequest {
    pub id: NodeId,
    /// It still answers for a moment: others take over what they have copies of before it goes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// Since when the process lives that says it, as [`Node::alive_since`] of its state tells; 0 from older nodes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub since: u64,
    /// As in [`JoinRequest::instance`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
}

/// Answer to a [`LeaveRequest`]; older gateways say nothing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeaveReply {
    /// The state without the node, by which it sends on whoever still comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ClusterState>,
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
    /// The node's clock compared with the leading gateway's; `None` before the first reply to it, and
    /// from older nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

impl NodeUsage {
    /// Whether the node has reported: without a leader, and in the first moment after a start, it has
    /// not, and every number is zero.
    pub fn is_known(&self) -> bool {
        self.uptime_s > 0 || self.budget > 0 || !self.mountpaths.is_empty()
    }
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
    /// Files and connections that the node's process may have open; 0 where that is not known.
    #[serde(default)]
    pub open_files: u64,
}

/// One disk of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    pub path: String,
    /// Bytes used of the node's budget there.
    pub used: u64,
    /// Bytes it may use.
    pub budget: u64,
    #[serde(default)]
    pub state: DiskStatus,
    /// Why it is not in use, or why it is although it was to go.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Its file system; `None` while the disk is not in use, and from older targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_system: Option<FileSystemUsage>,
}

/// The file system below a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSystemUsage {
    /// Its size in bytes.
    pub size: u64,
    /// Bytes that the target may still write there.
    pub free: u64,
    /// So little is free that new objects are refused or soon will be.
    pub full: bool,
}

impl FileSystemUsage {
    /// Whether the disk's budget can be used: `used` bytes of it are.
    pub fn holds_budget(&self, used: u64, budget: u64) -> bool {
        budget.saturating_sub(used) <= self.free
    }
}

/// What a disk is to its target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskStatus {
    #[default]
    InUse,
    /// Read; its objects move to other disks, then it goes.
    Leaving,
    /// Failed or missing: tried until it is back.
    Away,
    /// Its index is made again.
    Mending,
    /// Taken out of use by command.
    Disabled,
}

impl DiskStatus {
    pub const ALL: [Self; 5] =
        [Self::InUse, Self::Leaving, Self::Away, Self::Mending, Self::Disabled];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::InUse => "in_use",
            Self::Leaving => "leaving",
            Self::Away => "away",
            Self::Mending => "mending",
            Self::Disabled => "disabled",
        }
    }
}

/// What is to become of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskAction {
    /// Nothing: tell of the disks.
    Show,
    /// A folder becomes one more disk.
    Attach,
    /// It is emptied and is no disk of the target any more.
    Detach,
    /// It is emptied and stays known, out of use.
    Disable,
    Enable,
    /// All disks are looked at now, and where objects belong among them.
    Check,
}

/// `POST /internal/v1/disks` on a target; answered with all its disks as [`DiskUsage`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskCommand {
    pub action: DiskAction,
    /// The folder, as the target's machine names it.
    #[serde(default)]
    pub path: String,
    /// Of a disk that is attached: as in the configuration.
    #[serde(default)]
    pub size: Option<ByteSize>,
    #[serde(default)]
    pub mount: bool,
    /// Detach or disable it with what is on it; attach it with what is on it.
    #[serde(default)]
    pub force: bool,
}

impl DiskCommand {
    pub fn new(action: DiskAction, path: impl Into<String>) -> Self {
        Self { action, path: path.into(), size: None, mount: false, force: false }
    }
}

/// `POST /api/v1/disks` on a gateway: the command for one target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeDiskCommand {
    pub node: NodeId,
    #[serde(flatten)]
    pub command: DiskCommand,
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

/// `GET /api/v1/cluster`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ClusterInfo {
    pub cluster_id: String,
    pub version: u64,
    pub primary: NodeId,
    pub nodes: Vec<NodeInfo>,
    pub buckets: usize,
    /// Whether a gateway leads, with a majority of the gateways behind it: without one nothing is
    /// changed, and what is shown here is what was known last. `None` from older gateways.
    #[serde(default)]
    pub led: Option<bool>,
    /// The clock of the gateway that replies, unix nanoseconds; 0 from older gateways.
    #[serde(default)]
    pub clock_ns: u64,
}

/// `POST /internal/v1/list` on a target: the records it holds of one bucket, in name order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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
    /// What is on a disk that is not in use may be left out; otherwise that is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_part: bool,
    /// Whether objects of a backend that are kept in part are listed too. They are not `present`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
    /// Version of the cluster's state by which it was chosen who is asked; 0 where no other target is.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chosen_by: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// `POST /internal/v1/backend/list` on a target: what the backend has of one bucket.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendListRequest {
    pub info: Arc<BucketInfo>,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    pub limit: usize,
    /// All pages will be asked for, one after the other: they may come from one listing.
    pub whole: bool,
    /// That listing is made to its end, however slowly it is read.
    pub to_the_end: bool,
    /// A listing that was taken then, or later, will do; in unix nanoseconds.
    pub since_ns: u64,
    /// The answer is a [`ListPage`] encoded so.
    pub detail: Detail,
}

/// The targets that may list a bucket's backend: the first one keeps its listings.
pub fn listers<'a>(state: &'a ClusterState, bucket: &Bucket) -> Vec<&'a Node> {
    let digest = placement::digest(&bucket.uname());
    let first = placement::highest(state.alive_targets(), digest);
    let others = state.alive_targets().filter(|node| first.is_none_or(|f| f.id != node.id));
    first.into_iter().chain(others).collect()
}

/// `POST /internal/v1/backend/changes`: what was written to a bucket's backend through this target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendChangesRequest {
    pub bucket_id: u64,
    /// Since when; without it only where the journal stands is told.
    #[serde(default)]
    pub since: Option<JournalMark>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendChanges {
    pub mark: JournalMark,
    /// In their order; `None`: the journal does not reach back so far.
    pub changes: Option<Vec<Change>>,
}

/// A place in a target's journal of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalMark {
    pub journal: u64,
    pub at: u64,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub name: String,
    pub now: Changed,
}

/// What is at the backend after a write.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Changed {
    There {
        size: u64,
        version: String,
        etag: String,
        mtime_ns: u64,
    },
    Gone,
    /// The write failed, which says nothing.
    Unknown,
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
    pub info: Arc<BucketInfo>,
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
