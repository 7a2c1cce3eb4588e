//! The store: objects on one or more disks, found by bucket id and name.
//!
//! Reading starts at [`Store::open_object`], writing at [`Store::begin`] or [`Store::put`]. The
//! store keeps the order of steps that a crash may interrupt and checks every byte it gives out;
//! who may read or write what, and when, is the caller's matter: changes of one object must not
//! run at the same time, reads may race with anything.

mod companion;
#[cfg(test)]
mod companion_tests;
#[cfg(test)]
mod crash_tests;
pub mod disk;
#[cfg(test)]
pub(crate) mod faulty;
mod format;
mod identity;
mod index;
#[allow(dead_code)] // Until the store writes to it.
pub(crate) mod log;
mod reader;
mod rebuild;
mod recency;
mod record;
mod space;
#[cfg(test)]
mod tests;
mod volume;
mod work;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, ObjectName, Result, placement};
use tokio::task::JoinError;

pub use self::disk::{Disk, DiskFile, RealDisk};
pub use self::format::FORMAT;
pub use self::reader::ObjectReader;
pub use self::record::{Record, RecordMeta};
pub use self::space::{Demand, Usage};
pub use self::work::WorkFile;

use self::index::Span;
use self::space::EvictorBell;
pub(crate) use self::volume::Volume;
use self::work::Work;

/// One disk to open.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    pub path: PathBuf,
    /// Bytes the store may use; 10 % of the file system or 20 GiB, the smaller, when absent.
    pub budget: Option<u64>,
    /// Makes the index again from the object files, whatever is there.
    pub rebuild_index: bool,
}

impl DiskSettings {
    pub fn new(path: impl Into<PathBuf>, budget: Option<u64>) -> Self {
        Self { path: path.into(), budget, rebuild_index: false }
    }
}

/// Objects on disks. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    volumes: Vec<Arc<Volume>>,
    bell: Arc<EvictorBell>,
}

/// Whether an error says that stored bytes are damaged: drop the copy and fetch it again.
pub fn is_corrupt(error: &Error) -> bool {
    error.code == ErrorCode::Corrupt
}

impl Store {
    /// Opens the disks, ends what a crash left half done, and counts what is there.
    pub async fn open(disks: Vec<DiskSettings>, io: Arc<dyn Disk>) -> Result<Self> {
        blocking(move || Self::open_blocking(&disks, io)).await
    }

    fn open_blocking(disks: &[DiskSettings], io: Arc<dyn Disk>) -> Result<Self> {
        if disks.is_empty() {
            return Err(Error::invalid("a target needs at least one disk")
                .hint("give a folder in a [[disk]] section"));
        }
        let bell = Arc::new(EvictorBell::default());
        let volumes = disks
            .iter()
            .enumerate()
            .map(|(i, d)| Volume::open(i, d, io.clone(), bell.clone()).map(Arc::new))
            .collect::<Result<Vec<_>>>()?;
        for volume in &volumes {
            volume.recover(&|key| {
                let others = volumes.iter().filter(|v| v.number != volume.number);
                others.map(|v| v.index.get(key)).try_fold(false, |any, r| Ok(any | r?.is_some()))
            })?;
        }
        Ok(Self { inner: Arc::new(Inner { volumes, bell }) })
    }

    /// The record of an object, by the index alone.
    pub async fn get(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        // A point look-up is served from memory nearly always: cheaper than a change of threads.
        self.find(bucket_id, name)
    }

    fn find(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        let key = format::key(bucket_id, name);
        for volume in self.by_score(bucket_id, name) {
            if let Some(record) = volume.get(&key)? {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// Opens the object of a name as it is now. `None`: there is none.
    pub async fn open_object(&self, bucket_id: u64, name: &str) -> Result<Option<ObjectReader>> {
        let (store, name) = (self.clone(), name.to_owned());
        blocking(move || store.open_blocking_object(bucket_id, &name)).await
    }

    fn open_blocking_object(&self, bucket_id: u64, name: &str) -> Result<Option<ObjectReader>> {
        // Overwritten between look-up and open: look again. Each turn either finds a newer commit
        // or removed an entry without a file, so this ends.
        while let Some(record) = self.find(bucket_id, name)? {
            if let Some(reader) = self.volume(&record).open_object(&record)? {
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
        let (volume, record) = (self.volume(record).clone(), record.clone());
        blocking(move || volume.open_object(&record)?.ok_or_else(|| gone(&record))).await
    }

    /// Opens the very commit that `record` is of and reads a part of it, in one step.
    pub async fn read_part(&self, record: &Record, range: ByteRange) -> Result<Bytes> {
        let (volume, record) = (self.volume(record).clone(), record.clone());
        blocking(move || {
            let reader = volume.open_object(&record)?.ok_or_else(|| gone(&record))?;
            reader.read_blocking(range)
        })
        .await
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
        let need = format::stored_bytes(size_hint.unwrap_or(0), name.as_ref());
        let (volume, reservation) = self.reserve(bucket_id, name.as_ref(), need).await?;
        let work = blocking(move || Work::create(volume, bucket_id, name.as_ref())).await?;
        Ok(WorkFile::new(work, reservation))
    }

    /// Writes a whole object that is in memory.
    pub async fn put(
        &self,
        bucket_id: u64,
        name: &str,
        payload: Bytes,
        meta: RecordMeta,
    ) -> Result<Record> {
        let name = ObjectName::new(name)?;
        let need = format::stored_bytes(payload.len() as u64, name.as_ref());
        let (volume, reservation) = self.reserve(bucket_id, name.as_ref(), need).await?;
        let store = self.clone();
        blocking(move || {
            let mut work = Box::new(Work::create(volume, bucket_id, name.as_ref())?);
            work.append(&payload)?;
            let record = store.commit_blocking(work, meta);
            drop(reservation);
            record
        })
        .await
    }

    /// Makes what was written the object of its name, in place of what had the name before.
    ///
    /// For class `Owned` the object is on the disk when this returns. The future may be dropped:
    /// the commit then happens or not, as a whole.
    pub async fn commit(&self, work: WorkFile, meta: RecordMeta) -> Result<Record> {
        let (work, reservation) = work.into_parts()?;
        let store = self.clone();
        blocking(move || {
            let record = store.commit_blocking(work, meta);
            drop(reservation);
            record
        })
        .await
    }

    fn commit_blocking(&self, work: Box<Work>, meta: RecordMeta) -> Result<Record> {
        let volume = work.volume.clone();
        let key = format::key(work.bucket_id, &work.name);
        // A copy on another disk (the set of disks changed, or this one was full) goes with the
        // commit. Marked first, so that a crash between the two steps cannot bring it back.
        let mut stale = Vec::new();
        for other in self.inner.volumes.iter().filter(|v| v.number != volume.number) {
            if let Some(record) = other.get(&key)? {
                other.index.mark(record.generation, &key)?;
                other.index.persist()?;
                stale.push((other, record));
            }
        }
        let record = volume.commit(work, meta)?;
        for (other, old) in stale {
            other.remove(&old, true)?;
        }
        Ok(record)
    }

    /// Changes the metadata of a commit; [`ErrorCode::ObjectNotFound`] when it is gone.
    ///
    /// What must survive the loss of the index is also written into the object's file when the
    /// class is `Owned`. Otherwise, and for `epoch`, `validated_ns` and `atime_ns` always, a
    /// rebuilt index has the values of the commit.
    pub async fn update(
        &self,
        record: &Record,
        f: impl FnOnce(&mut RecordMeta) + Send + 'static,
    ) -> Result<Record> {
        let (volume, record) = (self.volume(record).clone(), record.clone());
        blocking(move || volume.update(&record, f)?.ok_or_else(|| gone(&record))).await
    }

    /// What [`Self::keep_companion`] keeps beside this very commit. `None`: nothing, or it was
    /// damaged and is gone now.
    pub async fn companion(&self, record: &Record) -> Result<Option<Vec<u8>>> {
        let (volume, record) = (self.volume(record).clone(), record.clone());
        blocking(move || volume.companion(&record)).await
    }

    /// Keeps bytes beside this very commit, in place of what is kept there; they go with it and may
    /// get lost before. False: there is no room, or the object was removed or replaced.
    pub async fn keep_companion(&self, record: &Record, bytes: Vec<u8>) -> Result<bool> {
        let (volume, record) = (self.volume(record).clone(), record.clone());
        blocking(move || volume.keep_companion(&record, &bytes)).await
    }

    /// Removes the object of a name; returns what was there.
    pub async fn remove(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        let (store, name) = (self.clone(), name.to_owned());
        blocking(move || {
            let mut removed = None;
            while let Some(record) = store.find(bucket_id, &name)? {
                if store.volume(&record).remove(&record, true)? && removed.is_none() {
                    removed = Some(record);
                }
            }
            Ok(removed)
        })
        .await
    }

    /// Removes this very commit, for eviction and for damaged copies. False: it was gone already.
    pub async fn discard(&self, record: &Record) -> Result<bool> {
        let (volume, record) = (self.volume(record).clone(), record.clone());
        blocking(move || volume.remove(&record, true)).await
    }

    /// Removes all objects of a bucket; returns how many, and their bytes.
    pub async fn remove_bucket(&self, bucket_id: u64) -> Result<(u64, u64)> {
        let store = self.clone();
        blocking(move || {
            let (mut objects, mut bytes) = (0, 0);
            for volume in &store.inner.volumes {
                let (o, b) = volume.remove_bucket(bucket_id)?;
                objects += o;
                bytes += b;
            }
            Ok((objects, bytes))
        })
        .await
    }

    /// Records of a bucket in the order of names (bytewise): those that start with `prefix`, come
    /// after `after` and not after `until`; at most `limit`, and whether there are more.
    pub async fn list(
        &self,
        bucket_id: u64,
        prefix: &str,
        after: Option<&str>,
        until: Option<&str>,
        limit: usize,
    ) -> Result<(Vec<Record>, bool)> {
        let span = Span {
            bucket_id,
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            until: until.map(str::to_owned),
        };
        let store = self.clone();
        blocking(move || store.list_blocking(&span, limit)).await
    }

    fn list_blocking(&self, span: &Span, limit: usize) -> Result<(Vec<Record>, bool)> {
        let mut rows = Vec::new();
        for volume in &self.inner.volumes {
            for record in volume.index.scan(span).take(limit.saturating_add(1)) {
                let mut record = record?;
                volume.recency.refresh(&mut record);
                rows.push(record);
            }
        }
        if self.inner.volumes.len() > 1 {
            rows.sort_by(|a, b| a.name.cmp(&b.name));
            rows.dedup_by(|a, b| a.name == b.name);
        }
        let more = rows.len() > limit;
        rows.truncate(limit);
        Ok((rows, more))
    }

    /// Ids of all buckets that have objects here.
    pub async fn buckets(&self) -> Result<Vec<u64>> {
        let store = self.clone();
        blocking(move || {
            let mut ids = Vec::new();
            for volume in &store.inner.volumes {
                ids.extend(volume.index.buckets()?);
            }
            ids.sort_unstable();
            ids.dedup();
            Ok(ids)
        })
        .await
    }

    /// What all disks together hold.
    pub fn usage(&self) -> Usage {
        self.inner.volumes.iter().map(|v| v.room.usage()).fold(Usage::default(), |a, b| a + b)
    }

    /// What each disk holds.
    pub fn disk_usage(&self) -> Vec<(&Path, Usage)> {
        self.inner.volumes.iter().map(|v| (v.root.as_path(), v.room.usage())).collect()
    }

    /// Notes an access, for eviction. Costs no I/O; written down by [`Self::flush`].
    pub fn touch(&self, record: &Record, now_ns: u64) {
        if self.volume(record).recency.touch(record, now_ns) {
            self.inner.bell.ring.notify_one();
        }
    }

    /// Writes down times of access and syncs the indexes: from time to time, and before stopping.
    pub async fn flush(&self) -> Result<()> {
        let store = self.clone();
        blocking(move || {
            for volume in &store.inner.volumes {
                volume.write_times()?;
                volume.index.persist()?;
            }
            Ok(())
        })
        .await
    }

    /// Whether noted accesses should be written down soon.
    pub(crate) fn has_many_touches(&self) -> bool {
        self.inner.volumes.iter().any(|v| v.recency.is_plenty())
    }

    pub(crate) fn volumes(&self) -> &[Arc<Volume>] {
        &self.inner.volumes
    }

    pub(crate) fn bell(&self) -> &EvictorBell {
        &self.inner.bell
    }

    /// Room for `bytes` on the first disk that has it at once, else on the best one after a wait.
    async fn reserve(
        &self,
        bucket_id: u64,
        name: &str,
        bytes: u64,
    ) -> Result<(Arc<Volume>, space::Reservation)> {
        let mut usable = Vec::new();
        let mut refusal = Error::internal("no disk");
        for volume in self.by_score(bucket_id, name) {
            match volume.check_alive() {
                Ok(()) => usable.push(volume),
                Err(e) => refusal = e,
            }
        }
        for volume in &usable {
            if volume.file_system_fits(bytes)
                && let Some(reservation) = volume.room.try_reserve(bytes)
            {
                return Ok((Arc::clone(volume), reservation));
            }
        }
        let volume = usable.first().ok_or(refusal)?;
        let reservation = volume.room.reserve(bytes, || volume.file_system_fits(bytes)).await?;
        Ok((Arc::clone(volume), reservation))
    }

    /// The disks, the one where the object belongs first.
    fn by_score(&self, bucket_id: u64, name: &str) -> Vec<&Arc<Volume>> {
        let mut volumes: Vec<_> = self.inner.volumes.iter().collect();
        if volumes.len() > 1 {
            let digest = placement::object_digest(&format!("{bucket_id:016x}/"), name);
            volumes.sort_by_key(|v| std::cmp::Reverse(v.score(digest)));
        }
        volumes
    }

    fn volume(&self, record: &Record) -> &Arc<Volume> {
        &self.inner.volumes[record.disk]
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
