//! Messages between nodes, and between nodes and Forebay's client; JSON over HTTP.

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
/// Header of a hedged read, which goes to the next target of an object while its owner is silent.
pub const HEDGED_HEADER: &str = "forebay-standby";
/// Path at which a target lists its records: [`ListRequest`], answered by a page in the form of its
/// detail.
pub const LIST_PATH: &str = "/internal/v1/list";
/// Path at which a target lists a backend: [`BackendListRequest`], answered in the same way. An
/// empty page with `more` set means that the listing is still in progress.
pub const BACKEND_LIST_PATH: &str = "/internal/v1/backend/list";

/// `GET /api/v1/map`: everything that a client needs to send requests directly to owners.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MapReply {
    pub state: ClusterState,
    pub primary: NodeId,
    /// Value of the `Forebay-Grant` header of direct requests.
    pub grant: String,
    pub grant_expires_s: u64,
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
}

/// `POST /internal/v1/leave`: a clean stop.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaveRequest {
    pub id: NodeId,
    /// The node still serves for a moment: before it stops, others take over objects that they have
    /// copies of.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub yields: bool,
    /// [`Node::alive_since`] of the sending process, from its state; 0 from older nodes.
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

/// The report of a node about itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct NodeUsage {
    pub uptime_s: u64,
    pub objects: u64,
    pub bytes: u64,
    /// Bytes that it may use.
    pub budget: u64,
    pub hit_bytes: u64,
    pub miss_bytes: u64,
    pub backend_reads: u64,
    #[serde(default)]
    pub disks: Vec<String>,
    /// Objects that are damaged and have no other copy; at most 1,000 are recorded.
    #[serde(default)]
    pub lost: u64,
    /// The names of the first few of them.
    #[serde(default)]
    pub lost_names: Vec<String>,
    #[serde(default)]
    pub machine: Machine,
    /// The usage of each disk; the paths are those of `disks`.
    #[serde(default)]
    pub mountpaths: Vec<DiskUsage>,
    /// Requests answered so far, by the names of v1 such as `get.n` and `err.get.n`.
    #[serde(default)]
    pub tracker: BTreeMap<String, u64>,
    /// The node's clock compared with the leading gateway's; `None` before the leader's first
    /// reply, and from older nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffset>,
}

impl NodeUsage {
    /// Whether the node has reported: without a leader, and shortly after a start, it has not, and
    /// all numbers are zero.
    pub fn is_known(&self) -> bool {
        self.uptime_s > 0 || self.budget > 0 || !self.mountpaths.is_empty()
    }
}

/// The machine of a node, for display.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Memory of the node's process in bytes.
    pub mem_used: u64,
    /// Memory available to all processes in bytes.
    pub mem_avail: u64,
    pub pct_mem_used: f64,
    /// Percent of one processor, used by the node's process.
    pub pct_cpu_used: f64,
    /// Percent of all processors, used by all processes.
    pub cpu_util: u64,
    /// Load averages over 1, 5 and 15 minutes.
    pub loads: [f64; 3],
    /// Limit of open files and connections of the node's process; 0 if unknown.
    #[serde(default)]
    pub open_files: u64,
}

/// One disk of a target.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskUsage {
    pub path: String,
    /// Bytes of the budget that are used.
    pub used: u64,
    /// The budget in bytes.
    pub budget: u64,
    #[serde(default)]
    pub state: DiskStatus,
    /// Why it is not in use, or why it is still in use despite a command.
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
    /// Whether so little is free that new objects are refused or will soon be refused.
    pub full: bool,
}

impl FileSystemUsage {
    /// Whether the rest of the disk's budget, of which `used` bytes are taken, is free in the file
    /// system.
    pub fn holds_budget(&self, used: u64, budget: u64) -> bool {
        budget.saturating_sub(used) <= self.free
    }
}

/// The state of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskStatus {
    #[default]
    InUse,
    /// Read-only; its objects move to other disks, then it is removed.
    Leaving,
    /// Failed or missing: retried until it is back.
    Away,
    /// Its index is being rebuilt.
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

/// A command for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DiskAction {
    /// None: report all disks.
    Show,
    /// Add a folder as a disk.
    Attach,
    /// Drain and remove it.
    Detach,
    /// Drain it, keep it known but out of use.
    Disable,
    Enable,
    /// Check all disks now, and the placement of objects among them.
    Check,
}

/// `POST /internal/v1/disks` on a target; answered with all its disks as [`DiskUsage`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskCommand {
    pub action: DiskAction,
    /// The folder, as the target's machine names it.
    #[serde(default)]
    pub path: String,
    /// For an attached disk: as in the configuration.
    #[serde(default)]
    pub size: Option<ByteSize>,
    #[serde(default)]
    pub mount: bool,
    /// Detach or disable it without draining; attach it with its content.
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
    /// Whether a gateway leads with a majority of the gateways: without one nothing changes, and
    /// this is the last known state. `None` from older gateways.
    #[serde(default)]
    pub led: Option<bool>,
    /// The clock of the gateway that replies, unix nanoseconds; 0 from older gateways.
    #[serde(default)]
    pub clock_ns: u64,
}

/// `POST /internal/v1/list` on a target: its records of one bucket, in name order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListRequest {
    /// Id of the bucket: a recreated bucket of the same name has another id.
    pub bucket_id: u64,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    /// Names not greater than this, if given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    pub limit: usize,
    /// Whether the members of shards are listed after each shard.
    #[serde(default)]
    pub archive: bool,
    /// The encoding of the [`ListPage`] in the answer.
    #[serde(default)]
    pub detail: Detail,
    /// Whether records on a disk that is not in use may be omitted; otherwise that is an error.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_part: bool,
    /// Whether partly cached objects of a backend are listed too. They are not `present`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
    /// Version of the cluster's state by which the targets were chosen; 0 if no other target is
    /// asked.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chosen_by: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// `POST /internal/v1/backend/list` on a target: lists one bucket at its backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendListRequest {
    pub info: Arc<BucketInfo>,
    #[serde(default)]
    pub prefix: String,
    /// Names strictly greater than this.
    #[serde(default)]
    pub after: String,
    pub limit: usize,
    /// All pages will be requested in order: they may come from one listing.
    pub whole: bool,
    /// That listing is continued to its end, however slowly it is read.
    pub to_the_end: bool,
    /// Accepts a listing that was taken at this time or later; in unix nanoseconds.
    pub since_ns: u64,
    /// The encoding of the [`ListPage`] in the answer.
    pub detail: Detail,
}

/// The targets that may list a bucket's backend; the first one caches its listings.
pub fn listers<'a>(state: &'a ClusterState, bucket: &Bucket) -> Vec<&'a Node> {
    let digest = placement::digest(&bucket.uname());
    let first = placement::highest(state.alive_targets(), digest);
    let others = state.alive_targets().filter(|node| first.is_none_or(|f| f.id != node.id));
    first.into_iter().chain(others).collect()
}

/// `POST /internal/v1/backend/changes`: the writes to a bucket's backend through this target.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendChangesRequest {
    pub bucket_id: u64,
    /// Position from which changes are returned; if absent, only the current position is.
    #[serde(default)]
    pub since: Option<JournalMark>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendChanges {
    pub mark: JournalMark,
    /// In order; `None`: the journal no longer has all of them.
    pub changes: Option<Vec<Change>>,
}

/// A position in a target's journal of one bucket.
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

/// The content at the backend after a write.
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
    /// The write failed; the content is unknown.
    Unknown,
}

/// A page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPage {
    pub entries: Vec<ListEntry>,
    /// Whether names after the last entry exist.
    pub more: bool,
}

/// `POST /internal/v1/backend/head`: asks whether this bucket exists at its backend.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BackendHeadRequest {
    pub info: Arc<BucketInfo>,
}

/// The files of a promotion that a target sees. Requested by `POST /internal/v1/promote/scan` with
/// [`PromoteArgs`](crate::v1::object::PromoteArgs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromoteScan {
    pub files: u64,
    /// Digest of names, sizes and times: equal if targets see the same files.
    pub digest: u64,
    /// There are more files than were scanned.
    pub more: bool,
}

/// `POST /internal/v1/promote`: starts a promotion on one target, under an id that all targets
/// share.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PromoteRequest {
    pub id: String,
    pub bucket: crate::name::Bucket,
    pub args: crate::v1::object::PromoteArgs,
    /// All targets see the same files: each takes those whose objects it owns.
    pub shared: bool,
}
