//! Parses and checks the XML bodies of requests.

use forebay_core::bucket::{CorsRule, Tag, Versioning};
use forebay_core::date::{parse_http, parse_iso};

use super::checksum::{ChecksumAlgorithm, ChecksumType, S3Checksum};
use super::error::{S3Error, S3Result};
use super::error_code::S3Code;
use super::etag::unquote;
use super::request::MAX_PART_NUMBER;
use super::xml::Element;

/// Maximum bytes of any of these bodies; `CompleteMultipartUpload` with 10,000 parts needs the
/// most.
pub const MAX_BODY: usize = 4 << 20;
/// Maximum objects of one `DeleteObjects`.
pub const MAX_DELETE: usize = 1000;

fn malformed() -> S3Error {
    S3Code::MalformedXML.into()
}

/// One part that a `CompleteMultipartUpload` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompletePart {
    pub number: u32,
    /// Without quotes.
    pub etag: String,
    pub checksum: Option<S3Checksum>,
}

/// Body of `CompleteMultipartUpload`: at least one part, numbers ascending.
pub fn complete_upload(body: &[u8]) -> S3Result<Vec<CompletePart>> {
    let root = Element::parse(body, "CompleteMultipartUpload")?;
    let mut parts: Vec<CompletePart> = Vec::new();
    for part in root.all("Part") {
        let number = part.required("PartNumber")?.trim().parse().map_err(|_| malformed())?;
        if !(1..=MAX_PART_NUMBER).contains(&number) {
            return Err(S3Error::argument(
                "PartNumber",
                &number.to_string(),
                "Part number must be an integer between 1 and 10000, inclusive",
            ));
        }
        let etag = unquote(part.required("ETag")?.trim()).to_owned();
        // AWS refuses the same part twice, which would duplicate its bytes. Two contents under one
        // number mean a part that was sent again: the last one named counts, as in Ceph.
        if parts.last().is_some_and(|p| p.number > number || p.number == number && p.etag == etag) {
            return Err(S3Code::InvalidPartOrder.into());
        }
        parts.pop_if(|p| p.number == number);
        let mut checksum = None;
        for algorithm in ChecksumAlgorithm::ALL {
            if let Some(value) = part.text_of(algorithm.element()) {
                checksum = Some(S3Checksum::full(algorithm, value.trim())?);
            }
        }
        parts.push(CompletePart { number, etag, checksum });
    }
    if parts.is_empty() || parts.len() > MAX_PART_NUMBER as usize {
        return Err(malformed());
    }
    Ok(parts)
}

/// One object of a `DeleteObjects`, with its conditions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteKey {
    pub key: String,
    pub version_id: Option<String>,
    /// Without quotes, or `*`.
    pub if_etag: Option<String>,
    /// Unix seconds.
    pub if_modified_s: Option<u64>,
    /// Bytes.
    pub if_size: Option<u64>,
}

/// Body of `DeleteObjects`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteObjects {
    /// 1 to 1,000.
    pub objects: Vec<DeleteKey>,
    /// Whether only failures are reported.
    pub quiet: bool,
}

pub fn delete_objects(body: &[u8]) -> S3Result<DeleteObjects> {
    let root = Element::parse(body, "Delete")?;
    let mut objects = Vec::new();
    for object in root.all("Object") {
        let key = object.required("Key")?.to_owned();
        if key.is_empty() {
            return Err(S3Error::new(S3Code::MalformedXML, "an object to delete has an empty key"));
        }
        let if_modified_s = match object.text_of("LastModifiedTime") {
            None => None,
            Some(text) => {
                let text = text.trim();
                Some(parse_http(text).or_else(|| parse_iso(text)).ok_or_else(malformed)?)
            }
        };
        let if_size = match object.text_of("Size") {
            None => None,
            Some(text) => Some(text.trim().parse().map_err(|_| malformed())?),
        };
        objects.push(DeleteKey {
            key,
            version_id: object.text_of("VersionId").filter(|v| !v.is_empty()).map(str::to_owned),
            if_etag: object.text_of("ETag").map(|e| unquote(e.trim()).to_owned()),
            if_modified_s,
            if_size,
        });
    }
    if objects.is_empty() || objects.len() > MAX_DELETE {
        return Err(malformed());
    }
    let quiet = root.text_of("Quiet").is_some_and(|q| q.trim().eq_ignore_ascii_case("true"));
    Ok(DeleteObjects { objects, quiet })
}

/// Maximum tags of an object.
pub const MAX_OBJECT_TAGS: usize = 10;
/// Maximum tags of a bucket.
pub const MAX_BUCKET_TAGS: usize = 50;

/// Body of `PutObjectTagging` and `PutBucketTagging`, at most `most` tags.
pub fn tagging(body: &[u8], most: usize) -> S3Result<Vec<Tag>> {
    let root = Element::parse(body, "Tagging")?;
    let set = root.child("TagSet").ok_or_else(malformed)?;
    let mut tags = Vec::new();
    for tag in set.all("Tag") {
        tags.push(Tag {
            key: tag.required("Key")?.to_owned(),
            value: tag.required("Value")?.to_owned(),
        });
    }
    check_tags(&tags, most)?;
    Ok(tags)
}

/// The `x-amz-tagging` header: `key=value&…`, percent-encoded.
pub fn tagging_header(text: &str) -> S3Result<Vec<Tag>> {
    let tags: Vec<Tag> = form_urlencoded::parse(text.as_bytes())
        .map(|(k, v)| Tag { key: k.into_owned(), value: v.into_owned() })
        .collect();
    check_tags(&tags, MAX_OBJECT_TAGS)?;
    Ok(tags)
}

/// Checks tags: keys of 1 to 128 characters, values of at most 256, no key twice.
pub fn check_tags(tags: &[Tag], most: usize) -> S3Result<()> {
    if tags.len() > most {
        // The code that AWS sends in practice, despite its documentation.
        return Err(S3Error::new(
            S3Code::InvalidTag,
            format!("Object tags cannot be greater than {most}"),
        ));
    }
    for (at, tag) in tags.iter().enumerate() {
        if tag.key.is_empty() || tag.key.chars().count() > 128 {
            return Err(S3Error::new(
                S3Code::InvalidTag,
                "The TagKey you have provided is invalid",
            )
            .detail("TagKey", tag.key.clone()));
        }
        if tag.value.chars().count() > 256 {
            return Err(S3Error::new(
                S3Code::InvalidTag,
                "The TagValue you have provided is invalid",
            )
            .detail("TagKey", tag.key.clone()));
        }
        if tags[..at].iter().any(|t| t.key == tag.key) {
            return Err(S3Error::new(
                S3Code::InvalidTag,
                "Cannot provide multiple Tags with the same key",
            )
            .detail("TagKey", tag.key.clone()));
        }
    }
    Ok(())
}

/// Body of `PutBucketVersioning`.
pub fn versioning(body: &[u8]) -> S3Result<Versioning> {
    let root = Element::parse(body, "VersioningConfiguration")?;
    if root.text_of("MfaDelete").is_some_and(|m| m.trim() == "Enabled") {
        return Err(S3Error::not_implemented("MfaDelete"));
    }
    match root.text_of("Status").map(str::trim) {
        Some("Enabled") => Ok(Versioning::Enabled),
        Some("Suspended") => Ok(Versioning::Suspended),
        _ => Err(S3Code::IllegalVersioningConfigurationException.into()),
    }
}

/// Body of `CreateBucket`: the requested region, if any. The body may be empty.
pub fn create_bucket(body: &[u8]) -> S3Result<Option<String>> {
    if body.is_empty() {
        return Ok(None);
    }
    let root = Element::parse(body, "CreateBucketConfiguration")?;
    Ok(root.text_of("LocationConstraint").filter(|r| !r.is_empty()).map(str::to_owned))
}

/// Body of `PutBucketCors`: 1 to 100 rules.
pub fn cors(body: &[u8]) -> S3Result<Vec<CorsRule>> {
    let root = Element::parse(body, "CORSConfiguration")?;
    let mut rules = Vec::new();
    for rule in root.all("CORSRule") {
        let list = |name: &str| -> Vec<String> {
            rule.all(name).map(|e| e.text.trim().to_owned()).collect()
        };
        let max_age_s = match rule.text_of("MaxAgeSeconds") {
            None => None,
            Some(text) => Some(text.trim().parse().map_err(|_| malformed())?),
        };
        let rule = CorsRule {
            id: rule.text_of("ID").map(str::to_owned),
            allowed_methods: list("AllowedMethod"),
            allowed_origins: list("AllowedOrigin"),
            allowed_headers: list("AllowedHeader"),
            expose_headers: list("ExposeHeader"),
            max_age_s,
        };
        check_cors_rule(&rule)?;
        rules.push(rule);
    }
    if rules.is_empty() || rules.len() > 100 {
        return Err(malformed());
    }
    Ok(rules)
}

fn check_cors_rule(rule: &CorsRule) -> S3Result<()> {
    if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
        return Err(malformed());
    }
    for method in &rule.allowed_methods {
        if !matches!(method.as_str(), "GET" | "PUT" | "POST" | "DELETE" | "HEAD") {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                format!(
                    "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
                ),
            ));
        }
    }
    let patterns = rule.allowed_origins.iter().chain(&rule.allowed_headers);
    for pattern in patterns {
        if pattern.matches('*').count() > 1 {
            return Err(S3Error::new(
                S3Code::InvalidRequest,
                format!("AllowedOrigin \"{pattern}\" can not have more than one wildcard."),
            ));
        }
    }
    Ok(())
}

/// The attributes that the header of `GetObjectAttributes` requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedAttributes {
    pub etag: bool,
    pub checksum: bool,
    pub parts: bool,
    pub storage_class: bool,
    pub size: bool,
}

impl WantedAttributes {
    /// Parses the values of `x-amz-object-attributes`, of which there must be one.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> S3Result<Self> {
        let mut wanted = Self::default();
        for word in values.into_iter().flat_map(|v| v.split(',')).map(str::trim) {
            match word {
                "ETag" => wanted.etag = true,
                "Checksum" => wanted.checksum = true,
                "ObjectParts" => wanted.parts = true,
                "StorageClass" => wanted.storage_class = true,
                "ObjectSize" => wanted.size = true,
                _ => {
                    return Err(S3Error::argument(
                        "x-amz-object-attributes",
                        word,
                        "Invalid attribute name specified.",
                    ));
                }
            }
        }
        if wanted == Self::default() {
            return Err(S3Error::argument(
                "x-amz-object-attributes",
                "",
                "The x-amz-object-attributes header specifying the attributes to be retrieved is \
                 either missing or empty",
            ));
        }
        Ok(wanted)
    }
}

/// The checksum of a new multipart upload, from the headers that create it.
pub fn upload_checksum(
    algorithm: Option<ChecksumAlgorithm>,
    kind: Option<ChecksumType>,
) -> S3Result<Option<(ChecksumAlgorithm, ChecksumType)>> {
    let Some(algorithm) = algorithm else {
        return match kind {
            None => Ok(None),
            Some(_) => Err(S3Error::new(
                S3Code::InvalidRequest,
                "The x-amz-checksum-type header can only be used with the \
                 x-amz-checksum-algorithm header.",
            )),
        };
    };
    let kind = kind.unwrap_or(algorithm.default_type());
    if !algorithm.allows(kind) {
        return Err(S3Error::new(
            S3Code::InvalidRequest,
            format!(
                "The {} checksum type cannot be used with the {} checksum algorithm.",
                kind.as_str(),
                algorithm.as_str().to_ascii_lowercase()
            ),
        ));
    }
    Ok(Some((algorithm, kind)))
}

#[cfg(test)]
#[path = "bodies_tests.rs"]
mod tests;
