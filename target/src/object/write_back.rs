//! Write-back of native objects to a bucket of a cloud.
//!
//! Write-backs of one object are serialized, and each sends the object as it is at that moment, so
//! that an older version never replaces a newer one. Metadata in the cloud identify the write of
//! the object: a repeated write-back, also after a restart, finds that it was sent already.

use std::sync::Arc;

use forebay_clouds::{Acknowledged, Backend, PutBody, RemoteMeta};
use forebay_core::bucket::{BackendKind, BucketInfo};
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result, placement};
use forebay_v1::query::object_uri;

use super::{Key, ObjectService, Stored};

/// Custom metadata in the cloud: the write of the object. Letters only, which all clouds accept.
const SOURCE: &str = "forebaysource";
/// Number of times that an object may change during its write-back.
const TRIES: u32 = 4;

/// The result of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WrittenBack {
    /// The cloud has this many bytes, verified.
    Sent(u64),
    /// The cloud had them already.
    Present(u64),
    /// The object does not exist here, and was removed from the cloud.
    Removed,
    /// The object does not exist here, and the cloud has nothing that was written back from here.
    Nothing,
}

impl ObjectService {
    /// Writes an object that this target owns to a bucket with a backend. Returns when the cloud
    /// confirms it: its size, its MD5 if the cloud reports one, and the identity of the write.
    ///
    /// `remove`: an object that does not exist here is removed there too, if it was written back
    /// from here; otherwise the result is [`ErrorCode::ObjectNotFound`]. `acknowledged` gets the
    /// number of bytes in the cloud.
    pub(crate) async fn write_back(
        &self,
        from: (&BucketInfo, &str),
        to: (&BucketInfo, &str),
        remove: bool,
        acknowledged: Acknowledged,
    ) -> Result<WrittenBack> {
        let _turn = self.0.written_back.lock(&Key::new(to.0, to.1)).await;
        let backend = self.cold_cache().backend(to.0).await?;
        for _ in 0..TRIES {
            let stored = match self.reads().stored(from.0, from.1).await {
                Err(e) if e.code == ErrorCode::ObjectNotFound && remove => {
                    return self.remove_written_back(&*backend, from.0, to).await;
                }
                stored => stored?,
            };
            let mark = self.mark(from.0, &stored);
            let size = stored.record().size;
            let there = stat(&*backend, to.1).await?;
            if there.is_some_and(|there| is_this(&there, &mark, size)) {
                return Ok(WrittenBack::Present(size));
            }
            self.send_back(&*backend, to, &stored, mark, acknowledged.clone()).await?;
            // Ownership may have moved meanwhile: then the new owner must send its version too.
            if placement::owner(&self.state(), from.0, from.1)?.id != *self.me() {
                let uri = from.0.bucket.object_uri(from.1);
                let text = format!("{uri} went to another target while it was written back");
                return Err(Error::unavailable(text).retry_after(1));
            }
            let now = self.store().get(from.0.id, from.1).await?;
            if now.is_none_or(|now| now.generation == stored.record().generation) {
                return Ok(WrittenBack::Sent(size));
            }
        }
        let uri = from.0.bucket.object_uri(from.1);
        Err(Error::unavailable(format!("{uri} is written faster than it can be written back")))
    }

    /// Sends an object, and requests its metadata from the cloud after that.
    async fn send_back(
        &self,
        backend: &dyn Backend,
        to: (&BucketInfo, &str),
        stored: &Stored,
        mark: String,
        acknowledged: Acknowledged,
    ) -> Result<()> {
        let size = stored.record().size;
        let source = stored.clone();
        let open = Arc::new(move |range: ByteRange| source.stream(range));
        let mut body = PutBody::new(size, open);
        // Metadata that the protocols keep for themselves are not sent.
        body.take_custom(stored.meta().custom);
        let kind = to.0.backend.as_ref().map(|backend| backend.kind);
        let keeps_marks =
            matches!(kind, Some(BackendKind::S3 | BackendKind::Gcs | BackendKind::Azure));
        body.custom.insert(SOURCE.to_owned(), mark.clone());
        body.acknowledged = Some(acknowledged);
        let put = backend.put(to.1, body).await?;
        self.forget_cached(to.0, to.1).await;
        let uri = to.0.bucket.object_uri(to.1);
        let there = stat(backend, to.1).await?;
        let there = there.ok_or_else(|| {
            Error::new(ErrorCode::Conflict, format!("{uri} was written, and is not there"))
        })?;
        let differs = |what: String| {
            let text = format!("{uri} is not what was written: {what}");
            Err(Error::new(ErrorCode::ChecksumMismatch, text))
        };
        if there.size != size {
            return differs(format!("{} bytes in place of {size}", there.size));
        }
        let alike = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
        if !alike(&there.etag, &put.etag) {
            return differs(format!("its ETag is {} in place of {}", there.etag, put.etag));
        }
        if keeps_marks && there.custom.get(SOURCE) != Some(&mark) {
            return differs("somebody else wrote it meanwhile".into());
        }
        Ok(())
    }

    /// Removes an object from the cloud that was written back from a bucket; others stay.
    async fn remove_written_back(
        &self,
        backend: &dyn Backend,
        from: &BucketInfo,
        to: (&BucketInfo, &str),
    ) -> Result<WrittenBack> {
        let there = stat(backend, to.1).await?;
        let mark = there.as_ref().and_then(|there| there.custom.get(SOURCE));
        if !mark.is_some_and(|mark| mark.starts_with(&self.marks_of(from))) {
            return Ok(WrittenBack::Nothing);
        }
        match backend.delete(to.1).await {
            Err(e) if e.code != ErrorCode::ObjectNotFound => return Err(e),
            _ => {}
        }
        self.forget_cached(to.0, to.1).await;
        Ok(WrittenBack::Removed)
    }

    /// The common prefix of the marks of a bucket's objects.
    fn marks_of(&self, info: &BucketInfo) -> String {
        format!("{}/{}/", self.state().cluster_id, info.id)
    }

    /// Identifies the write of an object. The version alone is not enough: it starts again after a
    /// removal.
    fn mark(&self, info: &BucketInfo, stored: &Stored) -> String {
        let meta = &stored.record().meta;
        format!("{}{}.{}.{}", self.marks_of(info), meta.epoch, meta.version, meta.mtime_ns)
    }

    /// Drops the copy that the cluster may have of the cloud's previous object. If that fails, the
    /// copy becomes outdated by the bucket's freshness.
    async fn forget_cached(&self, info: &BucketInfo, name: &str) {
        let state = self.state();
        let dropped = match placement::owner(&state, info, name) {
            Ok(owner) if owner.id == *self.me() => {
                self.cold_cache().evict(info, name).await.map(drop)
            }
            Ok(owner) => {
                let path = object_uri(&info.bucket, name);
                self.0.peer.delete(&owner.url, &path).await.map_err(Error::from)
            }
            Err(e) => Err(e),
        };
        if let Err(e) = dropped
            && e.code != ErrorCode::ObjectNotFound
        {
            tracing::warn!(error = %e, bucket = %info.bucket, name, "an outdated copy may stay");
        }
    }
}

/// The cloud's object, if it exists.
async fn stat(backend: &dyn Backend, name: &str) -> Result<Option<RemoteMeta>> {
    match backend.stat(name).await {
        Ok(there) => Ok(Some(there)),
        Err(e) if e.code == ErrorCode::ObjectNotFound => Ok(None),
        Err(e) => Err(e),
    }
}

fn is_this(there: &RemoteMeta, mark: &str, size: u64) -> bool {
    there.size == size && there.custom.get(SOURCE).is_some_and(|there| there == mark)
}
