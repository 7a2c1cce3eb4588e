//! A version that is the object with bytes at its end, which is not rewritten.

use async_trait::async_trait;
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::Checksum;
use forebay_core::copies::Stamp;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::quota::Reservation;
use forebay_store::{Record, RecordMeta, Store, WorkFile};
use futures::TryStreamExt;

use crate::object::attrs::ObjectAttrs;
use crate::object::replication::NewVersion;
use crate::object::scratch::reread;
use crate::object::writes::{Hashes, Writes};

/// Objects of at least this many bytes are not rewritten by an append.
const LARGE: u64 = 1 << 20;

/// An object with bytes at its end.
pub(super) struct LongerVersion<'a> {
    store: &'a Store,
    writes: &'a Writes,
    info: &'a BucketInfo,
    name: &'a str,
    announced: Option<Checksum>,
    /// The bytes; `None` once they are at the end of the object.
    work: Option<WorkFile>,
    /// The object that they are appended to.
    grown: Option<Record>,
    meta: Option<RecordMeta>,
    quota: Option<Reservation>,
}

impl<'a> LongerVersion<'a> {
    pub(super) fn new(
        (store, writes): (&'a Store, &'a Writes),
        (info, name): (&'a BucketInfo, &'a str),
        work: WorkFile,
        announced: Option<Checksum>,
    ) -> Self {
        let (work, grown, meta, quota) = (Some(work), None, None, None);
        Self { store, writes, info, name, announced, work, grown, meta, quota }
    }

    /// Records that the write succeeded.
    pub(super) fn written(&mut self) {
        if let Some(quota) = self.quota.take() {
            quota.stored();
        }
    }

    /// After a failed write: the bytes and the announced checksum, if it failed because the object has to
    /// be rewritten.
    pub(super) fn into_unwritten(self) -> Option<(WorkFile, Option<Checksum>)> {
        let work = self.work.filter(|_| self.grown.is_none())?;
        Some((work, self.announced))
    }

    /// The checksum of the object with the new bytes at its end.
    async fn checksum(&self, record: &Record, work: &WorkFile) -> Result<Option<Checksum>> {
        let mut hashes = Hashes::new(self.info.checksum, self.announced.clone(), false);
        let reader = self.store.reader(record).await?;
        let mut old = std::pin::pin!(reader.stream(ByteRange::whole(record.size)));
        while let Some(bytes) = old.try_next().await? {
            hashes.update(&bytes);
        }
        let mut new = reread(work.file())(ByteRange::whole(work.written()));
        while let Some(bytes) = new.try_next().await? {
            hashes.update(&bytes);
        }
        Ok(hashes.finish(&self.info.bucket.object_uri(self.name))?.checksum)
    }
}

#[async_trait]
impl NewVersion for LongerVersion<'_> {
    async fn check(&mut self, current: Option<&Record>) -> Result<()> {
        match current.filter(|record| stays(self.info, record)) {
            Some(record) => {
                self.grown = Some(record.clone());
                Ok(())
            }
            None => Err(Error::new(ErrorCode::Conflict, "the object has to be rewritten")),
        }
    }

    async fn prepare(&mut self, replaced: Option<Record>, stamp: Stamp) -> Result<()> {
        let (Some(record), Some(work)) = (&self.grown, &self.work) else {
            return Err(Error::internal("an append is prepared before it is checked"));
        };
        let size = record.size + work.written();
        self.quota = self.writes.reserve(self.info, replaced.as_ref(), size, None).await?;
        let checksum = self.checksum(record, work).await?;
        let attrs = ObjectAttrs { checksum, ..ObjectAttrs::default() };
        let (writes, info, name) = (self.writes, self.info, self.name);
        self.meta = Some(writes.native_meta(info, name, attrs, (replaced, stamp)).await?);
        Ok(())
    }

    async fn commit(&mut self) -> Result<Record> {
        match (&self.grown, self.work.take(), self.meta.take()) {
            (Some(record), Some(work), Some(meta)) => {
                self.store.append_work(record, work, meta).await
            }
            _ => Err(Error::internal("an append is committed before it is prepared")),
        }
    }
}

/// Whether the object's bytes can stay where they are.
pub(super) fn stays(info: &BucketInfo, record: &Record) -> bool {
    !info.has_backend() && record.size >= LARGE
}
