//! The store: objects on one or more disks, found by bucket id and name.
//!
//! Reads start at [`Store::open_object`], writes at [`Store::begin`] or [`Store::put`]. The store
//! keeps the order of the steps that a crash may interrupt, and checks every byte it returns. The
//! caller decides which reads and writes are allowed, and when: changes of one object must not run
//! at the same time, reads may race with anything.

mod apply;
mod assembly;
#[cfg(test)]
mod assembly_tests;
mod attach;
#[cfg(test)]
mod attach_tests;
mod bucket_counts;
mod bucket_usage;
#[cfg(test)]
mod bucket_usage_tests;
mod buffers;
mod change;
mod checked;
#[cfg(test)]
mod checked_tests;
mod claim;
mod committer;
mod compaction;
mod condition;
#[cfg(test)]
mod crash_tests;
pub mod disk;
mod disks;
#[cfg(test)]
mod disks_tests;
mod engine;
#[cfg(test)]
mod engine_tests;
mod extensions;
#[cfg(test)]
mod extensions_tests;
#[cfg(test)]
pub(crate) mod faulty;
#[cfg(test)]
mod flip_tests;
mod format;
mod free_space_hint;
mod growing;
mod health;
mod hot;
#[cfg(test)]
mod hot_tests;
mod identity;
mod index;
mod list;
mod location_cache;
mod log;
mod observer;
#[cfg(test)]
mod opening_tests;
mod page_cache;
mod partial;
mod read;
mod reader;
mod recency;
mod reclaim;
mod record;
mod recover;
mod reserve;
mod resilver;
mod settings;
mod shared;
mod sidecar;
#[cfg(test)]
mod sidecar_tests;
#[cfg(test)]
#[path = "../../../tests/src/skip.rs"]
#[allow(unreachable_pub)] // It is public in `forebay-tests`, which this crate must not depend on.
mod skip;
mod space;
mod state;
pub mod testing;
#[cfg(test)]
mod tests;
mod uploads;
mod usage_counters;
mod volume;
mod work;
mod write;

use std::sync::Arc;

use forebay_core::{Error, ErrorCode, Result};
use tokio::task::JoinError;

pub use self::attach::MAX_DISKS;
pub use self::bucket_usage::BucketUsage;
pub use self::disk::{Disk, DiskFile, MeasuredDisk, RealDisk};
pub use self::extensions::Extensions;
pub use self::format::Commit;
pub use self::format::FORMAT;
pub use self::hot::Located;
pub use self::index::Span;
pub use self::location_cache::Ticket;
pub use self::log::Taken;
pub use self::observer::{Arrival, Observer, key_digest};
pub use self::partial::{GRANULE, Partial, PartialHead, PartialWriter, Validation};
pub use self::reader::ObjectReader;
pub use self::recency::Access;
pub use self::record::{Record, RecordMeta};
pub use self::resilver::ObjectLock;
pub use self::settings::{Disabled, DiskSettings};
pub use self::space::{Demand, EvictionNotifier, Usage};
pub use self::state::{DiskReport, DiskState};
pub use self::uploads::{FoundUpload, PartFile, Piece, UploadDir};
pub use self::volume::Volume;
pub use self::work::WorkFile;

use self::disks::Disks;

/// Objects on disks. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    disks: Arc<Disks>,
}

/// Whether an error means that stored bytes are damaged: the caller drops the copy and fetches it
/// again.
pub fn is_corrupt(error: &Error) -> bool {
    error.code == ErrorCode::Corrupt
}

impl Store {
    /// Opens the disks, completes the work that a crash interrupted, and counts the objects.
    ///
    /// A disk that cannot be opened is left out. If none can, the error is that of the first one.
    pub async fn open(settings: Vec<DiskSettings>, io: Arc<dyn Disk>) -> Result<Self> {
        let disks = Arc::new(blocking(move || Disks::open(settings, io)).await?);
        let store = Self { disks };
        store.drop_strays().await?;
        store.drop_double_partials().await?;
        Ok(store)
    }

    /// The cluster whose objects the disks hold, if it is known.
    pub fn cluster(&self) -> Option<String> {
        self.disks.cluster()
    }

    /// Whether all disks are in use and empty, without a note of a cluster.
    pub fn is_blank(&self) -> bool {
        self.cluster().is_none() && self.usage().objects == 0 && self.check_whole().is_ok()
    }

    /// Records on the disks which cluster their objects belong to.
    pub async fn note_cluster(&self, id: &str) -> Result<()> {
        let (disks, id) = (self.disks.clone(), id.to_owned());
        blocking(move || disks.note_cluster(&id)).await
    }

    /// Removes copies that a commit on another disk replaced just before a crash.
    async fn drop_strays(&self) -> Result<()> {
        for (volume, key) in self.disks.take_strays()? {
            self.drop_older(&volume, &key).await?;
        }
        Ok(())
    }

    /// Removes the copies of a key on other disks that are older than the record or removal on
    /// `volume`.
    async fn drop_older(&self, volume: &Arc<Volume>, key: &[u8]) -> Result<()> {
        let removed = volume.shared().index.misplaced(key)?.flatten();
        let newest = volume.get(key)?.map(|r| r.sequence).or(removed);
        for other in self.disks.online().iter().filter(|v| v.number() != volume.number()) {
            let old = other.get(key)?;
            if let Some(old) = old.filter(|r| newest.is_some_and(|newest| r.sequence < newest)) {
                other.remove(&old).await?;
            }
        }
        if self.disks.is_degraded() {
            // The note stays until the disk that is away is back.
            return Ok(());
        }
        volume.clear_misplaced(key.to_vec()).await
    }

    /// The usage of all disks together.
    pub fn usage(&self) -> Usage {
        let volumes = self.disks.online();
        volumes.iter().map(|v| v.room().usage()).fold(Usage::default(), |a, b| a + b)
    }

    /// Notifies `observer` of all changes from now on. Called once in the life of a store.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.disks.observe(observer);
    }

    /// The budget of each disk by its number; 0 for a disk that is not in use.
    pub fn budgets(&self) -> Vec<u64> {
        self.disks.budgets()
    }

    /// Counts disks that were taken into or out of use.
    pub fn disk_turns(&self) -> tokio::sync::watch::Receiver<u64> {
        self.disks.turns()
    }

    /// Counts the times that objects were lost with a disk, or with their bytes on it.
    pub fn losses(&self) -> tokio::sync::watch::Receiver<u64> {
        self.disks.losses().subscribe()
    }

    /// How many [`Self::losses`] there were.
    pub fn lost_so_far(&self) -> u64 {
        *self.disks.losses().borrow()
    }

    /// Bytes used and requested on each disk.
    pub fn demands(&self) -> Vec<Demand> {
        self.disks.online().iter().map(|v| v.demand()).collect()
    }

    /// Notes an access, for eviction. Costs no I/O; [`Self::flush`] writes it to the index.
    pub fn touch(&self, record: &Record, now_ns: u64) {
        self.accessed(record.disk, &Access::of(record), now_ns);
    }

    /// As [`Self::touch`], for callers without a record.
    pub fn accessed(&self, disk: usize, access: &Access<'_>, now_ns: u64) {
        if let Ok(volume) = self.disks.number(disk)
            && volume.shared().touch(access, now_ns)
        {
            self.disks.bell().ring.notify_one();
        }
    }

    /// Writes the noted access times to the index: from time to time, and before stopping.
    pub async fn flush(&self) -> Result<()> {
        let volumes = self.disks.online();
        blocking(move || volumes.iter().try_for_each(|volume| volume.write_times())).await
    }

    /// Whether the noted accesses should be written soon.
    pub fn has_many_touches(&self) -> bool {
        self.disks.online().iter().any(|v| v.shared().recency.is_due())
    }

    /// The disks that are in use.
    pub fn volumes(&self) -> Arc<Vec<Arc<Volume>>> {
        self.disks.online()
    }

    /// Wakes the evictor, and records whether one runs.
    pub fn bell(&self) -> &EvictionNotifier {
        self.disks.bell()
    }

    fn volume(&self, record: &Record) -> Result<Arc<Volume>> {
        self.disks.number(record.disk)
    }
}

fn gone(record: &Record) -> Error {
    Error::new(
        ErrorCode::ObjectNotFound,
        format!("object \"{}\" was removed or replaced meanwhile", record.name),
    )
}

/// Runs blocking work on tokio's pool.
pub async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    joined(tokio::task::spawn_blocking(f).await)
}

fn joined<T>(result: std::result::Result<Result<T>, JoinError>) -> Result<T> {
    result.unwrap_or_else(|e| Err(Error::internal(format!("disk task did not finish: {e}"))))
}
