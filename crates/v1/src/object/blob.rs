//! Blob downloads: a large object fetched from its backend in parts, concurrently.

use std::time::Duration;

use forebay_core::error::{Error, Result};
use forebay_core::size::{ByteSize, parse_duration};
use http::{HeaderMap, HeaderName};
use serde_json::Value;

use super::{object, switch};
use crate::action::number;
use crate::query::Query;

/// Requests a blob download in a GET.
pub const BLOB_DOWNLOAD: &str = "ais-blob-download";
/// Bytes of a part, as text with a unit.
pub const BLOB_CHUNK: &str = "ais-blob-chunk";
/// Parts that are fetched concurrently.
pub const BLOB_WORKERS: &str = "ais-blob-workers";
/// Timeout of one part.
pub const BLOB_READ_TIMEOUT: &str = "ais-blob-read-timeout";
/// Minimum object size for a blob download.
pub const BLOB_THRESHOLD: &str = "ais-blob-threshold";

/// Default part size of a blob download in bytes.
const CHUNK: u64 = 4 << 20;
/// Minimum and maximum part size.
const CHUNKS: (u64, u64) = (64 << 10, 64 << 20);
/// Default and maximum number of parts fetched concurrently.
const WORKERS: (usize, usize) = (4, 128);

/// Options of a blob download (§7.5, §7.13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlobArgs {
    /// Bytes of one part.
    pub chunk: u64,
    /// Parts fetched concurrently.
    pub workers: usize,
    pub latest: bool,
    /// Smaller objects are fetched normally.
    pub threshold: u64,
}

impl Default for BlobArgs {
    fn default() -> Self {
        Self { chunk: CHUNK, workers: WORKERS.0, latest: false, threshold: 0 }
    }
}

impl BlobArgs {
    /// Parses the headers of a GET; `None` if it does not request a blob download. A timeout is
    /// checked and has no effect: every read of a backend has a timeout already.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>> {
        // Every GET checks these: the names are parsed once.
        static DOWNLOAD: HeaderName = HeaderName::from_static(BLOB_DOWNLOAD);
        static THRESHOLD: HeaderName = HeaderName::from_static(BLOB_THRESHOLD);
        if !headers.contains_key(&DOWNLOAD) && !headers.contains_key(&THRESHOLD) {
            return Ok(None);
        }
        let text = |name: &str| -> Result<Option<&str>> {
            let bad = |_| Error::invalid(format!("blob-downloader: {name} is not text"));
            headers.get(name).map(|v| v.to_str().map_err(bad)).transpose()
        };
        let bad = |name: &str, value: &str, why: &str| {
            Error::invalid(format!("blob-downloader: invalid {name}={value}: {why}"))
        };
        let mut args = Self::default();
        let asked =
            text(BLOB_DOWNLOAD)?.is_some_and(|v| Query::parse(Some(&format!("v={v}"))).flag("v"));
        if let Some(value) = text(BLOB_THRESHOLD)? {
            args.threshold =
                value.parse().map_err(|_| bad(BLOB_THRESHOLD, value, "expecting bytes"))?;
        }
        if !asked && args.threshold == 0 {
            return Ok(None);
        }
        if let Some(value) = text(BLOB_CHUNK)? {
            let size = ByteSize::parse(value);
            let size = size.map_err(|_| bad(BLOB_CHUNK, value, "expecting a size"))?;
            args.chunk = chunk(size.0);
        }
        if let Some(value) = text(BLOB_WORKERS)? {
            let n: i64 =
                value.parse().map_err(|_| bad(BLOB_WORKERS, value, "expecting a number"))?;
            args.workers = workers(n)?;
        }
        if let Some(value) = text(BLOB_READ_TIMEOUT)? {
            let _: Duration = parse_duration(value)
                .map_err(|_| bad(BLOB_READ_TIMEOUT, value, "expecting a duration"))?;
        }
        Ok(Some(args))
    }

    /// Parses a job's `value`.
    pub fn from_value(value: &Value) -> Result<Self> {
        let value = object("blob-download", value)?;
        let whole = |key: &str| match value.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(n)) if n.is_i64() => Ok(n.as_i64()),
            Some(_) if number(&value, key).is_some() => {
                Ok(number(&value, key).and_then(|n| i64::try_from(n).ok()))
            }
            Some(other) => {
                Err(Error::invalid(format!("blob-download: \"{key}\" is no number: {other}")))
            }
        };
        let mut args =
            Self { latest: switch("blob-download", &value, "latest-ver")?, ..Self::default() };
        if let Some(size) = whole("chunk-size")? {
            let size = u64::try_from(size)
                .map_err(|_| Error::invalid(format!("blob-download: invalid chunk-size {size}")))?;
            args.chunk = chunk(size);
        }
        if let Some(n) = whole("num-workers")? {
            args.workers = workers(n)?;
        }
        Ok(args)
    }
}

/// 0 means the default; other values are clamped to the bounds.
fn chunk(size: u64) -> u64 {
    if size == 0 { CHUNK } else { size.clamp(CHUNKS.0, CHUNKS.1) }
}

/// 0 means the default, -1 one at a time.
fn workers(n: i64) -> Result<usize> {
    match n {
        -1 => Ok(1),
        0 => Ok(WORKERS.0),
        n => usize::try_from(n).ok().filter(|n| *n <= WORKERS.1).ok_or_else(|| {
            Error::invalid(format!("blob-downloader: invalid number of workers {n}"))
                .hint("-1 to 128; 0 is the default")
        }),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_blob_download_in_headers() {
        let args = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.insert(*name, value.parse().unwrap());
            }
            BlobArgs::from_headers(&headers)
        };
        assert_eq!(args(&[(BLOB_CHUNK, "1mb")]).unwrap(), None);
        let asked = |more: (&'static str, &'static str)| args(&[(BLOB_DOWNLOAD, "true"), more]);
        for (text, bytes) in
            [("1mb", 1 << 20), ("1MiB", 1 << 20), ("128k", 128 << 10), ("0", CHUNK)]
        {
            assert_eq!(asked((BLOB_CHUNK, text)).unwrap().unwrap().chunk, bytes, "{text}");
        }
        assert_eq!(asked((BLOB_WORKERS, "-1")).unwrap().unwrap().workers, 1);
        assert_eq!(args(&[(BLOB_THRESHOLD, "5")]).unwrap().unwrap().threshold, 5);
        for bad in [
            (BLOB_CHUNK, "many"),
            (BLOB_CHUNK, ""),
            (BLOB_WORKERS, "129"),
            (BLOB_WORKERS, "-2"),
            (BLOB_WORKERS, "x"),
            (BLOB_READ_TIMEOUT, "x"),
            (BLOB_THRESHOLD, "-1"),
        ] {
            assert!(asked(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_blob_download_as_a_job() {
        let args = BlobArgs::from_value(&json!({"chunk-size": 1 << 20, "num-workers": 8,
            "latest-ver": true}));
        let wanted = BlobArgs { chunk: 1 << 20, workers: 8, latest: true, threshold: 0 };
        assert_eq!(args.unwrap(), wanted);
        assert_eq!(BlobArgs::from_value(&Value::Null).unwrap(), BlobArgs::default());
        for bad in [
            json!({"chunk-size": "x"}),
            json!({"chunk-size": -1}),
            json!({"num-workers": 999}),
            json!({"latest-ver": "no"}),
            json!("x"),
        ] {
            assert!(BlobArgs::from_value(&bad).is_err(), "{bad}");
        }
    }
}
