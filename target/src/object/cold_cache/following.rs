//! Readers of a fetch in progress: they get its bytes as these are written to the disk.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use forebay_store::DiskFile;
use futures::Stream;
use tokio::sync::watch;

use super::progress::{Progress, gone};

/// Bytes per read from the file that is being filled.
const STEP: u64 = 256 << 10;

/// A reader of a fetch.
#[derive(Clone)]
pub(crate) struct Following {
    pub(crate) meta: ObjectMeta,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) progress: watch::Receiver<Progress>,
}

impl Following {
    /// Streams the object's bytes in `range` as they arrive. Ends with an error if the fetch fails.
    pub(crate) fn stream(self, range: ByteRange) -> impl Stream<Item = Result<Bytes>> + Send {
        futures::stream::try_unfold((self, range.start), move |(mut me, at)| async move {
            if at >= range.end {
                return Ok(None);
            }
            let step = me.next_bytes(at, range.end).await?;
            let next = at + step.len() as u64;
            Ok(Some((step, (me, next))))
        })
    }

    /// Waits for the end of the fetch; returns the object's size.
    pub(crate) async fn finished(mut self) -> Result<u64> {
        let size = self.meta.size;
        let over = |p: &Progress| matches!(p, Progress::Done { .. } | Progress::Failed { .. });
        match &*self.progress.wait_for(over).await.map_err(|_| gone())? {
            Progress::Failed { error, .. } => Err(error.clone()),
            _ => Ok(size),
        }
    }

    /// The whole object, once it was fetched.
    pub(crate) async fn read_all(mut self) -> Result<Bytes> {
        let size = self.meta.size;
        let done = self.wait(size).await?;
        if let Some(bytes) = done {
            return Ok(bytes);
        }
        read_at(self.file, 0, size).await
    }

    async fn next_bytes(&mut self, at: u64, end: u64) -> Result<Bytes> {
        if let Some(bytes) = self.wait(at + 1).await? {
            return Ok(bytes.slice(at as usize..end as usize));
        }
        let written = match &*self.progress.borrow() {
            Progress::Filling { written, .. } => *written,
            _ => self.meta.size,
        };
        let step = (written.min(end) - at).min(STEP);
        read_at(self.file.clone(), at, step).await
    }

    /// Waits until the file has `upto` bytes; returns all bytes if they are in memory.
    async fn wait(&mut self, upto: u64) -> Result<Option<Bytes>> {
        let reached = |p: &Progress| match p {
            Progress::Starting | Progress::AlreadyHere => false,
            Progress::Filling { written, .. } => *written >= upto,
            Progress::Done { .. } | Progress::Failed { .. } => true,
        };
        match &*self.progress.wait_for(reached).await.map_err(|_| gone())? {
            Progress::Done { bytes, .. } => Ok(bytes.clone()),
            Progress::Failed { error, .. } => Err(error.clone()),
            Progress::Starting | Progress::AlreadyHere | Progress::Filling { .. } => Ok(None),
        }
    }
}

pub(in crate::object) async fn read_at(
    file: Arc<dyn DiskFile>,
    at: u64,
    len: u64,
) -> Result<Bytes> {
    let read = move || -> std::io::Result<Bytes> {
        let mut buffer = vec![0; len as usize];
        file.read_exact_at(&mut buffer, at)?;
        Ok(buffer.into())
    };
    tokio::task::spawn_blocking(read).await.map_err(|_| gone())?.map_err(Error::from)
}
