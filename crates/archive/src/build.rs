//! Reads the index of an archive that is completely available.

use std::io::{ErrorKind, Read};

use forebay_core::error::Result;
use forebay_core::shard::ArchiveFormat;

use super::decompress::{decompress, is_behind_end};
use super::index::ShardIndex;
use super::limits::Limits;
use super::source::{ReadAt, Section, from_io};
use super::tar::{self, TarIndexer};
use super::zip;

/// Bytes unpacked at once.
const UNPACK_CHUNK_BYTES: usize = 128 << 10;

/// Finds the members of an archive. Of a plain TAR only the headers are read, of a zip archive only
/// its directory; a compressed TAR is unpacked from its start to its end.
pub fn read_index(
    format: ArchiveFormat,
    source: &dyn ReadAt,
    limits: &Limits,
) -> Result<ShardIndex> {
    match format {
        ArchiveFormat::Tar => tar::read_headers(source, limits),
        ArchiveFormat::Zip => zip::read_directory(source, limits),
        ArchiveFormat::TarGz | ArchiveFormat::TarLz4 | ArchiveFormat::TarZst => {
            let mut input = decompress(format, Section::from(source, 0), limits)?;
            let mut indexer = TarIndexer::new(format, limits.clone());
            let mut buffer = vec![0; UNPACK_CHUNK_BYTES];
            // To the very end: the checksums of the unpacked data follow the archive.
            loop {
                match input.read(&mut buffer) {
                    Ok(0) => return indexer.finish(),
                    Ok(n) => indexer.feed(&buffer[..n])?,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if is_behind_end(&e) && indexer.is_complete() => {
                        return indexer.finish();
                    }
                    Err(e) if e.kind() == ErrorKind::UnexpectedEof => return Err(indexer.ended()),
                    Err(e) => return Err(from_io(e)),
                }
            }
        }
    }
}
