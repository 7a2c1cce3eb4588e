//! Objects that are read in parts: brought to this target's disk first, then open for as long as
//! their reader likes.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;

use super::ObjectService;
use super::get::DropCopy;
use crate::store::{ObjectReader, Record};

/// An object on this target's disk, open.
#[derive(Clone)]
pub(crate) struct Stored {
    pub(crate) reader: ObjectReader,
    on_corrupt: Arc<DropCopy>,
    result: &'static str,
}

impl Stored {
    /// The commit that is open.
    pub(crate) fn record(&self) -> &Record {
        self.reader.record()
    }

    pub(crate) fn meta(&self) -> ObjectMeta {
        self.record().object_meta()
    }

    /// How it was found, as the metrics call it.
    pub(crate) fn result(&self) -> &'static str {
        self.result
    }

    /// Told of each error of reading: a damaged copy of a backend's object is dropped.
    pub(crate) fn if_corrupt(&self, error: &Error) {
        self.on_corrupt.if_corrupt(error);
    }
}

impl ObjectService {
    /// Opens an object here, fetching all of it first if need be. Unlike a plain read this fails
    /// where there is no room to keep the object.
    pub(crate) async fn stored(&self, info: &BucketInfo, name: &str) -> Result<Stored> {
        let mut result = "hit";
        // More than once: a copy may vanish (evicted, replaced) between the look-up and the open.
        for _ in 0..4 {
            // What was fetched for this very call needs no second comparison with the backend.
            let record = match result {
                "hit" => self.fresh_record(info, name).await?,
                _ => self.store().get(info.id, name).await?,
            };
            let record = match record {
                Some(record) => record,
                None if info.has_backend() => {
                    if let Some((following, first)) = self.cold(info, name).await? {
                        result = if first { "miss" } else { "coalesced" };
                        following.finished().await?;
                    }
                    continue;
                }
                None => self
                    .adopt_from_neighbor(info, name)
                    .await?
                    .ok_or_else(|| info.bucket.object_not_found(name))?,
            };
            self.store().touch(&record, unix_ns());
            match self.store().reader(&record).await {
                Ok(reader) => {
                    let on_corrupt = self.drop_copy(info, reader.record());
                    return Ok(Stored { reader, on_corrupt, result });
                }
                Err(e) if e.code == ErrorCode::ObjectNotFound => result = "hit",
                Err(e) => return Err(e),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// The copy here, if it can be served without waiting for anybody.
    pub(crate) async fn present(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        self.fresh_record(info, name).await
    }

    /// A part of this very commit, in one step. `None`: it went away meanwhile.
    pub(crate) async fn part(
        &self,
        info: &BucketInfo,
        record: &Record,
        range: ByteRange,
    ) -> Result<Option<Bytes>> {
        self.store().touch(record, unix_ns());
        match self.store().read_part(record, range).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(None),
            Err(e) => {
                self.drop_copy(info, record).if_corrupt(&e);
                Err(e)
            }
        }
    }

    /// What is kept beside this commit, if anything is.
    pub(crate) async fn companion(&self, record: &Record) -> Option<Vec<u8>> {
        self.store().companion(record).await.unwrap_or_else(|e| {
            tracing::warn!(name = record.name, "what is kept beside an object is not read: {e}");
            None
        })
    }

    /// Keeps bytes beside this commit; where that fails they are made again when next needed.
    pub(crate) async fn keep_companion(&self, record: &Record, bytes: Vec<u8>) {
        let name = &record.name;
        match self.store().keep_companion(record, bytes).await {
            Ok(true) => {}
            Ok(false) => tracing::debug!(name, "no room beside an object, or it was replaced"),
            Err(e) => tracing::warn!(name, "nothing is kept beside an object: {e}"),
        }
    }
}
