//! Reads TAR archives: ustar, PAX and GNU long names, old v7. Returns only regular files. An
//! archive without an end marker is accepted if it ends after an entry; a sparse file is found, but
//! its data is not read.

mod header;
mod push;
mod reader;
#[cfg(test)]
mod tests;
mod walker;

pub use push::TarIndexer;
pub use reader::TarReader;

use forebay_core::error::Result;
use forebay_core::shard::ArchiveFormat;

use self::walker::{Step, Walker};
use super::index::{Members, ShardIndex};
use super::limits::Limits;
use super::source::ReadAt;

/// Size of a header, and the padding unit of data.
pub(crate) const BLOCK: usize = 512;

/// Whether a file that begins with `head` is a TAR.
pub(crate) fn starts_like_tar(head: &[u8]) -> bool {
    let Some(block) = head.first_chunk::<BLOCK>() else { return false };
    block[257..262] == *b"ustar" || (block != &[0; BLOCK] && header::checksum_fits(block))
}

/// Finds the members of a plain TAR by reading its headers only.
pub(crate) fn read_headers(source: &dyn ReadAt, limits: &Limits) -> Result<ShardIndex> {
    let mut walker = Walker::new(limits.clone());
    let mut members = Members::new(limits);
    let mut buffer = Vec::new();
    while let Some((offset, len)) = walker.wants() {
        if walker.may_end_at(source.size()) {
            break;
        }
        if offset.checked_add(len as u64).is_none_or(|end| end > source.size()) {
            return Err(walker.ended(source.size()));
        }
        buffer.resize(len, 0);
        source.read_exact_at(&mut buffer, offset)?;
        if let Step::Member(member) = walker.give(&buffer)? {
            members.push(member)?;
        }
    }
    Ok(ShardIndex::new(ArchiveFormat::Tar, members.list))
}
