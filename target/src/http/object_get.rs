//! GET of an object over v1: the requested part, and the response.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::bucket::Freshness;
use forebay_core::etl::EtlCall;
use forebay_core::object::ObjectMeta;
use forebay_core::s3::condition::{Present, if_range_holds};
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::v1::archive::ArchiveQuery;
use forebay_core::v1::headers::{self as v1, Headers};
use forebay_core::v1::object::BlobArgs;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::auth::Caller;
use forebay_node::listener::Streamed;
use forebay_node::reply::Failure;

use super::objects::ObjectRequest;
use super::{Context, Shared, etl, object_actions, shard};
use crate::object::{HotRead, Turns, read_first_chunk};
use crate::store::Record;

/// Whole objects up to this size are sent in one chunk.
const ONE_PIECE: u64 = 1 << 20;
/// Parts of a file from this size on are sent by the kernel.
const SENDFILE_MIN_BYTES: u64 = 64 << 10;
/// Headers of a GET response, so that their map need not grow.
const GET_HEADERS: usize = 12;
/// The same in bytes.
const HEAD: usize = 512;
/// The kind of content that a GET requests.
pub(super) enum Wanted {
    Bytes(Option<RangeSpec>),
    /// As `Bytes`, after the look-up of a fresh copy; the copy if there is one.
    Looked(Option<RangeSpec>, Option<Box<Record>>),
    /// As `Bytes`, once a job has fetched it.
    Fetched(BlobArgs, Option<RangeSpec>),
    Member(ArchiveQuery),
    Transformed(EtlCall),
}

impl Wanted {
    /// Parses the request of a GET.
    pub(super) fn of(request: &mut ObjectRequest) -> Result<Self> {
        if request.query.flag("latest-ver") {
            Arc::make_mut(&mut request.info).freshness = Freshness::Always;
        }
        let call = EtlCall::from_query(&request.query)?;
        match (ArchiveQuery::parse(&request.query)?, call) {
            (Some(_), Some(_)) => {
                return Err(Error::invalid(
                    "members of shards cannot be transformed: etl_name goes without archive \
                     parameters",
                ));
            }
            (Some(asked), None) => return Ok(Self::Member(asked)),
            (None, Some(call)) => return Ok(Self::Transformed(call)),
            (None, None) => {}
        }
        let range = match request.headers.get(header::RANGE) {
            Some(value) => RangeSpec::parse(value.to_str().unwrap_or("bytes="))?,
            None => None,
        };
        Ok(match BlobArgs::from_headers(&request.headers)? {
            Some(blob) => Self::Fetched(blob, range),
            None => Self::Bytes(range),
        })
    }

    /// The fast path: a small object in memory, returned without waiting. Otherwise returns the
    /// request, with the result of the look-up.
    pub(super) fn fast_path(
        self,
        context: &Context,
        request: &ObjectRequest,
    ) -> Result<Result<FastRead, Self>> {
        let range = match self {
            Self::Bytes(range)
                if request.caller != Caller::Node
                    && (range.is_none() || !request.headers.contains_key(header::IF_RANGE)) =>
            {
                range
            }
            wanted => return Ok(Err(wanted)),
        };
        let (meta, bytes) = match context.objects.hot(&request.info, request.name.as_str())? {
            HotRead::Read(meta, bytes) => (meta, bytes),
            HotRead::Fresh(record) => return Ok(Err(Self::Looked(range, Some(record)))),
            HotRead::Nothing => return Ok(Err(Self::Looked(range, None))),
        };
        let part = match range.map(|range| range.resolve(meta.size)).transpose() {
            Ok(range) => range.unwrap_or(ByteRange::whole(meta.size)),
            Err(_) => return Ok(Err(Self::Bytes(range))),
        };
        context.objects.served(&request.info, "hit", part.len());
        Ok(Ok(FastRead { meta, bytes, part, is_part: range.is_some() }))
    }
}

/// An object in memory, and its requested range.
pub(super) struct FastRead {
    meta: ObjectMeta,
    bytes: Bytes,
    part: ByteRange,
    is_part: bool,
}

impl FastRead {
    pub(super) fn response(&self, caller: Caller) -> Response {
        let mut response = empty_answer(caller, &self.meta, self.part, self.is_part);
        *response.body_mut() = Body::from(self.body());
        response
    }

    /// Writes the head of the response, without its end.
    pub(super) fn write_head(&self, out: &mut Vec<u8>, caller: Caller) {
        let mut head = v1::HeadText::new(out, status_of(self.is_part));
        write_headers(&mut head, caller, &self.meta, self.part, self.is_part);
    }

    pub(super) fn body(&self) -> Bytes {
        self.bytes.slice(self.part.start as usize..self.part.end as usize)
    }
}

/// Streams a large part of an object whose copy was found. `None`: it is too small, or not in
/// files. `None` from the future: the slow path has to be used.
pub(super) fn streamed(
    context: Shared,
    request: ObjectRequest,
    range: Option<RangeSpec>,
    record: Box<Record>,
) -> Option<impl Future<Output = Option<Streamed>> + Send> {
    let bytes = match range {
        Some(range) => range.resolve(record.size).ok()?,
        None => ByteRange::whole(record.size),
    };
    let is_enough = record.is_in_files() && bytes.len() >= SENDFILE_MIN_BYTES;
    is_enough.then_some(async move {
        let stored = context.objects.open_found(&request.info, &record).await?;
        let meta = stored.meta();
        let mut head = Vec::with_capacity(HEAD);
        let mut text = v1::HeadText::new(&mut head, status_of(range.is_some()));
        write_headers(&mut text, request.caller, &meta, bytes, range.is_some());
        let body = read_first_chunk(stored.pieces(bytes)).await.ok()?;
        context.metrics.object_request(&Method::GET, "ok");
        let answer = (&*request.info, stored.result(), bytes.len());
        let body = context.objects.counting(answer, body, |piece| piece.len());
        Some(Streamed { head, len: bytes.len(), body })
    })
}

pub(super) async fn get(
    context: &Context,
    request: ObjectRequest,
    wanted: Wanted,
) -> Result<Response> {
    let mut looked = None;
    let range = match wanted {
        Wanted::Bytes(range) => range,
        Wanted::Looked(range, fresh) => {
            looked = Some(fresh);
            range
        }
        Wanted::Fetched(blob, range) => {
            Box::pin(object_actions::blob_get(context, &request, blob)).await?;
            range
        }
        Wanted::Member(asked) => return Box::pin(shard::get(context, &request, asked)).await,
        Wanted::Transformed(call) => return Box::pin(etl::get(context, &request, &call)).await,
    };
    let mut turns = Turns::default();
    loop {
        let done = get_bytes(context, &request, range, looked.take()).await;
        if !turns.again(&done) {
            return done;
        }
    }
}

/// Whether a requested range is of the version of which the client has a part (`If-Range`).
fn is_range_of(request: &ObjectRequest, meta: &ObjectMeta) -> bool {
    let Some(validator) = request.headers.get(header::IF_RANGE) else { return true };
    let etag = meta.s3_etag();
    let object = Present { etag: &etag, mtime_ns: meta.mtime_ns, size: meta.size };
    validator.to_str().is_ok_and(|text| if_range_holds(text, object))
}

/// The object, or `range` of it. `looked`: the result of the look-up of a fresh copy.
async fn get_bytes(
    context: &Context,
    request: &ObjectRequest,
    range: Option<RangeSpec>,
    looked: Option<Option<Box<Record>>>,
) -> Result<Response> {
    let (objects, name) = (&context.objects, request.name.as_str());
    let mut range = range;
    let found = match looked {
        Some(fresh) => objects.get_after(&request.info, name, range, fresh).await?,
        None if request.caller == Caller::Node => {
            Box::pin(objects.get_local(&request.info, name)).await?
        }
        None => match objects.get_range(&request.info, name, range).await {
            Err(e)
                if e.code == ErrorCode::RangeNotSatisfiable
                    && request.headers.contains_key(header::IF_RANGE) =>
            {
                objects.get_range(&request.info, name, None).await?
            }
            Ok(found) if range.is_some() && !is_range_of(request, found.meta()) => {
                drop(found);
                objects.get_range(&request.info, name, None).await?
            }
            found => found?,
        },
    };
    range = range.filter(|_| is_range_of(request, found.meta()));
    let size = found.meta().size;
    let (mut response, bytes) = match answer_of(request, found.meta(), range) {
        Ok(answer) => answer,
        Err(refusal) => return Ok(*refusal),
    };
    let result = found.result();
    *response.body_mut() = if range.is_none() && size <= ONE_PIECE {
        let body = Body::from(found.read_all().await?);
        objects.served(&request.info, result, bytes.len());
        body
    } else {
        let stream = read_first_chunk(found.stream(bytes)).await?;
        let answer = (&*request.info, result, bytes.len());
        Body::from_stream(objects.counting(answer, stream, |piece| piece.len() as u64))
    };
    Ok(response)
}

/// The response to a GET without its body, and the byte range of the body. Otherwise the rejection
/// of a range that begins behind the object's end.
fn answer_of(
    request: &ObjectRequest,
    meta: &ObjectMeta,
    range: Option<RangeSpec>,
) -> Result<(Response, ByteRange), Box<Response>> {
    let size = meta.size;
    let bytes = match range.map(|r| r.resolve(size)).transpose() {
        Ok(range) => range.unwrap_or(ByteRange::whole(size)),
        Err(e) => return Err(Box::new(not_satisfiable(e, size))),
    };
    Ok((empty_answer(request.caller, meta, bytes, range.is_some()), bytes))
}

/// A response for bytes of an object, without a body.
fn empty_answer(caller: Caller, meta: &ObjectMeta, bytes: ByteRange, is_part: bool) -> Response {
    let mut headers = HeaderMap::with_capacity(GET_HEADERS);
    write_headers(&mut headers, caller, meta, bytes, is_part);
    let mut response = Response::default();
    *response.headers_mut() = headers;
    *response.status_mut() = status_of(is_part);
    response
}

fn status_of(is_part: bool) -> StatusCode {
    if is_part { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK }
}

fn write_headers(
    headers: &mut impl Headers,
    caller: Caller,
    meta: &ObjectMeta,
    bytes: ByteRange,
    is_part: bool,
) {
    headers.text(&header::CONTENT_TYPE, b"application/octet-stream");
    headers.number(&header::CONTENT_LENGTH, bytes.len());
    headers.text(&header::ACCEPT_RANGES, b"bytes");
    v1::put_object_meta(headers, meta);
    match caller {
        Caller::Node => v1::put_node_meta(headers, meta),
        _ => v1::put_custom(headers, meta),
    }
    if is_part {
        let text = format!("bytes {}-{}/{}", bytes.start, bytes.end - 1, meta.size);
        headers.text(&header::CONTENT_RANGE, text.as_bytes());
    }
}

pub(super) fn not_satisfiable(error: Error, size: u64) -> Response {
    let mut response = Failure(error).into_response();
    v1::set(response.headers_mut(), "content-range", &format!("bytes */{size}"));
    response
}
