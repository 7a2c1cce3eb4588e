//! The answer of one target to a batch request, row by row.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::{Stream, ready};

use forebay_core::batch_stream::{Decoder, Rooms, Row};

use crate::error::{Error, Result};
use crate::transport::Download;

/// Rows in the order in which the target sent them. The stream ends without an error only if the
/// target's end frame came and fits.
pub struct RowStream {
    body: Download,
    decoder: Decoder,
    /// Rows of the last bytes that came.
    ready: VecDeque<Row>,
    over: bool,
}

impl RowStream {
    /// The rows in `body`, which of large entries are pieces.
    pub(crate) fn new(body: Download) -> Self {
        Self { body, decoder: Decoder::new(), ready: VecDeque::new(), over: false }
    }

    /// The same with rows that are whole entries; the large ones lie where `rooms` says, if it is there.
    pub(crate) fn of_entries(body: Download, rooms: Option<Rooms>) -> Self {
        Self { decoder: Decoder::of_entries(rooms), ..Self::new(body) }
    }

    /// Version of the cluster's state under which the target answers, once its first bytes came.
    pub fn map_version(&self) -> Option<u64> {
        self.decoder.map_version()
    }

    /// Takes in bytes until at least one row is whole.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        while self.ready.is_empty() && !self.over {
            match ready!(Pin::new(&mut self.body).poll_next(cx)) {
                Some(Ok(bytes)) => {
                    self.decoder.decode(&bytes, &mut self.ready)?;
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
                    // Bytes that make no sense may make sense when they are sent again.
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
