//! Records of format 1, which are in object files only. They are read, not written.
//!
//! ```text
//! record:  magic "FBRECORD", format u16, flags u16 (1 backed, 2 dirty), class u8 (1 owned,
//!          2 cache), checksum kind u8, block shift u8, 0 u8, bucket id u64, generation u64,
//!          size u64, epoch u64, time of validation u64, atime u64, mtime u64, name, checksum,
//!          etag, version, backend version, number of custom pairs u32, pairs,
//!          CRC-32C u32 of all before it
//! text:    length u32, bytes
//! ```

use forebay_core::Result;
use forebay_core::checksum::{Checksum, ChecksumKind, crc32c};

use super::trailer::RECORD_MAGIC;
use super::wire::Reader;
use super::{BLOCK_SHIFT, code_class, code_kind, damaged, unknown_format};
use crate::record::{Extent, Place, Record, RecordMeta, Spot};

pub(super) const FLAG_BACKED: u16 = 1;
pub(super) const FLAG_DIRTY: u16 = 2;

/// The record, with its generation as sequence and as id of its one file.
pub(super) fn decode_record(bytes: &[u8]) -> Result<Record> {
    let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| damaged("a record is empty"))?;
    if !body.starts_with(RECORD_MAGIC) {
        return Err(damaged("a record has no magic"));
    }
    let mut r = Reader { rest: &body[RECORD_MAGIC.len()..] };
    let format = r.u16()?;
    if format != 1 {
        return Err(unknown_format("a record", format));
    }
    if crc32c(body) != u32::from_le_bytes(*crc) {
        return Err(damaged("a record fails its checksum"));
    }
    let flags = r.u16()?;
    let class = code_class(r.u8()?)?;
    let kind = code_kind(r.u8()?)?;
    if r.u8()? != BLOCK_SHIFT {
        return Err(damaged("a record has another block size"));
    }
    r.u8()?;
    let (bucket_id, generation, size) = (r.u64()?, r.u64()?, r.u64()?);
    let (epoch, validated_ns) = (r.u64()?, r.u64()?);
    let (atime_ns, mtime_ns) = (r.u64()?, r.u64()?);
    let name = r.long_text()?;
    let value = r.long_text()?;
    let checksum = (kind != ChecksumKind::None).then_some(Checksum { kind, value });
    let (etag, version, backend_version) = (r.long_text()?, r.long_text()?, r.long_text()?);
    let pairs = r.u32()?;
    let custom = (0..pairs).map(|_| Ok((r.long_text()?, r.long_text()?))).collect::<Result<_>>()?;
    if !r.rest.is_empty() {
        return Err(damaged("a record has bytes to spare"));
    }
    let meta = RecordMeta {
        checksum,
        etag,
        version,
        backend_version,
        class,
        backed: flags & FLAG_BACKED != 0,
        dirty: flags & FLAG_DIRTY != 0,
        epoch,
        validated_ns,
        atime_ns,
        mtime_ns,
        custom,
        parts: Default::default(),
        extensions: Default::default(),
    };
    let place = Place::Files(Spot::default(), vec![Extent { id: generation, size }]);
    Ok(Record { bucket_id, name, size, generation, sequence: generation, meta, place, disk: 0 })
}
