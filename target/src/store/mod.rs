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
mod buffers;
mod change;
mod checked;
#[cfg(test)]
mod checked_tests;
mod claim;
mod committer;
mod compaction;
#[cfg(test)]
mod crash_tests;
pub mod disk;
mod disks;
#[cfg(test)]
mod disks_tests;
mod engine;
#[cfg(test)]
mod engine_tests;
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
mod space;
mod state;
#[cfg(test)]
mod tests;
mod uploads;
mod usage_counters;
mod volume;
mod work;

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, ObjectName, Result};
use tokio::task::JoinError;

pub(crate) use self::attach::MAX_DISKS;
pub use self::disk::{Disk, DiskFile, RealDisk};
pub(crate) use self::format::Commit;
pub use self::format::FORMAT;
pub(crate) use self::hot::Located;
pub(crate) use self::index::Span;
pub(crate) use self::location_cache::Ticket;
pub(crate) use self::log::Taken;
pub use self::observer::{Arrival, Observer, key_digest};
pub(crate) use self::partial::{GRANULE, Partial, PartialHead, Validation};
pub use self::reader::ObjectReader;
pub(crate) use self::recency::Access;
pub use self::record::{Record, RecordMeta};
pub(crate) use self::resilver::ObjectLock;
pub use self::settings::{Disabled, DiskSettings};
pub use self::space::{Demand, Usage};
pub use self::state::{DiskReport, DiskState};
pub(crate) use self::uploads::{FoundUpload, PartFile, Piece, UploadDir};
pub use self::work::WorkFile;

use self::disks::Disks;
use self::space::{EvictionNotifier, Reservation};
pub(crate) use self::volume::Volume;

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
    pub(crate) async fn note_cluster(&self, id: &str) -> Result<()> {
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

    /// The record of an object, from the index alone.
    pub async fn get(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        self.find(bucket_id, name)
    }

    /// As [`Self::get`]. Nearly always memory serves a point look-up: it costs less than a switch
    /// of threads, and needs no await.
    pub(crate) fn find(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        self.disks.find(&format::key(bucket_id, name))
    }

    /// Opens the current object of a name. `None` if there is none.
    pub async fn open_object(&self, bucket_id: u64, name: &str) -> Result<Option<ObjectReader>> {
        let (store, name) = (self.clone(), name.to_owned());
        blocking(move || store.open_blocking_object(bucket_id, &name)).await
    }

    fn open_blocking_object(&self, bucket_id: u64, name: &str) -> Result<Option<ObjectReader>> {
        // Overwritten or moved between look-up and open: look up again. Each round either finds a
        // newer record or removed an entry whose bytes are gone, so this ends.
        while let Some(record) = self.find(bucket_id, name)? {
            if let Some(reader) = self.volume(&record)?.open_object(&record)? {
                return Ok(Some(reader));
            }
        }
        Ok(None)
    }

    /// Record and payload in one step, for objects of at most `most` bytes. A larger object is
    /// returned without its payload. `None` if there is no such object.
    pub async fn read_small(
        &self,
        bucket_id: u64,
        name: &str,
        most: u64,
    ) -> Result<Option<(ObjectReader, Option<Bytes>)>> {
        let (store, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let Some(reader) = store.open_blocking_object(bucket_id, &name)? else {
                return Ok(None);
            };
            let small = reader.record().size <= most;
            let bytes = small.then(|| reader.read_all_blocking()).transpose()?;
            Ok(Some((reader, bytes)))
        })
        .await
    }

    /// Opens exactly the commit of `record`; [`ErrorCode::ObjectNotFound`] when it is gone.
    pub async fn reader(&self, record: &Record) -> Result<ObjectReader> {
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.reader_blocking(record)).await
    }

    fn reader_blocking(&self, mut record: Record) -> Result<ObjectReader> {
        loop {
            if let Some(reader) = self.volume(&record)?.open_object(&record)? {
                return Ok(reader);
            }
            // Compaction may have moved it.
            let now = self.find(record.bucket_id, &record.name)?;
            match now.filter(|now| now.generation == record.generation) {
                Some(now) => record = now,
                None => return Err(gone(&record)),
            }
        }
    }

    /// The payload of exactly this commit, for callers on the blocking pool.
    pub(crate) fn read_blocking(&self, record: &Record) -> Result<Bytes> {
        self.reader_blocking(record.clone())?.read_all_blocking()
    }

    /// Opens exactly the commit of `record` and reads a part of it, in one step.
    pub async fn read_part(&self, record: &Record, range: ByteRange) -> Result<Bytes> {
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.reader_blocking(record)?.read_blocking(range)).await
    }

    /// Starts writing an object. With a `size_hint` the space is reserved at once.
    ///
    /// If the disks are full it waits a little for eviction, then fails with
    /// [`ErrorCode::OutOfSpace`].
    pub async fn begin(
        &self,
        bucket_id: u64,
        name: &str,
        size_hint: Option<u64>,
    ) -> Result<WorkFile> {
        let name = ObjectName::new(name)?;
        let need = format::space_for(size_hint.unwrap_or(0), name.as_ref());
        let (volume, reservation) = self.reserve(bucket_id, name.as_ref(), need).await?;
        Ok(WorkFile::new(&volume, bucket_id, name.as_ref(), size_hint, reservation))
    }

    /// Writes a whole object that is in memory.
    pub async fn put(
        &self,
        bucket_id: u64,
        name: &str,
        payload: Bytes,
        meta: RecordMeta,
    ) -> Result<Record> {
        let mut work = self.begin(bucket_id, name, Some(payload.len() as u64)).await?;
        work.fill(payload).await?;
        self.commit(work, meta).await
    }

    /// Commits a written object and replaces the object of that name.
    ///
    /// For class `Owned` the object is durable when this returns. The future may be dropped: the
    /// commit then happens as a whole or not at all.
    pub async fn commit(&self, work: WorkFile, meta: RecordMeta) -> Result<Record> {
        let work = work.finish()?;
        let volume = work.volume.clone();
        let key = format::key(work.bucket_id, &work.name);
        self.drop_partial_of(&key).await?;
        // A copy on another disk (the set of disks changed, or this disk was full) is removed after
        // the commit. For a crash in between, a note on this disk remains.
        let is_elsewhere = self.disks.is_elsewhere(&volume, &key)?;
        let record = volume.commit(work, meta, is_elsewhere).await?;
        if is_elsewhere {
            self.drop_older(&volume, &key).await?;
        }
        Ok(record)
    }

    /// Changes the metadata of a commit; [`ErrorCode::ObjectNotFound`] when it is gone.
    ///
    /// For class `Owned`, metadata that must survive the loss of the index is also written to the
    /// log. Otherwise, and for `epoch`, `validated_ns` and `atime_ns` always, a rebuilt index has
    /// the values of the commit.
    pub async fn update(
        &self,
        record: &Record,
        f: impl FnOnce(&mut RecordMeta) + Send + 'static,
    ) -> Result<Record> {
        let updated = self.volume(record)?.update(record, Box::new(f)).await?;
        updated.ok_or_else(|| gone(record))
    }

    /// The sidecar that [`Self::keep_sidecar`] stored for exactly this commit. `None` if there is
    /// none, or if it was damaged and is removed now.
    pub async fn sidecar(&self, record: &Record) -> Result<Option<Vec<u8>>> {
        let (volume, record) = (self.volume(record)?, record.clone());
        blocking(move || volume.shared().sidecar(&record)).await
    }

    /// Stores a sidecar for exactly this commit and replaces the previous one. It is removed with
    /// the commit and may get lost before. False if there is no space, or the object was removed or
    /// replaced.
    pub async fn keep_sidecar(&self, record: &Record, bytes: Vec<u8>) -> Result<bool> {
        let (volume, record) = (self.volume(record)?, record.clone());
        blocking(move || volume.shared().keep_sidecar(&record, &bytes)).await
    }

    /// Removes the object of a name. Returns its record.
    pub async fn remove(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        let key = format::key(bucket_id, name);
        self.drop_partial_of(&key).await?;
        let mut newest = None;
        // In a loop: a disk may come into use meanwhile.
        loop {
            let found = self.disks.copies(&key)?;
            if found.is_empty() {
                return Ok(newest);
            }
            newest = newest.or_else(|| found.last().cloned());
            // The oldest first, so that a crash leaves the newest.
            for record in found {
                self.volume(&record)?.remove(&record).await?;
            }
        }
    }

    /// Removes exactly this commit, for eviction and for damaged copies. False if it was gone
    /// already.
    pub async fn discard(&self, record: &Record) -> Result<bool> {
        self.volume(record)?.remove(record).await
    }

    /// Removes all objects of a bucket. Returns how many, and their bytes.
    pub async fn remove_bucket(&self, bucket_id: u64) -> Result<(u64, u64)> {
        let volumes = self.disks.online();
        blocking(move || {
            let (mut objects, mut bytes) = (0, 0);
            for volume in volumes.iter() {
                volume.shared().drop_partials_of(bucket_id);
                let (o, b) = volume.remove_bucket(bucket_id)?;
                objects += o;
                bytes += b;
            }
            Ok((objects, bytes))
        })
        .await
    }

    /// Ids of all buckets that have objects here.
    pub async fn buckets(&self) -> Result<Vec<u64>> {
        let volumes = self.disks.online();
        blocking(move || {
            let mut ids = Vec::new();
            for volume in volumes.iter() {
                ids.extend(volume.shared().index.buckets()?);
                ids.extend(volume.shared().partials.buckets());
            }
            ids.sort_unstable();
            ids.dedup();
            Ok(ids)
        })
        .await
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
    pub(crate) fn budgets(&self) -> Vec<u64> {
        self.disks.budgets()
    }

    /// Counts disks that were taken into or out of use.
    pub(crate) fn disk_turns(&self) -> tokio::sync::watch::Receiver<u64> {
        self.disks.turns()
    }

    /// Counts the times that objects were lost with a disk, or with their bytes on it.
    pub(crate) fn losses(&self) -> tokio::sync::watch::Receiver<u64> {
        self.disks.losses().subscribe()
    }

    /// How many [`Self::losses`] there were.
    pub(crate) fn lost_so_far(&self) -> u64 {
        *self.disks.losses().borrow()
    }

    /// Bytes used and requested on each disk.
    pub(crate) fn demands(&self) -> Vec<Demand> {
        self.disks.online().iter().map(|v| v.demand()).collect()
    }

    /// Notes an access, for eviction. Costs no I/O; [`Self::flush`] writes it to the index.
    pub fn touch(&self, record: &Record, now_ns: u64) {
        self.accessed(record.disk, &Access::of(record), now_ns);
    }

    /// As [`Self::touch`], for callers without a record.
    pub(crate) fn accessed(&self, disk: usize, access: &Access<'_>, now_ns: u64) {
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
    pub(crate) fn has_many_touches(&self) -> bool {
        self.disks.online().iter().any(|v| v.shared().recency.is_due())
    }

    pub(crate) fn volumes(&self) -> Arc<Vec<Arc<Volume>>> {
        self.disks.online()
    }

    pub(crate) fn bell(&self) -> &EvictionNotifier {
        self.disks.bell()
    }

    /// Reserves `bytes` on the first disk that has them at once, else on the best one after a wait.
    async fn reserve(
        &self,
        bucket_id: u64,
        name: &str,
        bytes: u64,
    ) -> Result<(Arc<Volume>, Reservation)> {
        let mut usable = Vec::new();
        let mut refusal = Error::new(ErrorCode::OutOfSpace, "no disk is in use").retry_after(3);
        for volume in self.disks.by_score(bucket_id, name) {
            match volume.shared().check_alive() {
                Ok(()) => usable.push(volume),
                Err(e) => refusal = Error { code: ErrorCode::OutOfSpace, ..e },
            }
        }
        for volume in &usable {
            if let Some(reservation) = volume.try_reserve(bytes) {
                return Ok((volume.clone(), reservation));
            }
        }
        let first = usable.first().ok_or(refusal)?;
        // Only disks whose space can be freed are waited for.
        let volume = usable.iter().find(|v| v.may_free());
        let volume = volume.ok_or_else(|| first.room().full(bytes))?;
        let fits = || volume.shared().file_system_fits(bytes);
        let reservation = volume.room().reserve(bytes, fits).await?;
        Ok((volume.clone(), reservation))
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
pub(crate) async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    joined(tokio::task::spawn_blocking(f).await)
}

fn joined<T>(result: std::result::Result<Result<T>, JoinError>) -> Result<T> {
    result.unwrap_or_else(|e| Err(Error::internal(format!("disk task did not finish: {e}"))))
}
