//! Tombstones: records of removals, while another target may still have an older copy of the
//! object. A copy that arrives later and is older than the tombstone of its name is dropped. Once
//! the rebalance is complete and all targets are available, there are no such copies, and
//! tombstones are dropped.

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::{Result, history, native};
use forebay_store::{Record, RecordMeta};
use tokio_util::sync::CancellationToken;

use super::Replication;
use super::work::Work;

/// Tombstones per step.
const PAGE: usize = 256;

impl Replication {
    /// The stamp of the object's last removal, as far as it is still needed.
    pub(in crate::object) async fn tombstone(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Stamp>> {
        self.removal_of(info, name, false).await
    }

    /// The same; `older`: of an older version, by its name in the history.
    pub(super) async fn removal_of(
        &self,
        info: &BucketInfo,
        name: &str,
        older: bool,
    ) -> Result<Option<Stamp>> {
        let found = self.store().get(history::tombstones(info.id), name).await?;
        let found =
            found.filter(|record| history::is_of_older_version(&record.meta.custom) == older);
        Ok(found.map(|record| record.stamp()))
    }

    /// Writes a tombstone; the caller holds the object's lock. If no target can have an older copy
    /// any more by then, the tombstone is dropped again. `older`: of an older version, by its name in
    /// the history.
    pub(super) async fn write_tombstone(
        &self,
        info: &BucketInfo,
        name: &str,
        stamp: Stamp,
        older: bool,
    ) -> Result<()> {
        let custom = older.then(|| (history::OLDER.to_owned(), "1".to_owned()));
        let meta = RecordMeta {
            version: stamp.version.to_string(),
            epoch: stamp.epoch,
            class: info.class,
            custom: custom.into_iter().collect(),
            ..RecordMeta::default()
        };
        let id = history::tombstones(info.id);
        self.store().put(id, name, Bytes::new(), meta).await?;
        if self.is_quiescent(&self.state()) {
            // The last clean-up may have run before this tombstone was written.
            self.0.late_tombstones.notify_one();
        }
        Ok(())
    }

    /// Drops the tombstone with this stamp; another one stays. The caller holds the object's lock.
    pub(super) async fn discard_tombstone(
        &self,
        info: &BucketInfo,
        name: &str,
        stamp: Stamp,
    ) -> Result<()> {
        let found = self.store().get(history::tombstones(info.id), name).await?;
        match found.filter(|record| record.stamp() == stamp) {
            Some(record) => self.store().discard(&record).await.map(drop),
            None => Ok(()),
        }
    }

    /// Sends a removal that was recorded here to the holders of the object.
    pub(crate) async fn relocate_tombstone(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let older = self.removal_of(info, name, true).await?.is_some();
        let work = Work::stored(info, name, older);
        self.drive(&work, self.engine().relocate_tombstone(work.object.clone())).await
    }

    /// Drops tombstones whenever no target has an older copy any more, also not on a disk that is not
    /// in use.
    pub(crate) async fn watch_tombstones(self, stop: CancellationToken) {
        let mut versions = self.local().maps.subscribe();
        let mut disks = self.store().disk_turns();
        let mut done = false;
        loop {
            let state = self.state();
            self.0.view.note(&state);
            let quiescent = state.version > 0 && self.is_quiescent(&state);
            if quiescent && !done {
                match self.drop_tombstones(state.version).await {
                    Ok(()) => done = true,
                    Err(e) => tracing::warn!(error = %e, "tombstones stay for now"),
                }
            }
            done &= quiescent;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.late_tombstones.notified() => done = false,
                changed = versions.changed() => if changed.is_err() { return },
                changed = disks.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Drops the tombstones up to this version of the cluster's state; later ones may be needed.
    async fn drop_tombstones(&self, version: u64) -> Result<()> {
        let ids = self.store().buckets().await?;
        for id in ids.into_iter().filter(|id| history::is_tombstones(*id)) {
            let mut after = String::new();
            loop {
                let start = (!after.is_empty()).then_some(after.as_str());
                let (page, more) = self.store().list(id, "", start, None, PAGE).await?;
                let Some(last) = page.last() else { break };
                after.clone_from(&last.name);
                for old in page.iter().filter(|t| native::may_forget(t.stamp(), version)) {
                    self.drop_tombstone(history::bucket_id(id), old, version).await?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn drop_tombstone(&self, bucket_id: u64, old: &Record, version: u64) -> Result<()> {
        let state = self.state();
        let info = state.buckets.values().find(|info| info.id == bucket_id);
        match info {
            Some(info) => {
                let older = history::is_of_older_version(&old.meta.custom);
                let work = Work::stored(info, &old.name, older);
                let dropping = self.engine().drop_tombstone(work.object.clone(), version);
                self.drive(&work, dropping).await
            }
            // Of a bucket that was destroyed.
            None => {
                let _guard = self.local().lock_key(bucket_id, &old.name).await;
                self.store().discard(old).await.map(drop)
            }
        }
    }
}
