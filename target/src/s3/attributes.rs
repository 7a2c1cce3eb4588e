//! GetObjectAttributes.

use axum::http::StatusCode;
use axum::response::Response;
use forebay_core::object::ObjectMeta;
use forebay_node::s3;
use forebay_s3::answers::{AttributeParts, ObjectAttributes};
use forebay_s3::bodies::WantedAttributes;
use forebay_s3::checksum::{ChecksumType, S3Checksum};
use forebay_s3::operation::ObjectVersion;
use forebay_s3::{S3Error, S3Result};

use super::call::{Call, S3Api};
use super::{meta, read};

/// Most parts in one response.
const MAX_PARTS: u32 = 1000;

pub(super) async fn get(api: &S3Api, call: &Call, version: &ObjectVersion) -> S3Result<Response> {
    let headers = &call.parts.headers;
    let words = headers.get_all("x-amz-object-attributes").iter();
    let wanted = WantedAttributes::parse(words.filter_map(|v| v.to_str().ok()))?;
    let number = |name: &str, default: u32| match headers.get(name) {
        None => Ok(default),
        Some(value) => {
            let text = value.to_str().unwrap_or_default();
            text.parse::<u32>().map_err(|_| S3Error::argument(name, text, "not a number"))
        }
    };
    let max = number("x-amz-max-parts", MAX_PARTS)?.min(MAX_PARTS);
    let marker = number("x-amz-part-number-marker", 0)?;
    let object = read::stat(api, call, &version.version_id).await?;
    let answer = ObjectAttributes {
        etag: wanted.etag.then(|| object.s3_etag()),
        checksum: meta::checksum_of(&object.custom).filter(|_| wanted.checksum),
        parts: (wanted.parts && !object.parts.is_empty()).then(|| parts(&object, marker, max)),
        storage_class: wanted.storage_class,
        size: wanted.size.then_some(object.size),
    };
    let mut response = s3::xml(StatusCode::OK, answer.to_xml());
    let modified = forebay_core::date::format_http(object.mtime_ns);
    s3::set(response.headers_mut(), "last-modified", &modified);
    meta::put_version(response.headers_mut(), &call.info, &object);
    Ok(response)
}

fn parts(object: &ObjectMeta, marker: u32, max: u32) -> AttributeParts {
    let total = u32::try_from(object.parts.count()).unwrap_or(u32::MAX);
    let sums = meta::part_checksums(&object.custom);
    let algorithm = meta::checksum_of(&object.custom).map(|sum| sum.algorithm);
    let last = total.min(marker.saturating_add(max));
    let parts = (marker.saturating_add(1)..=last).filter_map(|number| {
        let range = object.parts.range(number.into())?;
        let value = sums.get(number as usize - 1);
        let checksum = value.zip(algorithm).map(|(value, algorithm)| S3Checksum {
            algorithm,
            kind: ChecksumType::FullObject,
            value: value.clone(),
        });
        Some((number, range.len(), checksum))
    });
    AttributeParts { total, marker, max, truncated: last < total, parts: parts.collect() }
}
