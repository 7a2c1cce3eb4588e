//! Writes: stream to a work file while hashing, check, write through, commit. A crash or an error
//! at any step leaves the old object, the new one, or (with a backend) a miss; never half of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use forebay_clouds::OpenBody;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::cache_rules::Admission;
use forebay_core::checksum::{Checksum, ChecksumKind, Hasher};
use forebay_core::copies::Stamp;
use forebay_core::object::{ObjectMeta, PartSizes, is_system_key};
use forebay_core::replication::WriteOptions;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_store::{DiskFile, Record, RecordMeta, WorkFile};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;

use super::cold_cache::{object_meta, read_at};
use super::learn::Learner;
use super::ownership::Ownership;
use super::replication::NewVersion;
use super::{Key, ObjectService};

/// Bytes per read of a work file that is sent to the backend.
const REREAD: u64 = 1 << 20;

/// Decides by the object's current state whether a write may proceed; an error prevents the write.
pub(crate) type OnlyIf = Box<dyn FnOnce(Option<&ObjectMeta>) -> Result<()> + Send>;

/// Metadata of an object that are known only after its last byte.
pub(crate) type AtEnd = Box<dyn FnOnce() -> Result<AtEndMeta> + Send>;

/// The metadata that [`AtEnd`] adds.
#[derive(Debug, Default)]
pub(crate) struct AtEndMeta {
    /// Without quotes; if absent, the MD5 (if it is computed).
    pub(crate) etag: Option<String>,
    /// Added to the custom metadata.
    pub(crate) custom: BTreeMap<String, String>,
}

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

/// Results of receiving all bytes.
#[derive(Default)]
pub(super) struct Received {
    pub(super) checksum: Option<Checksum>,
    /// Lower-case hexadecimal; only if it was requested.
    pub(super) md5: Option<String>,
}

/// Metadata that a writer sets.
#[derive(Default)]
pub(super) struct Making {
    pub(super) checksum: Option<Checksum>,
    pub(super) etag: String,
    pub(super) custom: Option<BTreeMap<String, String>>,
    pub(super) parts: PartSizes,
}

impl ObjectService {
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
        }
        if let Some(len) = request.len.filter(|len| *len != work.written()) {
            return Err(Error::invalid(format!("{uri}: {} of {len} bytes came", work.written())));
        }
        let received = hashes.finish(&uri)?;
        let mut making = Making {
            checksum: received.checksum,
            etag: received.md5.unwrap_or_default(),
            custom: request.custom,
            parts: PartSizes::default(),
        };
        if let Some(at_end) = request.at_end {
            making.add(at_end()?);
        }

        let record = if info.has_backend() {
            self.put_through(&ownership, work, making, request.only_if).await?
        } else {
            let commit = |meta| self.store().commit(work, meta);
            self.write_native(info, name, (making, request.only_if), commit).await?
        };
        self.local().keep_learned(learner, &record);
        Ok(Some(record.object_meta()))
    }

    /// Puts the bytes of a work file to the backend, and keeps them here if the bucket does.
    async fn put_through(
        &self,
        ownership: &Ownership<'_>,
        work: WorkFile,
        making: Making,
        only_if: Option<OnlyIf>,
    ) -> Result<Record> {
        let (info, name) = ownership.object();
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        if let Some(only_if) = only_if {
            only_if(self.current(info, name).await?.as_ref())?;
        }
        let (size, open) = (work.written(), reread(work.file()));
        let meta = self.cold_cache().write_through(ownership, size, open, making).await?;
        let record = self.store().commit(work, meta).await?;
        if info.cache.admission == Admission::Never {
            self.store().discard(&record).await?;
        }
        Ok(record)
    }

    /// Writes the next version of a native object, which `commit` commits with its metadata. Returns
    /// when all living holders have it.
    pub(super) async fn write_native<'a, F>(
        &'a self,
        info: &BucketInfo,
        name: &str,
        (making, only_if): (Making, Option<OnlyIf>),
        commit: impl FnOnce(RecordMeta) -> F + Send + 'a,
    ) -> Result<Record>
    where
        F: Future<Output = Result<Record>> + Send + 'a,
    {
        let conditional = only_if.is_some();
        let options = WriteOptions {
            fetch_first: conditional || self.replication().may_lack_replaced(info),
            conditional,
        };
        let mut version = NativeVersion {
            service: self,
            info,
            name,
            making,
            only_if,
            meta: None,
            commit: Some(Box::new(move |meta| Box::pin(commit(meta)))),
        };
        self.replication().write(info, name, &mut version, options).await
    }

    /// The object's current state; the caller holds its lock.
    pub(super) async fn current(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<ObjectMeta>> {
        if !info.has_backend() {
            return Ok(self.store().get(info.id, name).await?.map(|r| r.object_meta()));
        }
        match self.cold_cache().stat(info, name).await {
            Ok(remote) => Ok(Some(object_meta(&remote, false))),
            Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The record of a new native object, with this stamp.
    pub(super) async fn native_meta(
        &self,
        info: &BucketInfo,
        name: &str,
        making: Making,
        (replaced, stamp): (Option<Record>, Stamp),
    ) -> Result<RecordMeta> {
        // A protocol's metadata of the old bytes are not valid for the new ones.
        let kept = || {
            let custom = replaced.map(|record| record.meta.custom).unwrap_or_default();
            custom.into_iter().filter(|(key, _)| !is_system_key(key)).collect()
        };
        let mut custom = making.custom.unwrap_or_else(kept);
        self.archive_version(info, name, &mut custom).await?;
        let now = unix_ns();
        Ok(RecordMeta {
            checksum: making.checksum,
            etag: making.etag,
            version: stamp.version.to_string(),
            mtime_ns: now,
            atime_ns: now,
            custom,
            parts: making.parts,
            epoch: stamp.epoch,
            class: info.class,
            ..RecordMeta::default()
        })
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
            record.meta.checksum.as_ref() == Some(announced) && self.is_fresh(info, &record)
        }))
    }
}

/// Commits a version with this metadata.
type Commit<'a> = Box<dyn FnOnce(RecordMeta) -> BoxFuture<'a, Result<Record>> + Send + 'a>;

/// A write of a native object.
struct NativeVersion<'a, 'b> {
    service: &'a ObjectService,
    info: &'b BucketInfo,
    name: &'b str,
    making: Making,
    only_if: Option<OnlyIf>,
    meta: Option<RecordMeta>,
    commit: Option<Commit<'a>>,
}

#[async_trait]
impl NewVersion for NativeVersion<'_, '_> {
    async fn check(&mut self, current: Option<&Record>) -> Result<()> {
        let current = current.map(Record::object_meta);
        self.only_if.take().map_or(Ok(()), |only_if| only_if(current.as_ref()))
    }

    async fn prepare(&mut self, replaced: Option<Record>, stamp: Stamp) -> Result<()> {
        let making = std::mem::take(&mut self.making);
        let Self { service, info, name, .. } = *self;
        let meta = service.native_meta(info, name, making, (replaced, stamp)).await?;
        self.meta = Some(meta);
        Ok(())
    }

    async fn commit(&mut self) -> Result<Record> {
        match (self.commit.take(), self.meta.take()) {
            (Some(commit), Some(meta)) => commit(meta).await,
            _ => Err(Error::internal("a write is committed before it is prepared")),
        }
    }
}

/// Reads ranges of a work file again, for a backend that takes the object in parts or twice.
pub(super) fn reread(file: Arc<dyn DiskFile>) -> OpenBody {
    Arc::new(move |range| {
        let file = file.clone();
        futures::stream::try_unfold(range.start, move |at| {
            let file = file.clone();
            async move {
                let step = (range.end - at).min(REREAD);
                if step == 0 {
                    return Ok(None);
                }
                let bytes = read_at(file, at, step).await?;
                Ok(Some((bytes, at + step)))
            }
        })
        .boxed()
    })
}

impl Making {
    pub(super) fn add(&mut self, late: AtEndMeta) {
        if let Some(etag) = late.etag {
            self.etag = etag;
        }
        if !late.custom.is_empty() {
            self.custom.get_or_insert_default().extend(late.custom);
        }
    }
}

/// All checksums of received bytes: the bucket's, the one that the client announced, and MD5.
pub(super) struct Hashes {
    own: Hasher,
    others: Vec<Hasher>,
    announced: Option<Checksum>,
    md5: bool,
}

impl Hashes {
    pub(super) fn new(own: ChecksumKind, announced: Option<Checksum>, md5: bool) -> Self {
        let mut kinds: Vec<ChecksumKind> = announced.iter().map(|a| a.kind).collect();
        kinds.extend(md5.then_some(ChecksumKind::Md5));
        kinds.retain(|kind| *kind != own);
        kinds.dedup();
        let others = kinds.into_iter().map(ChecksumKind::hasher).collect();
        Self { own: own.hasher(), others, announced, md5 }
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.own.update(bytes);
        self.others.iter_mut().for_each(|h| h.update(bytes));
    }

    /// [`ErrorCode::ChecksumMismatch`] if the bytes do not have the announced checksum.
    pub(super) fn finish(self, uri: &str) -> Result<Received> {
        let own = self.own.finish();
        let all: Vec<Checksum> =
            own.iter().cloned().chain(self.others.into_iter().filter_map(Hasher::finish)).collect();
        let of = |kind| all.iter().find(|sum| sum.kind == kind);
        if let Some(announced) = &self.announced
            && let Some(got) = of(announced.kind)
        {
            got.expect(announced, uri)?;
        }
        let md5 = of(ChecksumKind::Md5).filter(|_| self.md5).map(|sum| sum.value.clone());
        Ok(Received { checksum: own, md5 })
    }
}
