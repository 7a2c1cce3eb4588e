//! Detects the format of an archive by its first bytes.

use forebay_core::error::{Error, Result};
use forebay_core::shard::ArchiveFormat;

use super::tar;

/// Detects the format by the first bytes of an archive, at least 512 of them if it has that
/// many.
pub fn format_of(head: &[u8]) -> Option<ArchiveFormat> {
    const MAGICS: [(&[u8], ArchiveFormat); 5] = [
        (&[0x1f, 0x8b], ArchiveFormat::TarGz),
        (&[0x04, 0x22, 0x4d, 0x18], ArchiveFormat::TarLz4),
        (&[0x28, 0xb5, 0x2f, 0xfd], ArchiveFormat::TarZst),
        (b"PK\x03\x04", ArchiveFormat::Zip),
        (b"PK\x05\x06", ArchiveFormat::Zip),
    ];
    if tar::starts_like_tar(head) {
        return Some(ArchiveFormat::Tar);
    }
    MAGICS.into_iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, format)| format)
}

/// The format of an archive with this format by name (if any) and these first bytes. The bytes
/// decide if they are unambiguous; a zip archive may have any bytes before it, so its name
/// decides. Unsupported formats are refused by name.
pub fn detect(named: Option<ArchiveFormat>, head: &[u8]) -> Result<ArchiveFormat> {
    if named == Some(ArchiveFormat::Zip) {
        return Ok(ArchiveFormat::Zip);
    }
    if let Some(format) = format_of(head) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_say_the_format() {
        assert_eq!(format_of(b"PK\x03\x04..."), Some(ArchiveFormat::Zip));
        assert_eq!(format_of(&[0x1f, 0x8b, 8]), Some(ArchiveFormat::TarGz));
        assert_eq!(format_of(&[0; 512]), None);
        assert_eq!(format_of(b""), None);
        let mut head = [0; 512];
        head[257..262].copy_from_slice(b"ustar");
        assert_eq!(format_of(&head), Some(ArchiveFormat::Tar));
    }
}
