//! The transaction of a write whose bytes are here: check the condition, write through, commit. A crash or
//! an error at any step leaves the old object, the new one, or (with a backend) a miss; never half of one.

use async_trait::async_trait;
use forebay_clouds::OpenBody;
use forebay_core::bucket::BucketInfo;
use forebay_core::cache_rules::Admission;
use forebay_core::copies::Stamp;
use forebay_core::object::{ObjectMeta, is_system_key};
use forebay_core::quota::Amount;
use forebay_core::replication::WriteOptions;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::quota::Reservation;
use forebay_store::{Record, RecordMeta};

use super::Writes;
use crate::object::Key;
use crate::object::attrs::ObjectAttrs;
use crate::object::cold_cache::object_meta;
use crate::object::condition::OnlyIf;
use crate::object::ownership::Ownership;
use crate::object::replication::NewVersion;

/// The bytes of an object that is being written, on a disk of this target.
pub(in crate::object) trait NewContent: Send {
    /// Number of bytes.
    fn size(&self) -> u64;

    /// Opens the bytes for a backend, which may read them in parts or twice.
    fn open(&self) -> OpenBody;

    /// Takes the growth that was reserved for these bytes while they arrived.
    fn take_reservation(&mut self) -> Option<Reservation> {
        None
    }

    /// Commits the bytes as an object with this metadata.
    fn commit(self, meta: RecordMeta) -> impl Future<Output = Result<Record>> + Send;
}

impl Writes {
    /// Writes an object: to its backend first, if it has one; else to all living holders. Called when all
    /// bytes of `content` are here; `ownership` is of the time before.
    pub(in crate::object) async fn write(
        &self,
        ownership: &Ownership<'_>,
        content: impl NewContent,
        attrs: ObjectAttrs,
        only_if: Option<OnlyIf>,
    ) -> Result<Record> {
        let (info, name) = ownership.object();
        match info.has_backend() {
            true => self.write_through(ownership, content, attrs, only_if).await,
            false => self.write_native(info, name, content, attrs, only_if).await,
        }
    }

    /// Puts the bytes to the backend, and keeps them here if the bucket does.
    async fn write_through(
        &self,
        ownership: &Ownership<'_>,
        content: impl NewContent,
        attrs: ObjectAttrs,
        only_if: Option<OnlyIf>,
    ) -> Result<Record> {
        let (info, name) = ownership.object();
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        if let Some(only_if) = only_if {
            only_if(self.current(info, name).await?.as_ref())?;
        }
        let (size, open) = (content.size(), content.open());
        let meta = self.cold_cache().write_through(ownership, size, open, attrs).await?;
        let record = content.commit(meta).await?;
        if info.cache.admission == Admission::Never {
            self.store().discard(&record).await?;
        }
        Ok(record)
    }

    /// Writes the next version of a native object. Returns when all living holders have it.
    async fn write_native(
        &self,
        info: &BucketInfo,
        name: &str,
        content: impl NewContent,
        attrs: ObjectAttrs,
        only_if: Option<OnlyIf>,
    ) -> Result<Record> {
        let conditional = only_if.is_some();
        let options = WriteOptions { fetch_first: conditional, conditional };
        let mut content = content;
        let quota = content.take_reservation();
        let content = Some(content);
        let meta = None;
        let mut version =
            NativeVersion { writes: self, info, name, attrs, only_if, meta, content, quota };
        let record = self.replication().write(info, name, &mut version, options).await?;
        if let Some(quota) = version.quota {
            quota.stored();
        }
        Ok(record)
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

    /// Reserves the growth of the bucket by a new version of `size` bytes. `held` is what was reserved
    /// before. Nothing is reserved without a quota.
    pub(in crate::object) async fn reserve(
        &self,
        info: &BucketInfo,
        replaced: Option<&Record>,
        size: u64,
        held: Option<Reservation>,
    ) -> Result<Option<Reservation>> {
        if !info.quota().is_set() {
            return Ok(None);
        }
        // An older version that is kept still counts.
        let replaced = replaced.filter(|_| !info.keeps_versions());
        let need = Amount {
            bytes: size.saturating_sub(replaced.map_or(0, |record| record.size)),
            objects: u64::from(replaced.is_none()),
        };
        let quotas = self.local().maps.quotas();
        let mut held = match held {
            Some(held) => held,
            None => {
                let state = self.local().state();
                quotas.reserve(&state, info, Amount::default()).await?
            }
        };
        held.grow(info, need).await?;
        Ok(Some(held))
    }

    /// The record of a new native object, with this stamp.
    pub(in crate::object) async fn native_meta(
        &self,
        info: &BucketInfo,
        name: &str,
        attrs: ObjectAttrs,
        (replaced, stamp): (Option<Record>, Stamp),
    ) -> Result<RecordMeta> {
        // A protocol's metadata of the old bytes are not valid for the new ones.
        let kept = || {
            let custom = replaced.map(|record| record.meta.custom).unwrap_or_default();
            custom.into_iter().filter(|(key, _)| !is_system_key(key)).collect()
        };
        let mut custom = attrs.custom.unwrap_or_else(kept);
        self.versions().archive(info, name, &mut custom).await?;
        let now = unix_ns();
        Ok(RecordMeta {
            checksum: attrs.checksum,
            etag: attrs.etag,
            version: stamp.version.to_string(),
            mtime_ns: now,
            atime_ns: now,
            custom,
            parts: attrs.parts,
            epoch: stamp.epoch,
            class: info.class,
            ..RecordMeta::default()
        })
    }
}

/// A write of a native object.
struct NativeVersion<'a, C> {
    writes: &'a Writes,
    info: &'a BucketInfo,
    name: &'a str,
    attrs: ObjectAttrs,
    only_if: Option<OnlyIf>,
    meta: Option<RecordMeta>,
    content: Option<C>,
    /// The growth of the bucket; `None` before it is reserved, and without a quota.
    quota: Option<Reservation>,
}

#[async_trait]
impl<C: NewContent> NewVersion for NativeVersion<'_, C> {
    async fn check(&mut self, current: Option<&Record>) -> Result<()> {
        let current = current.map(Record::object_meta);
        self.only_if.take().map_or(Ok(()), |only_if| only_if(current.as_ref()))
    }

    async fn prepare(&mut self, replaced: Option<Record>, stamp: Stamp) -> Result<()> {
        let attrs = std::mem::take(&mut self.attrs);
        let Self { writes, info, name, .. } = *self;
        let size = self.content.as_ref().map_or(0, NewContent::size);
        let held = self.quota.take();
        self.quota = writes.reserve(info, replaced.as_ref(), size, held).await?;
        let meta = writes.native_meta(info, name, attrs, (replaced, stamp)).await?;
        self.meta = Some(meta);
        Ok(())
    }

    async fn commit(&mut self) -> Result<Record> {
        match (self.content.take(), self.meta.take()) {
            (Some(content), Some(meta)) => content.commit(meta).await,
            _ => Err(Error::internal("a write is committed before it is prepared")),
        }
    }
}
