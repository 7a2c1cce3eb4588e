//! Bytes that wait on a disk and become no object.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::ObjectService;
use super::cold::read_at;
use crate::store::{DiskFile, WorkFile};

/// Bytes read at once.
const STEP: u64 = 1 << 20;

/// A file for bytes that somebody wants back: once and in order, or here and there. It is gone when this is dropped, and
/// when this target starts again.
pub(crate) struct Scratch(WorkFile);

impl ObjectService {
    /// An empty scratch file, on the disk that `name` falls to. It takes of the disk's room like an
    /// object being written.
    pub(crate) async fn scratch(&self, name: &str) -> Result<Scratch> {
        self.store().begin(0, name, None).await.map(Scratch)
    }
}

impl Scratch {
    /// Appends `bytes`. After an error the file is of no use.
    pub(crate) async fn write(&mut self, bytes: Bytes) -> Result<()> {
        self.0.write(bytes).await
    }

    /// Bytes in `range` of what was written.
    pub(crate) async fn read(&self, range: ByteRange) -> Result<Bytes> {
        if range.end > self.0.written() {
            return Err(Error::internal("a scratch file ends before what is read of it"));
        }
        read_at(self.0.file(), range.start, range.len()).await
    }

    pub(super) fn written(&self) -> u64 {
        self.0.written()
    }

    /// What was written, to be read while more is.
    pub(super) fn file(&self) -> Arc<dyn DiskFile> {
        self.0.file()
    }

    /// All that was written.
    pub(crate) fn into_stream(self) -> BoxStream<'static, Result<Bytes>> {
        let (file, all) = (self.0.file(), self.0.written());
        // The work file is what keeps the bytes, so it goes along to the end.
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
