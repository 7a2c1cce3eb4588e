//! Shared by all parts of the objects: this target's store, the state of the cluster, and
//! the locks of objects.

use std::sync::Arc;

use forebay_core::bucket::BucketInfo;
use forebay_core::state::ClusterState;
use forebay_core::{Error, NodeId, Result, placement};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_store::{Store, Volume};

use super::Key;
use super::lock::{KeyGuard, KeyLocks};
use super::lost::Lost;

/// This target.
pub(super) struct Local {
    pub(super) id: NodeId,
    pub(super) store: Store,
    pub(super) maps: Maps,
    pub(super) metrics: Metrics,
    /// Spawns tasks that end with the target.
    pub(super) lifecycle: Lifecycle,
    /// Order the changes of each object.
    pub(super) locks: KeyLocks,
    pub(super) lost: Lost,
}

impl Local {
    /// The newest state of the cluster that this target has.
    pub(super) fn state(&self) -> Arc<ClusterState> {
        self.maps.load()
    }

    /// Locks an object against other writers while the guard exists.
    pub(super) async fn lock_key(&self, bucket_id: u64, name: &str) -> KeyGuard {
        self.locks.lock(&Key { bucket_id, name: name.into() }).await
    }

    /// An error if an object that was not found may be on a disk that is not in use and no other
    /// target has it.
    pub(super) fn check_absent(&self, info: &BucketInfo, name: &str) -> Result<()> {
        if info.has_backend() { Ok(()) } else { self.store.check_absent(info.id, name) }
    }

    /// The error for an object that was not found here.
    pub(super) fn missing(&self, info: &BucketInfo, name: &str) -> Error {
        let absent = self.check_absent(info, name);
        absent.err().unwrap_or_else(|| info.bucket.object_not_found(name))
    }

    /// Whether another target may have written an object of a bucket with a backend since the copy here
    /// was compared with the backend at the version `validated` of the state.
    pub(super) fn may_be_superseded(&self, info: &BucketInfo, name: &str, validated: u64) -> bool {
        // The state first: `owners_left` is never older than it.
        let (state, left) = (self.state(), self.maps.owners_left());
        let digest = || placement::digest_in(&info.bucket, name);
        state
            .node(&self.id)
            .is_none_or(|me| placement::may_be_superseded(&state, me, left, validated, digest))
    }

    /// The disk of this number, while it is in use.
    pub(super) fn volume(&self, number: usize) -> Result<Arc<Volume>> {
        let found = self.store.volumes().iter().find(|v| v.number() == number).cloned();
        found.ok_or_else(|| Error::unavailable("the disk is not in use just now"))
    }
}
