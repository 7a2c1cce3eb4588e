//! The answer of one target to a batch request, row by row.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Stream, ready};

use forebay_core::batch_stream::{Decoder, Rooms, Row};
use forebay_core::request::RequestId;

use crate::error::{Error, Result};
use crate::timing;
use crate::transport::Download;

/// Rows in the order in which the target sent them. The stream ends without an error only if the
/// target's end frame arrived and matches.
pub struct RowStream {
    body: Download,
    decoder: Decoder,
    /// Decoded rows that were not returned yet.
    ready: VecDeque<Row>,
    over: bool,
    /// The id of the batch's request, for the errors of its entries.
    request_id: Option<RequestId>,
}

impl RowStream {
    /// Decodes the rows in `body`; large entries come in pieces.
    pub(crate) fn new(body: Download) -> Self {
        let (decoder, ready) = (Decoder::new(), VecDeque::new());
        Self { body, decoder, ready, over: false, request_id: None }
    }

    /// The same, as the answer to the request of this id.
    pub(crate) fn of_request(self, request_id: Option<RequestId>) -> Self {
        Self { request_id, ..self }
    }

    /// The id of the batch's request.
    pub(crate) fn request_id(&self) -> Option<RequestId> {
        self.request_id
    }

    /// Decodes rows that are complete entries; `rooms`, if given, supplies the memory for large
    /// ones.
    pub(crate) fn of_entries(body: Download, rooms: Option<Rooms>) -> Self {
        Self { decoder: Decoder::of_entries(rooms), ..Self::new(body) }
    }

    /// Version of the cluster's state by which the target answers, known once its first bytes
    /// arrived.
    pub fn map_version(&self) -> Option<u64> {
        self.decoder.map_version()
    }

    /// Reads bytes until at least one row is complete.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.ready.is_empty() && !self.over {
            match ready!(Pin::new(&mut self.body).poll_next(cx)) {
                Some(Ok(bytes)) => {
                    let started = timing::work();
                    let decoded = self.decoder.decode(&bytes, &mut self.ready);
                    timing::worked(started);
                    decoded?;
                    if let (Some(times), Some(timed)) = (self.decoder.times(), self.body.timed()) {
                        timed.reported(times);
                    }
                    if !self.ready.is_empty() {
                        self.body.progressed();
                    }
                }
                Some(Err(e)) => return Poll::Ready(Err(e)),
                None if self.decoder.is_complete() => self.over = true,
                None => {
                    let text = "the batch stream ends without its end frame";
                    return Poll::Ready(Err(Error::garbled(self.body.endpoint(), text)));
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Stream for RowStream {
    type Item = Result<Row>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Row>>> {
        let this = self.get_mut();
        match ready!(this.poll_fill(cx)) {
            Ok(()) => Poll::Ready(this.ready.pop_front().map(Ok)),
            Err(e) => {
                this.over = true;
                Poll::Ready(Some(Err(match e {
                    // Unparsable bytes may be correct when they are sent again.
                    Error::Api(e) => Error::garbled(this.body.endpoint(), e.message),
                    e => e,
                })))
            }
        }
    }
}

impl std::fmt::Debug for RowStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RowStream(from {})", self.body.endpoint())
    }
}
