//! The layouts of everything that the store writes; no other module knows them.
//!
//! `docs/format.md` describes them in full. Numbers are little-endian.
//!
//! ```text
//! segment:      header | frame | frame ...                           (frame, segment_state)
//! frame:        fixed part | record | block table | payload | zeros  (frame, record, extensions)
//! object file:  payload | block table | record | footer              (trailer)
//! sidecar:      header | payload                                     (sidecar)
//! index:        key -> record without bucket and name, with place    (value)
//! block table:  CRC-32C of each 64 KiB block of the payload, u32 each
//! ```

mod extensions;
mod frame;
mod record;
mod segment_state;
mod sidecar;
mod trailer;
mod v1;
mod value;
mod wire;

#[cfg(test)]
mod golden_tests;
#[cfg(test)]
mod tests;

use forebay_core::bucket::Class;
use forebay_core::checksum::{ChecksumKind, crc32c};
use forebay_core::{Error, ErrorCode, Result};

pub(crate) use self::frame::{
    ALIGN, FIXED, Fixed, MAX_HEAD, SEGMENT_HEADER, SegmentHeader, decode_head, encode_head,
    frame_bound, may_begin_frame, open_frame, split_table,
};
pub use self::record::Commit;
pub(crate) use self::record::{Entry, check_entry};
pub(crate) use self::segment_state::{SegmentState, TailContent};
pub(crate) use self::sidecar::{decode_sidecar, encode_sidecar, sidecar_space};
pub(crate) use self::trailer::{decode_tail, encode_trailer};
pub(crate) use self::value::{Glance, decode_value, encode_value, glance_value};

/// Version of the layouts; part of `disk.json`, of every segment and of every footer.
pub const FORMAT: u16 = 3;
/// The version before, which is read: the same layouts, and records without extensions.
pub(crate) const FORMAT_2: u16 = 2;
/// Oldest version of a disk that can be migrated: it had no log, and a file for every object.
pub(crate) const FIRST_FORMAT: u16 = 1;
/// Bytes of payload that one checksum covers.
pub(crate) const BLOCK: u64 = 1 << BLOCK_SHIFT;
const BLOCK_SHIFT: u8 = 16;
/// Bytes of one entry of the block table.
pub(crate) const TABLE_ENTRY: u64 = 4;
/// Bytes of a footer.
pub(crate) const FOOTER: usize = 16;
/// Longest record: bounds what a reader of a damaged file allocates.
pub(crate) const MAX_RECORD: usize = 256 << 10;
/// Objects of at most this many bytes lie in the log.
pub(crate) const INLINE_MAX_BYTES: u64 = 128 << 10;
/// Longest payload of a frame that a reader accepts; more than [`INLINE_MAX_BYTES`], which may grow.
pub(crate) const MAX_PAYLOAD: u64 = 1 << 20;
/// Files occupy whole pages of the file system.
const PAGE: u64 = 4096;
/// Approximate size of a record without custom metadata; for reservations.
const USUAL_RECORD: u64 = 512;

/// Number of blocks of a payload.
pub(crate) fn blocks(size: u64) -> u64 {
    size.div_ceil(BLOCK)
}

/// Length of the block table of a payload.
pub(crate) fn table_len(size: u64) -> u64 {
    blocks(size) * TABLE_ENTRY
}

/// The first block of `payload` that differs from its entry of `table`, or whose entry is missing
/// or surplus.
pub(crate) fn bad_block(payload: &[u8], table: &[u8]) -> Option<u64> {
    let blocks = payload.chunks(BLOCK as usize);
    let sums = table.chunks(TABLE_ENTRY as usize);
    if blocks.len() != sums.len() {
        return Some(blocks.len().min(sums.len()) as u64);
    }
    let bad = blocks.zip(sums).position(|(block, sum)| crc32c(block).to_le_bytes() != sum);
    bad.map(|i| i as u64)
}

/// Space on the disk of a file with `size` bytes of payload.
pub(crate) fn file_space(size: u64, name: &str) -> u64 {
    (size + table_len(size) + USUAL_RECORD + name.len() as u64).next_multiple_of(PAGE)
}

/// Space to reserve for an object with `size` bytes of payload.
pub(crate) fn space_for(size: u64, name: &str) -> u64 {
    let frame = USUAL_RECORD + name.len() as u64;
    if size <= INLINE_MAX_BYTES {
        size + table_len(size) + frame
    } else {
        file_space(size, name) + frame
    }
}

/// Key of an object in the index; keys of one bucket sort by name.
pub(crate) fn key(bucket_id: u64, name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&bucket_id.to_be_bytes());
    key.extend_from_slice(name.as_bytes());
    key
}

/// Splits a key that [`key`] made.
pub(crate) fn parse_key(key: &[u8]) -> Result<(u64, &str)> {
    let (id, name) = key.split_first_chunk::<8>().ok_or_else(|| damaged("a key is too short"))?;
    let name = std::str::from_utf8(name).map_err(|_| damaged("a name is not UTF-8"))?;
    Ok((u64::from_be_bytes(*id), name))
}

/// The error for data that another version of Forebay wrote.
pub(crate) fn unknown_format(what: &str, found: u16) -> Error {
    Error::unsupported(format!(
        "{what} has on-disk format {found}; this version of Forebay reads format {FORMAT}"
    ))
    .hint("start the version that wrote it, or give an empty folder")
}

/// The error for data that needs more than this version of Forebay can do.
fn unknown_features(what: &str) -> Error {
    Error::unsupported(format!("{what} has features that this version of Forebay does not know"))
        .hint("start the version that wrote it, or give an empty folder")
}

fn code_class(code: u8) -> Result<Class> {
    match code {
        1 => Ok(Class::Owned),
        2 => Ok(Class::Cache),
        _ => Err(damaged("a record has an unknown class")),
    }
}

/// The code of a kind is its index in this list.
const KINDS: [ChecksumKind; 7] = [
    ChecksumKind::None,
    ChecksumKind::Xxhash,
    ChecksumKind::Xxhash2,
    ChecksumKind::Md5,
    ChecksumKind::Crc32c,
    ChecksumKind::Sha256,
    ChecksumKind::Sha512,
];

fn kind_code(kind: ChecksumKind) -> u8 {
    KINDS.iter().position(|k| *k == kind).map_or(0, |i| i as u8)
}

fn code_kind(code: u8) -> Result<ChecksumKind> {
    let kind = KINDS.get(usize::from(code)).copied();
    kind.ok_or_else(|| damaged("a record has an unknown checksum kind"))
}

fn damaged(what: &str) -> Error {
    Error::new(ErrorCode::Corrupt, what)
}
