//! Replication of native objects between targets: the copies and slices of an object, its
//! tombstones and older versions, and what happens to them when targets join, leave, die or lose a
//! disk.
//!
//! [`Replication`] is the one entrance. The steps are those of the engine
//! ([`forebay_core::replication`]), which the simulator runs, too; this module drives it. Clients and
//! jobs start [`operations`], other targets send [`requests`]; [`driver`] executes the commands that
//! come out, on this target's disks ([`disk_commands`]) or as requests to other nodes
//! ([`peer_commands`]). The bytes of copies travel by [`transfer`], those of slices by [`slices`].

mod content;
mod damaged_copies;
mod disk_commands;
mod driver;
#[cfg(test)]
mod forwarding_tests;
mod lost_copies;
mod missed_removals;
mod operations;
mod peer_commands;
mod requests;
mod slices;
mod survey;
mod tombstone;
mod transfer;
#[cfg(test)]
mod transfer_tests;
mod version_looks;
mod view;
mod work;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_client::PeerClient;
use forebay_core::NodeId;
use forebay_core::replication::Replication as Engine;
use forebay_core::state::ClusterState;
use forebay_node::pace::Pace;
use forebay_store::Store;
use tokio::sync::Notify;

pub(super) use self::content::{MetadataChange, NewVersion};
pub(crate) use self::transfer::{OLDER, headers_of};
pub(crate) use self::version_looks::VersionLooks;
use self::view::TargetView;
use super::local::Local;
use super::lock::KeyLocks;

/// Maximum rate at which a target sends data for repairs that other targets request.
const REPAIR_BYTES_PER_SECOND: f64 = (64u64 << 20) as f64;

/// The replication of this target's native objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct Replication(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    peer: PeerClient,
    engine: Engine,
    view: Arc<TargetView>,
    /// Notified when a tombstone is not needed any more when it is written.
    late_tombstones: Notify,
    damaged: damaged_copies::DamagedCopies,
    /// The locks of tasks that assemble an object from slices, or bring its forms to their places.
    assembling: KeyLocks,
    ensuring: KeyLocks,
    repair_pace: Pace,
    slice_ids: slices::SliceIds,
    /// The loss of the store up to which all copies were restored.
    restored: Arc<AtomicU64>,
}

impl Replication {
    pub(super) fn new(local: Arc<Local>, peer: PeerClient) -> Self {
        let restored = Arc::new(AtomicU64::new(0));
        let view = Arc::new(TargetView::new(local.clone(), restored.clone()));
        Self(Arc::new(Inner {
            engine: Engine::new(local.id.clone(), view.clone()),
            view,
            local,
            peer,
            late_tombstones: Notify::new(),
            damaged: damaged_copies::DamagedCopies::default(),
            assembling: KeyLocks::default(),
            ensuring: KeyLocks::default(),
            repair_pace: Pace::new(REPAIR_BYTES_PER_SECOND, 1),
            slice_ids: slices::SliceIds::default(),
            restored,
        }))
    }

    fn engine(&self) -> &Engine {
        &self.0.engine
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

    /// Whether no target can have an older version of an object without the owner's knowledge.
    fn is_quiescent(&self, state: &ClusterState) -> bool {
        state.is_quiescent() && self.store().check_whole().is_ok()
    }

    /// Returns when all changes in progress have ended: later ones use the state that this target
    /// has now.
    pub(crate) async fn changes_under_way(&self) {
        self.local().locks.drained().await;
    }
}
