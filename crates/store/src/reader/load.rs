//! Reads ranges of an open object and compares their blocks with the checksums.

use bytes::Bytes;
use forebay_core::buffers::Buffer;
use forebay_core::checksum::crc32c;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::fast_http::FilePart;

use super::extent::{OpenExtent, of_one};
use super::{Body, Open, corrupt};
use crate::buffers::{BUFFER, Buffer as Warm};
use crate::format::{BLOCK, TABLE_ENTRY, table_len};

/// Bytes of a chunk that is in the page cache.
pub(super) const CACHED_PIECE: u64 = BUFFER as u64;
/// Bytes of the block table of a cached chunk, which may begin and end within blocks.
const SUMS: usize = (BUFFER / BLOCK as usize + 1) * TABLE_ENTRY as usize;

impl Open {
    pub(super) fn read(&self, range: ByteRange) -> Result<Bytes> {
        self.load(range, false)
    }

    /// `uncached`: see [`DiskFile::read_uncached`](crate::disk::DiskFile::read_uncached).
    pub(super) fn load(&self, range: ByteRange, uncached: bool) -> Result<Bytes> {
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

    pub(super) fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        let Body::Files(extents) = &self.body else { return None };
        let (extent, range) = of_one(extents, range)?;
        (!range.is_empty() && range.len() < BLOCK).then(|| extent.read_recent(range))?
    }

    pub(super) fn recent_part(&self, range: ByteRange) -> Option<FilePart> {
        let Body::Files(extents) = &self.body else { return None };
        let (extent, range) = of_one(extents, range)?;
        extent.recent_part(range)
    }

    /// The bytes of `range`, of at most [`CACHED_PIECE`] and within one such chunk, without waiting
    /// for a disk. `None` for any failure: [`Self::load`] returns the reason.
    pub(super) fn load_now(&self, range: ByteRange) -> Option<Bytes> {
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
