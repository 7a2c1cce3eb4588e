//! Writes objects, changes their metadata and removes them.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Error, ErrorCode, ObjectName, Result};

use super::record::{Record, RecordMeta};
use super::space::Reservation;
use super::volume::Volume;
use super::work::WorkFile;
use super::{Store, blocking, format, gone};

impl Store {
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

    /// Reserves `bytes` on the first disk that has them at once, else on the best one after a wait.
    pub(super) async fn reserve(
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
}
