//! Changes of a backend's objects through the cache. The cached copy is dropped first: a crash before
//! the new one is committed then leaves a miss, which the backend serves.

use forebay_clouds::{OpenBody, PutBody};
use forebay_core::bucket::BucketInfo;
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::RecordMeta;

use super::{ColdCache, cached_meta};
use crate::object::Key;
use crate::object::attrs::ObjectAttrs;
use crate::object::ownership::Ownership;

impl ColdCache {
    /// Puts an object to its backend. The caller holds its lock.
    pub(in crate::object) async fn write_through(
        &self,
        ownership: &Ownership<'_>,
        size: u64,
        open: OpenBody,
        attrs: ObjectAttrs,
    ) -> Result<RecordMeta> {
        let (info, name) = ownership.object();
        let key = &Key::new(info, name);
        ownership.check()?;
        let backend = self.backend(info).await?;
        self.0.fetches.supersede(key);
        self.store().remove(info.id, &key.name).await?;
        let mut body = PutBody::new(size, open);
        let own = body.take_custom(attrs.custom.unwrap_or_default());
        let epoch = self.state().version;
        let remote = backend.put(&key.name, body).await?;
        self.0.fetches.supersede(key);
        ownership.check()?;
        let mut meta = cached_meta(&remote, attrs.checksum, epoch);
        meta.custom.extend(own);
        Ok(RecordMeta { parts: attrs.parts, ..meta })
    }

    /// Removes an object at its backend, and the copy here. The caller holds its lock.
    pub(in crate::object) async fn delete_through(
        &self,
        info: &BucketInfo,
        key: &Key,
    ) -> Result<()> {
        let ownership = Ownership::of(self.local(), info, &key.name);
        self.0.fetches.supersede(key);
        let remote = self.backend(info).await?.delete(&key.name).await;
        self.0.fetches.supersede(key);
        let local = self.store().remove(info.id, &key.name).await?;
        ownership.check()?;
        match remote {
            Err(e) if e.code == ErrorCode::ObjectNotFound && local.is_some() => Ok(()),
            other => other,
        }
    }

    /// Drops the cached copy of an object that its backend no longer has.
    pub(in crate::object) async fn forget_copy(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        self.0.fetches.supersede(&key);
        self.store().drop_partial(info.id, name).await?;
        self.store().remove(info.id, name).await?;
        Ok(())
    }

    /// Drops a cached copy; its backend keeps the object. Returns the freed bytes.
    pub(crate) async fn evict(&self, info: &BucketInfo, name: &str) -> Result<Option<u64>> {
        if !info.has_backend() {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has no backend: evicting its objects would lose them",
                info.bucket
            )));
        }
        self.drop_copy(info, name, "request").await
    }

    /// As [`Self::evict`], for another reason.
    pub(in crate::object) async fn drop_copy(
        &self,
        info: &BucketInfo,
        name: &str,
        reason: &str,
    ) -> Result<Option<u64>> {
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        // A fetch in progress may be of the previous version: only its current readers get it.
        self.0.fetches.supersede(&key);
        let part = self.store().drop_partial(info.id, name).await?;
        let removed = self.store().remove(info.id, name).await?.map(|r| r.size).or(part);
        if let Some(bytes) = removed {
            self.metrics().evicted(reason, bytes);
        }
        Ok(removed)
    }
}
