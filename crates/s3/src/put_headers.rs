//! Parses the headers of a write: content headers, user metadata, checksums, conditions, tags.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_core::bucket::Tag;
use http::HeaderMap;
use serde::{Deserialize, Serialize};

use super::bodies::tagging_header;
use super::checksum::{ChecksumAlgorithm, ChecksumType, S3Checksum};
use super::condition::WriteConditions;
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;

/// Maximum bytes of names and values of user metadata.
pub const MAX_METADATA: usize = 2048;
const USER: &str = "x-amz-meta-";

/// Headers that are stored with an object and returned with it, and its user metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectHeaders {
    /// Lower-case names of [`CONTENT_HEADERS`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub content: BTreeMap<String, String>,
    /// Lower-case names without `x-amz-meta-`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub user: BTreeMap<String, String>,
}

/// The headers that are stored with an object.
pub const CONTENT_HEADERS: [&str; 6] = [
    "content-type",
    "content-encoding",
    "content-language",
    "content-disposition",
    "cache-control",
    "expires",
];

/// Content type of an object without a `Content-Type`.
pub const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

impl ObjectHeaders {
    /// Parses them from the headers of a request.
    pub fn parse(headers: &HeaderMap) -> S3Result<Self> {
        let mut found = Self::default();
        for name in CONTENT_HEADERS {
            let Some(value) = headers.get(name) else { continue };
            let value = text(value.as_bytes());
            let value = if name == "content-encoding" { without_chunking(&value) } else { value };
            if !value.is_empty() {
                found.content.insert(name.to_owned(), value);
            }
        }
        let mut size = 0;
        for name in headers.keys() {
            let Some(key) = name.as_str().strip_prefix(USER) else { continue };
            let values: Vec<_> = headers.get_all(name).iter().map(|v| text(v.as_bytes())).collect();
            let value = values.join(",");
            size += key.len() + value.len();
            found.user.insert(key.to_owned(), value);
        }
        if size > MAX_METADATA {
            return Err(S3Error::from(S3Code::MetadataTooLarge)
                .detail("Size", size.to_string())
                .detail("MaxSizeAllowed", MAX_METADATA.to_string()));
        }
        Ok(found)
    }

    /// Names and values for an answer, with the prefix `x-amz-meta-` and the default type.
    pub fn pairs(&self) -> impl Iterator<Item = (String, &str)> {
        let default = (!self.content.contains_key("content-type"))
            .then(|| ("content-type".to_owned(), DEFAULT_CONTENT_TYPE));
        let content = self.content.iter().map(|(n, v)| (n.clone(), v.as_str()));
        let user = self.user.iter().map(|(n, v)| (format!("{USER}{n}"), v.as_str()));
        content.chain(default).chain(user)
    }
}

/// Text of a header: UTF-8, or Latin-1 if it is not valid UTF-8.
fn text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().map(|b| char::from(*b)).collect(),
    }
}

/// `aws-chunked` is a transfer encoding, not part of the content.
fn without_chunking(value: &str) -> String {
    if !value.to_ascii_lowercase().contains("aws-chunked") {
        return value.to_owned();
    }
    let kept: Vec<_> = value
        .split(',')
        .map(str::trim)
        .filter(|c| !c.is_empty() && !c.eq_ignore_ascii_case("aws-chunked"))
        .collect();
    kept.join(", ")
}

/// `x-amz-metadata-directive` and `x-amz-tagging-directive`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Directive {
    /// Copy the source's.
    #[default]
    Copy,
    /// Use those of the request.
    Replace,
}

/// The checksums that a client announces for the bytes it sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BodyChecks {
    pub md5: Option<[u8; 16]>,
    /// From a header.
    pub checksum: Option<S3Checksum>,
    /// Sent in a trailer (`x-amz-trailer`).
    pub trailer: Option<ChecksumAlgorithm>,
}

impl BodyChecks {
    pub fn parse(headers: &HeaderMap) -> S3Result<Self> {
        let md5 = match header(headers, "content-md5") {
            None => None,
            Some(value) => match BASE64.decode(value.trim()).map(<[u8; 16]>::try_from) {
                Ok(Ok(md5)) => Some(md5),
                _ => return Err(S3Error::from(S3Code::InvalidDigest).detail("Content-MD5", value)),
            },
        };
        let mut checksum = None;
        for algorithm in ChecksumAlgorithm::ALL {
            let Some(value) = header(headers, algorithm.header()) else { continue };
            if checksum.is_some() {
                return Err(S3Error::new(
                    S3Code::InvalidRequest,
                    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not \
                     allowed.",
                ));
            }
            checksum = Some(S3Checksum::full(algorithm, value.trim())?);
        }
        let mut trailer = None;
        for name in header(headers, "x-amz-trailer").unwrap_or_default().split(',') {
            let name = name.trim().to_ascii_lowercase();
            if name.is_empty() {
                continue;
            }
            let Some(algorithm) = ChecksumAlgorithm::of_header(&name) else {
                return Err(S3Error::new(
                    S3Code::InvalidRequest,
                    "The value specified in the x-amz-trailer header is not supported",
                ));
            };
            if trailer.replace(algorithm).is_some() || checksum.is_some() {
                return Err(S3Error::new(
                    S3Code::InvalidRequest,
                    "Expecting a single x-amz-checksum- header",
                ));
            }
        }
        Ok(Self { md5, checksum, trailer })
    }

    /// The algorithm to check the bytes with, if any.
    pub fn algorithm(&self) -> Option<ChecksumAlgorithm> {
        self.checksum.as_ref().map(|c| c.algorithm).or(self.trailer)
    }
}

/// All headers of `PutObject`, `CopyObject` and `CreateMultipartUpload`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutHeaders {
    pub object: ObjectHeaders,
    pub checks: BodyChecks,
    pub conditions: WriteConditions,
    pub tags: Vec<Tag>,
    pub metadata_directive: Directive,
    pub tagging_directive: Directive,
    /// `x-amz-checksum-algorithm`: for a multipart upload, or for a copy.
    pub checksum_algorithm: Option<ChecksumAlgorithm>,
    /// `x-amz-checksum-type` of a multipart upload.
    pub checksum_type: Option<ChecksumType>,
}

impl PutHeaders {
    pub fn parse(headers: &HeaderMap) -> S3Result<Self> {
        refuse_unserved(headers)?;
        let directive = |name: &'static str| match header(headers, name) {
            None | Some("COPY") => Ok(Directive::Copy),
            Some("REPLACE") => Ok(Directive::Replace),
            Some(other) => Err(S3Error::argument(name, other, "Unknown directive.")),
        };
        let algorithm = match header(headers, "x-amz-checksum-algorithm") {
            None => None,
            Some(word) => Some(ChecksumAlgorithm::parse(word)?),
        };
        let kind = match header(headers, "x-amz-checksum-type") {
            None => None,
            Some(word) => Some(ChecksumType::parse(word)?),
        };
        Ok(Self {
            object: ObjectHeaders::parse(headers)?,
            checks: BodyChecks::parse(headers)?,
            conditions: WriteConditions::parse(headers)?,
            tags: match header(headers, "x-amz-tagging") {
                None => Vec::new(),
                Some(text) => tagging_header(text)?,
            },
            metadata_directive: directive("x-amz-metadata-directive")?,
            tagging_directive: directive("x-amz-tagging-directive")?,
            checksum_algorithm: algorithm,
            checksum_type: kind,
        })
    }
}

/// Headers of `CompleteMultipartUpload`: the expected properties of the whole object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompleteHeaders {
    /// Algorithm and value, which is composite (`…-3`) or of the full object. It is only compared
    /// with the computed value.
    pub checksum: Option<(ChecksumAlgorithm, String)>,
    pub checksum_type: Option<ChecksumType>,
    /// `x-amz-mp-object-size`, bytes.
    pub size: Option<u64>,
    pub conditions: WriteConditions,
}

impl CompleteHeaders {
    pub fn parse(headers: &HeaderMap) -> S3Result<Self> {
        let checksum = ChecksumAlgorithm::ALL
            .into_iter()
            .find_map(|a| Some((a, header(headers, a.header())?.trim().to_owned())));
        let size = "x-amz-mp-object-size";
        Ok(Self {
            checksum,
            checksum_type: match header(headers, "x-amz-checksum-type") {
                None => None,
                Some(word) => Some(ChecksumType::parse(word)?),
            },
            size: match header(headers, size) {
                None => None,
                Some(text) => Some(
                    text.trim().parse().map_err(|_| S3Error::argument(size, text, "not a size"))?,
                ),
            },
            conditions: WriteConditions::parse(headers)?,
        })
    }

    /// Checks that the completed object has the announced size.
    pub fn check_size(&self, size: u64) -> S3Result<()> {
        match self.size {
            Some(wanted) if wanted != size => Err(S3Error::new(
                S3Code::InvalidRequest,
                "The provided 'x-amz-mp-object-size' header does not match what was computed.",
            )),
            _ => Ok(()),
        }
    }

    /// Checks that the completed object has the announced checksum, if it is of the upload's
    /// algorithm. A composite one may lack its number of parts: some clients omit it.
    pub fn check_checksum(&self, computed: &S3Checksum) -> S3Result<()> {
        if self.checksum_type.is_some_and(|wanted| wanted != computed.kind) {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                "The upload was created with another checksum type.",
            ));
        }
        let Some((algorithm, value)) = &self.checksum else { return Ok(()) };
        let without_count = match computed.kind {
            ChecksumType::Composite => computed.value.rsplit_once('-').map(|(value, _)| value),
            ChecksumType::FullObject => None,
        };
        let is_equal = *value == computed.value || Some(value.as_str()) == without_count;
        if *algorithm != computed.algorithm || is_equal {
            return Ok(());
        }
        Err(super::checksum::mismatch(*algorithm))
    }
}

/// Refuses features that would give false guarantees if they were ignored.
fn refuse_unserved(headers: &HeaderMap) -> S3Result<()> {
    const REFUSED: [(&str, &str); 5] = [
        ("x-amz-server-side-encryption", "server-side encryption"),
        ("x-amz-server-side-encryption-customer-algorithm", "server-side encryption"),
        ("x-amz-object-lock-mode", "object lock"),
        ("x-amz-object-lock-retain-until-date", "object lock"),
        ("x-amz-object-lock-legal-hold", "object lock"),
    ];
    for (name, what) in REFUSED {
        if headers.contains_key(name) {
            return Err(S3Error::not_implemented(what).detail("Header", name));
        }
    }
    const CLASSES: [&str; 9] = [
        "STANDARD",
        "REDUCED_REDUNDANCY",
        "STANDARD_IA",
        "ONEZONE_IA",
        "INTELLIGENT_TIERING",
        "GLACIER",
        "GLACIER_IR",
        "DEEP_ARCHIVE",
        "EXPRESS_ONEZONE",
    ];
    match header(headers, "x-amz-storage-class") {
        Some(class) if !CLASSES.contains(&class) => {
            Err(S3Error::from(S3Code::InvalidStorageClass).detail("StorageClassRequested", class))
        }
        _ => Ok(()),
    }
}

/// Bytes of the object in an `aws-chunked` body (`x-amz-decoded-content-length`).
pub fn decoded_length(headers: &HeaderMap) -> S3Result<Option<u64>> {
    let name = "x-amz-decoded-content-length";
    match header(headers, name) {
        None => Ok(None),
        Some(text) => match text.trim().parse() {
            Ok(n) => Ok(Some(n)),
            Err(_) => Err(S3Error::argument(name, text, "not a length")),
        },
    }
}

fn header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok())
}

#[cfg(test)]
#[path = "put_headers_tests.rs"]
mod tests;
