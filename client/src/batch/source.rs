//! One target's part of a batch: its request, its rows, and the entries made of them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use futures::future::BoxFuture;
use http::Method;
use serde::Serialize;

use forebay_core::batch::{BatchEntry, BatchRequest};
use forebay_core::batch_stream::{Rooms, Row};
use forebay_core::intra::MapReply;
use forebay_core::{Bucket, Error as CoreError, ErrorCode, NodeId};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::retry::GrantRenewal;
use crate::rows::RowStream;
use crate::timing;
use crate::transport;

/// Maximum bytes that one target may send ahead of the reader.
pub(super) const BATCH_PREFETCH_BYTES: usize = 8 << 20;

/// A target's final answer for one entry.
pub(super) struct Answer {
    pub(super) index: usize,
    pub(super) result: Result<Bytes, CoreError>,
    /// Whether the entry is worth asking for again.
    pub(super) is_transient: bool,
}

enum Stage {
    Opening(BoxFuture<'static, Result<RowStream>>),
    Rows(Box<RowStream>),
}

/// The entries requested from one target.
pub(super) struct Source {
    pub(super) url: String,
    /// Bytes received and not handed out yet.
    pub(super) ahead: usize,
    /// Maximum of these bytes.
    pub(super) allowance: usize,
    stage: Stage,
    map_version: u64,
    /// Positions in the whole request, by position in this target's part.
    entries: Vec<usize>,
    /// Number of entries still to come.
    missing: usize,
    /// The last entry, held back until the end frame proves that the stream was complete.
    last: Option<Answer>,
}

impl Source {
    pub(super) fn new(
        client: &Client,
        map: Arc<MapReply>,
        owner: &NodeId,
        request: &BatchRequest,
        entries: Vec<usize>,
        renewal: GrantRenewal,
        rooms: Option<Rooms>,
    ) -> Self {
        let url = map.state.node(owner).map(|n| n.url.clone()).unwrap_or_default();
        let map_version = map.state.version;
        let body = body(request, &entries);
        let open = open(client.clone(), map, owner.clone(), body, renewal, rooms);
        let stage = Stage::Opening(Box::pin(open));
        let (missing, allowance) = (entries.len(), BATCH_PREFETCH_BYTES);
        Self { url, ahead: 0, allowance, stage, map_version, entries, missing, last: None }
    }

    pub(super) fn entries(&self) -> &[usize] {
        &self.entries
    }

    /// Returns the next complete entry; `None` at a proper end of the stream. The last entry is
    /// returned only after the end frame proves that the stream is complete.
    pub(super) fn poll_answer(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Answer>>> {
        loop {
            let rows = match &mut self.stage {
                Stage::Rows(rows) => rows,
                Stage::Opening(opening) => {
                    let rows = ready!(opening.as_mut().poll(cx))?;
                    self.stage = Stage::Rows(Box::new(rows));
                    continue;
                }
            };
            let row = match ready!(Pin::new(&mut **rows).poll_next(cx)) {
                Some(row) => row?,
                None => return Poll::Ready(Ok(self.last.take())),
            };
            let lags = rows.map_version().is_some_and(|v| v < self.map_version);
            let request_id = rows.request_id();
            let mut answer = self.answer(row, lags)?;
            if let Err(e) = &mut answer.result {
                e.request_id = request_id;
            }
            match self.missing {
                0 => {
                    let text = "the batch stream has more entries than were asked for";
                    return Poll::Ready(Err(Error::garbled(&self.url, text)));
                }
                1 => self.last = Some(answer),
                _ => {
                    self.missing -= 1;
                    return Poll::Ready(Ok(Some(answer)));
                }
            }
            self.missing = 0;
        }
    }

    fn answer(&mut self, row: Row, lags: bool) -> Result<Answer> {
        let Some(&index) = self.entries.get(row.index as usize) else {
            return Err(Error::garbled(&self.url, "the batch has a row that was not asked for"));
        };
        if row.status != 0 {
            let text = String::from_utf8_lossy(&row.payload);
            let error = CoreError::new(ErrorCode::from_status(row.status), text);
            // A target that has an older state may not know the bucket yet.
            let is_transient = error.code.is_transient() || (lags && row.status == 404);
            let result = Err(match is_transient && !error.code.is_transient() {
                true => CoreError::new(ErrorCode::Unavailable, error.message),
                false => error,
            });
            return Ok(Answer { index, result, is_transient });
        }
        if row.payload.len() as u64 != row.total {
            return Err(Error::garbled(&self.url, "an entry of the batch has another size"));
        }
        self.ahead += row.payload.len();
        Ok(Answer { index, result: Ok(row.payload), is_transient: false })
    }
}

/// The request for some entries, as it is sent.
fn body(request: &BatchRequest, entries: &[usize]) -> Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Part<'a> {
        buckets: &'a [Bucket],
        entries: Vec<&'a BatchEntry>,
        ordered: bool,
    }
    let BatchRequest { buckets, ordered, .. } = request;
    let entries = entries.iter().map(|&i| &request.entries[i]).collect();
    serde_json::to_vec(&Part { buckets, entries, ordered: *ordered })
        .map_err(|e| CoreError::internal(format!("a batch cannot be written as JSON: {e}")).into())
}

async fn open(
    client: Client,
    map: Arc<MapReply>,
    owner: NodeId,
    body: Result<Vec<u8>>,
    renewal: GrantRenewal,
    rooms: Option<Rooms>,
) -> Result<RowStream> {
    let node = map.state.node(&owner).ok_or_else(|| {
        Error::Api(CoreError::new(ErrorCode::Unavailable, format!("target {owner} left")))
    })?;
    let mut builder = transport::direct(Method::POST, &node.url, super::PATH, &map);
    let mut timed = timing::begin();
    if let (Some(_), Some(headers)) = (&timed, builder.headers_mut()) {
        timing::ask(headers);
    }
    let request = transport::json(builder, body?)?;
    match client.transport().send_ok_caller_driven(&node.url, request).await {
        Ok(mut answer) => {
            if let Some(timed) = timed {
                answer.body_mut().observe(timed);
            }
            if let Some(version) = transport::map_version(answer.headers()) {
                client.maps().saw(version);
            }
            let id = transport::request_id(answer.headers());
            Ok(RowStream::of_entries(answer.into_body(), rooms).of_request(id))
        }
        Err((e, version)) => {
            if let Some(timed) = &mut timed {
                timed.refused(e.code() == ErrorCode::TooManyRequests);
            }
            Err(client.explain(e, version, &map, node, &renewal).await)
        }
    }
}
