//! The rule of freshness: when a cached copy, whole or in part, may be served without a comparison
//! with its backend.

use forebay_clouds::RemoteMeta;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::{ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_store::{Record, RecordMeta, Validation};

use super::ColdCache;
use crate::object::Key;

/// The last comparison of a copy with its backend.
pub(in crate::object) fn validation_of(record: &Record) -> Validation {
    Validation { epoch: record.meta.epoch, ns: record.meta.validated_ns }
}

impl ColdCache {
    /// Whether a copy with this validation may be served.
    pub(in crate::object) fn is_fresh(
        &self,
        info: &BucketInfo,
        name: &str,
        validated: Validation,
    ) -> bool {
        let young = match info.freshness {
            Freshness::Never => true,
            Freshness::Always => false,
            Freshness::Age(seconds) => {
                unix_ns().saturating_sub(validated.ns) < seconds * 1_000_000_000
            }
        };
        young && self.is_of_this_owner(info, name, validated)
    }

    /// Whether a copy may be served while its backend does not respond: only its age is in doubt.
    /// So a cache stays available during an outage of the cloud.
    pub(super) fn may_outlive_outage(
        &self,
        info: &BucketInfo,
        name: &str,
        validated: Validation,
    ) -> bool {
        info.freshness != Freshness::Always && self.is_of_this_owner(info, name, validated)
    }

    /// Whether this target has owned the object without a break since the copy was validated. Else
    /// another owner may have superseded the copy.
    fn is_of_this_owner(&self, info: &BucketInfo, name: &str, validated: Validation) -> bool {
        let Validation { epoch, .. } = validated;
        epoch > 0 && !self.local().may_be_superseded(info, name, epoch)
    }

    /// The whole copy here, compared with the backend when that is due. `None`: there is no copy to
    /// serve.
    pub(in crate::object) async fn current_copy(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        let Some(record) = self.store().get(info.id, name).await? else { return Ok(None) };
        if self.is_fresh(info, name, validation_of(&record)) {
            return Ok(Some(record));
        }
        self.revalidate(info, name).await
    }

    async fn revalidate(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        let _guard = self.local().locks.lock(&Key::new(info, name)).await;
        let Some(record) = self.store().get(info.id, name).await? else { return Ok(None) };
        if info.freshness != Freshness::Always && self.is_fresh(info, name, validation_of(&record))
        {
            return Ok(Some(record));
        }
        let epoch = self.state().version;
        match self.stat(info, name).await {
            Ok(remote) if is_unchanged(info, &remote, &record) => {
                let updated = self
                    .store()
                    .update(&record, move |meta| {
                        meta.epoch = epoch;
                        meta.validated_ns = unix_ns();
                    })
                    .await?;
                Ok(Some(updated))
            }
            Ok(_) => {
                self.store().remove(info.id, name).await?;
                Ok(None)
            }
            Err(e) if e.code == ErrorCode::ObjectNotFound => {
                self.store().remove(info.id, name).await?;
                Err(e)
            }
            Err(e)
                if e.code.is_transient()
                    && self.may_outlive_outage(info, name, validation_of(&record)) =>
            {
                tracing::warn!(bucket = %info.bucket, error = %e, "backend away, serving a copy past its age");
                Ok(Some(record))
            }
            Err(e) => Err(e),
        }
    }
}

/// Whether the backend still has the version of the copy. False if versions cannot be compared and
/// each read must be of the newest.
pub(in crate::object) fn is_unchanged(
    info: &BucketInfo,
    remote: &RemoteMeta,
    record: &Record,
) -> bool {
    let RecordMeta { backend_version, mtime_ns, .. } = &record.meta;
    (remote.has_version() || info.freshness != Freshness::Always)
        && remote.is_version(backend_version, record.size, *mtime_ns)
}
