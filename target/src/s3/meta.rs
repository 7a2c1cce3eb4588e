//! S3 metadata of an object, stored in its custom metadata: users' own under their names,
//! everything else under names that users do not see.

use std::collections::BTreeMap;

use axum::http::HeaderMap;
use forebay_core::bucket::{Acl, BucketInfo, Tag};
use forebay_core::date;
use forebay_core::history;
use forebay_core::object::{ObjectMeta, SYSTEM_PREFIX};
use forebay_node::s3::{ObjectRights, set};
use forebay_s3::access::{ACL, OWNER};
use forebay_s3::checksum::{ChecksumAlgorithm, ChecksumType, S3Checksum};
use forebay_s3::condition::Present;
use forebay_s3::etag;
use forebay_s3::put_headers::{CONTENT_HEADERS, ObjectHeaders};

use crate::object::shown_version;

/// Custom metadata of an object.
pub(super) type Custom = BTreeMap<String, String>;

const TAGS: &str = "s3:tags";
const CHECKSUM: &str = "s3:checksum";
const PART_CHECKSUMS: &str = "s3:part-checksums";
/// Id of the multipart upload that made the object.
pub(super) const UPLOAD: &str = "s3:upload";
/// Longest list of the parts' checksums that is stored, in bytes.
const MAX_PART_CHECKSUMS: usize = 16 << 10;

/// The custom metadata for the headers and tags of a write.
pub(super) fn to_custom(headers: &ObjectHeaders, tags: &[Tag]) -> Custom {
    let mut custom = headers.user.clone();
    for (name, value) in &headers.content {
        custom.insert(format!("{SYSTEM_PREFIX}{name}"), value.clone());
    }
    set_tags(&mut custom, tags);
    custom
}

/// The stored headers.
pub(super) fn headers_of(custom: &Custom) -> ObjectHeaders {
    let mut headers = ObjectHeaders::default();
    for name in CONTENT_HEADERS {
        if let Some(value) = custom.get(&format!("{SYSTEM_PREFIX}{name}")) {
            headers.content.insert(name.to_owned(), value.clone());
        }
    }
    let users = custom.iter().filter(|(key, _)| !key.starts_with(SYSTEM_PREFIX));
    headers.user = users.map(|(k, v)| (k.clone(), v.clone())).collect();
    headers
}

pub(super) fn set_tags(custom: &mut Custom, tags: &[Tag]) {
    match serde_json::to_string(tags) {
        Ok(text) if !tags.is_empty() => drop(custom.insert(TAGS.to_owned(), text)),
        _ => drop(custom.remove(TAGS)),
    }
}

/// The tags as one entry of custom metadata; no tags are an entry too.
pub(super) fn tags_pair(tags: &[Tag]) -> (String, String) {
    (TAGS.to_owned(), serde_json::to_string(tags).unwrap_or_default())
}

/// The tags, in order of their keys.
pub(super) fn tags_of(custom: &Custom) -> Vec<Tag> {
    let tags = custom.get(TAGS).and_then(|text| serde_json::from_str(text).ok());
    let mut tags: Vec<Tag> = tags.unwrap_or_default();
    tags.sort_by(|a, b| a.key.cmp(&b.key));
    tags
}

/// Stores the owner and the access control list of an object.
pub(super) fn set_rights(custom: &mut Custom, rights: &ObjectRights) {
    if let Some(owner) = &rights.owner {
        custom.insert(OWNER.to_owned(), owner.clone());
    }
    if !rights.acl.is_private() {
        custom.extend([acl_pair(&rights.acl)]);
    }
}

/// The access control list as one entry of custom metadata; an empty one is an entry too.
pub(super) fn acl_pair(acl: &Acl) -> (String, String) {
    (ACL.to_owned(), serde_json::to_string(acl).unwrap_or_default())
}

/// The owner and the access control list of an object; an unreadable list grants nothing.
pub(super) fn rights(custom: &Custom) -> ObjectRights {
    let acl = custom.get(ACL).and_then(|text| serde_json::from_str(text).ok());
    ObjectRights {
        owner: custom.get(OWNER).cloned(),
        acl: acl.unwrap_or_default(),
        tags: tags_of(custom),
        new_tags: Vec::new(),
    }
}

pub(super) fn set_checksum(custom: &mut Custom, checksum: &S3Checksum) {
    let S3Checksum { algorithm, kind, value } = checksum;
    let text = format!("{} {} {value}", algorithm.as_str(), kind.as_str());
    custom.insert(CHECKSUM.to_owned(), text);
}

pub(super) fn checksum_of(custom: &Custom) -> Option<S3Checksum> {
    let mut words = custom.get(CHECKSUM)?.split(' ');
    let (algorithm, kind, value) = (words.next()?, words.next()?, words.next()?);
    Some(S3Checksum {
        algorithm: ChecksumAlgorithm::parse(algorithm).ok()?,
        kind: ChecksumType::parse(kind).ok()?,
        value: value.to_owned(),
    })
}

/// Stores the checksums of parts, unless they are too long.
pub(super) fn set_part_checksums(custom: &mut Custom, values: &[String]) {
    let text = values.join(",");
    if !text.is_empty() && text.len() <= MAX_PART_CHECKSUMS {
        custom.insert(PART_CHECKSUMS.to_owned(), text);
    }
}

/// The checksums of an object's parts, in order.
pub(super) fn part_checksums(custom: &Custom) -> Vec<String> {
    let text = custom.get(PART_CHECKSUMS).map(String::as_str).unwrap_or_default();
    text.split(',').filter(|v| !v.is_empty()).map(str::to_owned).collect()
}

/// The object in the form that conditions use.
pub(super) fn present<'a>(meta: &ObjectMeta, etag: &'a str) -> Present<'a> {
    Present { etag, mtime_ns: meta.mtime_ns, size: meta.size }
}

/// The headers that identify the object's content.
pub(super) fn put_identity(headers: &mut HeaderMap, meta: &ObjectMeta) {
    set(headers, "etag", &etag::quote(&meta.s3_etag()));
    set(headers, "last-modified", &date::format_http(meta.mtime_ns));
}

/// The version's id, if the bucket keeps versions.
pub(super) fn put_version(headers: &mut HeaderMap, info: &BucketInfo, object: &ObjectMeta) {
    if let Some(version) = shown_version(info, object) {
        set(headers, "x-amz-version-id", version);
    }
}

/// As [`put_version`], after a write: only a write that made a version gets the id.
pub(super) fn put_new_version(headers: &mut HeaderMap, info: &BucketInfo, object: &ObjectMeta) {
    if let Some(version) = shown_version(info, object).filter(|v| *v != history::NULL) {
        set(headers, "x-amz-version-id", version);
    }
}

pub(super) fn put_checksum(headers: &mut HeaderMap, checksum: &S3Checksum) {
    set(headers, checksum.algorithm.header(), &checksum.value);
    set(headers, "x-amz-checksum-type", checksum.kind.as_str());
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_s3::acl;

    use super::*;

    #[test]
    fn the_metadata_of_a_write_is_stored_and_returned() {
        let mut headers = ObjectHeaders::default();
        headers.content.insert("content-type".into(), "image/png".into());
        headers.user.insert("label".into(), "grün".into());
        let tags = vec![Tag { key: "a".into(), value: "b".into() }];
        let mut custom = to_custom(&headers, &tags);
        let sum = S3Checksum {
            algorithm: ChecksumAlgorithm::Crc64Nvme,
            kind: ChecksumType::FullObject,
            value: "AAAAAAAAAAA=".into(),
        };
        set_checksum(&mut custom, &sum);
        set_part_checksums(&mut custom, &["AA==".into(), "BB==".into()]);
        assert_eq!(headers_of(&custom), headers);
        assert_eq!((tags_of(&custom), checksum_of(&custom)), (tags, Some(sum)));
        assert_eq!(part_checksums(&custom), ["AA==", "BB=="]);
        let acl = acl::canned("public-read").unwrap();
        let kept = ObjectRights { owner: Some("ann".into()), acl, ..ObjectRights::default() };
        set_rights(&mut custom, &kept);
        assert_eq!((rights(&custom).owner, rights(&custom).acl), (kept.owner, kept.acl));
        let meta = ObjectMeta { custom, ..ObjectMeta::default() };
        let users: Vec<_> = meta.user_custom().map(|(k, _)| k.as_str()).collect();
        assert_eq!(users, ["label"], "v1 sees what users set and nothing else");
    }
}
