//! The present state of this target, as the engine reads it between its commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::replication::{Object, View};
use forebay_core::state::ClusterState;

use crate::object::local::Local;

/// The state of one process of a target.
pub(super) struct TargetView {
    local: Arc<Local>,
    /// The loss of the store up to which all copies were restored.
    restored: Arc<AtomicU64>,
    started: Instant,
    /// The newest version, since this process started, of a state whose rebalance was complete.
    complete_version: AtomicU64,
}

impl TargetView {
    pub(super) fn new(local: Arc<Local>, restored: Arc<AtomicU64>) -> Self {
        let complete_version = AtomicU64::new(0);
        Self { local, restored, started: Instant::now(), complete_version }
    }

    /// Notes a state of the cluster.
    pub(super) fn note(&self, state: &ClusterState) {
        if state.version > 0 && state.is_rebalance_complete() {
            self.complete_version.fetch_max(state.version, Ordering::Relaxed);
        }
    }
}

impl View for TargetView {
    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn state(&self) -> Arc<ClusterState> {
        self.local.state()
    }

    fn complete_version(&self) -> u64 {
        self.complete_version.load(Ordering::Relaxed)
    }

    fn has_lease(&self) -> bool {
        self.local.maps.has_lease()
    }

    fn check_disks(&self) -> Result<()> {
        self.local.store.check_whole()
    }

    fn check_absent(&self, object: &Object) -> Result<()> {
        self.local.store.check_absent(object.stored_id(), object.stored_name())
    }

    fn has_lost_objects(&self) -> bool {
        self.local.store.lost_so_far() != self.restored.load(Ordering::SeqCst)
    }

    fn may_have_slices(&self, info: &BucketInfo) -> bool {
        info.erasure.is_some() || !info.has_backend() && !self.state().is_in_place(info)
    }
}
