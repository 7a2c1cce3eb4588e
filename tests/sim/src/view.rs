//! The present state of a target, as its replication engine reads it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::locks::MutexExt;
use forebay_core::replication::{Object, View};
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result};

use crate::disks::AwayDisk;
use crate::exec::Micros;

/// The state of one process of a target.
pub(crate) struct TargetView {
    clock: Arc<AtomicU64>,
    away: AwayDisk,
    state: Mutex<Arc<ClusterState>>,
    complete_version: AtomicU64,
    lease_until: AtomicU64,
    has_lease_always: bool,
    /// How often objects were lost with a disk, and the count of losses that are restored.
    losses: AtomicU64,
    restored: AtomicU64,
}

impl TargetView {
    pub(crate) fn new(clock: Arc<AtomicU64>, away: AwayDisk, has_lease_always: bool) -> Self {
        Self {
            clock,
            away,
            state: Mutex::default(),
            complete_version: AtomicU64::new(0),
            lease_until: AtomicU64::new(0),
            has_lease_always,
            losses: AtomicU64::new(0),
            restored: AtomicU64::new(0),
        }
    }

    fn micros(&self) -> Micros {
        self.clock.load(Ordering::Relaxed)
    }

    pub(crate) fn set_state(&self, state: Arc<ClusterState>) {
        if state.is_rebalance_complete() {
            self.complete_version.fetch_max(state.version, Ordering::Relaxed);
        }
        *self.state.locked() = state;
    }

    pub(crate) fn lease_until(&self) -> Micros {
        self.lease_until.load(Ordering::Relaxed)
    }

    pub(crate) fn extend_lease(&self, until: Micros) {
        self.lease_until.fetch_max(until, Ordering::Relaxed);
    }

    pub(crate) fn lose_objects(&self) {
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Records that all objects of the first `losses` losses are restored.
    pub(crate) fn restored(&self, losses: u64) {
        self.restored.fetch_max(losses, Ordering::Relaxed);
    }
}

fn disk_away() -> Error {
    Error::unavailable("a disk of this target is not in use")
}

impl View for TargetView {
    fn now(&self) -> Duration {
        Duration::from_micros(self.micros())
    }

    fn state(&self) -> Arc<ClusterState> {
        self.state.locked().clone()
    }

    fn complete_version(&self) -> u64 {
        self.complete_version.load(Ordering::Relaxed)
    }

    fn has_lease(&self) -> bool {
        self.has_lease_always || self.micros() < self.lease_until()
    }

    fn check_disks(&self) -> Result<()> {
        if self.away.is_away() { Err(disk_away()) } else { Ok(()) }
    }

    fn check_absent(&self, object: &Object) -> Result<()> {
        if self.away.may_have(&object.info.bucket, object.stored_name()) {
            Err(disk_away())
        } else {
            Ok(())
        }
    }

    fn has_lost_objects(&self) -> bool {
        self.losses() != self.restored.load(Ordering::Relaxed)
    }
}
