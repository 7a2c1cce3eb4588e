//! Partial objects over all disks.

use std::sync::Arc;

use forebay_core::{Error, Result};

use super::{Partial, PartialHead, Validation};
use crate::index::Span;
use crate::record::{Record, RecordMeta};
use crate::volume::{Parts, Volume};
use crate::{Store, blocking, format};

/// Free space that a disk must have for a new partial object.
const ROOM: u64 = 16 << 20;

impl Store {
    fn knows_partial(&self, key: &[u8]) -> Option<Arc<Volume>> {
        self.disks.online().iter().find(|v| v.shared().partials.knows(key)).cloned()
    }

    /// Drops partial objects that another disk has as a whole object, or also as a partial one.
    pub(crate) async fn drop_double_partials(&self) -> Result<()> {
        let volumes = self.disks.online();
        if volumes.len() < 2 {
            return Ok(());
        }
        let store = self.clone();
        blocking(move || {
            for (n, volume) in volumes.iter().enumerate() {
                let keys: Vec<_> = volume.shared().partials.known().keys().cloned().collect();
                for key in keys {
                    let earlier = volumes[..n].iter().any(|v| v.shared().partials.knows(&key));
                    if earlier || store.disks.find(&key)?.is_some() {
                        volume.shared().drop_partial(&key);
                    }
                }
            }
            Ok(())
        })
        .await
    }

    /// The partial object of a name. The caller keeps it as long as it is used often.
    pub async fn partial(&self, bucket_id: u64, name: &str) -> Result<Option<Arc<Partial>>> {
        let key = format::key(bucket_id, name);
        let Some(volume) = self.knows_partial(&key) else { return Ok(None) };
        blocking(move || volume.shared().open_partial(&key)).await
    }

    /// Creates a partial object; an existing one of that name is dropped.
    pub async fn begin_partial(
        &self,
        head: PartialHead,
        validation: Validation,
    ) -> Result<Arc<Partial>> {
        let mut usable = Vec::new();
        let mut refusal = Error::unavailable("no disk is in use");
        for volume in self.disks.by_score(head.bucket_id, &head.name) {
            match volume.shared().check_alive() {
                Ok(()) => usable.push(volume),
                Err(e) => refusal = e,
            }
        }
        let roomy = |v: &&Arc<Volume>| {
            v.shared().file_system_fits(ROOM) && v.room().try_reserve(ROOM).is_some()
        };
        let volume = usable.iter().find(roomy).or(usable.first()).ok_or(refusal)?;
        let (shared, key) = (volume.shared().clone(), format::key(head.bucket_id, &head.name));
        self.drop_partial_of(&key).await?;
        blocking(move || shared.begin_partial(head, validation)).await
    }

    /// The partial objects of a bucket, in the order of names, and whether there are more.
    pub fn partials(&self, span: &Span, limit: usize) -> (Vec<Arc<PartialHead>>, bool) {
        let online = self.disks.online();
        let scan = |v: &Arc<Volume>| v.shared().partials.scan(span, limit.saturating_add(1));
        let mut found: Vec<_> = online.iter().flat_map(scan).collect();
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.dedup_by(|a, b| a.name == b.name);
        let more = found.len() > limit;
        found.truncate(limit);
        (found, more)
    }

    /// The head of the partial object of a name; it is not opened.
    pub fn partial_head(&self, bucket_id: u64, name: &str) -> Option<Arc<PartialHead>> {
        let key = format::key(bucket_id, name);
        self.disks.online().iter().find_map(|v| v.shared().partials.head(&key))
    }

    /// Drops the partial object if it is not of this version, which the backend has now. Returns
    /// whether one was dropped.
    pub async fn keep_partial_of(
        &self,
        (bucket_id, name): (u64, &str),
        version: Option<&str>,
        validation: Validation,
    ) -> Result<bool> {
        let Some(head) = self.partial_head(bucket_id, name) else { return Ok(false) };
        match version.filter(|version| *version == head.version) {
            Some(version) => {
                let key = format::key(bucket_id, name);
                for volume in self.disks.online().iter() {
                    volume.shared().partials.validate(&key, version, validation);
                }
                Ok(false)
            }
            None => Ok(self.drop_partial(bucket_id, name).await?.is_some()),
        }
    }

    /// Drops the partial object of a name. Returns the space freed, if there was one.
    pub async fn drop_partial(&self, bucket_id: u64, name: &str) -> Result<Option<u64>> {
        self.drop_partial_of(&format::key(bucket_id, name)).await
    }

    /// As [`Self::drop_partial`], by the key.
    pub(crate) async fn drop_partial_of(&self, key: &[u8]) -> Result<Option<u64>> {
        let mut freed = None;
        while let Some(volume) = self.knows_partial(key) {
            let key = key.to_vec();
            let space = blocking(move || Ok(volume.shared().drop_partial(&key))).await?;
            freed = Some(freed.unwrap_or(0) + space.unwrap_or(0));
        }
        Ok(freed)
    }

    /// Drops exactly this partial object.
    pub async fn discard_partial(&self, partial: &Arc<Partial>) -> Result<bool> {
        let partial = partial.clone();
        blocking(move || {
            let id = partial.id;
            let Some(shared) = partial.shared.upgrade() else { return Ok(false) };
            Ok(shared.drop_partial_if(&partial.key, |k| k.id == id).is_some())
        })
        .await
    }

    /// Turns a complete partial object into an object, without copying it. `None` if it is not
    /// complete, or was dropped. After an error it is gone.
    pub async fn complete_partial(
        &self,
        partial: &Arc<Partial>,
        meta: RecordMeta,
    ) -> Result<Option<Record>> {
        let volume = self.disks.number(partial.disk)?;
        let (key, mine) = (partial.key.clone(), partial.clone());
        let Some((filling, held)) = blocking(move || mine.take_complete()).await? else {
            return Ok(None);
        };
        let head = partial.head();
        let record = volume.record(head.bucket_id, head.name.clone(), meta);
        let parts = Parts { kept: Vec::new(), fresh: vec![filling] };
        let is_elsewhere = self.disks.is_elsewhere(&volume, &key)?;
        let record = volume.commit_files(record, parts, is_elsewhere, held).await?;
        if is_elsewhere {
            self.drop_older(&volume, &key).await?;
        }
        Ok(Some(record))
    }
}
