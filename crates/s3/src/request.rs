//! Determines the operation of a request from method, path, query and headers.

use forebay_core::name::MAX_OBJECT_NAME;
use http::{HeaderMap, HeaderValue, Method};
use percent_encoding::percent_decode_str;

use super::copy_source::CopySource;
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::operation::*;
use super::query::{Query, number};
use super::subresources::{self, Level};

/// Maximum rows of any page.
const MAX_ROWS: u32 = 1000;
/// Highest part number.
pub const MAX_PART_NUMBER: u32 = 10_000;

/// An unmodified request, not decoded: signatures cover this form.
#[derive(Clone, Copy, Debug)]
pub struct RequestHead<'a> {
    pub method: &'a Method,
    /// With any prefix, percent-encoded as sent.
    pub path: &'a str,
    /// Without `?`; empty when there is none.
    pub query: &'a str,
    pub headers: &'a HeaderMap,
}

impl<'a> RequestHead<'a> {
    /// A header's text; `None` if it is absent or not text.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        self.headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok())
    }
}

/// The location where S3 is served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Front {
    /// `/s3`, or empty for the root.
    pub prefix: String,
    /// Domains whose sub-domains are buckets (`bucket.s3.example.com`), lower case, no port.
    pub domains: Vec<String>,
}

impl Front {
    pub fn new(prefix: impl Into<String>, domains: Vec<String>) -> Self {
        Self { prefix: prefix.into(), domains }
    }

    /// The path after the prefix; `None` if the path is not under it.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        let rest = path.strip_prefix(self.prefix.as_str())?;
        (rest.is_empty() || rest.starts_with('/')).then_some(rest)
    }

    /// The bucket in the `Host` header, for virtual-host style.
    pub fn host_bucket(&self, host: &str) -> Option<String> {
        if self.domains.is_empty() {
            return None;
        }
        let host = host.rsplit_once(':').map_or(host, |(name, _port)| name).to_ascii_lowercase();
        let bucket =
            self.domains.iter().find_map(|d| host.strip_suffix(d.as_str())?.strip_suffix('.'))?;
        (!bucket.is_empty()).then(|| bucket.to_owned())
    }
}

/// A parsed request: its operation, bucket and object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Empty for operations on the whole service.
    pub bucket: String,
    /// Empty for operations on a bucket.
    pub key: String,
    pub operation: Operation,
}

impl Request {
    /// Parses a request, or refuses it as AWS does.
    pub fn parse(head: &RequestHead<'_>, front: &Front) -> S3Result<Self> {
        let path = front.strip(head.path).ok_or_else(|| S3Error::from(S3Code::InvalidURI))?;
        let (bucket, key) = split(path, head.header("host").and_then(|h| front.host_bucket(h)))?;
        if key.len() > MAX_OBJECT_NAME {
            return Err(S3Error::from(S3Code::KeyTooLongError)
                .detail("Size", key.len().to_string())
                .detail("MaxSizeAllowed", MAX_OBJECT_NAME.to_string()));
        }
        if key.contains('\0') {
            return Err(S3Error::argument("key", &key, "Object key must not contain NUL"));
        }
        let query = Query::parse(head.query)?;
        check_list_texts(&query)?;
        let level = match (bucket.is_empty(), key.is_empty()) {
            (true, _) => Level::Service,
            (false, true) => Level::Bucket,
            (false, false) => Level::Object,
        };
        let operation = if head.method == Method::OPTIONS {
            Operation::Preflight
        } else if let Some(name) = subresources::unsupported(level, head.method, &query) {
            Operation::Unsupported(name)
        } else {
            match level {
                Level::Service => service(head, &query)?,
                Level::Bucket => bucket_operation(head, &query)?,
                Level::Object => object_operation(head, &query)?,
            }
        };
        Ok(Self { bucket, key, operation })
    }
}

/// Bucket and key of a path after the prefix. Only the first slash separates; the key is opaque.
fn split(path: &str, host_bucket: Option<String>) -> S3Result<(String, String)> {
    let path = path.strip_prefix('/').unwrap_or(path);
    let decode = |text: &str| match percent_decode_str(text).decode_utf8() {
        Ok(text) => Ok(text.into_owned()),
        Err(_) => Err(S3Error::from(S3Code::InvalidURI)),
    };
    if let Some(bucket) = host_bucket {
        return Ok((bucket, decode(path)?));
    }
    let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
    if bucket.is_empty() && !key.is_empty() {
        return Err(S3Code::InvalidBucketName.into());
    }
    Ok((decode(bucket)?, decode(key)?))
}

fn service(head: &RequestHead<'_>, query: &Query) -> S3Result<Operation> {
    if head.method != Method::GET {
        return Err(S3Code::MethodNotAllowed.into());
    }
    let max_buckets = match query.filled("max-buckets") {
        None => None,
        Some(text) => match number("max-buckets", text)? {
            n @ 1..=10_000 => Some(n as u32),
            _ => {
                return Err(S3Error::argument(
                    "max-buckets",
                    text,
                    "Argument max-buckets must be an integer between 1 and 10000",
                ));
            }
        },
    };
    Ok(Operation::ListBuckets(ListBuckets {
        prefix: query.get("prefix").unwrap_or_default().to_owned(),
        max_buckets,
        continuation_token: query.get("continuation-token").map(str::to_owned),
    }))
}

fn bucket_operation(head: &RequestHead<'_>, query: &Query) -> S3Result<Operation> {
    use Operation as O;
    Ok(match *head.method {
        Method::GET if query.has("location") => O::GetBucketLocation,
        Method::GET if query.has("versioning") => O::GetBucketVersioning,
        Method::GET if query.has("cors") => O::GetBucketCors,
        Method::GET if query.has("tagging") => O::GetBucketTagging,
        Method::GET if query.has("policyStatus") => O::GetBucketPolicyStatus,
        Method::GET if query.has("policy") => O::GetBucketPolicy,
        Method::GET if query.has("acl") => O::GetBucketAcl,
        Method::GET if query.has("uploads") => O::ListMultipartUploads(ListMultipartUploads {
            scope: scope(query, "max-uploads")?,
            key_marker: text(query, "key-marker"),
            upload_id_marker: filled(query, "upload-id-marker")
                .filter(|_| query.filled("key-marker").is_some()),
        }),
        Method::GET if query.has("versions") => O::ListObjectVersions(list_versions(query)?),
        Method::GET if query.get("list-type") == Some("2") => O::ListObjectsV2(list_v2(query)?),
        Method::GET => O::ListObjects(ListObjects {
            scope: scope(query, "max-keys")?,
            marker: text(query, "marker"),
        }),
        Method::HEAD => O::HeadBucket,
        Method::PUT if query.has("versioning") => O::PutBucketVersioning,
        Method::PUT if query.has("cors") => O::PutBucketCors,
        Method::PUT if query.has("tagging") => O::PutBucketTagging,
        Method::PUT if query.has("policy") => O::PutBucketPolicy,
        Method::PUT if query.has("acl") => O::PutBucketAcl,
        Method::PUT => O::CreateBucket,
        Method::DELETE if query.has("cors") => O::DeleteBucketCors,
        Method::DELETE if query.has("tagging") => O::DeleteBucketTagging,
        Method::DELETE if query.has("policy") => O::DeleteBucketPolicy,
        Method::DELETE => O::DeleteBucket,
        Method::POST if query.has("delete") => O::DeleteObjects,
        Method::POST => O::PostObject,
        _ => return Err(S3Code::MethodNotAllowed.into()),
    })
}

fn object_operation(head: &RequestHead<'_>, query: &Query) -> S3Result<Operation> {
    use Operation as O;
    Ok(match *head.method {
        Method::GET if query.has("uploadId") && !query.has("partNumber") => {
            O::ListParts(ListParts {
                upload_id: upload_id(query)?,
                max_parts: query.count("max-parts", MAX_ROWS, MAX_ROWS)?,
                part_number_marker: query.count("part-number-marker", 0, i32::MAX as u32)?,
                encode: encoding(query)?,
            })
        }
        Method::GET if query.has("attributes") => O::GetObjectAttributes(version(query)?),
        Method::GET if query.has("tagging") => O::GetObjectTagging(version(query)?),
        Method::GET if query.has("acl") => O::GetObjectAcl(version(query)?),
        Method::GET => O::GetObject(get_object(query)?),
        Method::HEAD => O::HeadObject(get_object(query)?),
        Method::PUT if query.has("tagging") => O::PutObjectTagging(version(query)?),
        Method::PUT if query.has("acl") => O::PutObjectAcl(version(query)?),
        Method::PUT if query.has("uploadId") || query.has("partNumber") => {
            let part = UploadPart {
                upload_id: upload_id(query)?,
                part_number: part_number(query)?.ok_or_else(|| {
                    S3Error::argument("partNumber", "", "This operation needs a part number")
                })?,
            };
            match copy_source(head)? {
                None => O::UploadPart(part),
                Some(mut source) => {
                    if let Some(range) = head.header("x-amz-copy-source-range") {
                        source.range = Some(CopySource::parse_range(range)?);
                    }
                    O::UploadPartCopy(part, source)
                }
            }
        }
        Method::PUT => match copy_source(head)? {
            None => O::PutObject,
            Some(source) => O::CopyObject(source),
        },
        Method::DELETE if query.has("uploadId") => {
            O::AbortMultipartUpload(UploadId { upload_id: upload_id(query)? })
        }
        Method::DELETE if query.has("tagging") => O::DeleteObjectTagging(version(query)?),
        Method::DELETE => O::DeleteObject(version(query)?),
        Method::POST if query.has("uploads") => O::CreateMultipartUpload,
        Method::POST if query.has("uploadId") => {
            O::CompleteMultipartUpload(UploadId { upload_id: upload_id(query)? })
        }
        _ => return Err(S3Code::MethodNotAllowed.into()),
    })
}

/// Parameters of listings that are compared with keys.
const LIST_TEXTS: [&str; 5] = ["prefix", "delimiter", "start-after", "marker", "key-marker"];

/// Refuses a text of a listing that is longer than any key can be.
fn check_list_texts(query: &Query) -> S3Result<()> {
    for name in LIST_TEXTS {
        let len = query.filled(name).map_or(0, str::len);
        if len > MAX_OBJECT_NAME {
            let text = format!("{name} has {len} bytes, the limit is {MAX_OBJECT_NAME}");
            return Err(S3Error::argument(name, "", text));
        }
    }
    Ok(())
}

fn scope(query: &Query, max: &str) -> S3Result<ListScope> {
    Ok(ListScope {
        prefix: text(query, "prefix"),
        delimiter: filled(query, "delimiter"),
        encode: encoding(query)?,
        max: query.count(max, MAX_ROWS, MAX_ROWS)?,
    })
}

/// Whether the query requests percent-encoded keys in the answer.
pub fn is_url_encoded(query: &str) -> S3Result<bool> {
    encoding(&Query::parse(query)?)
}

fn encoding(query: &Query) -> S3Result<bool> {
    match query.filled("encoding-type") {
        None => Ok(false),
        Some(word) if word.eq_ignore_ascii_case("url") => Ok(true),
        Some(word) => Err(S3Error::argument(
            "encoding-type",
            word,
            "Invalid Encoding Method specified in Request",
        )),
    }
}

fn list_v2(query: &Query) -> S3Result<ListObjectsV2> {
    Ok(ListObjectsV2 {
        scope: scope(query, "max-keys")?,
        continuation_token: query.get("continuation-token").map(str::to_owned),
        start_after: filled(query, "start-after"),
        fetch_owner: query.get("fetch-owner").is_some_and(|v| v.eq_ignore_ascii_case("true")),
    })
}

fn list_versions(query: &Query) -> S3Result<ListObjectVersions> {
    let key_marker = text(query, "key-marker");
    let version_id_marker = filled(query, "version-id-marker");
    if key_marker.is_empty()
        && let Some(marker) = &version_id_marker
    {
        return Err(S3Error::argument(
            "version-id-marker",
            marker,
            "A version-id marker cannot be specified without a key marker.",
        ));
    }
    Ok(ListObjectVersions { scope: scope(query, "max-keys")?, key_marker, version_id_marker })
}

/// Headers of an answer that a reader may override, by query parameter.
const OVERRIDES: [(&str, &str); 6] = [
    ("response-content-type", "content-type"),
    ("response-content-language", "content-language"),
    ("response-expires", "expires"),
    ("response-cache-control", "cache-control"),
    ("response-content-disposition", "content-disposition"),
    ("response-content-encoding", "content-encoding"),
];

fn get_object(query: &Query) -> S3Result<GetObject> {
    let mut overrides = Vec::new();
    for (parameter, header) in OVERRIDES {
        let Some(value) = filled(query, parameter) else { continue };
        // A line break would begin another header.
        if HeaderValue::from_bytes(value.as_bytes()).is_err() {
            let text = "The value cannot be a header: it has control characters.";
            return Err(S3Error::argument(parameter, &value, text));
        }
        overrides.push((header, value));
    }
    Ok(GetObject {
        version_id: version(query)?.version_id,
        part_number: part_number(query)?,
        overrides,
    })
}

fn version(query: &Query) -> S3Result<ObjectVersion> {
    match query.get("versionId") {
        Some("") => {
            Err(S3Error::argument("versionId", "", "Version id cannot be the empty string"))
        }
        id => Ok(ObjectVersion { version_id: id.map(str::to_owned) }),
    }
}

fn part_number(query: &Query) -> S3Result<Option<u32>> {
    let Some(text) = query.get("partNumber") else { return Ok(None) };
    match text.parse::<u32>() {
        Ok(n @ 1..=MAX_PART_NUMBER) => Ok(Some(n)),
        _ => Err(S3Error::argument(
            "partNumber",
            text,
            "Part number must be an integer between 1 and 10000, inclusive",
        )),
    }
}

fn upload_id(query: &Query) -> S3Result<String> {
    match query.filled("uploadId") {
        Some(id) => Ok(id.to_owned()),
        None => Err(S3Error::argument(
            "uploadId",
            "",
            "This operation does not accept an empty uploadId",
        )),
    }
}

fn copy_source(head: &RequestHead<'_>) -> S3Result<Option<CopySource>> {
    match head.headers.get("x-amz-copy-source") {
        None => Ok(None),
        Some(_) => {
            CopySource::parse(head.header("x-amz-copy-source").unwrap_or_default()).map(Some)
        }
    }
}

fn text(query: &Query, name: &str) -> String {
    query.get(name).unwrap_or_default().to_owned()
}

fn filled(query: &Query, name: &str) -> Option<String> {
    query.filled(name).map(str::to_owned)
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
