//! Finds objects by bucket and name, and opens them for reading.

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::size::ByteRange;

use super::reader::ObjectReader;
use super::record::Record;
use super::volume::Volume;
use super::{Store, blocking, format, gone};

impl Store {
    /// The record of an object, from the index alone.
    pub async fn get(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
        self.find(bucket_id, name)
    }

    /// As [`Self::get`]. Nearly always memory serves a point look-up: it costs less than a switch
    /// of threads, and needs no await.
    pub fn find(&self, bucket_id: u64, name: &str) -> Result<Option<Record>> {
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

    /// Opens exactly the commit of `record`; [`forebay_core::ErrorCode::ObjectNotFound`] when it is
    /// gone.
    pub async fn reader(&self, record: &Record) -> Result<ObjectReader> {
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.reader_blocking(record)).await
    }

    /// As [`Self::reader`], for bytes that are checked, or copied with their record.
    pub async fn stored_reader(&self, record: &Record) -> Result<ObjectReader> {
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.open_commit(record, Volume::open_stored)).await
    }

    pub(super) fn reader_blocking(&self, record: Record) -> Result<ObjectReader> {
        self.open_commit(record, Volume::open_object)
    }

    fn open_commit(
        &self,
        mut record: Record,
        open: fn(&Volume, &Record) -> Result<Option<ObjectReader>>,
    ) -> Result<ObjectReader> {
        loop {
            let volume = self.volume(&record)?;
            if let Some(reader) = open(&volume, &record)? {
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
    pub fn read_blocking(&self, record: &Record) -> Result<Bytes> {
        self.reader_blocking(record.clone())?.read_all_blocking()
    }

    /// Opens exactly the commit of `record` and reads a part of it, in one step.
    pub async fn read_part(&self, record: &Record, range: ByteRange) -> Result<Bytes> {
        let (store, record) = (self.clone(), record.clone());
        blocking(move || store.reader_blocking(record)?.read_blocking(range)).await
    }
}
