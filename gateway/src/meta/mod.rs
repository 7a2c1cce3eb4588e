//! The cluster's metadata behind one seam: propose a command, read the state it made.
//!
//! The gateways of a cluster are one Raft group. Each keeps the log and its vote in `meta.redb`
//! ([`file`], [`log_store`]) and the state that the log makes in memory, with a snapshot of it in
//! the same file ([`state_machine`]). [`group`] runs the group's member here and says who leads;
//! [`front`] is the [`MetaLog`] of every gateway: it decides here or has the leader decide. [`enter`] is how a
//! gateway finds its place in a group, [`change`] how the leader takes gateways in and out, [`view`] what they
//! say to each other of that. [`restore`] begins a group's files from a backup.
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

/// Where changes of the cluster's state are decided.
#[async_trait]
pub(crate) trait MetaLog: Send + Sync {
    /// Makes `command` part of the cluster's state. Returns the version that holds it, after a
    /// majority of the gateways has it on disk and it is visible in [`Self::state`].
    ///
    /// An error of code `Unavailable` may leave open whether the command takes effect; its text
    /// says so then. Dropping the future does not withdraw the command.
    async fn propose(&self, command: Command) -> Result<u64>;

    /// The newest state known here.
    fn state(&self) -> Arc<ClusterState>;

    /// Whether the gateway at this URL votes in the group.
    fn has_voter(&self, url: &str) -> bool;
}

openraft::declare_raft_types!(
    /// What the Raft group replicates.
    pub(crate) Types:
        D = Command,
        R = Verdict,
        NodeId = u64,
        Node = BasicNode,
        Entry = openraft::Entry<Types>,
        SnapshotData = std::io::Cursor<Vec<u8>>,
);

/// What the state says to a command; the same on every gateway.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Verdict(pub(crate) Result<()>);

pub(crate) type Entry = openraft::Entry<Types>;
pub(crate) type LogId = openraft::LogId<u64>;
pub(crate) type Vote = openraft::Vote<u64>;
pub(crate) type Raft = openraft::Raft<Types>;
pub(crate) type SnapshotMeta = openraft::SnapshotMeta<u64, BasicNode>;
pub(crate) type StorageResult<T> = Result<T, openraft::StorageError<u64>>;

/// A snapshot as the file holds it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotRecord {
    pub(crate) meta: SnapshotMeta,
    pub(crate) state: ClusterState,
}
