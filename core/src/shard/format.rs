//! Archive formats, and their names: at the end of an object's name and in media types.

use serde::{Deserialize, Serialize};

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
}
