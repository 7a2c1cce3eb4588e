//! PutObject and DeleteObject.

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use forebay_core::ErrorCode;
use forebay_core::object::ObjectMeta;
use forebay_node::s3;
use forebay_s3::S3Result;
use forebay_s3::condition::WriteConditions;
use forebay_s3::operation::ObjectVersion;
use forebay_s3::put_headers::PutHeaders;

use super::body::{Incoming, Report};
use super::call::{Call, S3Api};
use super::meta::{self, Custom};
use crate::object::{AtEnd, AtEndMeta, OnlyIf, PutRequest, Removed};

pub(super) async fn put(api: &S3Api, call: &Call, body: Body) -> S3Result<Response> {
    let headers = PutHeaders::parse(&call.parts.headers)?;
    let incoming =
        Incoming::of_request(body, call.payload.clone(), &call.parts.headers, &headers.checks)?;
    let mut custom = meta::to_custom(&headers.object, &headers.tags);
    meta::set_rights(&mut custom, &call.new_rights(api)?);
    let name = call.name.as_str();
    let (stored, _) = store(api, &call.info, name, incoming, custom, headers.conditions).await?;
    let mut response = s3::empty(StatusCode::OK);
    s3::set(response.headers_mut(), "etag", &forebay_s3::etag::quote(&stored.s3_etag()));
    meta::put_new_version(response.headers_mut(), &call.info, &stored);
    if let Some(checksum) = meta::checksum_of(&stored.custom) {
        meta::put_checksum(response.headers_mut(), &checksum);
    }
    Ok(response)
}

/// Stores a body as an object, if `conditions` hold.
pub(super) async fn store(
    api: &S3Api,
    info: &forebay_core::bucket::BucketInfo,
    name: &str,
    incoming: Incoming,
    custom: Custom,
    conditions: WriteConditions,
) -> S3Result<(ObjectMeta, Report)> {
    let Incoming { stream, len, announced, report } = incoming;
    let put = PutRequest {
        len,
        announced,
        custom: Some(custom),
        md5: true,
        // Always: the same bytes with other metadata are another object.
        only_if: Some(only_if(conditions, &report)),
        at_end: Some(at_end(&report)),
        ..PutRequest::new(stream)
    };
    let done = api.objects.writes().put(info, name, put).await;
    let stored = match report.judge(done)? {
        Some(stored) => stored,
        None => api.objects.reads().head(info, name).await?,
    };
    api.objects.wrote(info, stored.size);
    Ok((stored, report))
}

/// Checks a write's conditions against the current object.
pub(super) fn only_if(conditions: WriteConditions, report: &Report) -> OnlyIf {
    let report = report.clone();
    Box::new(move |object: Option<&ObjectMeta>| {
        let etag = object.map(ObjectMeta::s3_etag).unwrap_or_default();
        let present = object.map(|object| meta::present(object, &etag));
        conditions.check_put(present).map_err(|e| report.failed(e))
    })
}

/// Stores the checksum that was computed during the upload.
fn at_end(report: &Report) -> AtEnd {
    let report = report.clone();
    Box::new(move || {
        let mut late = AtEndMeta::default();
        if let Some(checksum) = report.checksum() {
            meta::set_checksum(&mut late.custom, &checksum);
        }
        Ok(late)
    })
}

/// A missing object counts as deleted.
pub(super) async fn delete(api: &S3Api, call: &Call, asked: &ObjectVersion) -> S3Result<Response> {
    let (info, name) = (&call.info, call.name.as_str());
    let conditions = WriteConditions::parse(&call.parts.headers)?;
    let report = Report::default();
    let only_if = (!conditions.is_empty()).then(|| only_if_deleted(conditions, &report));
    let done = match &asked.version_id {
        Some(id) if !info.has_backend() => {
            api.objects.versions().delete(info, name, id, only_if).await
        }
        _ => api.objects.writes().delete_if(info, name, only_if).await,
    };
    let removed = match done {
        Err(e) if e.code == ErrorCode::ObjectNotFound => Removed::default(),
        done => report.judge(done)?,
    };
    let mut response = s3::empty(StatusCode::NO_CONTENT);
    let out = response.headers_mut();
    if info.keeps_versions()
        && let Some(version) = removed.version.as_ref().or(asked.version_id.as_ref())
    {
        s3::set(out, "x-amz-version-id", version);
    }
    if removed.marker {
        s3::set(out, "x-amz-delete-marker", "true");
    }
    Ok(response)
}

/// Checks a deletion's conditions against the current object.
fn only_if_deleted(conditions: WriteConditions, report: &Report) -> OnlyIf {
    let report = report.clone();
    Box::new(move |object: Option<&ObjectMeta>| {
        let etag = object.map(ObjectMeta::s3_etag).unwrap_or_default();
        let present = object.map(|object| meta::present(object, &etag));
        conditions.check_delete(present).map_err(|e| report.failed(e))
    })
}
