//! Sizes, durations and byte ranges in the forms of people and HTTP.

use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{Error, ErrorCode, Result};

/// A number of bytes, written `"8MiB"` in configuration. IEC units, also for `KB`, `MB`, ….
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ByteSize(pub u64);

impl ByteSize {
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(split);
        let bad = || Error::invalid(format!("invalid size \"{text}\"")).hint("for example 8MiB");
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "ki" | "kib" => 1 << 10,
            "m" | "mb" | "mi" | "mib" => 1 << 20,
            "g" | "gb" | "gi" | "gib" => 1 << 30,
            "t" | "tb" | "ti" | "tib" => 1 << 40,
            _ => return Err(bad()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(bad);
        }
        match number.parse::<f64>() {
            Ok(n) if n.is_finite() => Ok(Self((n * factor as f64) as u64)),
            _ => Err(bad()),
        }
    }
}

impl std::fmt::Display for ByteSize {
    /// One decimal at most: `512B`, `1.5KiB`, `3GiB`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        for (size, unit) in units {
            if self.0 >= size {
                let text = format!("{:.1}", self.0 as f64 / size as f64);
                return write!(f, "{}{unit}", text.strip_suffix(".0").unwrap_or(&text));
            }
        }
        write!(f, "{}B", self.0)
    }
}

impl Serialize for ByteSize {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(d)? {
            Form::Number(n) => Ok(Self(n)),
            Form::Text(text) => Self::parse(&text).map_err(serde::de::Error::custom),
        }
    }
}

/// Parses `"30s"`, `"10m"`, `"2h0m"`, `"100ms"`, `"1d"`.
pub fn parse_duration(text: &str) -> Result<Duration> {
    let bad = || Error::invalid(format!("invalid duration \"{text}\"")).hint("for example 30s");
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(bad());
    }
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(bad)?;
        let number: f64 = rest[..digits].parse().map_err(|_| bad())?;
        rest = &rest[digits..];
        let unit_len = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let seconds = match &rest[..unit_len] {
            "ns" => 1e-9,
            "us" | "µs" => 1e-6,
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86400.0,
            _ => return Err(bad()),
        };
        rest = &rest[unit_len..];
        let part = Duration::try_from_secs_f64(number * seconds).map_err(|_| bad())?;
        total = total.checked_add(part).ok_or_else(bad)?;
    }
    Ok(total)
}

/// The range in a `Range` header, before the object's size is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// `bytes=a-` or `bytes=a-b` (end inclusive).
    From(u64, Option<u64>),
    /// `bytes=-n`: the last `n` bytes.
    Suffix(u64),
}

/// The error for a range outside an object of this size, written as in `Range: bytes=…`.
pub(crate) fn outside(size: u64, asked: &str) -> Error {
    let text = format!("the range {asked} lies outside of the object, which has {size} bytes");
    Error::new(ErrorCode::RangeNotSatisfiable, text)
}

impl RangeSpec {
    /// Parses the header's value. `None` for other units than bytes (to be ignored, RFC 9110
    /// §14.2); an error for several ranges or an invalid value, which that section lets a server
    /// reject: a client could mistake a whole object for the requested part.
    pub fn parse(value: &str) -> Result<Option<Self>> {
        let Some(spec) = value.trim().strip_prefix("bytes=") else { return Ok(None) };
        let bad = || {
            Error::new(ErrorCode::RangeNotSatisfiable, format!("invalid range \"{value}\""))
                .hint("one range of the form bytes=a-b, bytes=a- or bytes=-n")
        };
        let (first, last) = spec.split_once('-').ok_or_else(bad)?;
        let number = |s: &str| {
            // `parse` would accept a sign, which RFC 9110 §14.1.1 does not.
            if s.is_empty() || !s.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(bad());
            }
            // A number beyond 64 bits is beyond every object.
            Ok(s.parse().unwrap_or(u64::MAX))
        };
        Ok(Some(match (first.trim(), last.trim()) {
            ("", last) => Self::Suffix(number(last)?),
            (first, "") => Self::From(number(first)?, None),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                if last < first {
                    return Err(bad());
                }
                Self::From(first, Some(last))
            }
        }))
    }

    /// The bytes of an object of `size` bytes; truncated at its end, 416 if none are left.
    pub fn resolve(self, size: u64) -> Result<ByteRange> {
        let (start, end) = match self {
            Self::From(first, last) => {
                (first, last.map_or(size, |l| l.saturating_add(1).min(size)))
            }
            Self::Suffix(n) => (size.saturating_sub(n), size),
        };
        if start >= end {
            let asked = match self {
                Self::From(first, last) => {
                    format!("{first}-{}", last.map_or(String::new(), |last| last.to_string()))
                }
                Self::Suffix(n) => format!("-{n}"),
            };
            return Err(outside(size, &asked));
        }
        Ok(ByteRange { start, end })
    }
}

/// Bytes `start..end` of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    pub start: u64,
    pub end: u64,
}

impl ByteRange {
    pub fn whole(size: u64) -> Self {
        Self { start: 0, end: size }
    }

    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    pub fn is_empty(&self) -> bool {
        self.end == self.start
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_and_print() {
        for (text, n) in
            [("0", 0), ("512B", 512), ("1KiB", 1024), ("1.5k", 1536), ("3 GiB", 3 << 30)]
        {
            assert_eq!(ByteSize::parse(text).unwrap().0, n, "{text}");
        }
        assert_eq!(ByteSize(1536).to_string(), "1.5KiB");
        assert_eq!(ByteSize(8 << 20).to_string(), "8MiB");
        for bad in ["", "x", "1XB", "-1", "1e9999"] {
            assert!(ByteSize::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn durations_read() {
        assert_eq!(parse_duration("2h0m").unwrap().as_secs(), 7200);
        assert_eq!(parse_duration("100ms").unwrap().as_millis(), 100);
        for bad in ["", "5", "s", "1x"] {
            assert!(parse_duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn ranges_follow_rfc_9110() {
        let r = |v: &str, size| RangeSpec::parse(v).unwrap().unwrap().resolve(size);
        assert_eq!(r("bytes=0-0", 10).unwrap(), ByteRange { start: 0, end: 1 });
        assert_eq!(r("bytes=5-100", 10).unwrap(), ByteRange { start: 5, end: 10 });
        let beyond = "bytes=5-99999999999999999999999";
        assert_eq!(r(beyond, 10).unwrap(), ByteRange { start: 5, end: 10 });
        assert_eq!(r("bytes=-3", 10).unwrap(), ByteRange { start: 7, end: 10 });
        assert_eq!(r("bytes=-30", 10).unwrap(), ByteRange { start: 0, end: 10 });
        assert_eq!(r("bytes=10-", 10).unwrap_err().code, ErrorCode::RangeNotSatisfiable);
        assert_eq!(r("bytes=-0", 10).unwrap_err().code, ErrorCode::RangeNotSatisfiable);
        assert!(RangeSpec::parse("items=0-1").unwrap().is_none());
        let signed = ["bytes=+1-2", "bytes=1-+2", "bytes=-+3", "bytes=--3"];
        for bad in ["bytes=", "bytes=a-b", "bytes=3-1", "bytes=0-1,4-5"].into_iter().chain(signed) {
            assert!(RangeSpec::parse(bad).is_err(), "{bad}");
        }
    }
}
