//! Reads stored objects: whole blocks are read and checked, then cut to the requested range.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use forebay_core::buffers::Buffer;
use forebay_core::checksum::crc32c;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::piece::{FilePart, Piece};
use futures::{Stream, stream};
use tokio::task::JoinHandle;

use super::buffers::{BUFFER, Buffer as Warm};
use super::checked::{Checked, Marks};
use super::disk::DiskFile;
use super::format::{BLOCK, TABLE_ENTRY, table_len};
use super::record::Record;
use super::{blocking, joined};

/// Bytes of a chunk of a stream from a disk; whole blocks. One chunk is read ahead.
const PIECE: u64 = 4 * BLOCK;
/// Most bytes of a chunk that the kernel sends.
const SENT: u64 = 16 * BLOCK;
/// Bytes of a chunk that is in the page cache.
const CACHED_PIECE: u64 = BUFFER as u64;

/// Bytes of the block table of a cached chunk, which may begin and end within blocks.
const SUMS: usize = (BUFFER / BLOCK as usize + 1) * TABLE_ENTRY as usize;

/// An open object. It holds its bytes or files, so eviction and overwriting do not affect it.
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
    /// Read together with its record, and checked.
    Memory(Bytes),
    /// Files, each with its block table behind its part of the payload.
    Files(Vec<OpenExtent>),
}

/// A file with a part of a payload.
pub(crate) struct OpenExtent {
    file: Arc<dyn DiskFile>,
    /// Bytes of payload.
    size: u64,
    /// The file's id, and the check times of its disk.
    checked: Option<(u64, Arc<Checked>)>,
    /// Set by the first read of a part.
    marks: OnceLock<Option<Arc<Marks>>>,
}

impl OpenExtent {
    /// `checked`: the file's id and the check times of its disk, where they are kept.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        size: u64,
        checked: Option<(u64, Arc<Checked>)>,
    ) -> Self {
        Self { file, size, checked, marks: OnceLock::new() }
    }

    fn marks(&self) -> Option<&Marks> {
        let marks = self.marks.get_or_init(|| {
            let (id, checked) = self.checked.as_ref()?;
            checked.marks(*id, self.size, self.file.changed_ns().ok()?)
        });
        marks.as_deref()
    }

    /// Makes all checks until now invalid: the disk returned damaged bytes.
    fn distrust(&self) {
        if let Some(marks) = self.marks() {
            marks.lose();
        }
    }

    /// The check times, if all blocks of a range have a valid check.
    fn recent(&self, range: ByteRange) -> Option<&Marks> {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        self.marks().filter(|marks| marks.cover(blocks))
    }

    /// As much of a range of the file, from its first byte on, as has a valid check, if it is in
    /// the page cache.
    fn recent_part(&self, range: ByteRange) -> Option<FilePart> {
        let marks = self.marks()?;
        let first = range.start / BLOCK;
        let covered = marks.covered(first..range.end.div_ceil(BLOCK));
        let (start, end) = (range.start, range.end.min((first + covered) * BLOCK));
        if start >= end {
            return None;
        }
        match self.file.clone().resident(start, end - start) {
            Ok(Some(file)) => {
                Some(FilePart { file, start, end, seen: Instant::now(), instead: None })
            }
            Ok(None) => {
                marks.lose();
                None
            }
            // The system cannot report it.
            Err(_) => None,
        }
    }

    /// The bytes of a range of at most a block, if they are in the page cache and their blocks have
    /// a valid check.
    fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        let marks = self.recent(range)?;
        let mut buffer = Buffer::take(range.len() as usize);
        match self.file.read_now_at(buffer.bytes_mut(), range.start) {
            Ok(Some(n)) if n as u64 == range.len() => Some(buffer.freeze()),
            _ => {
                marks.lose();
                None
            }
        }
    }
}

impl ObjectReader {
    pub(crate) fn new(record: Record, body: Body) -> Self {
        Self { shared: Arc::new(Open { record, body }) }
    }

    /// The record of the open commit.
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

    /// The bytes of `range` in chunks of at most 256 KiB. After an error the stream ends.
    pub fn stream(&self, range: ByteRange) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        stream::try_unfold(self.pieces_of(range), |mut pieces| async move {
            Ok(pieces.next().await?.map(|bytes| (bytes, pieces)))
        })
    }

    /// As [`Self::stream`]; bytes that are in the page cache and have a valid check are returned as
    /// a part of their file.
    pub(crate) fn pieces(
        &self,
        range: ByteRange,
    ) -> impl Stream<Item = Result<Piece>> + Send + use<> {
        stream::try_unfold(self.pieces_of(range), |mut pieces| async move {
            if let Some(part) = pieces.recent() {
                return Ok(Some((Piece::File(part), pieces)));
            }
            Ok(pieces.next().await?.map(|bytes| (Piece::Bytes(bytes), pieces)))
        })
    }

    fn pieces_of(&self, range: ByteRange) -> Pieces {
        Pieces { open: self.shared.clone(), next: range.start, end: range.end, ahead: None }
    }

    /// Compares the blocks of `range` with their checksums; payloads in the log were compared when
    /// they were opened. Leaves the page cache as it is, and counts as no access.
    pub async fn check(&self, range: ByteRange) -> Result<()> {
        let open = self.shared.clone();
        blocking(move || open.load(range, true).map(drop)).await
    }

    /// The bytes of `range` without waiting and without checking them again: less than a block, in
    /// the page cache, of blocks with a valid check. `None`: use another read method.
    pub(crate) fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        self.shared.read_recent(range)
    }

    /// As [`Self::read_all`], for callers on the blocking pool.
    pub(crate) fn read_all_blocking(&self) -> Result<Bytes> {
        self.read_blocking(ByteRange::whole(self.shared.record.size))
    }

    /// As [`Self::read`], for callers on the blocking pool.
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
    async fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(bytes) = self.cached() {
            return Ok(Some(bytes));
        }
        let Some(piece) = self.ahead.take().or_else(|| self.begin()) else { return Ok(None) };
        let bytes = joined(piece.await)?;
        self.ahead = self.begin();
        Ok(Some(bytes))
    }

    /// The next chunk, without reading its bytes.
    fn recent(&mut self) -> Option<FilePart> {
        if self.ahead.is_some() || self.next >= self.end {
            return None;
        }
        let end = ((self.next / SENT + 1) * SENT).min(self.end);
        let part = self.open.recent_part(ByteRange { start: self.next, end })?;
        self.next += part.end - part.start;
        Some(part)
    }

    /// The next chunk without a switch of threads, if it is in the page cache and sound.
    fn cached(&mut self) -> Option<Bytes> {
        if self.ahead.is_some() || self.next >= self.end {
            return None;
        }
        let end = ((self.next / CACHED_PIECE + 1) * CACHED_PIECE).min(self.end);
        let bytes = self.open.load_now(ByteRange { start: self.next, end })?;
        self.next = end;
        Some(bytes)
    }

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

    /// `uncached`: see [`DiskFile::read_uncached`].
    fn load(&self, range: ByteRange, uncached: bool) -> Result<Bytes> {
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
            Body::Files(extents) => self.read_files(extents, range, uncached),
        }
    }

    fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        let Body::Files(extents) = &self.body else { return None };
        let (extent, range) = of_one(extents, range)?;
        (!range.is_empty() && range.len() < BLOCK).then(|| extent.read_recent(range))?
    }

    fn recent_part(&self, range: ByteRange) -> Option<FilePart> {
        let Body::Files(extents) = &self.body else { return None };
        let (extent, range) = of_one(extents, range)?;
        extent.recent_part(range)
    }

    /// The bytes of `range`, of at most [`CACHED_PIECE`] and within one such chunk, without waiting
    /// for a disk. `None` for any failure: [`Self::load`] returns the reason.
    fn load_now(&self, range: ByteRange) -> Option<Bytes> {
        let extents = match &self.body {
            Body::Memory(bytes) => {
                return bytes
                    .get(range.start as usize..range.end as usize)
                    .map(|part| bytes.slice_ref(part));
            }
            Body::Files(extents) => extents,
        };
        let (extent, ByteRange { start, end }) = of_one(extents, range)?;
        let from = start / BLOCK * BLOCK;
        let to = (end.div_ceil(BLOCK) * BLOCK).min(extent.size);
        let payload = usize::try_from(to - from).ok().filter(|len| *len <= BUFFER)?;
        let mut sums = [0; SUMS];
        let sums = &mut sums[..table_len(to - from) as usize];
        let now = |buf: &mut [u8], at: u64| match extent.file.read_now_at(buf, at) {
            Ok(Some(n)) if n == buf.len() => Some(()),
            _ => None,
        };
        now(sums, extent.size + from / BLOCK * TABLE_ENTRY)?;
        let mut buffer = Warm::take();
        let bytes = &mut buffer.bytes_mut()[..payload];
        now(bytes, from)?;
        let mut blocks = bytes.chunks(BLOCK as usize).zip(sums.chunks(TABLE_ENTRY as usize));
        let sound = blocks.all(|(block, sum)| crc32c(block).to_le_bytes() == *sum);
        match extent.marks() {
            _ if !sound => extent.distrust(),
            Some(marks) => marks.note(from / BLOCK..to.div_ceil(BLOCK)),
            None => {}
        }
        sound.then(|| buffer.freeze().slice((start - from) as usize..(end - from) as usize))
    }

    fn read_files(
        &self,
        extents: &[OpenExtent],
        range: ByteRange,
        uncached: bool,
    ) -> Result<Bytes> {
        let mut parts = Vec::new();
        let mut base = 0;
        for extent in extents {
            let start = range.start.clamp(base, base + extent.size) - base;
            let end = range.end.clamp(base, base + extent.size) - base;
            if start < end {
                let range = ByteRange { start, end };
                parts.push(self.read_extent(extent, base, range, uncached)?);
            }
            base += extent.size;
        }
        match parts.len() {
            0 => Ok(Bytes::new()),
            1 => Ok(parts.swap_remove(0)),
            _ => Ok(parts.concat().into()),
        }
    }

    /// Reads a non-empty range of one file, whose first byte is byte `base` of the object.
    fn read_extent(
        &self,
        extent: &OpenExtent,
        base: u64,
        range: ByteRange,
        uncached: bool,
    ) -> Result<Bytes> {
        let ByteRange { start, end } = range;
        let size = extent.size;
        let first = start / BLOCK;
        let from = first * BLOCK;
        let to = (end.div_ceil(BLOCK) * BLOCK).min(size);
        let payload = (to - from) as usize;
        // A read of the whole file reads the table, which follows, in the same call.
        let whole = from == 0 && to == size;
        let along = if whole { table_len(size) as usize } else { 0 };
        let mut buf = Buffer::take(payload + along);
        self.fill(extent, buf.bytes_mut(), from, uncached)?;
        let mut apart = Vec::new();
        if !whole {
            apart.resize(table_len(to - from) as usize, 0);
            self.fill(extent, &mut apart, size + first * TABLE_ENTRY, uncached)?;
        }
        let (bytes, along) = buf.as_ref().split_at(payload);
        let sums = if whole { along } else { &apart };
        let blocks = bytes.chunks(BLOCK as usize).zip(sums.chunks(TABLE_ENTRY as usize));
        for (i, (block, sum)) in blocks.enumerate() {
            if crc32c(block).to_le_bytes() != sum {
                let at = base + from + i as u64 * BLOCK;
                extent.distrust();
                return Err(self.corrupt(&format!("the block at byte {at} fails its checksum")));
            }
        }
        if !uncached && let Some(marks) = extent.marks() {
            marks.note(first..to.div_ceil(BLOCK));
        }
        let cut = (start - from) as usize..(end - from) as usize;
        Ok(buf.freeze().slice(cut))
    }

    fn fill(&self, extent: &OpenExtent, buf: &mut [u8], offset: u64, uncached: bool) -> Result<()> {
        let read = match uncached {
            true => extent.file.read_uncached(buf, offset),
            false => extent.file.read_exact_at(buf, offset),
        };
        read.inspect_err(|_| extent.distrust()).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => self.corrupt("its file is too short"),
            // An unreadable sector is as lost as a flipped bit.
            _ => self.corrupt(&format!("its file cannot be read: {e}")),
        })
    }

    fn corrupt(&self, what: &str) -> Error {
        corrupt(&self.record, what)
    }
}

/// The file that has all of `range`, and the range within it.
fn of_one(extents: &[OpenExtent], range: ByteRange) -> Option<(&OpenExtent, ByteRange)> {
    let mut base = 0;
    let extent = extents.iter().find(|extent| {
        let is_in = range.start < base + extent.size;
        base += if is_in { 0 } else { extent.size };
        is_in
    })?;
    let ends_in = range.end - base <= extent.size;
    ends_in.then_some((extent, ByteRange { start: range.start - base, end: range.end - base }))
}

/// The error for a stored object whose bytes are damaged.
pub(crate) fn corrupt(record: &Record, what: &str) -> Error {
    let Record { name, bucket_id, generation, .. } = record;
    tracing::warn!(name, bucket_id, generation, "stored object is damaged: {what}");
    Error::new(ErrorCode::Corrupt, format!("stored object \"{name}\" is damaged: {what}"))
}
