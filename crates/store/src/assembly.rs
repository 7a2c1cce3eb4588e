//! Objects made of several files: multipart uploads and appends, without rewriting existing bytes.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Error, ObjectName, Result};

use super::format::{self, INLINE_MAX_BYTES};
use super::record::{Place, Record, RecordMeta};
use super::space::Reservation;
use super::volume::{Parts, Volume};
use super::work::WorkFile;
use super::{Store, blocking, gone};

/// Appending to an object whose last file is smaller than this writes that file anew: many small
/// appends leave few files, and none rewrites more than this.
const MERGE_BELOW: u64 = 1 << 20;
/// Bytes copied at once.
const COPY: u64 = 1 << 20;

impl Store {
    /// Starts writing a part of an object. All parts of one lie on the disk of the first.
    pub async fn begin_part(
        &self,
        bucket_id: u64,
        name: &str,
        first: Option<&WorkFile>,
        size_hint: Option<u64>,
    ) -> Result<WorkFile> {
        let Some(first) = first else { return self.begin(bucket_id, name, size_hint).await };
        let name = ObjectName::new(name)?;
        let volume = first.volume()?;
        let need = format::space_for(size_hint.unwrap_or(0), name.as_ref());
        let fits = || volume.shared().file_system_fits(need);
        let reservation = volume.room().reserve(need, fits).await?;
        Ok(WorkFile::new(&volume, bucket_id, name.as_ref(), size_hint, reservation))
    }

    /// Makes one object of parts, in their order, and replaces the object of that name. No part is
    /// copied. Guarantees are those of [`Self::commit`].
    pub async fn assemble(&self, parts: Vec<WorkFile>, meta: RecordMeta) -> Result<Record> {
        let first = parts.first().ok_or_else(|| Error::invalid("an object without parts"))?;
        let (volume, bucket_id, name) = (first.volume()?, first.bucket_id, first.name.clone());
        for part in &parts {
            if !Arc::ptr_eq(&part.volume()?, &volume) {
                return Err(Error::internal("parts of one object lie on several disks"));
            }
        }
        let (mut fresh, mut held) = (Vec::with_capacity(parts.len()), Vec::new());
        for part in parts {
            let (filling, reservation) = part.finish_in_file().await?;
            fresh.push(filling);
            held.push(reservation);
        }
        let parts = Parts { kept: Vec::new(), fresh };
        self.commit_parts(&volume, bucket_id, name, parts, meta, held).await
    }

    /// Makes an object of files of one disk and replaces the object of that name.
    pub(crate) async fn commit_parts(
        &self,
        volume: &Arc<Volume>,
        bucket_id: u64,
        name: String,
        parts: Parts,
        meta: RecordMeta,
        held: Vec<Reservation>,
    ) -> Result<Record> {
        let key = format::key(bucket_id, &name);
        self.drop_partial_of(&key).await?;
        let is_elsewhere = self.disks.is_elsewhere(volume, &key)?;
        let record = volume.record(bucket_id, name, meta);
        let record = volume.commit_files(record, parts, is_elsewhere, held).await?;
        if is_elsewhere {
            self.drop_older(volume, &key).await?;
        }
        Ok(record)
    }

    /// Adds `more` to the end of exactly this commit. Existing bytes stay where they are, except a
    /// last file of less than a MiB. [`ErrorCode::ObjectNotFound`](forebay_core::ErrorCode) when
    /// the commit is gone.
    pub async fn append(&self, record: &Record, more: Bytes, meta: RecordMeta) -> Result<Record> {
        let mut work = self.begin_behind(record, Some(more.len() as u64)).await?;
        work.write(more).await?;
        self.append_work(record, work, meta).await
    }

    /// Starts writing bytes that will be appended to an object, on its disk.
    pub async fn begin_behind(&self, record: &Record, size_hint: Option<u64>) -> Result<WorkFile> {
        let volume = self.volume(record)?;
        let need = format::space_for(size_hint.unwrap_or(0), &record.name);
        let fits = || volume.shared().file_system_fits(need);
        let reservation = volume.room().reserve(need, fits).await?;
        let (bucket_id, name) = (record.bucket_id, record.name.as_str());
        Ok(WorkFile::new(&volume, bucket_id, name, size_hint, reservation))
    }

    /// As [`Self::append`], for bytes that were written to a work file. They are copied if that
    /// file is not on the disk of the object.
    pub async fn append_work(
        &self,
        record: &Record,
        more: WorkFile,
        meta: RecordMeta,
    ) -> Result<Record> {
        let volume = self.volume(record)?;
        let now = volume.get(&format::key(record.bucket_id, &record.name))?;
        let now = now.filter(|now| now.generation == record.generation);
        let now = now.ok_or_else(|| gone(record))?;
        now.check_payload_known()?;
        let (kept, merged) = match &now.place {
            Place::Log(_) => (Vec::new(), now.size),
            Place::Files(_, extents) => match extents.split_last() {
                Some((last, rest)) if last.size < MERGE_BELOW => (rest.to_vec(), last.size),
                _ => (extents.clone(), 0),
            },
        };
        // Bytes are not read back either once their disk left service: they may be lost.
        let written_to = more.volume()?;
        let work = if merged == 0 && Arc::ptr_eq(&written_to, &volume) {
            more
        } else {
            let size = merged + more.written();
            let mut work = self.begin_behind(&now, Some(size)).await?;
            work.write(self.tail_of(&now, merged).await?).await?;
            copy(&more, &mut work).await?;
            work
        };
        if kept.is_empty() && work.written() <= INLINE_MAX_BYTES {
            return volume.commit(work.finish()?, meta, false).await;
        }
        let (filling, reservation) = work.finish_in_file().await?;
        let parts = Parts { kept, fresh: vec![filling] };
        let record = volume.record(now.bucket_id, now.name.clone(), meta);
        volume.commit_files(record, parts, false, vec![reservation]).await
    }

    /// The last `bytes` of an object.
    async fn tail_of(&self, record: &Record, bytes: u64) -> Result<Bytes> {
        if bytes == 0 {
            return Ok(Bytes::new());
        }
        let range = forebay_core::size::ByteRange { start: record.size - bytes, end: record.size };
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.reader_blocking(record)?.read_blocking(range)).await
    }
}

/// Appends the bytes of one file to another.
async fn copy(from: &WorkFile, to: &mut WorkFile) -> Result<()> {
    let (file, end) = (from.file(), from.written());
    let mut at = 0;
    while at < end {
        let (file, step) = (file.clone(), (end - at).min(COPY));
        let bytes = blocking(move || {
            let mut bytes = vec![0; step as usize];
            file.read_exact_at(&mut bytes, at)?;
            Ok(Bytes::from(bytes))
        });
        to.write(bytes.await?).await?;
        at += step;
    }
    Ok(())
}
