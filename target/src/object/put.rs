//! Writes: stream to a work file while hashing, check, write through, commit. A crash or an error
//! at any step leaves the old object, the new one, or (with a backend) a miss; never half of one.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::cache_rules::Admission;
use forebay_core::checksum::{Checksum, Hasher};
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, Result};
use forebay_node::clock::unix_ns;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::cold::{cached_meta, read_at};
use super::learn::Learner;
use super::{Key, ObjectService};
use crate::backend::{OpenBody, PutBody};
use crate::store::{DiskFile, RecordMeta, WorkFile};

/// Bytes of a work file read at once on their way to the backend.
const REREAD: u64 = 1 << 20;

/// What a client sends.
pub(crate) struct PutRequest {
    pub(crate) body: BoxStream<'static, Result<Bytes>>,
    pub(crate) len: Option<u64>,
    /// What the client says the bytes' checksum is.
    pub(crate) announced: Option<Checksum>,
    /// Custom metadata; what the object has is kept when absent.
    pub(crate) custom: Option<BTreeMap<String, String>>,
}

impl ObjectService {
    /// Writes an object. `None` when the bytes are, by the announced checksum, those stored already.
    pub(crate) async fn put(
        &self,
        info: &BucketInfo,
        name: &str,
        mut request: PutRequest,
    ) -> Result<Option<ObjectMeta>> {
        let unchanged = self.is_unchanged(info, name, request.announced.as_ref()).await?;
        if unchanged {
            while let Some(chunk) = request.body.next().await {
                chunk?;
            }
            return Ok(None);
        }
        let uri = info.bucket.object_uri(name);
        let mut work = self.store().begin(info.id, name, request.len).await?;
        let mut learner = Learner::new(name);
        let checksum = receive(&mut work, info, &mut request, &uri, &mut learner).await?;

        let key = Key::new(info, name);
        let _guard = self.0.locks.lock(&key).await;
        let record = if info.has_backend() {
            let backend = self.backend(info).await?;
            self.0.fetches.supersede(&key);
            // From here to the commit a crash leaves a miss, which the backend answers.
            self.store().remove(info.id, name).await?;
            let mut body = PutBody::new(work.written(), reread(work.file()));
            body.custom = request.custom.unwrap_or_default();
            let epoch = self.state().version;
            let remote = backend.put(name, body).await?;
            self.0.fetches.supersede(&key);
            let record = self.store().commit(work, cached_meta(&remote, checksum, epoch)).await?;
            if info.cache.admission == Admission::Never {
                self.store().discard(&record).await?;
                return Ok(Some(record.object_meta()));
            }
            record
        } else {
            let before = self.store().get(info.id, name).await?;
            let before = before.as_ref();
            let version = before.and_then(|r| r.meta.version.parse::<u64>().ok()).unwrap_or(0) + 1;
            let kept = || before.map(|r| r.meta.custom.clone()).unwrap_or_default();
            let now = unix_ns();
            let meta = RecordMeta {
                checksum,
                version: version.to_string(),
                mtime_ns: now,
                atime_ns: now,
                custom: request.custom.unwrap_or_else(kept),
                epoch: self.state().version,
                class: info.class,
                ..RecordMeta::default()
            };
            let record = self.store().commit(work, meta).await?;
            self.0.lost.forget(&key);
            self.remove_from_neighbors(info, name).await?;
            record
        };
        self.keep_learned(learner, &record);
        Ok(Some(record.object_meta()))
    }

    async fn is_unchanged(
        &self,
        info: &BucketInfo,
        name: &str,
        announced: Option<&Checksum>,
    ) -> Result<bool> {
        let Some(announced) = announced.filter(|_| !info.has_backend()) else { return Ok(false) };
        let record = self.store().get(info.id, name).await?;
        Ok(record.is_some_and(|r| r.meta.checksum.as_ref() == Some(announced)))
    }
}

/// Reads parts of a work file again, for a backend that takes the object in parts or twice.
fn reread(file: Arc<dyn DiskFile>) -> OpenBody {
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

/// Streams the body into the work file and compares it with what was announced.
async fn receive(
    work: &mut WorkFile,
    info: &BucketInfo,
    request: &mut PutRequest,
    uri: &str,
    learner: &mut Learner,
) -> Result<Option<Checksum>> {
    let mut own = info.checksum.hasher();
    let mut theirs: Option<Hasher> =
        request.announced.as_ref().filter(|a| a.kind != info.checksum).map(|a| a.kind.hasher());
    while let Some(chunk) = request.body.next().await {
        let chunk = chunk?;
        own.update(&chunk);
        if let Some(theirs) = &mut theirs {
            theirs.update(&chunk);
        }
        learner.update(&chunk);
        work.write(chunk).await?;
    }
    if let Some(len) = request.len.filter(|len| *len != work.written()) {
        return Err(Error::invalid(format!("{uri}: {} of {len} bytes came", work.written())));
    }
    let own = own.finish();
    if let Some(announced) = &request.announced {
        let got = match theirs {
            Some(theirs) => theirs.finish(),
            None => own.clone(),
        };
        if let Some(got) = got {
            got.expect(announced, uri)?;
        }
    }
    Ok(own)
}
