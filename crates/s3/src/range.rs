//! Byte ranges: the `Range` header, and its meaning for an object of a given size.

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// A requested range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// From this byte to the end.
    From(u64),
    /// First and last byte, both included.
    FromTo(u64, u64),
    /// The last bytes, this many.
    Last(u64),
}

impl ByteRange {
    /// Parses a `Range` header. `None` means the whole object: an unsupported unit, form or set of
    /// ranges is ignored, as HTTP requires.
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, set) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = set.trim().split_once('-')?;
        let number = |text: &str| -> Option<Option<u64>> {
            let text = text.trim();
            if text.is_empty() {
                return Some(None);
            }
            if !text.bytes().all(|b| b.is_ascii_digit()) {
                return None;
            }
            // A number beyond 64 bits is beyond every object.
            Some(Some(text.parse().unwrap_or(u64::MAX)))
        };
        match (number(first)?, number(last)?) {
            (Some(first), Some(last)) if first <= last => Some(Self::FromTo(first, last)),
            (Some(first), None) => Some(Self::From(first)),
            (None, Some(last)) => Some(Self::Last(last)),
            _ => None,
        }
    }

    /// Offset and length within an object of `size` bytes.
    pub fn resolve(self, size: u64) -> S3Result<Span> {
        let span = match self {
            Self::From(first) | Self::FromTo(first, _) if first >= size => None,
            Self::From(first) => Some((first, size - first)),
            Self::FromTo(first, last) => Some((first, last.min(size - 1) - first + 1)),
            Self::Last(0) => None,
            Self::Last(_) if size == 0 => None,
            Self::Last(n) => Some((size - n.min(size), n.min(size))),
        };
        match span {
            Some((offset, length)) => Ok(Span { offset, length, size }),
            None => Err(S3Error::from(S3Code::InvalidRange)
                .detail("RangeRequested", self.to_string())
                .detail("ActualObjectSize", size.to_string())),
        }
    }

    /// [`Self::resolve`] for the source of a part: the range must be inside the object.
    pub fn resolve_exact(self, size: u64) -> S3Result<Span> {
        if let Self::FromTo(_, last) = self
            && last >= size
        {
            return Err(S3Error::new(
                S3Code::InvalidRange,
                format!("Range specified is not valid for source object of size: {size}"),
            ));
        }
        self.resolve(size)
    }
}

impl std::fmt::Display for ByteRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::From(first) => write!(f, "bytes={first}-"),
            Self::FromTo(first, last) => write!(f, "bytes={first}-{last}"),
            Self::Last(n) => write!(f, "bytes=-{n}"),
        }
    }
}

/// Part of an object of a known size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub offset: u64,
    /// Zero only for an empty part.
    pub length: u64,
    /// Size of the whole object.
    pub size: u64,
}

impl Span {
    /// The `Content-Range` header.
    pub fn content_range(&self) -> String {
        match self.length {
            0 => format!("bytes */{}", self.size),
            n => format!("bytes {}-{}/{}", self.offset, self.offset + n - 1, self.size),
        }
    }
}

/// Bytes of part `number` (from 1) of an object made of parts with these sizes; an object that was
/// put whole has one part.
pub fn part_span(part_sizes: &[u64], number: u32) -> S3Result<Span> {
    let at = number as usize;
    if at == 0 || at > part_sizes.len() {
        return Err(S3Code::InvalidPart.into());
    }
    Ok(Span {
        offset: part_sizes[..at - 1].iter().sum(),
        length: part_sizes[at - 1],
        size: part_sizes.iter().sum(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_read_or_ignored() {
        for (text, wanted) in [
            ("bytes=4-7", Some(ByteRange::FromTo(4, 7))),
            ("Bytes = 4 - 7", Some(ByteRange::FromTo(4, 7))),
            ("bytes=4-", Some(ByteRange::From(4))),
            ("bytes=-7", Some(ByteRange::Last(7))),
            ("bytes=0-99999999999999999999999", Some(ByteRange::FromTo(0, u64::MAX))),
            ("bytes=7-4", None),
            ("bytes=-", None),
            ("bytes=0-1,3-4", None),
            ("bytes=a-b", None),
            ("items=1-2", None),
            ("", None),
        ] {
            assert_eq!(ByteRange::parse(text), wanted, "{text}");
        }
    }

    #[test]
    fn ranges_are_cut_at_the_end_and_refused_behind_it() {
        let span = |range: ByteRange, size| range.resolve(size).map(|s| (s.offset, s.length));
        assert_eq!(span(ByteRange::FromTo(4, 100), 11), Ok((4, 7)));
        assert_eq!(span(ByteRange::Last(100), 11), Ok((0, 11)));
        assert_eq!(span(ByteRange::From(10), 11), Ok((10, 1)));
        for (range, size) in [
            (ByteRange::From(11), 11),
            (ByteRange::FromTo(40, 50), 11),
            (ByteRange::Last(0), 11),
            (ByteRange::Last(1), 0),
            (ByteRange::From(0), 0),
        ] {
            assert_eq!(span(range, size).unwrap_err().code, S3Code::InvalidRange);
        }
        assert_eq!(Span { offset: 4, length: 7, size: 11 }.content_range(), "bytes 4-10/11");
        assert!(ByteRange::FromTo(0, 21).resolve_exact(5).is_err());
    }

    #[test]
    fn parts_are_found_by_number() {
        let sizes = [5, 5, 1];
        assert_eq!(part_span(&sizes, 3).unwrap(), Span { offset: 10, length: 1, size: 11 });
        assert_eq!(part_span(&sizes, 4).unwrap_err().code, S3Code::InvalidPart);
        assert_eq!(part_span(&[0], 1).unwrap().content_range(), "bytes */0");
    }

    proptest! {
        #[test]
        fn a_span_lies_within_its_object(text in "bytes=[0-9]{0,3}-[0-9]{0,3}", size in 0u64..2000) {
            if let Some(Ok(span)) = ByteRange::parse(&text).map(|r| r.resolve(size)) {
                prop_assert!(span.length > 0 && span.offset + span.length <= size);
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}") {
            let _ = ByteRange::parse(&text).map(|r| r.resolve(7));
        }
    }
}
