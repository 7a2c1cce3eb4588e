//! Removals of objects.

use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, ErrorCode, Result, history};

use super::Writes;
use crate::object::Key;
use crate::object::condition::OnlyIf;
use crate::object::versions::Removed;

impl Writes {
    /// Removes an object, at its backend too.
    pub(crate) async fn delete(&self, info: &BucketInfo, name: &str) -> Result<()> {
        info.check_access(BucketChange::Delete)?;
        if info.keeps_versions() {
            return self.delete_if(info, name, None).await.map(drop);
        }
        let key = Key::new(info, name);
        let guard = self.local().locks.lock(&key).await;
        if info.has_backend() {
            return self.cold_cache().delete_through(info, &key).await;
        }
        let (erased, _guard) = self.replication().remove(info, name, guard).await?;
        self.local().lost.forget(&key);
        if erased { Ok(()) } else { Err(deleted_missing(info, name)) }
    }

    /// Removes only the copy held here.
    pub(crate) async fn delete_local(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        let removed = self.store().remove(info.id, name).await?;
        self.local().lost.forget(&key);
        match removed {
            Some(_) => Ok(()),
            None => {
                self.local().check_absent(info, name)?;
                Err(deleted_missing(info, name))
            }
        }
    }

    /// Deletes an object: in a bucket with versioning a delete marker replaces it.
    pub(crate) async fn delete_if(
        &self,
        info: &BucketInfo,
        name: &str,
        only_if: Option<OnlyIf>,
    ) -> Result<Removed> {
        info.check_access(BucketChange::Delete)?;
        let guard = self.replication().lock_newest(info, name).await?;
        if let Some(only_if) = only_if {
            let there = self.deletable(info, name).await?;
            only_if(there.as_ref())?;
            if there.is_none() {
                // A conditional deletion of a missing object creates no marker.
                return Ok(Removed::default());
            }
        }
        if !info.keeps_versions() {
            // A writer may intervene; the condition was true when it was checked.
            drop(guard);
            return Box::pin(self.delete(info, name)).await.map(|()| Removed::default());
        }
        history::check_name(name)?;
        self.replication().may_write(info, name).await?;
        let marker = self.versions().archive_below_marker(info, name).await?;
        drop(self.replication().remove(info, name, guard).await?);
        Ok(Removed { version: Some(marker), marker: true })
    }

    /// The object or delete marker, for the conditions of a deletion.
    async fn deletable(&self, info: &BucketInfo, name: &str) -> Result<Option<ObjectMeta>> {
        let now = self.current(info, name).await?;
        if now.is_some() || !info.keeps_versions() {
            return Ok(now);
        }
        Ok(self.versions().newest_marker(info, name).await?.map(|r| r.object_meta()))
    }
}

/// The text that v1 clients expect for a DELETE of a missing object.
fn deleted_missing(info: &BucketInfo, name: &str) -> Error {
    let text = format!("{} doesn't exist", info.bucket.object_uri(name));
    Error::new(ErrorCode::ObjectNotFound, text)
}
