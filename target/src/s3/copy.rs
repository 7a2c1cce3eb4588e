//! CopyObject and UploadPartCopy.

use axum::http::StatusCode;
use axum::response::Response;
use forebay_node::s3;
use forebay_s3::answers;
use forebay_s3::copy_source::CopySource;
use forebay_s3::operation::UploadPart;
use forebay_s3::put_headers::{Directive, PutHeaders};
use forebay_s3::{S3Code, S3Error, S3Result};

use super::body::Incoming;
use super::call::{Call, S3Api};
use super::source::Source;
use super::{meta, parts, write};

pub(super) async fn object(api: &S3Api, call: &Call, source: &CopySource) -> S3Result<Response> {
    let headers = PutHeaders::parse(&call.parts.headers)?;
    let replaces = headers.metadata_directive == Directive::Replace;
    let itself = *source.bucket == *call.info.bucket.name && source.key == call.name.as_str();
    if itself && !replaces && source.version_id.is_none() {
        return Err(S3Error::new(
            S3Code::InvalidRequest,
            "This copy request is illegal because it is trying to copy an object to itself without \
             changing the object's metadata, storage class, website redirect location or \
             encryption attributes.",
        ));
    }
    let rights = call.new_rights(api)?;
    let from = Source::open(api, call, source).await?;
    let kept = if replaces { headers.object } else { meta::headers_of(&from.custom) };
    let tags = match headers.tagging_directive {
        Directive::Replace => headers.tags,
        Directive::Copy => meta::tags_of(&from.custom),
    };
    let checksum = meta::checksum_of(&from.custom);
    let algorithm = headers.checksum_algorithm.or(checksum.map(|c| c.algorithm));
    let incoming = Incoming::of_stream(from.stream, from.len, algorithm);
    let mut custom = meta::to_custom(&kept, &tags);
    meta::set_rights(&mut custom, &rights);
    let name = call.name.as_str();
    let (stored, report) =
        write::store(api, &call.info, name, incoming, custom, headers.conditions).await?;
    let checksum = report.checksum();
    let text = answers::object_copied(&stored.s3_etag(), stored.mtime_ns, checksum.as_ref());
    let mut response = s3::xml(StatusCode::OK, text);
    meta::put_new_version(response.headers_mut(), &call.info, &stored);
    if let Some(version) = &source.version_id {
        s3::set(response.headers_mut(), "x-amz-copy-source-version-id", version);
    }
    Ok(response)
}

pub(super) async fn part(
    api: &S3Api,
    call: &Call,
    part: &UploadPart,
    source: &CopySource,
) -> S3Result<Response> {
    let (info, name) = (&call.info, call.name.as_str());
    let (upload, _) = api.objects.uploads().get(info, name, &part.upload_id).await?;
    let from = Source::open(api, call, source).await?;
    let algorithm = parts::checksum_of(&upload).map(|(algorithm, _)| algorithm);
    let incoming = Incoming::of_stream(from.stream, from.len, algorithm);
    let (stored, checksum) = parts::store(api, info, name, part, incoming).await?;
    let text = answers::part_copied(&stored.md5, stored.stored_ns, checksum.as_ref());
    Ok(s3::xml(StatusCode::OK, text))
}
