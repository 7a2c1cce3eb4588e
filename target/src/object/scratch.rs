//! Temporary files on a target's disks.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use forebay_store::{DiskFile, Store, WorkFile};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::ObjectService;
use super::cold_cache::read_at;

/// Bytes per read.
const STEP: u64 = 1 << 20;

/// A temporary file, read in order once or at random. It is removed on drop, and when the target
/// restarts.
pub(crate) struct Scratch(WorkFile);

/// An empty temporary file, on the disk that `name` is placed on. It uses disk space like an object
/// being written.
pub(super) async fn begin_scratch(store: &Store, name: &str) -> Result<Scratch> {
    store.begin(0, name, None).await.map(Scratch)
}

impl ObjectService {
    /// As [`begin_scratch`], on a disk of this target.
    pub(crate) async fn scratch(&self, name: &str) -> Result<Scratch> {
        begin_scratch(self.store(), name).await
    }
}

impl Scratch {
    /// Appends `bytes`. After an error the file must not be used.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.0.write(bytes).await
    }

    /// Returns the written bytes in `range`.
    pub(crate) async fn read(&self, range: ByteRange) -> Result<Bytes> {
        if range.end > self.0.written() {
            return Err(Error::internal("a scratch file ends before what is read of it"));
        }
        read_at(self.0.file(), range.start, range.len()).await
    }

    pub(super) fn written(&self) -> u64 {
        self.0.written()
    }

    /// The written bytes, for reads while more are written.
    pub(super) fn file(&self) -> Arc<dyn DiskFile> {
        self.0.file()
    }

    /// Streams all written bytes.
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        let (file, all) = (self.0.file(), self.0.written());
        // The work file keeps the bytes, so it is held until the end.
        futures::stream::try_unfold((self, file, 0), move |(kept, file, at)| async move {
            let step = (all - at).min(STEP);
            if step == 0 {
                return Ok(None);
            }
            let bytes = read_at(Arc::clone(&file), at, step).await?;
            Ok(Some((bytes, (kept, file, at + step))))
        })
        .boxed()
    }
}
