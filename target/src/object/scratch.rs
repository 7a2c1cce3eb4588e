//! Temporary files on a target's disks.

use std::sync::Arc;

use bytes::Bytes;
use forebay_clouds::OpenBody;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use forebay_store::{DiskFile, Store, WorkFile};
use futures::StreamExt;
use futures::stream::BoxStream;

use super::cold_cache::read_at;

/// Bytes per read.
const READ_CHUNK_BYTES: u64 = 1 << 20;

/// A temporary file, read in order once or at random. It is removed on drop, and when the target
/// restarts.
pub(crate) struct Scratch(WorkFile);

/// A client's body on a disk; removed on drop.
pub(crate) struct Spool(WorkFile);

/// An empty temporary file, on the disk that `name` is placed on. It uses disk space like an object
/// being written.
pub(super) async fn begin_scratch(store: &Store, name: &str) -> Result<Scratch> {
    store.begin(0, name, None).await.map(Scratch)
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
            let step = (all - at).min(READ_CHUNK_BYTES);
            if step == 0 {
                return Ok(None);
            }
            let bytes = read_at(Arc::clone(&file), at, step).await?;
            Ok(Some((bytes, (kept, file, at + step))))
        })
        .boxed()
    }
}

/// Stores the body of a request for object `name` of this bucket, for a reader that needs it later or
/// more than once.
pub(super) async fn spool(
    store: &Store,
    (bucket_id, name): (u64, &str),
    mut body: BoxStream<'static, Result<Bytes>>,
    len: Option<u64>,
) -> Result<Spool> {
    let mut work = store.begin(bucket_id, name, len).await?;
    while let Some(chunk) = body.next().await {
        work.write(chunk?).await?;
    }
    match len {
        Some(len) if len != work.written() => {
            Err(Error::invalid(format!("{} of {len} bytes came", work.written())))
        }
        _ => Ok(Spool(work)),
    }
}

impl Spool {
    pub(crate) fn len(&self) -> u64 {
        self.0.written()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Streams the bytes; may be called several times.
    pub(crate) fn stream(&self) -> BoxStream<'static, Result<Bytes>> {
        reread(self.0.file())(ByteRange::whole(self.len()))
    }
}

/// Reads ranges of a work file again, for a backend that takes the object in parts or twice.
pub(super) fn reread(file: Arc<dyn DiskFile>) -> OpenBody {
    Arc::new(move |range| {
        let file = file.clone();
        futures::stream::try_unfold(range.start, move |at| {
            let file = file.clone();
            async move {
                let step = (range.end - at).min(READ_CHUNK_BYTES);
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
