//! Metadata of objects, without their bytes.

use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, ErrorCode, Result};

use super::Reads;
use crate::object::cold_cache::{is_unchanged, object_meta};

impl Reads {
    /// Metadata of an object; of a backend's object without fetching its bytes.
    pub(crate) async fn head(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        if let Some(record) = self.fresh_record(info, name).await? {
            return Ok(record.object_meta());
        }
        if !info.has_backend() {
            return match self.replication().newest(info, name).await? {
                Some(record) => Ok(record.object_meta()),
                None => Err(info.bucket.object_not_found(name)),
            };
        }
        let remote = self.cold_cache().stat(info, name).await?;
        Ok(object_meta(&remote, false))
    }

    /// Metadata of the copy held here as it is, without asking another node.
    pub(crate) async fn head_local(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let record = self.store().get(info.id, name).await?;
        record.map(|r| r.object_meta()).ok_or_else(|| self.local().missing(info, name))
    }

    /// Metadata of an object whose copy here must be current: `Conflict` if the backend has another
    /// version by now, `Gone` if the object does not exist any more.
    pub(crate) async fn head_latest(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let Some(record) = self.store().get(info.id, name).await? else {
            return self.head(info, name).await;
        };
        let uri = info.bucket.object_uri(name);
        match self.cold_cache().stat(info, name).await {
            Ok(remote) if is_unchanged(info, &remote, &record) => Ok(record.object_meta()),
            Ok(remote) => Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "{uri} has version \"{}\" at its backend, the copy here \"{}\"",
                    remote.version, record.meta.backend_version
                ),
            )),
            Err(e) if e.code == ErrorCode::ObjectNotFound => {
                Err(Error::new(ErrorCode::Gone, format!("{uri} is gone from its backend")))
            }
            Err(e) => Err(e),
        }
    }

    /// Metadata of an object that is not in the cluster.
    pub(crate) async fn head_outside(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let meta = self.head(info, name).await?;
        if meta.present {
            let uri = info.bucket.object_uri(name);
            return Err(Error::invalid(format!("{uri} is present, and was asked for outside")));
        }
        Ok(meta)
    }
}
