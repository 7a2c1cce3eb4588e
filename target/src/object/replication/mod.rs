//! Replication of native objects between targets: the copies and slices of an object, its
//! tombstones and older versions, and what happens to them when targets join, leave, die or lose a
//! disk.
//!
//! [`Replication`] is the one entrance. Its dependencies are this target ([`Local`]) and the client
//! for other nodes. A change is committed in the store first and then replicated
//! ([`former_owner`], [`neighbor`]); until all holders have it, it is pending ([`unsettled`]).
//! Copies travel by [`transfer`], slices by [`slices`].

mod former_owner;
mod mend;
mod missed;
mod neighbor;
mod refill;
mod slices;
mod survey;
mod tombstone;
mod transfer;
#[cfg(test)]
mod transfer_tests;
mod unsettled;
mod version_moves;
mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_client::PeerClient;
use forebay_core::NodeId;
use forebay_core::state::ClusterState;
use tokio::sync::Notify;

pub(crate) use self::transfer::{OLDER, Which, headers_of};
pub(crate) use self::version_moves::VersionLooks;
pub(super) use self::write::NextVersion;
use super::local::Local;
use super::lock::KeyLocks;
use crate::pace::Pace;
use crate::store::Store;

/// Maximum rate at which a target sends data for repairs that other targets request.
const REPAIR_BYTES_PER_SECOND: f64 = (64u64 << 20) as f64;

/// The replication of this target's native objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct Replication(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    peer: PeerClient,
    unsettled: unsettled::Unsettled,
    /// Notified when a tombstone is not needed any more when it is written.
    late_tombstones: Notify,
    mending: mend::Mending,
    /// The locks of tasks that rebuild an object from slices or repair its placement.
    rebuilding: KeyLocks,
    ensuring: KeyLocks,
    repair_pace: Pace,
    slice_ids: slices::SliceIds,
    /// The loss of the store up to which all copies were restored.
    refilled: AtomicU64,
}

impl Replication {
    pub(super) fn new(local: Arc<Local>, peer: PeerClient) -> Self {
        Self(Arc::new(Inner {
            local,
            peer,
            unsettled: unsettled::Unsettled::default(),
            late_tombstones: Notify::new(),
            mending: mend::Mending::default(),
            rebuilding: KeyLocks::default(),
            ensuring: KeyLocks::default(),
            repair_pace: Pace::new(REPAIR_BYTES_PER_SECOND, 1),
            slice_ids: slices::SliceIds::default(),
            refilled: AtomicU64::new(0),
        }))
    }

    fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn me(&self) -> &NodeId {
        &self.0.local.id
    }

    fn state(&self) -> Arc<ClusterState> {
        self.0.local.state()
    }
}
