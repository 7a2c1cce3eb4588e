//! GET of an object over v1: the requested part, and the response.

use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use forebay_core::object::ObjectMeta;
use forebay_core::request::Caller;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::timing::{ReadStage, StageTimes, TIMING_HEADER};
use forebay_core::{ErrorCode, Result};
use forebay_node::fast_http::StreamedAnswer;
use forebay_node::trace;
use forebay_s3::condition::{Present, if_range_holds};
use forebay_store::Record;

use super::blobs::BlobsApi;
use super::etl::TransformsApi;
use super::get_request::{GetRequest, Lookup};
use super::object_reply::{FastRead, not_satisfiable, without_body, write_head};
use super::object_request::ObjectRequest;
use super::shard::ShardsApi;
use crate::object::{HotRead, ObjectService, Turns, read_first_chunk};

/// Whole objects up to this size are sent in one chunk.
const ONE_PIECE: u64 = 1 << 20;
/// Parts of a file from this size on are sent by the kernel.
const SENDFILE_MIN_BYTES: u64 = 64 << 10;
/// Bytes of a typical head of a response.
const HEAD_BYTES: usize = 512;

/// The services that read objects for v1 requests.
pub(crate) struct ObjectReads {
    pub(crate) objects: ObjectService,
    pub(crate) shards: ShardsApi,
    pub(crate) transforms: TransformsApi,
    pub(crate) blobs: BlobsApi,
}

impl ObjectReads {
    /// The fast path: a small object in memory, returned without waiting. Otherwise returns the
    /// request, with the result of the look-up.
    pub(super) fn fast_path(
        &self,
        request: &ObjectRequest,
        get: GetRequest,
    ) -> Result<Result<FastRead, GetRequest>> {
        let range = match get {
            GetRequest::Bytes(range, Lookup::Pending)
                if request.caller() != Caller::Node
                    && (range.is_none() || !request.headers.contains_key(header::IF_RANGE)) =>
            {
                range
            }
            get => return Ok(Err(get)),
        };
        let slow = |lookup| Ok(Err(GetRequest::Bytes(range, lookup)));
        let (meta, bytes) = match self.objects.reads().hot(&request.info, request.name.as_str())? {
            HotRead::Read(meta, bytes) => (meta, bytes),
            HotRead::Fresh(record) => return slow(Lookup::Fresh(record)),
            HotRead::Nothing => return slow(Lookup::Miss),
        };
        let part = match range.map(|range| range.resolve(meta.size)).transpose() {
            Ok(range) => range.unwrap_or(ByteRange::whole(meta.size)),
            Err(_) => return slow(Lookup::Pending),
        };
        self.objects.served(&request.info, "hit", part.len());
        Ok(Ok(FastRead { meta, bytes, part, is_part: range.is_some() }))
    }

    /// Streams a large part of an object whose copy was found. `None`: it is too small, or not in
    /// files. `None` from the future: the slow path has to be used.
    pub(super) fn streamed(
        self: Arc<Self>,
        request: ObjectRequest,
        range: Option<RangeSpec>,
        record: Box<Record>,
    ) -> Option<impl Future<Output = Option<StreamedAnswer>> + Send> {
        let bytes = match range {
            Some(range) => range.resolve(record.size).ok()?,
            None => ByteRange::whole(record.size),
        };
        let is_enough = record.is_in_files() && bytes.len() >= SENDFILE_MIN_BYTES;
        is_enough.then_some(async move {
            let started = request.headers.contains_key(TIMING_HEADER).then(Instant::now);
            let stored = self.objects.reads().open_found(&request.info, &record).await?;
            let mut head = Vec::with_capacity(HEAD_BYTES);
            write_head(&mut head, request.caller(), &stored.meta(), bytes, range.is_some());
            let body = read_first_chunk(stored.pieces(bytes)).await.ok()?;
            if let Some(started) = started {
                let times = StageTimes { disk: started.elapsed(), ..StageTimes::default() };
                let line = format!("{TIMING_HEADER}: {}\r\n", times.to_header(false));
                head.extend_from_slice(line.as_bytes());
            }
            let answer = (&*request.info, stored.result(), bytes.len());
            let body = self.objects.counting(answer, body, |piece| piece.len());
            Some(StreamedAnswer { head, len: bytes.len(), body })
        })
    }

    pub(super) async fn get(&self, request: ObjectRequest, get: GetRequest) -> Result<Response> {
        let (range, mut lookup) = match get {
            GetRequest::Bytes(range, lookup) => (range, lookup),
            GetRequest::Fetched(blob, range) => {
                Box::pin(self.blobs.fetch(&request, blob)).await?;
                (range, Lookup::Pending)
            }
            GetRequest::Member(asked) => return Box::pin(self.shards.get(&request, asked)).await,
            GetRequest::Transformed(call) => {
                return Box::pin(self.transforms.get(&request, &call)).await;
            }
        };
        let started = request.headers.contains_key(TIMING_HEADER).then(Instant::now);
        let (mut turns, mut times) = (Turns::default(), StageTimes::default());
        loop {
            let lookup = std::mem::take(&mut lookup);
            let mut done = self.get_bytes(&request, range, lookup, &mut times).await;
            if !turns.again(&done) {
                if let (Ok(response), Some(started)) = (&mut done, started) {
                    times.rest = started.elapsed().saturating_sub(times.total());
                    add_times(response, &times);
                }
                return done;
            }
        }
    }

    /// The object, or `range` of it.
    async fn get_bytes(
        &self,
        request: &ObjectRequest,
        range: Option<RangeSpec>,
        lookup: Lookup,
        times: &mut StageTimes,
    ) -> Result<Response> {
        let (objects, name) = (&self.objects, request.name.as_str());
        let started = Instant::now();
        let found = match lookup {
            Lookup::Fresh(record) => {
                objects.reads().get_after(&request.info, name, range, Some(record)).await?
            }
            Lookup::Miss => objects.reads().get_after(&request.info, name, range, None).await?,
            Lookup::Pending if request.caller() == Caller::Node => {
                Box::pin(objects.reads().get_local(&request.info, name)).await?
            }
            Lookup::Pending => match objects.reads().get_range(&request.info, name, range).await {
                Err(e)
                    if e.code == ErrorCode::RangeNotSatisfiable
                        && request.headers.contains_key(header::IF_RANGE) =>
                {
                    objects.reads().get_range(&request.info, name, None).await?
                }
                Ok(found) if range.is_some() && !is_range_of(request, found.meta()) => {
                    drop(found);
                    objects.reads().get_range(&request.info, name, None).await?
                }
                found => found?,
            },
        };
        let range = range.filter(|_| is_range_of(request, found.meta()));
        let size = found.meta().size;
        let bytes = match range.map(|range| range.resolve(size)).transpose() {
            Ok(range) => range.unwrap_or(ByteRange::whole(size)),
            Err(e) => return Ok(not_satisfiable(e, size)),
        };
        let mut response = without_body(request.caller(), found.meta(), bytes, range.is_some());
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
        let read = ReadStage::of_result(result);
        trace::stage(read.span_name(), started);
        times.add(read, started.elapsed());
        Ok(response)
    }
}

/// Adds the stages of a request to the head of its answer.
fn add_times(response: &mut Response, times: &StageTimes) {
    if let Ok(value) = HeaderValue::try_from(times.to_header(!times.cold.is_zero())) {
        response.headers_mut().insert(TIMING_HEADER, value);
    }
}

/// Whether a requested range is of the version of which the client has a part (`If-Range`).
fn is_range_of(request: &ObjectRequest, meta: &ObjectMeta) -> bool {
    let Some(validator) = request.headers.get(header::IF_RANGE) else { return true };
    let etag = meta.s3_etag();
    let object = Present { etag: &etag, mtime_ns: meta.mtime_ns, size: meta.size };
    validator.to_str().is_ok_and(|text| if_range_holds(text, object))
}
