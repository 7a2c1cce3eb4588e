//! Objects being written: a file in `work/` that becomes an object by `Store::commit` or vanishes.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::{Error, Result};

use super::blocking;
use super::disk::DiskFile;
use super::format::{BLOCK, stored_bytes};
use super::identity::failed;
use super::space::Reservation;
use super::volume::Volume;

/// Above this, removing a file takes long enough to leave the thread that drops it.
const SMALL: u64 = 16 << 20;

/// The file and what is known of it; removes the file when dropped before it was committed.
pub(crate) struct Work {
    pub(crate) volume: Arc<Volume>,
    pub(crate) bucket_id: u64,
    pub(crate) name: String,
    pub(crate) generation: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) written: u64,
    /// Checksums of whole blocks so far, as they will stand in the file.
    table: Vec<u8>,
    block: Digest,
    /// The file has left `work/`.
    pub(crate) moved: bool,
}

impl Work {
    pub(crate) fn create(volume: Arc<Volume>, bucket_id: u64, name: &str) -> Result<Self> {
        let generation = volume.next_generation();
        let path = volume.work_path(generation);
        let file = volume.io.create(&path).map_err(failed("create", &path))?;
        Ok(Self {
            volume,
            bucket_id,
            name: name.to_owned(),
            generation,
            path,
            file,
            written: 0,
            table: Vec::new(),
            block: Digest::new(CrcAlgorithm::Crc32Iscsi),
            moved: false,
        })
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_at(bytes, self.written).map_err(|e| {
            let error = failed("write", &self.path)(e);
            if error.code == forebay_core::ErrorCode::OutOfSpace {
                self.volume.room.note_full(bytes.len() as u64);
            }
            error
        })?;
        let mut rest = bytes;
        while !rest.is_empty() {
            let left = BLOCK - self.written % BLOCK;
            let (head, tail) = rest.split_at(rest.len().min(left as usize));
            self.block.update(head);
            self.written += head.len() as u64;
            if self.written.is_multiple_of(BLOCK) {
                self.end_block();
            }
            rest = tail;
        }
        Ok(())
    }

    fn end_block(&mut self) {
        let crc = self.block.finalize_reset() as u32;
        self.table.extend_from_slice(&crc.to_le_bytes());
    }

    /// The block table of all that was written; nothing may be appended after.
    pub(crate) fn take_table(&mut self) -> Vec<u8> {
        if !self.written.is_multiple_of(BLOCK) {
            self.end_block();
        }
        std::mem::take(&mut self.table)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if self.moved {
            return;
        }
        let (io, path) = (self.volume.io.clone(), std::mem::take(&mut self.path));
        let remove = move || {
            if let Err(e) = io.unlink(&path) {
                tracing::debug!(path = %path.display(), "work file stays until restart: {e}");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.written > SMALL => drop(runtime.spawn_blocking(remove)),
            _ => remove(),
        }
    }
}

/// An object being written. Dropping it removes what was written.
pub struct WorkFile {
    /// Absent while a write runs and after one failed.
    work: Option<Box<Work>>,
    file: Arc<dyn DiskFile>,
    written: u64,
    reservation: Reservation,
}

impl WorkFile {
    pub(crate) fn new(work: Work, reservation: Reservation) -> Self {
        Self { file: work.file.clone(), written: 0, work: Some(Box::new(work)), reservation }
    }

    /// Appends `bytes`; when it returns, readers of [`Self::file`] see them.
    ///
    /// After an error (out of space, a failing disk) or when the future was dropped before its end,
    /// the file is gone and only dropping this is left to do.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut work = self.work.take().ok_or_else(gone)?;
        let size = self.written + bytes.len() as u64;
        let need = stored_bytes(size, &work.name);
        if need > self.reservation.bytes() {
            let more = need - self.reservation.bytes();
            self.reservation.grow(more, || true).await?;
        }
        let work = blocking(move || work.append(&bytes).map(|()| work)).await?;
        self.work = Some(work);
        self.written = size;
        Ok(())
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The file, for readers that follow it while it grows: bytes up to [`Self::written`] are the
    /// payload's. It stays readable after commit, overwrite and removal.
    pub fn file(&self) -> Arc<dyn DiskFile> {
        self.file.clone()
    }

    pub(crate) fn into_parts(self) -> Result<(Box<Work>, Reservation)> {
        Ok((self.work.ok_or_else(gone)?, self.reservation))
    }
}

fn gone() -> Error {
    Error::internal("an earlier write of this object failed")
}
