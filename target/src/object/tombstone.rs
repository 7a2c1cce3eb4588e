//! Tombstones: notes of what was removed while an older copy of it may still lie elsewhere. A copy
//! that comes later and is older than the tombstone of its name is dropped. Once all objects lie
//! where they belong, and nobody is away, there are no such copies, and tombstones go.

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::{Result, history, native};
use tokio_util::sync::CancellationToken;

use super::ObjectService;
use crate::store::RecordMeta;

/// Tombstones looked at in one step.
const PAGE: usize = 256;

impl ObjectService {
    /// When the object was removed last, as far as that matters still.
    pub(super) async fn tombstone(&self, info: &BucketInfo, name: &str) -> Result<Option<Stamp>> {
        let found = self.store().get(history::tombstones(info.id), name).await?;
        Ok(found.map(|record| record.stamp()))
    }

    /// Notes a removal; the caller has the object's lock. Where nobody has anything older any more by
    /// the time that it is noted, the note goes again.
    pub(super) async fn bury(&self, info: &BucketInfo, name: &str, stamp: Stamp) -> Result<()> {
        let meta = RecordMeta {
            version: stamp.version.to_string(),
            epoch: stamp.epoch,
            class: info.class,
            ..RecordMeta::default()
        };
        let id = history::tombstones(info.id);
        self.store().put(id, name, Bytes::new(), meta).await?;
        if self.is_calm(&self.state()) {
            // Those that were noted before all was in its place were dropped then, perhaps without it.
            self.0.late_tombstones.notify_one();
        }
        Ok(())
    }

    /// Drops tombstones each time that nobody has anything older any more.
    pub(crate) async fn watch_tombstones(self, stop: CancellationToken) {
        let mut versions = self.0.parts.maps.subscribe();
        let mut done = false;
        loop {
            let state = self.state();
            let calm = state.version > 0 && state.is_calm();
            if calm && !done {
                match self.drop_tombstones(state.version).await {
                    Ok(()) => done = true,
                    Err(e) => tracing::warn!(error = %e, "tombstones stay for now"),
                }
            }
            done &= calm;
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.0.late_tombstones.notified() => done = false,
                changed = versions.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Drops those of up to this version of the cluster's state; later ones may be needed.
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
                    let _guard = self.lock_key(history::bucket_id(id), &old.name).await;
                    // A newer one of the same name is another commit, and stays.
                    self.store().discard(old).await?;
                }
                if !more {
                    break;
                }
            }
        }
        Ok(())
    }
}
