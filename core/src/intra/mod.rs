//! Messages between nodes, and between nodes and Forebay's client; JSON over HTTP.

mod backend;
mod cluster;
mod disks;
mod list;
mod membership;
mod promote;
mod usage;

pub use self::backend::{
    BACKEND_LIST_PATH, BackendChanges, BackendChangesRequest, BackendHeadRequest,
    BackendListRequest, Change, Changed, JournalMark, listers,
};
pub use self::cluster::{ClusterInfo, LeaderReply, MapReply, NodeInfo};
pub use self::disks::{
    DiskAction, DiskCommand, DiskStatus, DiskUsage, FileSystemUsage, NodeDiskCommand,
};
pub use self::list::{LIST_PATH, ListRequest};
pub use self::membership::{
    DecommissionRequest, Heartbeat, HeartbeatReply, JoinRequest, LeaveReply, LeaveRequest,
    PrestopAct, PrestopReply, PrestopRequest,
};
pub use self::promote::{PromoteRequest, PromoteScan};
pub use self::usage::{Machine, NodeUsage};
pub use crate::list_page::ListPage;

/// Header on every answer of a node: the version of the state it acts by.
pub const MAP_HEADER: &str = "forebay-map";
/// Header of a hedged read, which goes to the next target of an object while its owner is silent.
pub const HEDGED_HEADER: &str = "forebay-standby";

fn is_first(format: &u32) -> bool {
    *format == 0
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}
