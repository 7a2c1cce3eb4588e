//! Sources of copies: objects on this target, or on another one.

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode};
use bytes::Bytes;
use forebay_core::date;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result, placement};
use forebay_node::relay::Relay;
use forebay_node::s3;
use forebay_s3::Request as S3Request;
use forebay_s3::access::Verdict;
use forebay_s3::condition::{Present, ReadConditions};
use forebay_s3::copy_source::CopySource;
use forebay_s3::operation::{GetObject, Operation};
use forebay_s3::range::{ByteRange as Asked, Span};
use forebay_s3::{Element, S3Code, S3Error, S3Result, encode, etag};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::call::{Call, S3Api};
use super::meta::Custom;
use super::read;
use crate::object::VersionLooks;

/// An object that is being copied.
pub(super) struct Source {
    pub(super) custom: Custom,
    pub(super) stream: BoxStream<'static, Result<Bytes>>,
    /// Bytes of `stream`.
    pub(super) len: u64,
}

impl Source {
    /// Opens the source of a copy, if the conditions of the request hold.
    pub(super) async fn open(api: &S3Api, call: &Call, source: &CopySource) -> S3Result<Self> {
        let state = api.maps.load();
        let info = s3::bucket(&state, &source.bucket)?;
        let read = S3Request {
            bucket: source.bucket.clone(),
            key: source.key.clone(),
            operation: Operation::GetObject(GetObject {
                version_id: source.version_id.clone(),
                ..GetObject::default()
            }),
        };
        let door = &api.door;
        let expected = call.parts.headers.get("x-amz-source-expected-bucket-owner");
        door.check_owner(info, expected)?;
        let verdict = door.authorize_source(&call.who, info, &read, &call.parts)?;
        let conditions = ReadConditions::of_copy(&call.parts.headers);
        let owner = placement::owner(&state, info, &source.key)?;
        if owner.id == *api.objects.me() {
            let found = async {
                let (mut looks, version) = (VersionLooks::default(), &source.version_id);
                loop {
                    let (at, name) = read::locate(api, info, &source.key, version).await?;
                    let found = api.objects.reads().get(&at, &name).await;
                    let opened = found.as_ref().map(|found| found.meta());
                    if !looks.again(info, version.as_deref(), opened)? {
                        return Ok(found?);
                    }
                }
            };
            let hidden = |e| door.hide_missing(&call.who, info, &read, &call.parts, e);
            let found = found.await.map_err(hidden)?;
            let object = found.meta().clone();
            if verdict == Verdict::ByObject {
                let rights = super::meta::rights(&object.custom);
                door.authorize_object(&call.who, info, &read, &call.parts, &rights)?;
            }
            read::check_marker(&object)?;
            let tag = object.s3_etag();
            conditions.check_copy(super::meta::present(&object, &tag))?;
            let span = span(source.range, object.size)?;
            let range = ByteRange { start: span.offset, end: span.offset + span.length };
            return Ok(Self {
                custom: object.custom,
                stream: found.stream(range),
                len: span.length,
            });
        }
        let mut path = format!("/{}/{}", source.bucket, encode::encode_key(&source.key));
        if let Some(version) = &source.version_id {
            path.push_str(&format!("?versionId={}", encode::encode_query(version.as_bytes())));
        }
        let ask = |method, headers: HeaderMap| {
            let mut all = s3::judged_by(&call.parts.headers);
            all.extend(headers);
            Relay::request(method, &path, all, Body::empty())
        };
        let user = Some(s3::name_of(&call.who));
        let pass = async |request| api.relay.pass(&owner.url, state.version, user, request).await;
        // HEAD first: a range that is too long is an error, and conditions transfer no bytes.
        let head = pass(ask(Method::HEAD, HeaderMap::new())?).await?;
        let object = described(head.status(), head.headers(), &source.key)?;
        let tag = object.etag.clone();
        conditions.check_copy(Present {
            etag: &tag,
            mtime_ns: object.mtime_ns,
            size: object.size,
        })?;
        let span = span(source.range, object.size)?;
        let mut headers = HeaderMap::new();
        s3::set(&mut headers, "if-match", &etag::quote(&tag));
        if source.range.is_some() {
            let last = span.offset + span.length - 1;
            s3::set(&mut headers, "range", &format!("bytes={}-{last}", span.offset));
        }
        let answer = pass(ask(Method::GET, headers)?).await?;
        if !answer.status().is_success() {
            let status = answer.status();
            let body = s3::read_body(answer.into_body(), s3::MAX_BODY).await?;
            let root = Element::parse(&body, "Error").ok();
            let text = root.as_ref().and_then(|r| r.text_of("Code")).unwrap_or_default();
            let code = S3Code::ALL.iter().find(|c| c.as_str() == text);
            return Err(code.copied().map_or_else(|| refusal(status, &source.key), S3Error::from));
        }
        let stream = answer.into_body().into_data_stream();
        let lost = |e| Error::unavailable(format!("the source of a copy broke off: {e}"));
        Ok(Self { custom: object.custom, stream: stream.map_err(lost).boxed(), len: span.length })
    }
}

fn span(range: Option<Asked>, size: u64) -> S3Result<Span> {
    match range {
        None => Ok(Span { offset: 0, length: size, size }),
        Some(range) => range.resolve_exact(size),
    }
}

/// The metadata of an object in another target's response.
fn described(status: StatusCode, headers: &HeaderMap, key: &str) -> S3Result<ObjectMeta> {
    if !status.is_success() {
        return Err(refusal(status, key));
    }
    let text = |name: &str| headers.get(name).and_then(|v| std::str::from_utf8(v.as_bytes()).ok());
    let custom = text(read::CUSTOM).and_then(|json| serde_json::from_str(json).ok());
    Ok(ObjectMeta {
        size: text("content-length").and_then(|n| n.parse().ok()).unwrap_or_default(),
        etag: etag::unquote(text("etag").unwrap_or_default()).to_owned(),
        mtime_ns: text("last-modified").and_then(date::parse_http_ns).unwrap_or(0),
        custom: custom.unwrap_or_default(),
        ..ObjectMeta::default()
    })
}

fn refusal(status: StatusCode, key: &str) -> S3Error {
    match status {
        StatusCode::NOT_FOUND => S3Error::from(S3Code::NoSuchKey).detail("Key", key),
        StatusCode::FORBIDDEN => S3Code::AccessDenied.into(),
        StatusCode::PRECONDITION_FAILED => S3Code::PreconditionFailed.into(),
        StatusCode::SERVICE_UNAVAILABLE => S3Code::ServiceUnavailable.into(),
        _ => S3Error::new(S3Code::InternalError, format!("the source answered {status}")),
    }
}
