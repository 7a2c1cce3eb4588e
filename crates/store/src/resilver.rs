//! Moves objects to the disk where they belong after a disk came or left, at a limited rate. The
//! work continues after a restart: the locations of the objects show what is left.

use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::size::ByteRange;
use forebay_core::{ErrorCode, Result};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::record::Record;
use super::space::Reservation;
use super::volume::Volume;
use super::work::WorkFile;
use super::{Store, blocking, format};

/// Takes the lock under which an object may change: bucket id and name; the returned value holds
/// it.
pub type ObjectLock = Box<dyn Fn(u64, String) -> BoxFuture<'static, Box<dyn Send>> + Send + Sync>;

/// Wait after the set of disks changed: a disk that leaves and comes back must not move anything.
const QUIET_TIME: Duration = Duration::from_secs(10);
/// Records read in one step.
const PAGE: usize = 256;
/// Bytes moved in a second at most.
const BYTES_PER_SECOND: u64 = 64 << 20;
/// Bytes copied at once.
const COPY_CHUNK_BYTES: u64 = 1 << 20;
/// A disk that is used above this percentage receives no objects: nothing is evicted for this.
const FULL_PERCENT: u64 = 80;

impl Store {
    /// Moves objects to their disks after each change of the set of disks, until `token` is
    /// cancelled. `lock` keeps other writers of an object away while it moves.
    pub async fn resilver(&self, token: &CancellationToken, lock: ObjectLock) {
        let mut turns = self.disks.turns();
        loop {
            turns.mark_unchanged();
            let quiet = tokio::time::timeout(QUIET_TIME, turns.changed());
            let over = tokio::select! {
                () = token.cancelled() => return,
                changed = quiet => changed.is_err(),
            };
            if !over {
                continue;
            }
            let moved = tokio::select! {
                () = token.cancelled() => return,
                _ = turns.changed() => continue,
                moved = self.resilver_once(&lock) => moved,
            };
            match moved {
                Ok(0) => {}
                Ok(objects) => tracing::info!(objects, "moved to the disks where they belong"),
                Err(e) => tracing::warn!("objects stay where they are for now: {e}"),
            }
            tokio::select! {
                () = token.cancelled() => return,
                _ = turns.changed() => {}
            }
        }
    }

    /// Moves every object that is on the wrong disk, if there is space. Returns how many.
    pub async fn resilver_once(&self, lock: &ObjectLock) -> Result<u64> {
        let mut moved = 0;
        for volume in self.volumes().iter() {
            let mut after = None;
            loop {
                let (source, from) = (volume.clone(), after.take());
                let page = blocking(move || source.shared().index.page(from, PAGE)).await?;
                let Some(last) = page.last() else { break };
                after = Some(format::key(last.bucket_id, &last.name));
                for record in page {
                    moved += u64::from(self.move_home(volume, record, lock).await?);
                }
            }
        }
        Ok(moved)
    }

    /// Moves one object to its best disk. False if it is there already, or has to stay.
    async fn move_home(
        &self,
        from: &Arc<Volume>,
        record: Record,
        lock: &ObjectLock,
    ) -> Result<bool> {
        let (bucket_id, name) = (record.bucket_id, record.name.as_str());
        let Some(best) = self.disks.by_score(bucket_id, name).into_iter().next() else {
            return Ok(false);
        };
        if best.number() == from.number() || best.shared().check_alive().is_err() {
            return Ok(false);
        }
        let need = format::space_for(record.size, name);
        let usage = best.room().usage();
        if (usage.stored + usage.dead + need) * 100 > usage.budget * FULL_PERCENT
            || !best.shared().file_system_fits(need)
        {
            return Ok(false);
        }
        let Some(reservation) = best.room().try_reserve(need) else { return Ok(false) };
        let started = Instant::now();
        match self.relocate(&record, &best, reservation, lock).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) if best.shared().check_alive().is_err() => return Err(e),
            // Removed meanwhile, or damaged: a read handles that.
            Err(e) => {
                tracing::debug!(name, "not moved: {e}");
                return Ok(false);
            }
        }
        let pace = Duration::from_nanos(need.saturating_mul(1_000_000_000) / BYTES_PER_SECOND);
        tokio::time::sleep(pace.saturating_sub(started.elapsed())).await;
        Ok(true)
    }

    /// Copies an object to disk `to` and removes it from the old disk. False if it was removed or
    /// replaced meanwhile.
    pub(super) async fn relocate(
        &self,
        record: &Record,
        to: &Arc<Volume>,
        reservation: Reservation,
        lock: &ObjectLock,
    ) -> Result<bool> {
        let (bucket_id, name) = (record.bucket_id, record.name.as_str());
        let mut work = WorkFile::new(to, bucket_id, name, Some(record.size), reservation);
        match self.copy_to(record, &mut work).await {
            Err(e) if e.code == ErrorCode::ObjectNotFound => return Ok(false),
            copied => copied?,
        }
        let _guard = lock(bucket_id, name.to_owned()).await;
        let is_same = |now: &Record| {
            (now.disk, now.sequence, now.generation)
                == (record.disk, record.sequence, record.generation)
        };
        let Some(now) = self.get(bucket_id, name).await?.filter(is_same) else {
            return Ok(false);
        };
        let key = format::key(bucket_id, name);
        // With the current metadata: access times and epochs may have changed since.
        to.commit(work.finish()?, now.meta, true).await?;
        self.drop_older(to, &key).await?;
        Ok(true)
    }

    async fn copy_to(&self, record: &Record, work: &mut WorkFile) -> Result<()> {
        let reader = self.stored_reader(record).await?;
        let mut at = 0;
        while at < record.size {
            let end = record.size.min(at + COPY_CHUNK_BYTES);
            work.write(reader.read(ByteRange { start: at, end }).await?).await?;
            at = end;
        }
        Ok(())
    }
}
