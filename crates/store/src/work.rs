//! Objects being written. Small ones are gathered in memory and go to the log as a whole; larger
//! ones fill a file in `work/`. `Store::commit` makes an object of either; otherwise it is removed.

use std::path::PathBuf;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use forebay_core::Result;
use forebay_core::{Error, ErrorCode};

use super::blocking;
use super::disk::{Disk, DiskFile};
use super::format::{self, BLOCK, INLINE_MAX_BYTES};
use super::growing::Growing;
use super::identity::failed;
use super::shared::Shared;
use super::space::{Reservation, Room};
use super::volume::Volume;

/// A larger file takes so long to remove that another thread than the dropping one does it.
const QUICK: u64 = 16 << 20;

/// A file in `work/` and its metadata; removed when dropped before it was committed.
pub(crate) struct Filling {
    // Not the whole disk: a file that stays open must not keep a disk that left service.
    io: Arc<dyn Disk>,
    room: Arc<Room>,
    pub(crate) id: u64,
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<dyn DiskFile>,
    pub(crate) written: u64,
    /// Checksums of whole blocks so far, in the layout of the file.
    table: Vec<u8>,
    block: Digest,
    /// The log has it, or may have it.
    pub(crate) handed_over: bool,
}

impl Filling {
    pub(crate) fn create(shared: &Shared) -> Result<Self> {
        let id = shared.next_sequence();
        let path = shared.work_path(id);
        let file = shared.io.create(&path).map_err(failed("create", &path))?;
        Ok(Self {
            io: shared.io.clone(),
            room: shared.room.clone(),
            id,
            path,
            file,
            written: 0,
            table: Vec::new(),
            block: Digest::new(CrcAlgorithm::Crc32Iscsi),
            handed_over: false,
        })
    }

    /// A file in `work/` that was written before: its payload has `written` bytes and this table.
    pub(crate) fn filled(
        shared: &Shared,
        id: u64,
        file: Arc<dyn DiskFile>,
        written: u64,
        table: Vec<u8>,
    ) -> Self {
        let (path, block) = (shared.work_path(id), Digest::new(CrcAlgorithm::Crc32Iscsi));
        let (io, room) = (shared.io.clone(), shared.room.clone());
        Self { io, room, id, path, file, written, table, block, handed_over: false }
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.write_at(bytes, self.written)?;
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

    /// Writes the block table and a trailer behind the payload. Nothing is appended after.
    pub(crate) fn end(&mut self, trailer: &[u8]) -> Result<()> {
        if self.table.len() as u64 != format::table_len(self.written) {
            self.end_block();
        }
        let mut tail = std::mem::take(&mut self.table);
        tail.extend_from_slice(trailer);
        self.write_at(&tail, self.written)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(bytes, offset).map_err(|e| {
            let error = failed("write", &self.path)(e);
            if error.code == ErrorCode::OutOfSpace {
                self.room.note_full(bytes.len() as u64);
            }
            error
        })
    }

    fn end_block(&mut self) {
        let crc = self.block.finalize_reset() as u32;
        self.table.extend_from_slice(&crc.to_le_bytes());
    }
}

impl Drop for Filling {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        let (io, path) = (self.io.clone(), std::mem::take(&mut self.path));
        let remove = move || {
            if let Err(e) = io.unlink(&path) {
                tracing::debug!(path = %path.display(), "work file stays until restart: {e}");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) if self.written > QUICK => drop(runtime.spawn_blocking(remove)),
            _ => remove(),
        }
    }
}

/// The payload of an object being written.
pub(crate) enum Work {
    Memory,
    File(Box<Filling>),
}

/// An object being written. Dropping it removes what was written.
///
/// It does not keep its disk in use: when the disk leaves service, the written bytes are void, and
/// every later call fails with [`ErrorCode::Unavailable`].
pub struct WorkFile {
    volume: Weak<Volume>,
    pub(crate) bucket_id: u64,
    pub(crate) name: String,
    /// Absent while a write runs and after one failed.
    work: Option<Work>,
    growing: Arc<Growing>,
    written: u64,
    reservation: Reservation,
}

/// The result of a [`WorkFile`], ready to be committed.
pub(crate) struct Finished {
    pub(crate) volume: Arc<Volume>,
    pub(crate) bucket_id: u64,
    pub(crate) name: String,
    pub(crate) payload: Payload,
    pub(crate) reservation: Reservation,
}

/// The payload of a finished object.
pub(crate) enum Payload {
    Memory(Bytes),
    File(Box<Filling>),
}

impl WorkFile {
    pub(crate) fn new(
        volume: &Arc<Volume>,
        bucket_id: u64,
        name: &str,
        size_hint: Option<u64>,
        reservation: Reservation,
    ) -> Self {
        let volume = Arc::downgrade(volume);
        let expected = size_hint.filter(|size| *size <= INLINE_MAX_BYTES).unwrap_or(0);
        Self {
            volume,
            bucket_id,
            name: name.to_owned(),
            work: Some(Work::Memory),
            growing: Arc::new(Growing::with_capacity(expected as usize)),
            written: 0,
            reservation,
        }
    }

    /// Appends `bytes`; when it returns, readers of [`Self::file`] see them.
    ///
    /// After an error (out of space, a failing disk), or if the future was dropped before its end,
    /// the file is gone and the caller can only drop this.
    pub async fn write(&mut self, bytes: Bytes) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let work = self.work.take().ok_or_else(gone)?;
        let size = self.written + bytes.len() as u64;
        let need = format::space_for(size, &self.name);
        if need > self.reservation.bytes() {
            let more = need - self.reservation.bytes();
            self.reservation.grow(more, || true).await?;
        }
        let in_use = self.volume()?.shared().clone();
        let work = match work {
            Work::Memory if size <= INLINE_MAX_BYTES => {
                self.growing.append(&bytes);
                Work::Memory
            }
            Work::Memory => {
                let (shared, growing) = (in_use.clone(), self.growing.clone());
                let filled = blocking(move || {
                    let mut filling = Filling::create(&shared)?;
                    filling.append(&growing.freeze())?;
                    filling.append(&bytes)?;
                    growing.move_to(filling.file.clone());
                    Ok(Work::File(Box::new(filling)))
                });
                in_use.while_in_use(filled).await?
            }
            Work::File(mut filling) => {
                let filled = blocking(move || filling.append(&bytes).map(|()| Work::File(filling)));
                in_use.while_in_use(filled).await?
            }
        };
        self.work = Some(work);
        self.written = size;
        Ok(())
    }

    /// Takes the whole payload of an object that is in memory, instead of any [`Self::write`].
    pub async fn fill(&mut self, payload: Bytes) -> Result<()> {
        if payload.len() as u64 > INLINE_MAX_BYTES {
            return self.write(payload).await;
        }
        self.written = payload.len() as u64;
        self.growing.set(payload);
        Ok(())
    }

    /// Bytes written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// The payload, for readers that follow it while it grows: bytes up to [`Self::written`] are
    /// there. It stays readable after commit, overwrite and removal.
    pub fn file(&self) -> Arc<dyn DiskFile> {
        self.growing.clone()
    }

    /// The disk that it is written to, while that disk is in use.
    pub(crate) fn volume(&self) -> Result<Arc<Volume>> {
        in_use(&self.volume)
    }

    /// Returns a check that the disk did not leave service. If it did, bytes read back from
    /// [`Self::file`] may differ from those written.
    pub fn in_use(&self) -> impl Fn() -> Result<()> + Send + Sync + use<> {
        let volume = self.volume.clone();
        move || in_use(&volume).map(drop)
    }

    /// Completes the write as a file, also for a small payload.
    pub(crate) async fn finish_in_file(self) -> Result<(Filling, Reservation)> {
        let finished = self.finish()?;
        let filling = match finished.payload {
            Payload::File(filling) => *filling,
            Payload::Memory(bytes) => {
                let shared = finished.volume.shared().clone();
                blocking(move || {
                    let mut filling = Filling::create(&shared)?;
                    filling.append(&bytes)?;
                    Ok(filling)
                })
                .await?
            }
        };
        Ok((filling, finished.reservation))
    }

    pub(crate) fn finish(self) -> Result<Finished> {
        let volume = self.volume()?;
        let payload = match self.work.ok_or_else(gone)? {
            Work::Memory => Payload::Memory(self.growing.freeze()),
            Work::File(filling) => Payload::File(filling),
        };
        Ok(Finished {
            volume,
            bucket_id: self.bucket_id,
            name: self.name,
            payload,
            reservation: self.reservation,
        })
    }
}

fn in_use(volume: &Weak<Volume>) -> Result<Arc<Volume>> {
    let in_use = |volume: &Arc<Volume>| !volume.shared().condition.is_retired();
    volume.upgrade().filter(in_use).ok_or_else(|| {
        let text = "the disk that this was written to left service meanwhile; nothing was kept";
        Error::unavailable(text).hint("send it again from its beginning")
    })
}

fn gone() -> Error {
    Error::internal("an earlier write of this object failed")
}
