//! Parses the headers of a read.

use http::HeaderMap;

use super::condition::{Present, ReadConditions, if_range_holds};
use super::error::S3Result;
use super::query::number;
use super::range::ByteRange;

/// Headers of `GetObject` and `HeadObject`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadHeaders {
    pub range: Option<ByteRange>,
    /// `If-Range`: the range applies only to this version.
    pub if_range: Option<String>,
    pub conditions: ReadConditions,
    /// `x-amz-checksum-mode: ENABLED`: the answer includes the object's checksum.
    pub checksum_mode: bool,
}

impl ReadHeaders {
    pub fn parse(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|v| v.to_str().ok());
        Self {
            range: text("range").and_then(ByteRange::parse),
            if_range: text("if-range").map(str::to_owned),
            conditions: ReadConditions::of_read(headers),
            checksum_mode: text("x-amz-checksum-mode")
                .is_some_and(|v| v.eq_ignore_ascii_case("enabled")),
        }
    }

    /// Whether a requested range applies to this version of the object.
    pub fn range_is_of(&self, object: Present<'_>) -> bool {
        self.if_range.as_deref().is_none_or(|validator| if_range_holds(validator, object))
    }
}

/// The parts that `GetObjectAttributes` has to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartsWanted {
    /// `x-amz-max-parts`, at most 1,000.
    pub max: u32,
    /// `x-amz-part-number-marker`: parts after this one.
    pub marker: u32,
}

impl PartsWanted {
    pub fn parse(headers: &HeaderMap) -> S3Result<Self> {
        let count = |name: &str, default: u32| match headers.get(name).and_then(|v| v.to_str().ok())
        {
            None => Ok(default),
            Some(text) => number(name, text.trim()).map(|n| n as u32),
        };
        Ok(Self {
            max: count("x-amz-max-parts", 1000)?.min(1000),
            marker: count("x-amz-part-number-marker", 0)?,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_reads_are_read_or_ignored() {
        let mut headers = HeaderMap::new();
        headers.insert("range", "bytes=1-2".parse().unwrap());
        headers.insert("x-amz-checksum-mode", "ENABLED".parse().unwrap());
        headers.insert("x-amz-max-parts", "5000".parse().unwrap());
        let read = ReadHeaders::parse(&headers);
        assert_eq!((read.range, read.checksum_mode), (Some(ByteRange::FromTo(1, 2)), true));
        let parts = PartsWanted::parse(&headers).unwrap();
        assert_eq!(parts, PartsWanted { max: 1000, marker: 0 });
        headers.insert("x-amz-part-number-marker", "x".parse().unwrap());
        assert!(PartsWanted::parse(&headers).is_err());
    }
}
