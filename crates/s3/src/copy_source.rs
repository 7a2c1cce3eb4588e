//! `x-amz-copy-source`: the source of a copy.

use percent_encoding::percent_decode_str;

use super::error::{S3Error, S3Result};
use super::range::ByteRange;

/// A copy's source, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySource {
    pub bucket: String,
    pub key: String,
    pub version_id: Option<String>,
    /// `x-amz-copy-source-range`, for parts only.
    pub range: Option<ByteRange>,
}

impl CopySource {
    /// Reads `[/]bucket/key[?versionId=ID]`, percent-encoded.
    pub fn parse(header: &str) -> S3Result<Self> {
        let bad = || {
            S3Error::argument(
                "x-amz-copy-source",
                header,
                "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
            )
        };
        let (path, version_id) = match header.rsplit_once("?versionId=") {
            Some((path, "")) => (path, None),
            Some((path, id)) => (path, Some(decode(id).ok_or_else(bad)?)),
            None => (header, None),
        };
        // Some clients encode the slash between bucket and key too.
        let path = decode(path).ok_or_else(bad)?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        match path.split_once('/') {
            Some((bucket, key)) if !bucket.is_empty() && !key.is_empty() => {
                Ok(Self { bucket: bucket.to_owned(), key: key.to_owned(), version_id, range: None })
            }
            _ => Err(bad()),
        }
    }

    /// Reads `x-amz-copy-source-range`: `bytes=FIRST-LAST`, both required.
    pub fn parse_range(header: &str) -> S3Result<ByteRange> {
        let bad = || {
            S3Error::argument(
                "x-amz-copy-source-range",
                header,
                "The x-amz-copy-source-range value must be of the form bytes=first-last where \
                 first and last are the zero-based offsets of the first and last bytes to copy",
            )
        };
        let (first, last) =
            header.strip_prefix("bytes=").and_then(|r| r.split_once('-')).ok_or_else(bad)?;
        let number = |text: &str| {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| text.parse::<u64>().ok()).flatten()
        };
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(ByteRange::FromTo(first, last)),
            _ => Err(bad()),
        }
    }
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|t| t.into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn source(bucket: &str, key: &str, version: Option<&str>) -> CopySource {
        let version_id = version.map(str::to_owned);
        CopySource { bucket: bucket.into(), key: key.into(), version_id, range: None }
    }

    #[test]
    fn every_spelling_of_a_source_is_read() {
        for (text, wanted) in [
            ("b/k", source("b", "k", None)),
            ("/b/k", source("b", "k", None)),
            ("b%2Fk", source("b", "k", None)),
            ("b/a%20b%3FversionId%3Dx", source("b", "a b?versionId=x", None)),
            ("b/?k", source("b", "?k", None)),
            ("b//x/", source("b", "/x/", None)),
            ("b/a+b", source("b", "a+b", None)),
            ("b/../c/k", source("b", "../c/k", None)),
            ("b%2F..%2Fc%2Fk", source("b", "../c/k", None)),
            ("b/k?versionId=v1", source("b", "k", Some("v1"))),
            ("b/k?versionId=", source("b", "k", None)),
        ] {
            assert_eq!(CopySource::parse(text).unwrap(), wanted, "{text}");
        }
        for bad in ["", "b", "b/", "/b", "//k", "b/%ff"] {
            assert!(CopySource::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_range_of_a_part_has_both_ends() {
        let read = CopySource::parse_range;
        assert_eq!(read("bytes=0-21").unwrap(), ByteRange::FromTo(0, 21));
        for bad in [
            "",
            "0-2",
            "bytes=0",
            "bytes=hello-world",
            "bytes=0-bar",
            "hello=0-1",
            "bytes=2-1",
            "bytes=+0-1",
            "bytes=0-0,2-4",
            "bytes=-3",
            "bytes=3-",
            "bytes=0-99999999999999999999",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
