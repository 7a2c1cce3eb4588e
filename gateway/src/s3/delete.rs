//! DeleteObjects: the owner of each object deletes it and checks the permission.

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::Response;
use forebay_core::date;
use forebay_core::state::Summary;
use forebay_node::relay::Relay;
use forebay_node::s3;
use forebay_s3::answers::{self, DeleteOutcome, Deleted};
use forebay_s3::bodies::{self, DeleteKey};
use forebay_s3::put_headers::BodyChecks;
use forebay_s3::xml::{NotInXml, fits_xml};
use forebay_s3::{Element, S3Code, S3Error, S3Result, encode, is_url_encoded};
use futures::StreamExt;

use super::{Call, S3};
use crate::changes;
use crate::route::Found;

/// Maximum concurrent deletes for one request.
const MAX_CONCURRENT_DELETES: usize = 32;

impl S3 {
    pub(super) async fn delete_objects(&self, call: &Call, body: Body) -> S3Result<Response> {
        let found = self.found(&call.request.bucket)?;
        let checks = BodyChecks::parse(&call.parts.headers)?;
        let body = s3::read_body(body, s3::MAX_BODY).await?;
        check(&checks, &body)?;
        let asked = forebay_node::off_worker(body.len(), || bodies::delete_objects(&body))?;
        let is_encoded = is_url_encoded(call.parts.uri.query().unwrap_or(""))?;
        // Checked before anything is deleted: the answer could not contain these names.
        if !is_encoded && !asked.quiet && !asked.objects.iter().all(|object| fits_xml(&object.key))
        {
            return Err(NotInXml.into());
        }
        let found = &found;
        let rows: Vec<Deleted> = futures::stream::iter(asked.objects)
            .map(|object| async move {
                let outcome = self.delete_one(found, call, &object).await;
                Deleted { key: object.key, version_id: object.version_id, outcome }
            })
            .buffered(MAX_CONCURRENT_DELETES)
            .collect()
            .await;
        let refused = rows.iter().filter(|row| row.outcome.is_err()).count();
        let detail = format!("deleted={}, refused={refused}", rows.len() - refused);
        let summary = Summary::new("objects deleted", &found.info.bucket).with(detail);
        changes::log(&summary, Ok(None));
        Ok(s3::xml(StatusCode::OK, answers::objects_deleted(&rows, asked.quiet, is_encoded)))
    }

    async fn delete_one(
        &self,
        found: &Found,
        call: &Call,
        object: &DeleteKey,
    ) -> S3Result<DeleteOutcome> {
        forebay_core::ObjectName::new(&object.key)?;
        let bucket = &found.info.bucket.name;
        let mut path = format!("/{bucket}/{}", encode::encode_key(&object.key));
        if let Some(version) = &object.version_id {
            path.push_str(&format!("?versionId={}", encode::encode_query(version.as_bytes())));
        }
        let mut headers = conditions(object);
        headers.extend(s3::judged_by(&call.parts.headers));
        let request = Relay::request(Method::DELETE, &path, headers, Body::empty())?;
        let answer = self.ask_owner(found, &object.key, &call.who, request).await?;
        if answer.status().is_success() {
            let text = |name: &str| answer.headers().get(name).and_then(|v| v.to_str().ok());
            let marker = text("x-amz-delete-marker") == Some("true");
            let version = text("x-amz-version-id").filter(|_| marker).map(str::to_owned);
            return Ok(DeleteOutcome { delete_marker: marker, marker_version_id: version });
        }
        let status = answer.status().as_u16();
        let body = s3::read_body(answer.into_body(), s3::MAX_BODY).await?;
        Err(read_error(&body, status))
    }
}

/// The conditions of one row as headers of a separate DELETE.
fn conditions(object: &DeleteKey) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(etag) = &object.if_etag {
        let etag = if etag == "*" { etag.clone() } else { forebay_s3::etag::quote(etag) };
        s3::set(&mut headers, "if-match", &etag);
    }
    if let Some(at) = object.if_modified_s {
        let at = date::format_http(at * 1_000_000_000);
        s3::set(&mut headers, "x-amz-if-match-last-modified-time", &at);
    }
    if let Some(size) = object.if_size {
        s3::set(&mut headers, "x-amz-if-match-size", &size.to_string());
    }
    headers
}

/// The error that a node answered with.
fn read_error(body: &[u8], status: u16) -> S3Error {
    let unknown = || S3Error::new(S3Code::InternalError, format!("the owner answered {status}"));
    let Ok(root) = Element::parse(body, "Error") else { return unknown() };
    let code = root.text_of("Code").unwrap_or_default();
    match S3Code::ALL.iter().find(|c| c.as_str() == code) {
        Some(code) => S3Error::new(*code, root.text_of("Message").unwrap_or_default().to_owned()),
        None => unknown(),
    }
}

/// Compares a small body with the checksums that its sender declared.
pub(super) fn check(checks: &BodyChecks, body: &[u8]) -> S3Result<()> {
    if let Some(md5) = checks.md5 {
        let mut hasher = forebay_core::checksum::ChecksumKind::Md5.hasher();
        hasher.update(body);
        let got = hasher.finish().map(|sum| sum.value).unwrap_or_default();
        let wanted: String = md5.iter().map(|b| format!("{b:02x}")).collect();
        if got != wanted {
            return Err(S3Code::BadDigest.into());
        }
    }
    if let Some(wanted) = &checks.checksum {
        let mut hasher = wanted.algorithm.hasher();
        hasher.update(body);
        hasher.finish().expect(wanted)?;
    }
    Ok(())
}
