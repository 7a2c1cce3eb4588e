//! GetObject and HeadObject.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use forebay_core::ErrorCode;
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_node::s3::{self, set};
use forebay_s3::access::Verdict;
use forebay_s3::operation::GetObject;
use forebay_s3::range::{ByteRange as Asked, Span};
use forebay_s3::read_headers::ReadHeaders;
use forebay_s3::{S3Code, S3Error, S3Result};

use super::call::{Call, S3Api};
use super::meta;
use super::meta::present;
use crate::object::{Turns, VersionLooks, is_marker, read_first_chunk};

/// Whole objects up to this size are sent in one chunk.
const ONE_PIECE: u64 = 1 << 20;
/// All custom metadata as JSON, for another node that copies the object.
pub(super) const CUSTOM: &str = "forebay-s3-custom";

pub(super) async fn get(api: &S3Api, call: &Call, asked: &GetObject) -> S3Result<Response> {
    let mut place = None;
    let headers = ReadHeaders::parse(&call.parts.headers);
    // The range of a part is known only when the object is.
    let range = headers.range.filter(|_| asked.part_number.is_none()).map(spec);
    let (mut turns, mut looks) = (Turns::default(), VersionLooks::default());
    let (found, started) = loop {
        if asked.version_id.is_some() {
            let at = locate(api, &call.info, call.name.as_str(), &asked.version_id).await?;
            place = Some(at);
        }
        let (info, name) = match &place {
            None => (&*call.info, call.name.as_str()),
            Some((info, name)) => (info, name.as_str()),
        };
        let found = match api.objects.reads().get_range(info, name, range).await {
            Err(e) if e.code == ErrorCode::RangeNotSatisfiable => {
                // Handled after the metadata: the object's size, and whether the range fits at all.
                api.objects.reads().get_range(info, name, None).await
            }
            found => found,
        };
        let opened = found.as_ref().map(|found| found.meta());
        if looks.again(&call.info, asked.version_id.as_deref(), opened)? {
            continue;
        }
        let mut found = found?;
        let object = found.meta().clone();
        check_object(api, call, &object)?;
        if range.is_some() && !headers.range_is_of(present(&object, &object.s3_etag())) {
            // The whole object is sent, of this version or of a newer one.
            found = api.objects.reads().get_range(info, name, None).await?;
            if found.meta().s3_etag() != object.s3_etag() {
                continue;
            }
        }
        let selected = match select(&object, asked, &headers) {
            Err(e) if e.code == S3Code::NotModified => return Ok(not_modified(call, &object)),
            selected => selected?,
        };
        let bytes = selected.span.map_or(ByteRange::whole(object.size), |span| ByteRange {
            start: span.offset,
            end: span.offset + span.length,
        });
        let result = found.result();
        let objects = &api.objects;
        let started = if selected.span.is_none() && object.size <= ONE_PIECE {
            let whole = found.read_all().await;
            whole.inspect(|_| objects.served(info, result, bytes.len())).map(Body::from)
        } else {
            read_first_chunk(found.stream(bytes)).await.map(|stream| {
                let answer = (info, result, bytes.len());
                let len = |piece: &bytes::Bytes| piece.len() as u64;
                Body::from_stream(objects.counting(answer, stream, len))
            })
        };
        if turns.again(&started) {
            continue;
        }
        break ((object, selected), started?);
    };
    let (object, selected) = found;
    let mut response = Response::new(started);
    describe(response.headers_mut(), call, &object, asked, &headers, &selected);
    *response.status_mut() = selected.status();
    Ok(response)
}

pub(super) async fn head(api: &S3Api, call: &Call, asked: &GetObject) -> S3Result<Response> {
    let headers = ReadHeaders::parse(&call.parts.headers);
    let object = stat(api, call, &asked.version_id).await?;
    let selected = match select(&object, asked, &headers) {
        Err(e) if e.code == S3Code::NotModified => return Ok(not_modified(call, &object)),
        selected => selected?,
    };
    let mut response = Response::new(Body::empty());
    describe(response.headers_mut(), call, &object, asked, &headers, &selected);
    *response.status_mut() = selected.status();
    Ok(response)
}

/// The response to a client that has the object already.
fn not_modified(call: &Call, object: &ObjectMeta) -> Response {
    let mut response = s3::empty(StatusCode::NOT_MODIFIED);
    meta::put_identity(response.headers_mut(), object);
    meta::put_version(response.headers_mut(), &call.info, object);
    response
}

/// Bucket and name under which a version is read; those of the object itself if none is given.
pub(super) async fn locate(
    api: &S3Api,
    info: &BucketInfo,
    name: &str,
    version: &Option<String>,
) -> S3Result<(BucketInfo, String)> {
    let Some(id) = version.as_deref() else { return Ok((info.clone(), name.to_owned())) };
    let found = api.objects.versions().find(info, name, id).await?;
    found.ok_or_else(|| S3Error::from(S3Code::NoSuchVersion).detail("VersionId", id))
}

/// Rejects callers without the right to read, and delete markers, which have no content.
fn check_object(api: &S3Api, call: &Call, object: &ObjectMeta) -> S3Result<()> {
    if call.verdict == Verdict::ByObject {
        call.check(api, &meta::rights(&object.custom))?;
    }
    check_marker(object)
}

/// Rejects a delete marker.
pub(super) fn check_marker(object: &ObjectMeta) -> S3Result<()> {
    if is_marker(object) { Err(S3Code::MethodNotAllowed.into()) } else { Ok(()) }
}

/// Metadata of an object or of one of its versions, for callers with the right to it.
pub(super) async fn stat(
    api: &S3Api,
    call: &Call,
    version: &Option<String>,
) -> S3Result<ObjectMeta> {
    let mut looks = VersionLooks::default();
    loop {
        let (info, name) = locate(api, &call.info, call.name.as_str(), version).await?;
        let object = api.objects.reads().head(&info, &name).await;
        if looks.again(&call.info, version.as_deref(), object.as_ref())? {
            continue;
        }
        let object = object?;
        check_object(api, call, &object)?;
        return Ok(object);
    }
}

/// The requested part of an object.
struct Selected {
    /// The whole object if absent.
    span: Option<Span>,
    /// Number of parts of the object's upload, if a part is requested.
    parts: Option<u64>,
}

impl Selected {
    fn status(&self) -> StatusCode {
        if self.span.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }
    }
}

/// Checks the conditions and determines the requested bytes.
fn select(object: &ObjectMeta, asked: &GetObject, headers: &ReadHeaders) -> S3Result<Selected> {
    let etag = object.s3_etag();
    headers.conditions.check(present(object, &etag))?;
    let Some(number) = asked.part_number else {
        let range = headers.range.filter(|_| headers.range_is_of(present(object, &etag)));
        let span = range.map(|range| range.resolve(object.size)).transpose()?;
        return Ok(Selected { span, parts: None });
    };
    if headers.range.is_some() {
        return Err(S3Error::new(
            S3Code::InvalidRequest,
            "Cannot specify both Range header and partNumber query parameter",
        ));
    }
    if object.parts.is_empty() {
        // An object that was put as a whole has one part, which is all of it.
        let whole = Span { offset: 0, length: object.size, size: object.size };
        return match number {
            1 => Ok(Selected { span: (object.size > 0).then_some(whole), parts: None }),
            _ => Err(S3Code::InvalidPart.into()),
        };
    }
    let Some(part) = object.parts.range(number.into()) else {
        return Err(S3Code::InvalidPart.into());
    };
    let span = Span { offset: part.start, length: part.len(), size: object.size };
    Ok(Selected { span: Some(span), parts: Some(object.parts.count()) })
}

fn describe(
    out: &mut HeaderMap,
    call: &Call,
    object: &ObjectMeta,
    asked: &GetObject,
    headers: &ReadHeaders,
    selected: &Selected,
) {
    let kept = meta::headers_of(&object.custom);
    for (name, value) in kept.pairs() {
        set(out, &name, value);
    }
    for (name, value) in &asked.overrides {
        set(out, name, value);
    }
    meta::put_identity(out, object);
    meta::put_version(out, &call.info, object);
    out.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let length = selected.span.map_or(object.size, |span| span.length);
    out.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    if let Some(span) = selected.span {
        set(out, "content-range", &span.content_range());
    }
    if let Some(count) = selected.parts {
        set(out, "x-amz-mp-parts-count", &count.to_string());
    }
    let tags = meta::tags_of(&object.custom).len();
    if tags > 0 {
        set(out, "x-amz-tagging-count", &tags.to_string());
    }
    // A range's bytes have another checksum than the object's.
    if headers.checksum_mode
        && headers.range.is_none()
        && let Some(mut checksum) = meta::checksum_of(&object.custom)
    {
        let part = asked.part_number.filter(|_| selected.parts.is_some());
        let value = part.map(|n| meta::part_checksums(&object.custom).get(n as usize - 1).cloned());
        match value {
            // The checksum of a part, with the header names of the whole object's, as AWS does.
            Some(Some(value)) => {
                checksum.value = value;
                meta::put_checksum(out, &checksum);
            }
            Some(None) => {}
            None => meta::put_checksum(out, &checksum),
        }
    }
    if call.from_node
        && let Ok(custom) = serde_json::to_string(&object.custom)
    {
        set(out, CUSTOM, &custom);
    }
}

/// The range in the form that the store uses.
fn spec(range: Asked) -> RangeSpec {
    match range {
        Asked::From(first) => RangeSpec::From(first, None),
        Asked::FromTo(first, last) => RangeSpec::From(first, Some(last)),
        Asked::Last(n) => RangeSpec::Suffix(n),
    }
}
