//! Which archive formats there are, how they are recognized, and the streams inside them.

use std::io::{self, BufRead, BufReader, Read};

use lz4_flex::frame::FrameDecoder;
use serde::{Deserialize, Serialize};

use super::limits::{Counted, Limits, Unpacked};
use super::source::from_io;
use super::tar;
use crate::error::{Error, Result};

/// Bytes asked of a compressed stream at once.
const STEP: usize = 256 << 10;
/// Largest window of a zstd frame, as a power of two: what decoders must support by its standard
/// command line, and the memory that one reader may cost.
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
    /// By the end of an object's name.
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

    /// By a media type, or any text that holds a format's usual name.
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

    /// By the first bytes of an archive, at least 512 of them if there are that many.
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

    /// The usual end of names of this format.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Tar => ".tar",
            Self::TarGz => ".tar.gz",
            Self::TarLz4 => ".tar.lz4",
            Self::TarZst => ".tar.zst",
            Self::Zip => ".zip",
        }
    }

    /// Whether members lie in one compressed stream, which is read from its start only.
    pub fn is_compressed_tar(self) -> bool {
        matches!(self, Self::TarGz | Self::TarLz4 | Self::TarZst)
    }
}

/// The TAR inside a file of the TAR family, bounded by the limits of unpacking.
pub fn decompress<'a, R: Read + Send + 'a>(
    format: ArchiveFormat,
    input: R,
    limits: &Limits,
) -> Result<Box<dyn Read + Send + 'a>> {
    let counted = Counted::new(input);
    let taken = counted.taken();
    let input = BufReader::with_capacity(STEP, counted);
    let unpacked: Box<dyn Read + Send + 'a> = match format {
        ArchiveFormat::Tar => return Ok(Box::new(input)),
        ArchiveFormat::TarGz => Box::new(flate2::bufread::MultiGzDecoder::new(input)),
        ArchiveFormat::TarLz4 => Box::new(Lz4Frames(FrameDecoder::new(input))),
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

/// Frames that follow each other; the decoder alone takes the end of one for the end of all.
struct Lz4Frames<R: BufRead>(FrameDecoder<R>);

impl<R: BufRead> Read for Lz4Frames<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.0.read(buf)?;
            // Where there is input the next turn takes some, if only the head of an empty frame.
            if n > 0 || buf.is_empty() || self.0.get_mut().fill_buf()?.is_empty() {
                return Ok(n);
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
