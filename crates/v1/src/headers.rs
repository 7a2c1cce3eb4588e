//! Header names of v1 (§7.1, §23.3). HTTP header names are case-insensitive; these are lower case.

use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::error::Result;
use forebay_core::object::{ObjectMeta, PartSizes};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

pub const CHECKSUM_TYPE: &str = "ais-checksum-type";
pub const CHECKSUM_VALUE: &str = "ais-checksum-value";
pub const VERSION: &str = "ais-version";
pub const ATIME: &str = "ais-atime";
pub const CUSTOM_MD: &str = "ais-custom-md";
pub const PRESENT: &str = "ais-present";
pub const NAME: &str = "ais-name";
pub const BUCKET_NAME: &str = "ais-bucket-name";
pub const BUCKET_PROVIDER: &str = "ais-bucket-provider";
pub const LOCATION: &str = "ais-location";
pub const MIRROR_COPIES: &str = "ais-mirror-copies";
/// For an object in an erasure coded bucket: its state, its slices, and whether it is copied
/// instead.
pub const EC_GENERATION: &str = "ais-ec-generation";
pub const EC_DATA: &str = "ais-ec-data";
pub const EC_PARITY: &str = "ais-ec-parity";
pub const EC_REPLICATED: &str = "ais-ec-replicated";
/// Parts of an object from a multipart upload, and bytes of the largest.
pub const CHUNKS_COUNT: &str = "ais-chunks-count";
pub const CHUNKS_MAX_SIZE: &str = "ais-chunks-max-chunk-size";
/// The handle that the next call of an append must send.
pub const APPEND_HANDLE: &str = "ais-append-handle";
/// The handling of an existing archive when a member is written to it.
pub const ARCHIVE_FLAGS: &str = "ais-pine";
pub const BUCKET_PROPS: &str = "ais-bucket-props";
pub const BUCKET_SUMM: &str = "ais-bucket-summ";
pub const XACTION_ID: &str = "ais-xaction-id";
pub const NODE_ID: &str = "ais-node-id";
pub const NODE_UPTIME: &str = "ais-node-uptime";
pub const CLUSTER_UPTIME: &str = "ais-cluster-uptime";
/// Another cluster that is attached or detached: its alias and its URL.
pub const REMOTE_ALIAS: &str = "ais-remote-ais-alias";
pub const REMOTE_URL: &str = "ais-remote-ais-url";
/// Between nodes: last modification, unix nanoseconds.
pub const MODIFIED: &str = "forebay-modified";
/// Between nodes: the parts of a multipart upload.
pub const PARTS: &str = "forebay-parts";
/// JSON error of an answer to HEAD.
pub const HDR_ERROR: &str = "hdr-error";

/// The checksum that a client announces for the bytes it sends, if any.
pub fn announced_checksum(headers: &HeaderMap) -> Result<Option<Checksum>> {
    let text = |name| headers.get(name).and_then(|v: &HeaderValue| v.to_str().ok()).unwrap_or("");
    let (kind, value) = (text(CHECKSUM_TYPE), text(CHECKSUM_VALUE));
    let kind: ChecksumKind = kind.parse()?;
    Ok((kind != ChecksumKind::None && !value.is_empty())
        .then(|| Checksum { kind, value: value.to_ascii_lowercase() }))
}

/// Receives the headers of an answer.
pub trait Headers {
    /// Sets a header to a number.
    fn number(&mut self, name: &HeaderName, value: u64);

    /// Sets a header; text that is not a valid header value is omitted.
    fn text(&mut self, name: &HeaderName, value: &[u8]);

    /// Adds one more line of a header.
    fn line(&mut self, name: &HeaderName, value: &[u8]);
}

impl Headers for HeaderMap {
    fn number(&mut self, name: &HeaderName, value: u64) {
        self.insert(name, HeaderValue::from(value));
    }

    fn text(&mut self, name: &HeaderName, value: &[u8]) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.insert(name, value);
        }
    }

    fn line(&mut self, name: &HeaderName, value: &[u8]) {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            self.append(name, value);
        }
    }
}

/// The head of an HTTP/1.1 answer being written.
pub struct HeadText<'a>(&'a mut Vec<u8>);

impl<'a> HeadText<'a> {
    /// Appends a status line to `out`.
    pub fn new(out: &'a mut Vec<u8>, status: StatusCode) -> Self {
        let reason = status.canonical_reason().unwrap_or_default();
        for part in ["HTTP/1.1 ", status.as_str(), " ", reason, "\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        Self(out)
    }
}

impl Headers for HeadText<'_> {
    fn number(&mut self, name: &HeaderName, value: u64) {
        self.line(name, itoa::Buffer::new().format(value).as_bytes());
    }

    fn text(&mut self, name: &HeaderName, value: &[u8]) {
        self.line(name, value);
    }

    fn line(&mut self, name: &HeaderName, value: &[u8]) {
        // The same characters that `HeaderValue` accepts (RFC 9110 §5.5).
        if value.iter().all(|byte| *byte == b'\t' || *byte >= b' ' && *byte != 0x7f) {
            for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
                self.0.extend_from_slice(part);
            }
        }
    }
}

/// Sets the checksum, version and access-time headers of an object.
pub fn put_object_meta(headers: &mut impl Headers, meta: &ObjectMeta) {
    // Parsed once: every GET sets these.
    static KIND: HeaderName = HeaderName::from_static(CHECKSUM_TYPE);
    static VALUE: HeaderName = HeaderName::from_static(CHECKSUM_VALUE);
    static VERSION_OF: HeaderName = HeaderName::from_static(VERSION);
    static ACCESSED: HeaderName = HeaderName::from_static(ATIME);
    if let Some(checksum) = &meta.checksum {
        headers.text(&KIND, checksum.kind.as_str().as_bytes());
        headers.text(&VALUE, checksum.value.as_bytes());
    }
    if !meta.version.is_empty() {
        headers.text(&VERSION_OF, meta.version.as_bytes());
    }
    headers.number(&ACCESSED, meta.atime_ns);
}

/// The ETag of an object, without quotes (§7.6); none without a checksum.
pub fn etag(meta: &ObjectMeta) -> Option<String> {
    (!meta.etag.is_empty() || meta.checksum.is_some()).then(|| meta.s3_etag())
}

/// One header line per custom key that users set.
pub fn put_custom(headers: &mut impl Headers, meta: &ObjectMeta) {
    append_custom(headers, meta.user_custom());
}

/// For another node, which may store the object: also metadata that fronts use themselves, the
/// ETag, and the modification time.
pub fn put_node_meta(headers: &mut impl Headers, meta: &ObjectMeta) {
    append_custom(headers, meta.custom.iter());
    headers.number(&HeaderName::from_static(MODIFIED), meta.mtime_ns);
    if let Some(parts) = meta.parts.as_text() {
        headers.text(&HeaderName::from_static(PARTS), parts.as_bytes());
    }
    if !meta.etag.is_empty() {
        headers.text(&http::header::ETAG, format!("\"{}\"", meta.etag).as_bytes());
    }
}

fn append_custom<'a>(
    headers: &mut impl Headers,
    pairs: impl Iterator<Item = (&'a String, &'a String)>,
) {
    static LINE: HeaderName = HeaderName::from_static(CUSTOM_MD);
    for (key, value) in pairs {
        headers.line(&LINE, format!("{key}={value}").as_bytes());
    }
}

/// Sets a header whose text comes from data; text that is not a valid header value is omitted.
pub fn set(headers: &mut HeaderMap, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(HeaderName::from_static(name), value);
    }
}

/// Parses the output of [`put_object_meta`], [`put_custom`] and [`put_node_meta`].
pub fn object_meta(headers: &HeaderMap, size: u64) -> ObjectMeta {
    let text =
        |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let custom = headers
        .get_all(CUSTOM_MD)
        .iter()
        .filter_map(|v| std::str::from_utf8(v.as_bytes()).ok()?.split_once('='))
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect();
    ObjectMeta {
        size,
        version: text(VERSION),
        checksum: announced_checksum(headers).ok().flatten(),
        etag: text("etag").trim_matches('"').to_owned(),
        atime_ns: text(ATIME).parse().unwrap_or(0),
        mtime_ns: text(MODIFIED).parse().unwrap_or(0),
        custom,
        parts: PartSizes::from_text(&text(PARTS)).unwrap_or_default(),
        present: text(PRESENT) != "false",
    }
}
