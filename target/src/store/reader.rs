//! Reading stored objects: whole blocks are read and checked, then cut to what was asked for.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::checksum::crc32c;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use futures::{Stream, stream};
use tokio::task::JoinHandle;

use super::disk::DiskFile;
use super::format::{BLOCK, TABLE_ENTRY, table_len};
use super::record::Record;
use super::{blocking, joined};

/// Bytes of a piece of a stream; whole blocks. One piece is read ahead.
const PIECE: u64 = 4 * BLOCK;

/// An open object. It holds its bytes or files, so that eviction or overwriting cannot hurt it.
#[derive(Clone)]
pub struct ObjectReader {
    shared: Arc<Open>,
}

struct Open {
    record: Record,
    body: Body,
}

/// The payload of an open object.
pub(crate) enum Body {
    /// Read with its record, and checked.
    Memory(Bytes),
    /// Files, each with its block table behind its part of the payload.
    Files(Vec<OpenExtent>),
}

/// A file with a part of a payload.
pub(crate) struct OpenExtent {
    pub(crate) file: Arc<dyn DiskFile>,
    /// Bytes of payload.
    pub(crate) size: u64,
}

impl ObjectReader {
    pub(crate) fn new(record: Record, body: Body) -> Self {
        Self { shared: Arc::new(Open { record, body }) }
    }

    /// The record of the very commit that is open.
    pub fn record(&self) -> &Record {
        &self.shared.record
    }

    /// The whole payload.
    pub async fn read_all(&self) -> Result<Bytes> {
        self.read(ByteRange::whole(self.shared.record.size)).await
    }

    /// The bytes of `range`, which must lie within the object.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let open = self.shared.clone();
        blocking(move || open.read(range)).await
    }

    /// The bytes of `range` in pieces of at most 256 KiB. After an error the stream ends.
    pub fn stream(&self, range: ByteRange) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        let open = self.shared.clone();
        let state = Pieces { open, next: range.start, end: range.end, ahead: None };
        stream::try_unfold(state, |mut pieces| async move {
            let Some(piece) = pieces.ahead.take().or_else(|| pieces.begin()) else {
                return Ok(None);
            };
            let bytes = joined(piece.await)?;
            pieces.ahead = pieces.begin();
            Ok(Some((bytes, pieces)))
        })
    }

    /// Compares the blocks of `range` with their checksums; what lies in the log was compared when
    /// it was opened. Leaves the page cache as it is, and counts as no access.
    pub async fn check(&self, range: ByteRange) -> Result<()> {
        let open = self.shared.clone();
        blocking(move || open.load(range, true).map(drop)).await
    }

    /// As [`Self::read_all`], for callers that are on the blocking pool already.
    pub(crate) fn read_all_blocking(&self) -> Result<Bytes> {
        self.read_blocking(ByteRange::whole(self.shared.record.size))
    }

    /// As [`Self::read`], for callers that are on the blocking pool already.
    pub(crate) fn read_blocking(&self, range: ByteRange) -> Result<Bytes> {
        self.shared.read(range)
    }
}

struct Pieces {
    open: Arc<Open>,
    next: u64,
    end: u64,
    ahead: Option<JoinHandle<Result<Bytes>>>,
}

impl Pieces {
    fn begin(&mut self) -> Option<JoinHandle<Result<Bytes>>> {
        if self.next >= self.end {
            return None;
        }
        let end = ((self.next / PIECE + 1) * PIECE).min(self.end);
        let range = ByteRange { start: self.next, end };
        self.next = end;
        let open = self.open.clone();
        Some(tokio::task::spawn_blocking(move || open.read(range)))
    }
}

impl Open {
    fn read(&self, range: ByteRange) -> Result<Bytes> {
        self.load(range, false)
    }

    /// `passing`: see [`DiskFile::read_passing`].
    fn load(&self, range: ByteRange, passing: bool) -> Result<Bytes> {
        let size = self.record.size;
        let ByteRange { start, end } = range;
        if start > end || end > size {
            return Err(Error::new(
                ErrorCode::RangeNotSatisfiable,
                format!("bytes {start}..{end} of \"{}\", which has {size}", self.record.name),
            ));
        }
        match &self.body {
            Body::Memory(bytes) => Ok(bytes.slice(start as usize..end as usize)),
            Body::Files(extents) => self.read_files(extents, range, passing),
        }
    }

    fn read_files(&self, extents: &[OpenExtent], range: ByteRange, passing: bool) -> Result<Bytes> {
        let mut parts = Vec::new();
        let mut base = 0;
        for extent in extents {
            let start = range.start.clamp(base, base + extent.size) - base;
            let end = range.end.clamp(base, base + extent.size) - base;
            if start < end {
                let range = ByteRange { start, end };
                parts.push(self.read_extent(extent, base, range, passing)?);
            }
            base += extent.size;
        }
        match parts.len() {
            0 => Ok(Bytes::new()),
            1 => Ok(parts.swap_remove(0)),
            _ => Ok(parts.concat().into()),
        }
    }

    /// Reads a range, not empty, of one file, whose first byte is byte `base` of the object.
    fn read_extent(
        &self,
        extent: &OpenExtent,
        base: u64,
        range: ByteRange,
        passing: bool,
    ) -> Result<Bytes> {
        let ByteRange { start, end } = range;
        let size = extent.size;
        let first = start / BLOCK;
        let from = first * BLOCK;
        let to = (end.div_ceil(BLOCK) * BLOCK).min(size);
        let payload = (to - from) as usize;
        // A read of the whole file takes the table, which follows, in the same call.
        let whole = from == 0 && to == size;
        let along = if whole { table_len(size) as usize } else { 0 };
        let mut buf = vec![0; payload + along];
        self.fill(extent, &mut buf, from, passing)?;
        let sums = if whole {
            buf.split_off(payload)
        } else {
            let mut sums = vec![0; table_len(to - from) as usize];
            self.fill(extent, &mut sums, size + first * TABLE_ENTRY, passing)?;
            sums
        };
        let blocks = buf.chunks(BLOCK as usize).zip(sums.chunks(TABLE_ENTRY as usize));
        for (i, (block, sum)) in blocks.enumerate() {
            if crc32c(block).to_le_bytes() != sum {
                let at = base + from + i as u64 * BLOCK;
                return Err(self.corrupt(&format!("the block at byte {at} fails its checksum")));
            }
        }
        let cut = (start - from) as usize..(end - from) as usize;
        Ok(Bytes::from(buf).slice(cut))
    }

    fn fill(&self, extent: &OpenExtent, buf: &mut [u8], offset: u64, passing: bool) -> Result<()> {
        let read = match passing {
            true => extent.file.read_passing(buf, offset),
            false => extent.file.read_exact_at(buf, offset),
        };
        read.map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => self.corrupt("its file is too short"),
            // An unreadable sector is as lost as a flipped bit.
            _ => self.corrupt(&format!("its file cannot be read: {e}")),
        })
    }

    fn corrupt(&self, what: &str) -> Error {
        corrupt(&self.record, what)
    }
}

/// The error for a stored object whose bytes are not what was written.
pub(crate) fn corrupt(record: &Record, what: &str) -> Error {
    let Record { name, bucket_id, generation, .. } = record;
    tracing::warn!(name, bucket_id, generation, "stored object is damaged: {what}");
    Error::new(ErrorCode::Corrupt, format!("stored object \"{name}\" is damaged: {what}"))
}
