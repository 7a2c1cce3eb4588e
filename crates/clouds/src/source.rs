//! Helpers for the source of a put, for backends that send over HTTP.

use std::sync::{Arc, Mutex};

use forebay_core::error::{Error, Result};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;

use super::PutBody;

/// Keeps a source's own failure: clients report only that sending failed.
#[derive(Clone, Default)]
pub(super) struct SourceError(Arc<Mutex<Option<Error>>>);

impl SourceError {
    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Error>> {
        self.0.locked()
    }

    pub(super) fn keep(&self, error: &Error) {
        *self.lock() = Some(error.clone());
    }

    /// The source's failure, if it had one.
    pub(super) fn take(&self) -> Option<Error> {
        self.lock().take()
    }
}

/// Custom metadata is sent in headers, at the latest when the object is read.
pub(super) fn check_custom(body: &PutBody, backend: &str) -> Result<()> {
    let fits = |key: &str, value: &str| {
        http::HeaderName::from_bytes(key.as_bytes()).is_ok()
            && value.bytes().all(|b| (b' '..=b'~').contains(&b))
    };
    let headers = body.headers.iter().map(|(key, value)| (*key, value.as_str()));
    let custom = body.custom.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    match custom.chain(headers).find(|(key, value)| !fits(key, value)) {
        None => Ok(()),
        Some((key, _)) => Err(Error::invalid(format!(
            "custom metadata \"{}\" cannot be kept by {backend}",
            key.escape_debug()
        ))
        .hint("names of letters, digits and '-', values of printable ASCII")),
    }
}

/// A content type that is not a default: clouds assign one of these defaults to objects without a
/// type.
pub(super) fn kept_content_type(given: Option<&str>) -> Option<String> {
    const NOTHING: [&str; 3] = ["", "application/octet-stream", "binary/octet-stream"];
    given.filter(|given| !NOTHING.contains(given)).map(str::to_owned)
}

/// The range and the total size in `bytes 0-4/10`.
pub(super) fn content_range(header: &str) -> Option<(ByteRange, u64)> {
    let (range, total) = header.trim().strip_prefix("bytes")?.trim().split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (start, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    Some((ByteRange { start, end: last.checked_add(1)? }, total.parse().ok()?))
}

/// The bytes of an MD5 in hexadecimal.
pub(super) fn md5_bytes(hexadecimal: &str) -> Result<Vec<u8>> {
    hex::decode(hexadecimal)
        .map_err(|_| Error::invalid(format!("\"{hexadecimal}\" is not an MD5 in hexadecimal")))
}

#[cfg(test)]
mod tests {
    use forebay_core::error::ErrorCode;

    use super::*;

    #[test]
    fn custom_metadata_that_no_header_can_carry_is_refused() {
        for (key, value, fits) in
            [("colour", "red", true), ("col our", "red", false), ("colour", "röt", false)]
        {
            let mut body = PutBody::from_bytes("x");
            body.custom.insert(key.into(), value.into());
            let result = check_custom(&body, "S3").map_err(|e| e.code);
            assert_eq!(result.is_ok(), fits, "{key}: {value}");
            assert!(fits || result == Err(ErrorCode::InvalidArgument));
        }
    }
}
