//! Maintenance operations of jobs on the whole store.

use std::sync::Arc;

use forebay_clouds::composed::delete_leftovers;
use forebay_core::Result;
use forebay_core::cloud_rules::Compose;
use forebay_core::intra::listers;
use forebay_store::{ObjectLock, Record, Volume};

use super::ObjectService;

/// Maximum number of lost objects that the node reports by name.
const LOST_NAMES: usize = 8;

impl ObjectService {
    /// Deletes temporary composed objects of dead targets in clouds; returns their number. One
    /// target does it for each bucket.
    pub(crate) async fn sweep_clouds(&self) -> Result<u64> {
        let (state, mut swept) = (self.state(), 0);
        let composed = state.buckets.values().filter(|info| info.cloud.compose() != Compose::Off);
        for info in composed {
            let first = listers(&state, &info.bucket).first().map(|node| &node.id);
            if first == Some(self.me()) {
                swept += delete_leftovers(&*self.cold_cache().backend(info).await?).await;
            }
        }
        Ok(swept)
    }

    /// Wakes the task that evicts, regardless of the watermarks.
    pub(crate) fn make_room(&self) {
        self.store().bell().ring.notify_one();
    }

    /// The locks of objects, for the store's own work on them.
    pub(crate) fn object_lock(&self) -> ObjectLock {
        let objects = self.clone();
        Box::new(move |bucket_id, name| {
            let objects = objects.clone();
            Box::pin(async move {
                let guard: Box<dyn Send> = Box::new(objects.lock_key(bucket_id, &name).await);
                guard
            })
        })
    }

    /// Moves objects to the disk that they are placed on; returns their number.
    pub(crate) async fn move_to_their_disks(&self) -> Result<u64> {
        self.store().resilver_once(&self.object_lock()).await
    }

    /// An error if objects may be on a disk that is not in use.
    pub(crate) fn check_whole(&self) -> Result<()> {
        self.store().check_whole()
    }

    /// The numbers of the disks known so far; more may be added while the target runs.
    pub(crate) fn disk_numbers(&self) -> std::ops::Range<usize> {
        0..self.store().budgets().len()
    }

    /// Counts disks that are added or removed.
    pub(crate) fn disk_turns(&self) -> tokio::sync::watch::Receiver<u64> {
        self.store().disk_turns()
    }

    /// Records of a bucket in the order of names, after a given name; and whether more follow.
    pub(crate) async fn records(
        &self,
        bucket_id: u64,
        after: &str,
        limit: usize,
    ) -> Result<(Vec<Record>, bool)> {
        self.store().list(bucket_id, "", Some(after), None, limit).await
    }

    /// The disk of this number, while it is in use.
    pub(crate) fn volume(&self, number: usize) -> Result<Arc<Volume>> {
        self.local().volume(number)
    }

    /// Restores an entry that was recorded before a restart, if it is still valid.
    pub(crate) async fn remember_lost(&self, bucket_id: u64, name: &str, generation: u64) {
        let record = self.store().get(bucket_id, name).await;
        if let Ok(Some(record)) = record
            && record.generation == generation
        {
            self.local().lost.note(&record);
        }
    }

    /// Objects known to be damaged without another copy: bucket id, name and the damaged commit. Only
    /// the first are remembered.
    pub(crate) fn lost(&self) -> Vec<(u64, String, u64)> {
        let table = self.local().lost.table();
        table.iter().map(|((id, name), generation)| (*id, name.clone(), *generation)).collect()
    }

    /// The number of such objects, and the first few of them for messages.
    pub(crate) fn lost_summary(&self) -> (u64, Vec<String>) {
        let state = self.state();
        let table = self.local().lost.table();
        let names = table.keys().take(LOST_NAMES).map(|(id, name)| {
            let info = state.buckets.values().find(|b| b.id == *id);
            info.map_or_else(|| name.clone(), |info| info.bucket.object_uri(name))
        });
        (table.len() as u64, names.collect())
    }
}
