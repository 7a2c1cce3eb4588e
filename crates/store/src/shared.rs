//! State that the threads of one disk share.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result};
use tokio::sync::watch;

use super::checked::Checked;
use super::condition::Condition;
use super::disk::{Disk, DiskFile, Space};
use super::format;
use super::free_space_hint::FreeSpaceHint;
use super::identity::failed;
use super::index::Index;
use super::location_cache::LocationCache;
use super::log::Log;
use super::observer::Observer;
use super::partial::Partials;
use super::recency::{Access, Recency};
use super::record::Record;
use super::reserve::Reserve;
use super::sidecar::Sidecars;
use super::space::Room;
use super::usage_counters::UsageCounters;

/// Left free on the file system, so that the index and deletes still work: at most this,
const HEADROOM: u64 = 64 << 20;
/// or this part of a small one.
const HEADROOM_SHARE: u64 = 50;
/// Recycled segments are kept while more than this part of the file system is free.
const SPARES_SHARE: u64 = 10;

/// One disk's log, index and accounts.
pub(crate) struct Shared {
    pub(crate) number: usize,
    pub(crate) root: PathBuf,
    pub(crate) io: Arc<dyn Disk>,
    pub(crate) log: Log,
    pub(crate) index: Index,
    /// As of the last batch of the index. Changed by the committer alone.
    pub(crate) usage_counters: Mutex<UsageCounters>,
    pub(crate) room: Arc<Room>,
    pub(crate) recency: Recency,
    pub(crate) sidecars: Sidecars,
    pub(crate) partials: Partials,
    pub(crate) checked: Arc<Checked>,
    /// Locations of small objects of all disks; a change of the index has to close its entries
    /// first.
    pub(crate) location_cache: Arc<LocationCache>,
    /// Order of records over all disks of the store.
    pub(crate) sequence: Arc<AtomicU64>,
    /// Receiver of notifications about changes.
    pub(crate) observer: OnceLock<Arc<dyn Observer>>,
    /// A file that no record names could not be removed: a rebuild would take it for an object if
    /// its removal were dropped from the log.
    pub(crate) stale_index: AtomicBool,
    /// Some other disk is not in use. It may have older copies of objects written or removed here.
    pub(crate) degraded: Arc<AtomicBool>,
    /// Counts the times that objects were lost.
    pub(crate) losses: Arc<watch::Sender<u64>>,
    pub(crate) condition: Condition,
    /// Counts successful operations: a disk that is slow and works is not dead.
    pub(crate) progress: AtomicU64,
    pub(crate) reserve: Reserve,
    pub(crate) free_space_hint: FreeSpaceHint,
}

/// Bytes of a file system of `total` bytes that new objects leave free.
pub(crate) fn headroom(total: u64) -> u64 {
    HEADROOM.min(total / HEADROOM_SHARE)
}

impl Shared {
    pub(crate) fn usage_counters(&self) -> MutexGuard<'_, UsageCounters> {
        self.usage_counters.locked()
    }

    /// Publishes the accounts of the disk to writers and the evictor.
    pub(crate) fn show_accounts(&self) {
        let t = self.usage_counters();
        self.room.show(t.objects, t.bytes, t.stored(), t.dead() + self.log.spare_bytes());
    }

    /// Removes recycled segments. Returns the bytes freed.
    pub(crate) fn give_up_spares(&self) -> u64 {
        self.shown(self.log.give_up_spares())
    }

    /// Removes recycled segments that were not used for a while.
    pub(crate) fn give_up_old_spares(&self) {
        self.shown(self.log.give_up_old_spares());
    }

    fn shown(&self, freed: u64) -> u64 {
        if freed > 0 {
            self.show_accounts();
        }
        freed
    }

    /// Whether released segments may be recycled.
    pub(crate) fn has_room_for_spares(&self) -> bool {
        let free = |s: Space| s.free > s.total / SPARES_SHARE;
        !self.room.is_pressed() && self.io.space(&self.root).is_ok_and(free)
    }

    /// Notes an access. Returns true when the number of notes just reached the limit for writing
    /// them.
    pub(crate) fn touch(&self, access: &Access<'_>, now_ns: u64) -> bool {
        if let Some(observer) = self.observer.get()
            && access.evictable
        {
            observer.accessed(self.number, access.generation);
        }
        self.recency.touch(access, now_ns)
    }

    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Rejects writes after a failed sync, and while the file system is read-only.
    pub(crate) fn check_alive(&self) -> Result<()> {
        self.condition.check_writable(&self.root)
    }

    /// Rejects work that started before the disk was taken out of use.
    pub(crate) fn check_in_use(&self) -> Result<()> {
        if self.condition.is_retired() {
            let text = format!("disk {} was taken out of use", self.root.display());
            return Err(Error::unavailable(text).hint("try again"));
        }
        Ok(())
    }

    /// Whether the disk is leaving.
    pub(crate) fn is_leaving(&self) -> bool {
        self.condition.is_leaving()
    }

    /// Whether some other disk of the store is not in use.
    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::SeqCst)
    }

    /// Runs work on this disk; aborted when the disk is taken out of use, because it may hang then.
    pub(crate) async fn while_in_use<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let text = || format!("disk {} was taken out of use", self.root.display());
        tokio::select! {
            biased;
            done = work => done,
            () = self.condition.retired().cancelled() => Err(Error::unavailable(text())),
        }
    }

    /// Requests a check of the disk after an error that may be its own.
    pub(crate) fn suspect_if(&self, e: &Error) {
        if e.code == ErrorCode::Internal {
            self.condition.suspect();
        }
    }

    /// Stops all writes to the disk. A failed sync may have dropped dirty pages: a successful retry
    /// would prove nothing.
    pub(crate) fn give_up(&self, e: &dyn std::fmt::Display) {
        self.condition.fail();
        tracing::error!(disk = %self.root.display(), "the disk takes no more writes: {e}");
    }

    pub(crate) fn synced(&self, result: std::io::Result<()>, path: &Path) -> Result<()> {
        result.map_err(|e| {
            self.give_up(&e);
            failed("sync", path)(e)
        })
    }

    /// Whether the file system has `bytes` beside those that must stay free.
    pub(crate) fn file_system_fits(&self, bytes: u64) -> bool {
        if self.free_space_hint.is_for(bytes) {
            return true;
        }
        let Ok(space) = self.io.space(&self.root) else { return false };
        let free = space.free.saturating_sub(headroom(space.total));
        self.free_space_hint.seen(free);
        let fits = free >= bytes || free + self.give_up_spares() >= bytes;
        if !fits {
            self.note_file_system(&space);
        }
        fits
    }

    /// The record of a key with its latest access.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        let mut record = self.index.get(key)?;
        if let Some(record) = &mut record {
            self.recency.refresh(record);
        }
        Ok(record)
    }

    pub(crate) fn current(&self, record: &Record) -> Result<Option<Record>> {
        let found = self.get(&format::key(record.bucket_id, &record.name))?;
        Ok(found.filter(|now| now.generation == record.generation))
    }

    pub(crate) fn work_path(&self, file: u64) -> PathBuf {
        work_path(&self.root, file)
    }

    pub(crate) fn object_path(&self, file: u64) -> PathBuf {
        object_path(&self.root, file)
    }

    /// Moves a file whose record is in the log to its place. If that fails it is moved when the
    /// disk is opened again; readers look in both places.
    pub(crate) fn drain_file(&self, file: u64) {
        let (from, to) = (self.work_path(file), self.object_path(file));
        if let Err(e) = self.io.rename(&from, &to) {
            tracing::warn!(path = %from.display(), "file stays where it is until restart: {e}");
        }
    }

    /// Holds open a file that is to be removed: the last close frees its space.
    pub(crate) fn held_file(&self, file: u64) -> Option<Arc<dyn DiskFile>> {
        self.io.open(&self.object_path(file)).ok()
    }

    /// Removes a file that no record names. Returns whether it is gone.
    pub(crate) fn unlink_file(&self, file: u64) -> bool {
        for path in [self.object_path(file), self.work_path(file)] {
            match self.io.unlink(&path) {
                Ok(()) => return true,
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => {
                    tracing::warn!(path = %path.display(), "file stays until restart: {e}");
                    self.stale_index.store(true, Ordering::Relaxed);
                    return false;
                }
            }
        }
        true
    }
}

pub(crate) fn work_path(root: &Path, file: u64) -> PathBuf {
    root.join("work").join(format!("{file:016x}"))
}

pub(crate) fn object_path(root: &Path, file: u64) -> PathBuf {
    root.join("objects").join(format!("{:02x}", file & 0xff)).join(format!("{file:016x}"))
}
