//! Reads a file of the folder and detects changes meanwhile.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::error::Result;
use forebay_core::size::{ByteRange, RangeSpec};
use futures::stream::{self, StreamExt};

use super::{Folder, blocking, changed, marker, meta_of};
use crate::{RemoteMeta, RemoteObject};

/// Bytes read at once; a file up to this size costs one switch to a blocking thread.
const CHUNK: u64 = 1 << 20;

struct Reader {
    folder: Arc<Folder>,
    name: String,
    file: File,
    meta: RemoteMeta,
    left: ByteRange,
}

pub(super) async fn open(
    folder: &Arc<Folder>,
    name: &str,
    range: Option<ByteRange>,
    if_version: Option<&str>,
) -> Result<RemoteObject> {
    let (folder, name) = (Arc::clone(folder), name.to_owned());
    let if_version = if_version.map(str::to_owned);
    if let Some(inner) = marker::folder_name(&name) {
        let inner = inner.to_owned();
        return blocking(move || marker::read(&folder, &inner, range, if_version.as_deref())).await;
    }
    let (reader, range, first) = blocking(move || {
        let mut reader = Reader::open(folder, name, range, if_version.as_deref())?;
        let range = reader.left;
        let first = reader.chunk()?;
        Ok((reader, range, first))
    })
    .await?;
    let meta = reader.meta.clone();
    let rest = stream::try_unfold(reader, |mut reader| async move {
        if reader.left.is_empty() {
            return Ok(None);
        }
        blocking(move || Ok(Some((reader.chunk()?, reader)))).await
    });
    let first = stream::iter((!first.is_empty()).then_some(Ok(first)));
    Ok(RemoteObject { meta, range, stream: first.chain(rest).boxed() })
}

impl Reader {
    fn open(
        folder: Arc<Folder>,
        name: String,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<Self> {
        let path = folder.existing(&name)?;
        // Non-blocking: a named pipe must not hold the thread until a writer opens it.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW | libc::O_CLOEXEC)
            .open(path)
            .map_err(|e| folder.error(e, "read", &name))?;
        let stat = file.metadata().map_err(|e| folder.error(e, "read", &name))?;
        if !stat.is_file() {
            return Err(folder.bucket.object_not_found(&name));
        }
        let meta = meta_of(&stat);
        if if_version.is_some_and(|wanted| wanted != meta.version) {
            return Err(changed(&folder, &name));
        }
        let left = match range {
            None => ByteRange::whole(meta.size),
            Some(r) => {
                RangeSpec::From(r.start, Some(r.end.saturating_sub(1))).resolve(meta.size)?
            }
        };
        Ok(Self { folder, name, file, meta, left })
    }

    /// The next bytes. Before the last ones are returned the file's metadata is checked again, so
    /// that a reader never gets a mix of two versions.
    fn chunk(&mut self) -> Result<Bytes> {
        let mut buffer = vec![0; self.left.len().min(CHUNK) as usize];
        match self.file.read_exact_at(&mut buffer, self.left.start) {
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
                return Err(changed(&self.folder, &self.name));
            }
            other => other.map_err(|e| self.folder.error(e, "read", &self.name))?,
        }
        self.left.start += buffer.len() as u64;
        if self.left.is_empty() {
            let now = self.file.metadata().map_err(|e| self.folder.error(e, "read", &self.name))?;
            if meta_of(&now).version != self.meta.version {
                return Err(changed(&self.folder, &self.name));
            }
        }
        Ok(buffer.into())
    }
}
