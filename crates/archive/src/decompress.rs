//! The streams inside compressed archives.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use forebay_core::error::{Error, Result};
use forebay_core::shard::ArchiveFormat;
use lz4_flex::frame::FrameDecoder;

use super::limits::{Counted, Limits, Tail, Unpacked};
use super::source::from_io;

/// Bytes requested from a compressed stream at once.
const READ_CHUNK_BYTES: usize = 256 << 10;
/// Largest window of a zstd frame, as a power of two: the maximum that decoders must support by
/// default, and a bound on the memory of one reader.
const ZSTD_WINDOW: u32 = 27;

/// Returns the TAR inside a file of the TAR family, bounded by the limits of unpacking.
pub fn decompress<'a, R: Read + Send + 'a>(
    format: ArchiveFormat,
    input: R,
    limits: &Limits,
) -> Result<Box<dyn Read + Send + 'a>> {
    let counted = Counted::new(input);
    let (taken, tail) = (counted.taken(), counted.tail());
    let input = BufReader::with_capacity(READ_CHUNK_BYTES, counted);
    let unpacked: Box<dyn Read + Send + 'a> = match format {
        ArchiveFormat::Tar => return Ok(Box::new(input)),
        ArchiveFormat::TarGz => Box::new(GzMembers::new(input)),
        ArchiveFormat::TarLz4 => Box::new(Lz4Frames { tail, frames: FrameDecoder::new(input) }),
        ArchiveFormat::TarZst => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(input).map_err(from_io)?;
            decoder.window_log_max(ZSTD_WINDOW).map_err(from_io)?;
            Box::new(decoder)
        }
        ArchiveFormat::Zip => {
            return Err(Error::internal("a zip archive is no compressed stream"));
        }
    };
    Ok(Box::new(Unpacked::new(unpacked, taken, limits)))
}

/// First byte of a gzip stream.
const GZIP_FIRST: u8 = 0x1f;

/// Concatenated gzip streams. Other bytes after the last stream are a separate error
/// ([`is_behind_end`]): `gzip` only warns about them.
struct GzMembers<R: BufRead> {
    /// `None` after the last stream.
    member: Option<GzDecoder<R>>,
    has_bytes_behind: bool,
}

impl<R: BufRead> GzMembers<R> {
    fn new(input: R) -> Self {
        Self { member: Some(GzDecoder::new(input)), has_bytes_behind: false }
    }
}

impl<R: BufRead> Read for GzMembers<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        while let Some(member) = &mut self.member {
            let n = member.read(buf)?;
            if n > 0 {
                return Ok(n);
            }
            let Some(ended) = self.member.take() else { break };
            let mut input = ended.into_inner();
            match input.fill_buf()?.first() {
                None => {}
                Some(&GZIP_FIRST) => self.member = Some(GzDecoder::new(input)),
                Some(_) => self.has_bytes_behind = true,
            }
        }
        match self.has_bytes_behind {
            true => Err(io::Error::new(io::ErrorKind::UnexpectedEof, BytesBehindEnd)),
            false => Ok(0),
        }
    }
}

/// Bytes after the end of compressed data that do not belong to it.
#[derive(Debug, thiserror::Error)]
#[error("bytes that are not compressed data follow its end")]
struct BytesBehindEnd;

/// Whether a stream of [`decompress`] has reached its end, and only unrelated bytes follow. If the
/// archive's own end marker was read, the archive is complete.
pub fn is_behind_end(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<BytesBehindEnd>())
}

/// Concatenated LZ4 frames. The decoder alone would take the end of one frame for the end of the
/// input, and input that ends between two blocks for the end of a frame.
struct Lz4Frames<R: BufRead> {
    frames: FrameDecoder<R>,
    tail: Tail,
}

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.frames.read(buf)?;
            if n > 0 || buf.is_empty() {
                return Ok(n);
            }
            // If there is more input, the next iteration consumes some, at least the head of an
            // empty frame.
            if self.frames.get_mut().fill_buf()?.is_empty() {
                // A frame ends with four zeros, and a checksum of four bytes in most cases.
                let [end @ .., _, _, _, _] = self.tail.bytes();
                let is_whole = end == [0; 4] || self.tail.bytes()[4..] == [0; 4];
                let cut_off = || io::Error::from(io::ErrorKind::UnexpectedEof);
                return if is_whole { Ok(0) } else { Err(cut_off()) };
            }
        }
    }
}

#[cfg(test)]
#[path = "decompress_tests.rs"]
mod tests;
