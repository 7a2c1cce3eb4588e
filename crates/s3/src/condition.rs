//! Conditional requests: conditions on the current object.

use forebay_core::date::parse_http;
use http::HeaderMap;

use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::etag::unquote;

/// The current object, for conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Present<'a> {
    /// Without quotes.
    pub etag: &'a str,
    /// Unix nanoseconds.
    pub mtime_ns: u64,
    /// Bytes.
    pub size: u64,
}

/// ETags that a condition names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EtagSet {
    /// `*`: any object.
    Any,
    /// Without quotes.
    Of(Vec<String>),
}

impl EtagSet {
    fn parse(text: &str) -> Self {
        if text.trim() == "*" {
            return Self::Any;
        }
        Self::Of(text.split(',').map(|t| unquote(t).to_owned()).filter(|t| !t.is_empty()).collect())
    }

    fn has(&self, etag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(tags) => tags.iter().any(|t| t == etag),
        }
    }
}

/// Conditions of a read, or of the source of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadConditions {
    pub if_match: Option<EtagSet>,
    pub if_none_match: Option<EtagSet>,
    /// Unix seconds.
    pub if_modified_since_s: Option<u64>,
    /// Unix seconds.
    pub if_unmodified_since_s: Option<u64>,
}

impl ReadConditions {
    /// The conditions of a GET or HEAD. Invalid dates are ignored, as HTTP requires.
    pub fn of_read(headers: &HeaderMap) -> Self {
        Self::parse(headers, "")
    }

    /// The conditions on the source of a copy.
    pub fn of_copy(headers: &HeaderMap) -> Self {
        Self::parse(headers, "x-amz-copy-source-")
    }

    fn parse(headers: &HeaderMap, prefix: &str) -> Self {
        let text = |name: &str| {
            let value = headers.get(format!("{prefix}{name}"))?;
            std::str::from_utf8(value.as_bytes()).ok().filter(|v| !v.trim().is_empty())
        };
        Self {
            if_match: text("if-match").map(EtagSet::parse),
            if_none_match: text("if-none-match").map(EtagSet::parse),
            if_modified_since_s: text("if-modified-since").and_then(parse_http),
            if_unmodified_since_s: text("if-unmodified-since").and_then(parse_http),
        }
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that the object may be read; `NotModified` or `PreconditionFailed` otherwise. A
    /// matching ETag takes precedence over a date (RFC 9110).
    pub fn check(&self, object: Present<'_>) -> S3Result<()> {
        let modified_s = object.mtime_ns / 1_000_000_000;
        match (&self.if_match, self.if_unmodified_since_s) {
            (Some(tags), _) if !tags.has(object.etag) => return Err(failed("If-Match")),
            (None, Some(since)) if modified_s > since => return Err(failed("If-Unmodified-Since")),
            _ => {}
        }
        match (&self.if_none_match, self.if_modified_since_s) {
            (Some(tags), _) if tags.has(object.etag) => Err(S3Code::NotModified.into()),
            (None, Some(since)) if modified_s <= since => Err(S3Code::NotModified.into()),
            _ => Ok(()),
        }
    }

    /// [`Self::check`] for the source of a copy, where every failure is `PreconditionFailed`.
    pub fn check_copy(&self, object: Present<'_>) -> S3Result<()> {
        self.check(object).map_err(|e| match e.code {
            S3Code::NotModified => failed("x-amz-copy-source-if-none-match"),
            _ => e,
        })
    }
}

/// Whether `If-Range` holds, so that a range of the object is sent: its ETag, which must be a
/// strong one, or its exact time. Otherwise `Range` is ignored and the whole object is sent (RFC
/// 9110, 13.1.5).
pub fn if_range_holds(validator: &str, object: Present<'_>) -> bool {
    let validator = validator.trim();
    if validator.starts_with("W/") {
        return false;
    }
    match parse_http(validator) {
        Some(time_s) => time_s == object.mtime_ns / 1_000_000_000,
        None => unquote(validator) == object.etag,
    }
}

/// Conditions of a write or a deletion.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WriteConditions {
    /// The object must exist with one of these tags.
    pub if_match: Option<EtagSet>,
    /// No object may exist (`*`), or none with these tags.
    pub if_none_match: Option<EtagSet>,
    /// `x-amz-if-match-last-modified-time` of a deletion, unix seconds.
    pub if_modified_s: Option<u64>,
    /// `x-amz-if-match-size` of a deletion, bytes.
    pub if_size: Option<u64>,
}

impl WriteConditions {
    pub fn parse(headers: &HeaderMap) -> S3Result<Self> {
        let text = |name: &'static str| {
            let value = headers.get(name)?;
            std::str::from_utf8(value.as_bytes()).ok().filter(|v| !v.trim().is_empty())
        };
        let time = "x-amz-if-match-last-modified-time";
        let if_modified_s = match text(time) {
            None => None,
            Some(t) => Some(
                parse_http(t)
                    .or_else(|| forebay_core::date::parse_iso(t))
                    .ok_or_else(|| S3Error::argument(time, t, "not a time"))?,
            ),
        };
        let size = "x-amz-if-match-size";
        let if_size = match text(size) {
            None => None,
            Some(t) => {
                Some(t.trim().parse().map_err(|_| S3Error::argument(size, t, "not a size"))?)
            }
        };
        Ok(Self {
            if_match: text("if-match").map(EtagSet::parse),
            if_none_match: text("if-none-match").map(EtagSet::parse),
            if_modified_s,
            if_size,
        })
    }

    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that a write may replace the current object. `None`: there is no object.
    pub fn check_put(&self, object: Option<Present<'_>>) -> S3Result<()> {
        match (&self.if_match, object) {
            (Some(_), None) => return Err(S3Code::NoSuchKey.into()),
            (Some(tags), Some(o)) if !tags.has(o.etag) => return Err(failed("If-Match")),
            _ => {}
        }
        match (&self.if_none_match, object) {
            (Some(tags), Some(o)) if tags.has(o.etag) => Err(failed("If-None-Match")),
            _ => Ok(()),
        }
    }

    /// Checks that the current object may be deleted. A missing object needs no check: its deletion
    /// succeeds. A delete marker counts as an object with an empty tag.
    pub fn check_delete(&self, object: Option<Present<'_>>) -> S3Result<()> {
        let Some(o) = object else { return Ok(()) };
        if self.if_match.as_ref().is_some_and(|tags| !tags.has(o.etag)) {
            return Err(failed("If-Match"));
        }
        if self.if_modified_s.is_some_and(|at| at != o.mtime_ns / 1_000_000_000) {
            return Err(failed("x-amz-if-match-last-modified-time"));
        }
        if self.if_size.is_some_and(|size| size != o.size) {
            return Err(failed("x-amz-if-match-size"));
        }
        Ok(())
    }
}

/// The conditions of an object in a `DeleteObjects`.
impl From<&super::bodies::DeleteKey> for WriteConditions {
    fn from(d: &super::bodies::DeleteKey) -> Self {
        Self {
            if_match: d.if_etag.as_deref().map(EtagSet::parse),
            if_none_match: None,
            if_modified_s: d.if_modified_s,
            if_size: d.if_size,
        }
    }
}

fn failed(condition: &str) -> S3Error {
    S3Error::from(S3Code::PreconditionFailed).detail("Condition", condition)
}

#[cfg(test)]
#[path = "condition_tests.rs"]
mod tests;
