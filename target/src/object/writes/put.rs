//! Puts: stream to a work file while hashing, compare length and checksum, and write what has arrived.

use std::collections::BTreeMap;

use bytes::Bytes;
use forebay_clouds::OpenBody;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::checksum::Checksum;
use forebay_core::object::{ObjectMeta, PartSizes};
use forebay_core::quota::Amount;
use forebay_core::{Error, Result};
use forebay_node::quota::Reservation;
use forebay_store::{Record, RecordMeta, Store, WorkFile};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::Writes;
use super::hashes::Hashes;
use super::transaction::NewContent;
use crate::object::attrs::{AtEnd, ObjectAttrs};
use crate::object::condition::OnlyIf;
use crate::object::learn::Learner;
use crate::object::ownership::Ownership;
use crate::object::scratch::reread;

/// The content of an object to write.
pub(crate) enum Incoming {
    Stream(BoxStream<'static, Result<Bytes>>),
    /// All bytes.
    Whole(Bytes),
}

impl Incoming {
    async fn next(&mut self) -> Option<Result<Bytes>> {
        match self {
            Self::Stream(body) => body.next().await,
            Self::Whole(bytes) => (!bytes.is_empty()).then(|| Ok(std::mem::take(bytes))),
        }
    }
}

/// A client's PUT.
pub(crate) struct PutRequest {
    pub(crate) body: Incoming,
    pub(crate) len: Option<u64>,
    /// The checksum that the client announced.
    pub(crate) announced: Option<Checksum>,
    /// Custom metadata; if absent, the object's existing ones are kept.
    pub(crate) custom: Option<BTreeMap<String, String>>,
    /// The MD5 of the bytes becomes the object's ETag, unless a backend gives it another.
    pub(crate) md5: bool,
    /// Called when the bytes have arrived, while the object is locked.
    pub(crate) only_if: Option<OnlyIf>,
    /// Called after the last byte.
    pub(crate) at_end: Option<AtEnd>,
}

impl PutRequest {
    /// A PUT of the bytes of `body`, without options.
    pub(crate) fn new(body: BoxStream<'static, Result<Bytes>>) -> Self {
        Self::of(Incoming::Stream(body), None)
    }

    /// A PUT of bytes in memory.
    pub(crate) fn whole(bytes: Bytes) -> Self {
        let len = bytes.len() as u64;
        Self::of(Incoming::Whole(bytes), Some(len))
    }

    fn of(body: Incoming, len: Option<u64>) -> Self {
        Self { body, len, announced: None, custom: None, md5: false, only_if: None, at_end: None }
    }
}

impl Writes {
    /// Writes an object. `None` if the stored bytes already have the announced checksum.
    pub(crate) async fn put(
        &self,
        info: &BucketInfo,
        name: &str,
        mut request: PutRequest,
    ) -> Result<Option<ObjectMeta>> {
        info.check_access(BucketChange::Put)?;
        let ownership = Ownership::of(self.local(), info, name);
        let unchanged = request.only_if.is_none()
            && self.is_unchanged(info, name, request.announced.as_ref()).await?;
        if unchanged {
            while let Some(chunk) = request.body.next().await {
                chunk?;
            }
            return Ok(None);
        }
        let uri = info.bucket.object_uri(name);
        let mut quota = self.reserve_ahead(info, name, request.len).await?;
        let mut work = self.store().begin(info.id, name, request.len).await?;
        let mut learner = Learner::new(name);
        let mut hashes = Hashes::new(info.checksum, request.announced.take(), request.md5);
        while let Some(chunk) = request.body.next().await {
            let chunk = chunk?;
            hashes.update(&chunk);
            learner.update(&chunk);
            match &request.body {
                Incoming::Whole(_) => work.fill(chunk).await?,
                Incoming::Stream(_) => work.write(chunk).await?,
            }
            if let Some(quota) = quota.as_mut().filter(|_| request.len.is_none()) {
                quota.grow(info, Amount { bytes: work.written(), objects: 0 }).await?;
            }
        }
        if let Some(len) = request.len.filter(|len| *len != work.written()) {
            return Err(Error::invalid(format!("{uri}: {} of {len} bytes came", work.written())));
        }
        let received = hashes.finish(&uri)?;
        let mut attrs = ObjectAttrs {
            checksum: received.checksum,
            etag: received.md5.unwrap_or_default(),
            custom: request.custom,
            parts: PartSizes::default(),
        };
        if let Some(at_end) = request.at_end {
            attrs.add(at_end()?);
        }
        let content = NewFile { store: self.store(), work, quota };
        let record = self.write(&ownership, content, attrs, request.only_if).await?;
        self.local().keep_learned(learner, &record);
        Ok(Some(record.object_meta()))
    }

    /// Reserves the growth of a bucket with a quota before the bytes arrive, so that a write that does
    /// not fit is refused at once. `len`: their number, if it is known.
    async fn reserve_ahead(
        &self,
        info: &BucketInfo,
        name: &str,
        len: Option<u64>,
    ) -> Result<Option<Reservation>> {
        if !info.quota().is_set() {
            return Ok(None);
        }
        let replaced = self.store().get(info.id, name).await?;
        self.reserve(info, replaced.as_ref(), len.unwrap_or(0), None).await
    }

    async fn is_unchanged(
        &self,
        info: &BucketInfo,
        name: &str,
        announced: Option<&Checksum>,
    ) -> Result<bool> {
        let Some(announced) = announced.filter(|_| !info.has_backend()) else { return Ok(false) };
        let record = self.store().get(info.id, name).await?;
        Ok(record.is_some_and(|record| {
            record.meta.checksum.as_ref() == Some(announced)
                && self.replication().is_authoritative(info, name, record.stamp())
        }))
    }
}

/// A work file with all bytes of an object.
struct NewFile<'a> {
    store: &'a Store,
    work: WorkFile,
    quota: Option<Reservation>,
}

impl NewContent for NewFile<'_> {
    fn size(&self) -> u64 {
        self.work.written()
    }

    fn open(&self) -> OpenBody {
        reread(self.work.file())
    }

    fn take_reservation(&mut self) -> Option<Reservation> {
        self.quota.take()
    }

    async fn commit(self, meta: RecordMeta) -> Result<Record> {
        self.store.commit(self.work, meta).await
    }
}
