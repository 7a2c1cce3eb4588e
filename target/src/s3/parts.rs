//! Multipart uploads.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use forebay_core::ErrorCode;
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::upload::{Part, Upload};
use forebay_node::s3;
use forebay_s3::answers::{self, ListedPart, Owner, PartPage, UploadCompleted};
use forebay_s3::bodies::{self, CompletePart};
use forebay_s3::checksum::{ChecksumAlgorithm, ChecksumType, S3Checksum};
use forebay_s3::encode::object_url;
use forebay_s3::operation::{ListParts, UploadId, UploadPart};
use forebay_s3::put_headers::{BodyChecks, CompleteHeaders, PutHeaders};
use forebay_s3::{S3Code, S3Error, S3Result, is_url_encoded};

use super::body::{Incoming, Report};
use super::call::{Call, S3Api};
use super::{meta, write};
use crate::object::{AtEnd, AtEndMeta, ChosenPart, CompleteMeta, Completion};
use crate::object::{PartRequest, UploadOptions};

/// The note of an upload with the checksum type of the object, and of a part with its own checksum.
const CHECKSUM: &str = "checksum";

pub(super) async fn create(api: &S3Api, call: &Call) -> S3Result<Response> {
    let headers = PutHeaders::parse(&call.parts.headers)?;
    let encode = is_url_encoded(call.parts.uri.query().unwrap_or(""))?;
    let checksum = bodies::upload_checksum(headers.checksum_algorithm, headers.checksum_type)?;
    let mut custom = meta::to_custom(&headers.object, &headers.tags);
    meta::set_rights(&mut custom, &call.new_rights(api)?);
    let mut options = UploadOptions { custom: Some(custom), md5: true, ..UploadOptions::default() };
    if let Some((algorithm, kind)) = checksum {
        let note = format!("{} {}", algorithm.as_str(), kind.as_str());
        options.notes.insert(CHECKSUM.to_owned(), note);
    }
    let name = call.name.as_str();
    let id = api.objects.uploads().begin(&call.info, name, options).await?;
    let text = answers::upload_created(&call.info.bucket.name, name, &id, encode);
    let mut response = s3::xml(StatusCode::OK, text);
    if let Some((algorithm, kind)) = checksum {
        let out = response.headers_mut();
        s3::set(out, "x-amz-checksum-algorithm", algorithm.as_str());
        s3::set(out, "x-amz-checksum-type", kind.as_str());
    }
    Ok(response)
}

pub(super) async fn put(
    api: &S3Api,
    call: &Call,
    body: Body,
    part: &UploadPart,
) -> S3Result<Response> {
    let headers = &call.parts.headers;
    let checks = BodyChecks::parse(headers)?;
    let incoming = Incoming::of_request(body, call.payload.clone(), headers, &checks)?;
    let name = call.name.as_str();
    let (stored, checksum) = store(api, &call.info, name, part, incoming).await?;
    let mut response = s3::empty(StatusCode::OK);
    let out = response.headers_mut();
    s3::set(out, "etag", &forebay_s3::etag::quote(&stored.md5));
    if let Some(checksum) = checksum {
        s3::set(out, checksum.algorithm.header(), &checksum.value);
    }
    Ok(response)
}

/// Stores a body as a part.
pub(super) async fn store(
    api: &S3Api,
    info: &BucketInfo,
    name: &str,
    part: &UploadPart,
    incoming: Incoming,
) -> S3Result<(Part, Option<S3Checksum>)> {
    let Incoming { stream, len, announced, report } = incoming;
    let reported = report.clone();
    let at_end: AtEnd = Box::new(move || {
        let mut late = AtEndMeta::default();
        if let Some(S3Checksum { algorithm, value, .. }) = reported.checksum() {
            let note = format!("{} {value}", algorithm.as_str());
            late.custom.insert(CHECKSUM.to_owned(), note);
        }
        Ok(late)
    });
    let request = PartRequest { body: stream, len, announced, at_end: Some(at_end) };
    let (id, number) = (&part.upload_id, part.part_number);
    let done = api.objects.uploads().put_part(info, name, id, number, request).await;
    let stored = report.judge(done)?;
    api.objects.wrote(info, stored.size);
    Ok((stored, report.checksum()))
}

/// The checksum type of an upload's object.
pub(super) fn checksum_of(upload: &Upload) -> Option<(ChecksumAlgorithm, ChecksumType)> {
    let (algorithm, kind) = upload.notes.get(CHECKSUM)?.split_once(' ')?;
    Some((ChecksumAlgorithm::parse(algorithm).ok()?, ChecksumType::parse(kind).ok()?))
}

/// The checksum of a part.
fn part_checksum(part: &Part) -> Option<S3Checksum> {
    let (algorithm, value) = part.notes.get(CHECKSUM)?.split_once(' ')?;
    S3Checksum::full(ChecksumAlgorithm::parse(algorithm).ok()?, value).ok()
}

pub(super) async fn abort(api: &S3Api, call: &Call, upload: &UploadId) -> S3Result<Response> {
    api.objects.uploads().abort(&call.info, call.name.as_str(), &upload.upload_id).await?;
    Ok(s3::empty(StatusCode::NO_CONTENT))
}

pub(super) async fn list(api: &S3Api, call: &Call, asked: &ListParts) -> S3Result<Response> {
    let name = call.name.as_str();
    let (upload, parts) = api.objects.uploads().get(&call.info, name, &asked.upload_id).await?;
    let behind = parts.iter().filter(|part| part.number > asked.part_number_marker);
    let limit = asked.max_parts as usize;
    let page = PartPage {
        truncated: limit > 0 && behind.clone().count() > limit,
        parts: behind
            .take(limit)
            .map(|part| ListedPart {
                number: part.number,
                mtime_ns: part.stored_ns,
                etag: part.md5.clone(),
                size: part.size,
                checksum: part_checksum(part),
            })
            .collect(),
        checksum: checksum_of(&upload),
    };
    let started_by = upload.custom.as_ref().and_then(|custom| meta::rights(custom).owner);
    let owner = started_by.map_or_else(|| s3::owner_of(&call.info), |by| Owner::user(&by));
    let text = page.to_xml(&call.info.bucket.name, name, asked, &owner)?;
    Ok(s3::xml(StatusCode::OK, text))
}

pub(super) async fn complete(
    api: &S3Api,
    call: &Call,
    body: Body,
    upload: &UploadId,
) -> S3Result<Response> {
    let announced = CompleteHeaders::parse(&call.parts.headers)?;
    let encode = is_url_encoded(call.parts.uri.query().unwrap_or(""))?;
    let body = s3::read_body(body, s3::MAX_BODY).await?;
    let named = forebay_node::off_worker(body.len(), || bodies::complete_upload(&body))?;
    let (info, name, id) = (&call.info, call.name.as_str(), &upload.upload_id);
    let started = match api.objects.uploads().get(info, name, id).await {
        Ok((started, _)) => started,
        Err(e) if e.code == ErrorCode::UploadNotFound => {
            return again(api, call, id, encode).await.ok_or_else(|| e.into());
        }
        Err(e) => return Err(e.into()),
    };
    let report = Report::default();
    let completion = Completion {
        parts: named
            .iter()
            .map(|part| ChosenPart { number: part.number, etag: part.etag.clone() })
            .collect(),
        all: false,
        only_if: Some(write::only_if(announced.conditions.clone(), &report)),
        at_end: Some(
            Sum {
                report: report.clone(),
                checksum: checksum_of(&started),
                announced,
                named,
                min_part: api.door.config().min_part(),
                id: id.clone(),
            }
            .at_end(),
        ),
    };
    let done = api.objects.uploads().complete(info, name, id, completion).await;
    let stored = match done {
        // Another request completed it meanwhile.
        Err(e) if e.code == ErrorCode::UploadNotFound => {
            return again(api, call, id, encode).await.ok_or_else(|| e.into());
        }
        done => report.judge(done)?,
    };
    Ok(completed(call, &stored, encode))
}

/// The response to a repeated completion: the object exists.
async fn again(api: &S3Api, call: &Call, id: &str, encode: bool) -> Option<Response> {
    let object = api.objects.reads().head(&call.info, call.name.as_str()).await.ok()?;
    let made = object.custom.get(meta::UPLOAD).is_some_and(|upload| upload == id);
    made.then(|| completed(call, &object, encode))
}

fn completed(call: &Call, object: &ObjectMeta, encode: bool) -> Response {
    let info = &call.info;
    let checksum = meta::checksum_of(&object.custom);
    let answer = UploadCompleted {
        location: &object_url(&call.parts.headers, call.parts.uri.path()),
        bucket: &info.bucket.name,
        key: call.name.as_str(),
        etag: &object.s3_etag(),
        checksum: checksum.as_ref(),
        encode,
    };
    let mut response = s3::xml(StatusCode::OK, answer.to_xml());
    meta::put_new_version(response.headers_mut(), info, object);
    response
}

/// Checks the parts of an object, and combines their checksums.
struct Sum {
    report: Report,
    checksum: Option<(ChecksumAlgorithm, ChecksumType)>,
    /// The checksum that the client expects for the whole object.
    announced: CompleteHeaders,
    named: Vec<CompletePart>,
    min_part: u64,
    id: String,
}

impl Sum {
    fn at_end(self) -> CompleteMeta {
        let report = self.report.clone();
        Box::new(move |parts: &[Part]| self.of(parts).map_err(|e| report.failed(e)))
    }

    fn of(self, parts: &[Part]) -> S3Result<AtEndMeta> {
        let inner = parts.split_last().map_or(&[][..], |(_, inner)| inner);
        if let Some(part) = inner.iter().find(|part| part.size < self.min_part) {
            return Err(S3Error::from(S3Code::EntityTooSmall)
                .detail("ProposedSize", part.size.to_string())
                .detail("MinSizeAllowed", self.min_part.to_string())
                .detail("PartNumber", part.number.to_string()));
        }
        let sums: Vec<Option<S3Checksum>> = parts.iter().map(part_checksum).collect();
        for (named, got) in self.named.iter().zip(&sums) {
            if let (Some(wanted), Some(got)) = (&named.checksum, got)
                && wanted.algorithm == got.algorithm
                && wanted.value != got.value
            {
                return Err(S3Code::InvalidPart.into());
            }
        }
        let mut late = AtEndMeta::default();
        late.custom.insert(meta::UPLOAD.to_owned(), self.id);
        self.announced.check_size(parts.iter().map(|part| part.size).sum())?;
        if let Some((algorithm, kind)) = self.checksum {
            let values: Option<Vec<(String, u64)>> = sums
                .into_iter()
                .zip(parts)
                .map(|(sum, part)| {
                    let sum = sum.filter(|sum| sum.algorithm == algorithm)?;
                    Some((sum.value, part.size))
                })
                .collect();
            let values = values.unwrap_or_default();
            let each = values.iter().map(|(value, size)| (value.as_str(), *size));
            if !values.is_empty()
                && let Some(sum) = S3Checksum::of_parts(algorithm, kind, each)
            {
                self.announced.check_checksum(&sum)?;
                meta::set_checksum(&mut late.custom, &sum);
                let values: Vec<String> = values.into_iter().map(|(value, _)| value).collect();
                meta::set_part_checksums(&mut late.custom, &values);
            }
        }
        Ok(late)
    }
}
