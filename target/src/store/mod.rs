//! The store: objects on one or more disks, found by bucket id and name.
//!
//! Reading starts at [`Store::open_object`], writing at [`Store::begin`] or [`Store::put`]. The
//! store keeps the order of steps that a crash may interrupt and checks every byte it gives out;
//! who may read or write what, and when, is the caller's matter: changes of one object must not
//! run at the same time, reads may race with anything.

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

/// Whether an error says that stored bytes are damaged: drop the copy and fetch it again.
pub fn is_corrupt(error: &Error) -> bool {
    error.code == ErrorCode::Corrupt
}

impl Store {
    /// Opens the disks, ends what a crash left half done, and counts what is there.
    ///
    /// A disk that cannot be opened is left out; the error is that of the first one when none can.
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

    /// Whether all disks are in use and hold nothing, not even a note of a cluster.
    pub fn is_blank(&self) -> bool {
        self.cluster().is_none() && self.usage().objects == 0 && self.check_whole().is_ok()
    }

    /// Notes on the disks which cluster their objects belong to.
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

    /// Removes what other disks have of a key and is older than what `volume` has or removed.
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
            // The note stays for the disk that is away.
            return Ok(());
        }
        volume.clear_misplaced(key.to_vec()).await
    }

    /// The record of an object, by the index alone.
    pub async fn get(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        self.find(bucket_id, name)
    }

    /// As [`Self::get`]. A point look-up is served from memory nearly always: it costs less than a
    /// change of threads, and needs no await.
    pub(crate) fn find(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        self.disks.find(&format::key(bucket_id, name))
    }

    /// Opens the object of a name as it is now. `None`: there is none.
    pub async fn open_object(&self, bucket_id: u64, name: &str) -> Result<Option<ObjectReader>> {
        let (store, name) = (self.clone(), name.to_owned());
        blocking(move || store.open_blocking_object(bucket_id, &name)).await
    }

    fn open_blocking_object(&self, bucket_id: u64, name: &str) -> Result<Option<ObjectReader>> {
        // Overwritten or moved between look-up and open: look again. Each turn either finds a newer
        // record or removed an entry whose bytes are gone, so this ends.
        while let Some(record) = self.find(bucket_id, name)? {
            if let Some(reader) = self.volume(&record)?.open_object(&record)? {
                return Ok(Some(reader));
            }
        }
        Ok(None)
    }

    /// Record and payload in one step, for objects of at most `most` bytes; a larger one comes
    /// without its payload. `None`: there is no such object.
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

    /// Opens the very commit that `record` is of; [`ErrorCode::ObjectNotFound`] when it is gone.
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

    /// The payload of this very commit, for callers on the blocking pool.
    pub(crate) fn read_blocking(&self, record: &Record) -> Result<Bytes> {
        self.reader_blocking(record.clone())?.read_all_blocking()
    }

    /// Opens the very commit that `record` is of and reads a part of it, in one step.
    pub async fn read_part(&self, record: &Record, range: ByteRange) -> Result<Bytes> {
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.reader_blocking(record)?.read_blocking(range)).await
    }

    /// Starts writing an object. With a `size_hint` the room is reserved at once.
    ///
    /// Full disks wait a little for eviction, then answer [`ErrorCode::OutOfSpace`].
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

    /// Makes what was written the object of its name, in place of what had the name before.
    ///
    /// For class `Owned` the object is on the disk when this returns. The future may be dropped:
    /// the commit then happens or not, as a whole.
    pub async fn commit(&self, work: WorkFile, meta: RecordMeta) -> Result<Record> {
        let work = work.finish()?;
        let volume = work.volume.clone();
        let key = format::key(work.bucket_id, &work.name);
        self.drop_partial_of(&key).await?;
        // A copy on another disk (the set of disks changed, or this one was full) goes after the
        // commit; a crash in between leaves a note on this disk.
        let is_elsewhere = self.disks.is_elsewhere(&volume, &key)?;
        let record = volume.commit(work, meta, is_elsewhere).await?;
        if is_elsewhere {
            self.drop_older(&volume, &key).await?;
        }
        Ok(record)
    }

    /// Changes the metadata of a commit; [`ErrorCode::ObjectNotFound`] when it is gone.
    ///
    /// What must survive the loss of the index is also written to the log when the class is
    /// `Owned`. Otherwise, and for `epoch`, `validated_ns` and `atime_ns` always, a rebuilt index
    /// has the values of the commit.
    pub async fn update(
        &self,
        record: &Record,
        f: impl FnOnce(&mut RecordMeta) + Send + 'static,
    ) -> Result<Record> {
        let updated = self.volume(record)?.update(record, Box::new(f)).await?;
        updated.ok_or_else(|| gone(record))
    }

    /// What [`Self::keep_sidecar`] keeps beside this very commit. `None`: nothing, or it was
    /// damaged and is gone now.
    pub async fn sidecar(&self, record: &Record) -> Result<Option<Vec<u8>>> {
        let (volume, record) = (self.volume(record)?, record.clone());
        blocking(move || volume.shared().sidecar(&record)).await
    }

    /// Keeps bytes beside this very commit, in place of what is kept there; they go with it and may
    /// get lost before. False: there is no room, or the object was removed or replaced.
    pub async fn keep_sidecar(&self, record: &Record, bytes: Vec<u8>) -> Result<bool> {
        let (volume, record) = (self.volume(record)?, record.clone());
        blocking(move || volume.shared().keep_sidecar(&record, &bytes)).await
    }

    /// Removes the object of a name; returns what was there.
    pub async fn remove(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        let key = format::key(bucket_id, name);
        self.drop_partial_of(&key).await?;
        let mut newest = None;
        // Again: a disk may come into use meanwhile.
        loop {
            let found = self.disks.copies(&key)?;
            if found.is_empty() {
                return Ok(newest);
            }
            newest = newest.or_else(|| found.last().cloned());
            // The oldest first: what a crash leaves is the newest.
            for record in found {
                self.volume(&record)?.remove(&record).await?;
            }
        }
    }

    /// Removes this very commit, for eviction and for damaged copies. False: it was gone already.
    pub async fn discard(&self, record: &Record) -> Result<bool> {
        self.volume(record)?.remove(record).await
    }

    /// Removes all objects of a bucket; returns how many, and their bytes.
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

    /// What all disks together hold.
    pub fn usage(&self) -> Usage {
        let volumes = self.disks.online();
        volumes.iter().map(|v| v.room().usage()).fold(Usage::default(), |a, b| a + b)
    }

    /// Tells `observer` of all changes from now on; once in the life of a store.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.disks.observe(observer);
    }

    /// The budget of each disk by its number; 0 of one that is not in use.
    pub(crate) fn budgets(&self) -> Vec<u64> {
        self.disks.budgets()
    }

    /// Counts comings and goings of disks.
    pub(crate) fn disk_turns(&self) -> tokio::sync::watch::Receiver<u64> {
        self.disks.turns()
    }

    /// Counts the times that objects went with a disk, or with their bytes on it.
    pub(crate) fn losses(&self) -> tokio::sync::watch::Receiver<u64> {
        self.disks.losses().subscribe()
    }

    /// How many [`Self::losses`] there were.
    pub(crate) fn lost_so_far(&self) -> u64 {
        *self.disks.losses().borrow()
    }

    /// Bytes used and wanted on each disk.
    pub(crate) fn demands(&self) -> Vec<Demand> {
        self.disks.online().iter().map(|v| v.demand()).collect()
    }

    /// Notes an access, for eviction. Costs no I/O; written down by [`Self::flush`].
    pub fn touch(&self, record: &Record, now_ns: u64) {
        self.accessed(record.disk, &Access::of(record), now_ns);
    }

    /// As [`Self::touch`], for who has no record.
    pub(crate) fn accessed(&self, disk: usize, access: &Access<'_>, now_ns: u64) {
        if let Ok(volume) = self.disks.number(disk)
            && volume.shared().touch(access, now_ns)
        {
            self.disks.bell().ring.notify_one();
        }
    }

    /// Writes down times of access: from time to time, and before stopping.
    pub async fn flush(&self) -> Result<()> {
        let volumes = self.disks.online();
        blocking(move || volumes.iter().try_for_each(|volume| volume.write_times())).await
    }

    /// Whether noted accesses should be written down soon.
    pub(crate) fn has_many_touches(&self) -> bool {
        self.disks.online().iter().any(|v| v.shared().recency.is_due())
    }

    pub(crate) fn volumes(&self) -> Arc<Vec<Arc<Volume>>> {
        self.disks.online()
    }

    pub(crate) fn bell(&self) -> &EvictionNotifier {
        self.disks.bell()
    }

    /// Room for `bytes` on the first disk that has it at once, else on the best one after a wait.
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
        // Waiting is for those that can be made to have room.
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
