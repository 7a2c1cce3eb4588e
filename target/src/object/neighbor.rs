//! Native objects after the set of targets changed: an object older than the change may still lie
//! with its former owner. Until it is moved, its new owner takes it over when it is asked for.

use forebay_core::bucket::BucketInfo;
use forebay_core::state::Node;
use forebay_core::v1::query::object_uri;
use forebay_core::{Error, ErrorCode, Result};
use futures::StreamExt;

use super::{Key, ObjectService};
use crate::store::{Record, RecordMeta};

impl ObjectService {
    /// The other targets that may hold objects of this bucket which belong here now.
    fn former_owners(&self, info: &BucketInfo) -> Vec<Node> {
        let state = self.state();
        if info.has_backend() || info.created_version > state.targets_changed {
            return Vec::new();
        }
        state.targets().filter(|n| n.id != self.0.parts.id).cloned().collect()
    }

    /// Takes a native object over from whoever has it. `None` only when all others were asked.
    pub(super) async fn adopt_from_neighbor(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        // The newest copy may lie on a disk of this target that is not in use.
        self.store().check_absent(info.id, name)?;
        let mut silent = None;
        for node in self.former_owners(info) {
            match self.adopt(info, name, &node).await {
                Ok(record) => return Ok(Some(record)),
                Err(e) if e.code == ErrorCode::ObjectNotFound => {}
                Err(e) => silent = Some((node.id, e)),
            }
        }
        match silent {
            None => Ok(None),
            Some((id, e)) => Err(Error::unavailable(format!(
                "{} may lie with target {id}, which does not answer: {e}",
                info.bucket.object_uri(name)
            ))),
        }
    }

    async fn adopt(&self, info: &BucketInfo, name: &str, node: &Node) -> Result<Record> {
        let mut reply = self.0.parts.peer.get_object(&node.url, &info.bucket, name, None).await?;
        let meta = reply.meta.clone();
        let mut work = self.store().begin(info.id, name, Some(meta.size)).await?;
        let mut hasher = info.checksum.hasher();
        while let Some(chunk) = reply.stream.next().await {
            let chunk = chunk.map_err(Error::from)?;
            hasher.update(&chunk);
            work.write(chunk).await?;
        }
        if work.written() != meta.size {
            return Err(Error::unavailable(format!("target {} sent a part only", node.id)));
        }
        let checksum = hasher.finish();
        let _guard = self.0.locks.lock(&Key::new(info, name)).await;
        if let Some(newer) = self.store().get(info.id, name).await? {
            return Ok(newer);
        }
        let record = RecordMeta {
            checksum,
            version: meta.version,
            etag: meta.etag,
            mtime_ns: meta.mtime_ns,
            custom: meta.custom,
            parts: meta.parts,
            epoch: self.state().version,
            class: info.class,
            ..RecordMeta::default()
        };
        self.store().commit(work, record).await
    }

    /// Removes what former owners still have of an object, so that it cannot come back. Whether
    /// any had it.
    pub(super) async fn remove_from_neighbors(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<bool> {
        let mut any = false;
        for node in self.former_owners(info) {
            let path = object_uri(&info.bucket, name);
            match self.0.parts.peer.delete(&node.url, &path).await {
                Ok(()) => any = true,
                Err(e) if e.code() == ErrorCode::ObjectNotFound => {}
                Err(e) => {
                    return Err(Error::unavailable(format!(
                        "a former copy of {} on target {} cannot be removed: {e}",
                        info.bucket.object_uri(name),
                        node.id
                    )));
                }
            }
        }
        Ok(any)
    }
}
