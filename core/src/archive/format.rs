//! Archive formats, their detection, and the streams inside them.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::GzDecoder;
use lz4_flex::frame::FrameDecoder;
use serde::{Deserialize, Serialize};

use super::limits::{Counted, Limits, Tail, Unpacked};
use super::source::from_io;
use super::tar;
use crate::error::{Error, Result};

/// Bytes requested from a compressed stream at once.
const READ_CHUNK_BYTES: usize = 256 << 10;
/// Largest window of a zstd frame, as a power of two: the maximum that decoders must support by
/// default, and a bound on the memory of one reader.
const ZSTD_WINDOW: u32 = 27;

/// A kind of archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ArchiveFormat {
    Tar,
    TarGz,
    TarLz4,
    TarZst,
    Zip,
}

impl ArchiveFormat {
    /// Detects the format by the end of an object's name.
    pub fn from_name(name: &str) -> Option<Self> {
        const ENDS: [(&str, ArchiveFormat); 6] = [
            (".tar", ArchiveFormat::Tar),
            (".tgz", ArchiveFormat::TarGz),
            (".tar.gz", ArchiveFormat::TarGz),
            (".tar.lz4", ArchiveFormat::TarLz4),
            (".tar.zst", ArchiveFormat::TarZst),
            (".zip", ArchiveFormat::Zip),
        ];
        ENDS.into_iter().find(|(end, _)| name.ends_with(end)).map(|(_, format)| format)
    }

    /// Detects the format by a media type, or any text that contains a format's usual name.
    pub fn from_mime(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let has = |part: &str| text.contains(part);
        Some(match () {
            () if has("tar.gz") || has("tgz") || has("gzip") => Self::TarGz,
            () if has("lz4") => Self::TarLz4,
            () if has("zst") => Self::TarZst,
            () if has("zip") => Self::Zip,
            () if has("tar") => Self::Tar,
            () => return None,
        })
    }

    /// Detects the format by the first bytes of an archive, at least 512 of them if it has that
    /// many.
    pub fn from_magic(head: &[u8]) -> Option<Self> {
        const MAGICS: [(&[u8], ArchiveFormat); 5] = [
            (&[0x1f, 0x8b], ArchiveFormat::TarGz),
            (&[0x04, 0x22, 0x4d, 0x18], ArchiveFormat::TarLz4),
            (&[0x28, 0xb5, 0x2f, 0xfd], ArchiveFormat::TarZst),
            (b"PK\x03\x04", ArchiveFormat::Zip),
            (b"PK\x05\x06", ArchiveFormat::Zip),
        ];
        if tar::starts_like_tar(head) {
            return Some(Self::Tar);
        }
        MAGICS.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, format)| format)
    }

    /// The format of an archive with this format by name (if any) and these first bytes. The bytes
    /// decide if they are unambiguous; a zip archive may have any bytes before it, so its name
    /// decides. Unsupported formats are refused by name.
    pub fn detect(named: Option<Self>, head: &[u8]) -> Result<Self> {
        if named == Some(Self::Zip) {
            return Ok(Self::Zip);
        }
        if let Some(format) = Self::from_magic(head) {
            return Ok(format);
        }
        if let Some(foreign) = foreign(head) {
            return Err(Error::unsupported(format!("this is {foreign}, which is not read"))
                .hint("store it as tar, tar.gz (tgz), tar.lz4, tar.zst or zip"));
        }
        named.ok_or_else(|| {
            Error::invalid("neither its name nor its content is that of an archive")
                .hint("tar, tar.gz (tgz), tar.lz4, tar.zst or zip")
        })
    }

    /// The usual file extension of this format.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Tar => ".tar",
            Self::TarGz => ".tar.gz",
            Self::TarLz4 => ".tar.lz4",
            Self::TarZst => ".tar.zst",
            Self::Zip => ".zip",
        }
    }

    /// Whether members are in one compressed stream, which can only be read from its start.
    pub fn is_compressed_tar(self) -> bool {
        matches!(self, Self::TarGz | Self::TarLz4 | Self::TarZst)
    }
}

/// The name of the unsupported format that begins with `head`, if it is a known one.
fn foreign(head: &[u8]) -> Option<&'static str> {
    const MAGICS: [(&[u8], &str); 11] = [
        (b"BZh", "a file compressed by bzip2"),
        (b"\xfd7zXZ\0", "a file compressed by xz"),
        (b"\x5d\0\0", "a file compressed by lzma"),
        (b"LZIP", "a file compressed by lzip"),
        (b"\x1f\x9d", "a file compressed by compress (.Z)"),
        (b"\x02\x21\x4c\x18", "an LZ4 file of the legacy format"),
        (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
        (b"Rar!\x1a\x07", "a RAR archive"),
        (b"!<arch>\n", "an ar archive"),
        (b"070701", "a cpio archive"),
        (b"\x89HDF\r\n\x1a\n", "an HDF5 file"),
    ];
    MAGICS.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, what)| what)
}

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
mod tests {
    use super::*;

    #[test]
    fn names_say_the_format() {
        use ArchiveFormat::*;
        let all = [
            ("a/b.tar", Some(Tar)),
            ("b.tgz", Some(TarGz)),
            ("b.tar.gz", Some(TarGz)),
            ("b.tar.lz4", Some(TarLz4)),
            ("b.tar.zst", Some(TarZst)),
            ("b.zip", Some(Zip)),
            ("b.gz", None),
            ("tar", None),
            ("b.tar/x", None),
        ];
        for (name, format) in all {
            assert_eq!(ArchiveFormat::from_name(name), format, "{name}");
        }
        for format in [Tar, TarGz, TarLz4, TarZst, Zip] {
            assert_eq!(ArchiveFormat::from_name(format.extension()), Some(format));
            assert_eq!(ArchiveFormat::from_mime(format.extension()), Some(format));
            let text = serde_json::to_string(&format).unwrap();
            assert_eq!(serde_json::from_str::<ArchiveFormat>(&text).unwrap(), format);
        }
    }

    #[test]
    fn media_types_and_plain_words_say_the_format() {
        use ArchiveFormat::*;
        let all = [
            ("application/x-tar", Some(Tar)),
            ("application/gzip", Some(TarGz)),
            ("application/zip", Some(Zip)),
            ("application/x-lz4", Some(TarLz4)),
            (".tgz", Some(TarGz)),
            ("text/plain", None),
            ("", None),
        ];
        for (text, format) in all {
            assert_eq!(ArchiveFormat::from_mime(text), format, "{text}");
        }
    }

    #[test]
    fn first_bytes_say_the_format() {
        assert_eq!(ArchiveFormat::from_magic(b"PK\x03\x04..."), Some(ArchiveFormat::Zip));
        assert_eq!(ArchiveFormat::from_magic(&[0x1f, 0x8b, 8]), Some(ArchiveFormat::TarGz));
        assert_eq!(ArchiveFormat::from_magic(&[0; 512]), None);
        assert_eq!(ArchiveFormat::from_magic(b""), None);
        let mut head = [0; 512];
        head[257..262].copy_from_slice(b"ustar");
        assert_eq!(ArchiveFormat::from_magic(&head), Some(ArchiveFormat::Tar));
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod stream_tests;
