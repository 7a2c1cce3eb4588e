//! A connection as `hyper` sees it, without the requests that are answered below it.
//!
//! For a small cached object, the lookup takes less time than `hyper` needs to pass on the request
//! and the answer. So a request that can be answered without waiting is removed from the connection
//! while `hyper` waits for the next one; `hyper` never sees it. The same applies to a request with
//! a small body, which is read directly into its final buffer. Everything else passes through byte
//! for byte: this module only has to know where a request ends, and whether `hyper` has answered
//! it.

mod hyper_stream;
mod requests;

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::BytesMut;
use futures::future::BoxFuture;
use tokio_util::io::poll_read_buf;

use crate::fast_http::byte_stream::ByteStream;
use crate::fast_http::chunks::Chunks;
use crate::fast_http::head::RequestHead;
use crate::fast_http::head_timeout::HeadTimeout;
use crate::fast_http::hyper_progress::HyperProgress;
use crate::fast_http::linger::Linger;
use crate::fast_http::response_writer::{FastAnswer, ResponseWriter, StreamedAnswer};
use crate::fast_http::small_body::{SmallBody, Taker};
use crate::stall::{ClientPace, StallTimer};

/// Minimum bytes that are read ahead; a request with a longer head is left to `hyper`.
const READ_AHEAD_BYTES: usize = 8 << 10;

/// Answers requests without waiting, or leaves them to `hyper`.
pub(crate) trait FastPath {
    /// Appends the answer's head without its final empty line to `out` and returns the body. If the
    /// body comes later, or if the result is `None`, nothing was appended or done.
    fn answer(&self, request: &RequestHead<'_, '_>, out: &mut Vec<u8>) -> Option<FastAnswer>;

    /// Accepts a PUT whose body is still to come, or declines it.
    fn take(&self, request: &RequestHead<'_, '_>) -> Option<Taker>;
}

/// The position in the conversation of the client's next byte.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Before a request; `hyper` waits for it.
    Between,
    /// In a request that `hyper` gets, this many bytes before its end; it has not been answered.
    Within(u64),
    /// Like `Within`, with this many bytes left of the head, and a chunked body after it.
    Chunked(u64, Chunks),
    /// In the stand-in for a refused request, this many bytes before its end. Nothing that the
    /// client sends after it is read.
    Refused(u64),
    /// Anywhere: all bytes go to `hyper`.
    Through,
}

/// A connection of a client: plain, or inside TLS.
pub(crate) struct FastConnection<F, S> {
    stream: S,
    fast_path: F,
    progress: Arc<HyperProgress>,
    head_timeout: Arc<HeadTimeout>,
    pace: ClientPace,
    /// Timer for sending, here or by `hyper`.
    sending: StallTimer,
    at: At,
    /// Bytes that were read and not passed on yet.
    ahead: BytesMut,
    /// Bytes that are read ahead: the size of the last request, so that its body need not be
    /// copied.
    room: usize,
    out: ResponseWriter,
    /// A request that was accepted, and whose body is being read.
    small_body: Option<SmallBody>,
    coming: Option<PendingAnswer>,
    /// Something has been in progress for more than one poll.
    waits: bool,
    /// The current head is longer than most.
    is_long: bool,
    /// Set after the answer to a refused request.
    linger: Option<Linger>,
}

/// An answer that is being prepared.
struct PendingAnswer {
    answer: BoxFuture<'static, Option<StreamedAnswer>>,
    /// Length of its request at the beginning of the bytes read ahead; `hyper` gets the request if
    /// there is no answer. `None`: the request was consumed.
    request: Option<usize>,
}

impl<F: FastPath, S: ByteStream> FastConnection<F, S> {
    pub(crate) fn new(
        stream: S,
        fast_path: F,
        progress: Arc<HyperProgress>,
        head_timeout: Arc<HeadTimeout>,
        pace: ClientPace,
    ) -> Self {
        let sending = StallTimer::new(pace);
        let (at, ahead, room) = (At::Between, BytesMut::new(), READ_AHEAD_BYTES);
        let (out, small_body, coming, waits) = (ResponseWriter::default(), None, None, false);
        let (is_long, linger) = (false, None);
        Self {
            stream,
            fast_path,
            progress,
            head_timeout,
            pace,
            sending,
            at,
            ahead,
            room,
            out,
            small_body,
            coming,
            waits,
            is_long,
            linger,
        }
    }

    /// Passes all bytes to `hyper`, from the first one on. Only the time in which the client has to
    /// read its answers is limited here.
    #[must_use]
    pub(crate) fn turned_off(self) -> Self {
        Self { at: At::Through, ..self }
    }

    /// Reads ahead at least one byte, or none at the end of the client's data.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.ahead.reserve(self.room.saturating_sub(self.ahead.len()).max(1));
        poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.ahead)
    }
}
