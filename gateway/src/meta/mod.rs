//! The cluster's metadata behind one interface: propose a command, read the resulting state.
//!
//! The gateways of a cluster are one Raft group. Each stores the log and its vote in `meta.redb`
//! ([`file`], [`log_store`]), and keeps the state that results from the log in memory, with a
//! snapshot in the same file ([`state_machine`]). [`group`] runs the group's member here and
//! reports the leader; [`front`] is the [`MetaLog`] of every gateway: it decides here or forwards
//! to the leader. [`enter`] describes how a gateway enters a group, [`change`] how the leader adds
//! and removes gateways, [`view`] their messages about that. [`restore`] creates a group's files
//! from a backup.
//!
//! Only the files of this folder know `openraft`.

pub(crate) mod change;
pub(crate) mod enter;
pub(crate) mod file;
pub(crate) mod front;
pub(crate) mod group;
pub(crate) mod log_store;
pub(crate) mod member;
pub(crate) mod network;
pub(crate) mod record;
pub(crate) mod restore;
pub(crate) mod state_machine;
pub(crate) mod view;

use std::sync::Arc;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::state::{ClusterState, Command};
use openraft::BasicNode;
use serde::{Deserialize, Serialize};

/// Decides changes of the cluster's state.
#[async_trait]
pub(crate) trait MetaLog: Send + Sync {
    /// Makes `command` part of the cluster's state. Returns the version that contains it, after a
    /// majority of the gateways has it on disk and it is visible in [`Self::state`].
    ///
    /// An error of code `Unavailable` may leave open whether the command takes effect; its text
    /// then says so. Dropping the future does not withdraw the command.
    async fn propose(&self, command: Command) -> Result<u64>;

    /// The newest state known here.
    fn state(&self) -> Arc<ClusterState>;

    /// Whether the gateway at this URL votes in the group.
    fn has_voter(&self, url: &str) -> bool;
}

openraft::declare_raft_types!(
    /// The type configuration of the Raft group.
    pub(crate) Types:
        D = Command,
        R = Verdict,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = std::io::Cursor<Vec<u8>>,
);

/// The state's response to a command; the same on every gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict(pub(crate) Result<()>);

pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, BasicNode>;
pub(crate) type StorageResult<T> = Result<T, openraft::StorageError<u64>>;

/// A snapshot as stored in the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) meta: SnapshotMeta,
    pub(crate) state: ClusterState,
}
