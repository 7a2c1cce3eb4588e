//! Prefetch of a backend's objects, within the share of background work.

use std::sync::Arc;

use forebay_clouds::{Announced, COMPOSED, Room};
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::cache_rules::Admission;
use forebay_core::cloud_rules::Compose;
use forebay_core::{Error, ErrorCode, Result};

use super::background::Turn;
use super::ranges::Ranges;
use super::{BlobOptions, ColdCache, validation_of};

/// The result of a prefetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrefetchResult {
    /// It was fetched now, with this many bytes.
    Fetched(u64),
    /// It was cached already.
    Here(u64),
}

impl PrefetchResult {
    /// The fetched bytes.
    pub(crate) fn fetched(self) -> Option<u64> {
        match self {
            Self::Fetched(bytes) => Some(bytes),
            Self::Here(_) => None,
        }
    }
}

impl ColdCache {
    /// Prefetches an object of a backend. Returns the fetched bytes; `None` if it was cached
    /// already.
    pub(crate) async fn prefetch(&self, info: &BucketInfo, name: &str) -> Result<Option<u64>> {
        self.bring(info, name, None).await.map(PrefetchResult::fetched)
    }

    /// As [`Self::prefetch`], with the object's size, if known.
    pub(crate) async fn bring(
        &self,
        info: &BucketInfo,
        name: &str,
        size: Option<u64>,
    ) -> Result<PrefetchResult> {
        check_prefetch(info)?;
        // Without a request to the backend no permit is needed.
        if let Some(record) = self.store().find(info.id, name)?
            && self.is_fresh(info, name, validation_of(&record))
        {
            return Ok(PrefetchResult::Here(record.size));
        }
        let ranges = Ranges::of(info);
        let most =
            if size.is_some_and(|size| size > ranges.above) { ranges.concurrency } else { 1 };
        let turn = self.background_turn(info, most).await?;
        if let Some(record) = self.current_copy(info, name).await? {
            return Ok(PrefetchResult::Here(record.size));
        }
        let how = BlobOptions { chunk: ranges.chunk, workers: turn.calls, latest: false };
        let how = if turn.calls > 1 { how } else { BlobOptions { chunk: u64::MAX, ..how } };
        match self.cold_by(info, name, Some(how)).await? {
            Some((following, _)) => {
                let bytes = following.finished().await?;
                turn.came(bytes).await;
                Ok(PrefetchResult::Fetched(bytes))
            }
            None => {
                let record = self.current_copy(info, name).await?;
                Ok(PrefetchResult::Here(record.map_or(0, |record| record.size)))
            }
        }
    }

    /// Compares the copy here with the backend, and drops it if the backend has another version or
    /// none; returns whether it did.
    pub(crate) async fn drop_stale(&self, info: &BucketInfo, name: &str) -> Result<bool> {
        let info = BucketInfo { freshness: Freshness::Always, ..info.clone() };
        if self.store().partial_head(info.id, name).is_some() {
            return match self.stat(&info, name).await {
                Err(e) if e.code != ErrorCode::ObjectNotFound => Err(e),
                _ => Ok(self.store().partial_head(info.id, name).is_none()),
            };
        }
        match self.current_copy(&info, name).await {
            Ok(record) => Ok(record.is_none()),
            Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(true),
            Err(e) => Err(e),
        }
    }

    /// Announces a prefetch of this many objects, some of them concurrently.
    pub(crate) fn announce_ahead(
        &self,
        info: &BucketInfo,
        concurrency: usize,
        objects: usize,
    ) -> Option<Announced> {
        let share = self.0.background.max_parallel_objects();
        self.announce(info, concurrency.min(share), || objects)
    }

    /// Waits until background work may call a bucket's backend, with up to `most` concurrent calls.
    pub(crate) async fn background_turn(&self, info: &BucketInfo, most: usize) -> Result<Turn> {
        // The backend must be open before its limits are known.
        self.backend(info).await?;
        let targets = self.state().alive_targets().count();
        let backends = Arc::clone(&self.0.backends);
        let id = info.id;
        // One call may fetch this many objects.
        let together = if info.cloud.compose() == Compose::Off { 1 } else { COMPOSED };
        let room = move || {
            let room = backends.room(id);
            Room { calls: room.calls * together, ..room }
        };
        Ok(self.0.background.turn(info, targets, most, room).await)
    }
}

/// Whether objects of a bucket can be fetched and cached.
pub(crate) fn check_prefetch(info: &BucketInfo) -> Result<()> {
    if !info.has_backend() {
        return Err(Error::invalid(format!(
            "bucket \"{}\" has no backend: there is nothing to prefetch from",
            info.bucket
        )));
    }
    if info.cache.admission == Admission::Never {
        return Err(Error::invalid(format!(
            "bucket \"{}\" has cache.admission never: nothing of it is kept",
            info.bucket
        )));
    }
    Ok(())
}
