//! A connection as `hyper` sees it, without the requests that are answered below it.
//!
//! For a small cached object, the lookup takes less time than `hyper` needs to pass on the request
//! and the answer. So a request that can be answered without waiting is removed from the connection
//! while `hyper` waits for the next one; `hyper` never sees it. The same applies to a request with
//! a small body, which is read directly into its final buffer. Everything else passes through byte
//! for byte: this file only has to know where a request ends, and whether `hyper` has answered it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use futures::future::BoxFuture;
use httparse::EMPTY_HEADER;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use crate::answered::Answered;
use crate::chunks::Chunks;
use crate::head::{self, Asked, HEADERS, Kind, MAX_HEAD, MAX_HEADERS, Message, Next, Refusal};
use crate::head_timeout::HeadTimeout;
use crate::linger::Linger;
use crate::outgoing::{Direct, Outgoing, Streamed};
use crate::stall::{ClientPace, StallTimer};
use crate::whole::{self, Taker, Whole};

/// Minimum bytes that are read ahead; a request with a longer head is left to `hyper`.
const READ_AHEAD_BYTES: usize = 8 << 10;
/// The same for a chunked body, whose chunks may be small.
const CHUNKS_AHEAD: usize = 64 << 10;
/// Requests answered in one poll, before other connections get their turn.
const TURN: usize = 32;

/// Answers requests without waiting, or leaves them to `hyper`.
pub(crate) trait Quick {
    /// Appends the answer's head without its final empty line to `out` and returns the body. If the
    /// body comes later, or if the result is `None`, nothing was appended or done.
    fn answer(&self, request: &Asked<'_, '_>, out: &mut Vec<u8>) -> Option<Direct>;

    /// Accepts a PUT whose body is still to come, or declines it.
    fn take(&self, request: &Asked<'_, '_>) -> Option<Taker>;
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

/// A connection of a client.
pub(crate) struct Wire<Q> {
    stream: TcpStream,
    quick: Q,
    answered: Arc<Answered>,
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
    out: Outgoing,
    /// A request that was accepted, and whose body is being read.
    whole: Option<Whole>,
    coming: Option<Coming>,
    /// Something has been in progress for more than one poll.
    waits: bool,
    /// The current head is longer than most.
    is_long: bool,
    /// Set after the answer to a refused request.
    linger: Option<Linger>,
}

/// How a request is handled without `hyper`.
enum FastRequest {
    Answer(Direct),
    Taken(Taker),
}

/// An answer that is being prepared.
struct Coming {
    answer: BoxFuture<'static, Option<Streamed>>,
    /// Length of its request at the beginning of the bytes read ahead; `hyper` gets the request if
    /// there is no answer. `None`: the request was consumed.
    request: Option<usize>,
}

impl<Q: Quick> Wire<Q> {
    pub(crate) fn new(
        stream: TcpStream,
        quick: Q,
        answered: Arc<Answered>,
        head_timeout: Arc<HeadTimeout>,
        pace: ClientPace,
    ) -> Self {
        let sending = StallTimer::new(pace);
        let (at, ahead, room) = (At::Between, BytesMut::new(), READ_AHEAD_BYTES);
        let (out, whole, coming, waits) = (Outgoing::default(), None, None, false);
        let (is_long, linger) = (false, None);
        Self {
            stream,
            quick,
            answered,
            head_timeout,
            pace,
            sending,
            at,
            ahead,
            room,
            out,
            whole,
            coming,
            waits,
            is_long,
            linger,
        }
    }

    /// Finishes what was begun before anything else. The connection is not idle meanwhile.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.poll_answers(cx);
        // For a body, this node waits for the client.
        let waits = polled.is_pending() && self.whole.is_none();
        if self.waits != waits {
            self.waits = waits;
            self.head_timeout.hold(waits);
        }
        polled
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.out.poll_send(&mut self.stream, cx, &mut self.sending))?;
            if let Some(whole) = &mut self.whole {
                let is_here = ready!(whole.poll_fill(&mut self.stream, cx, &self.head_timeout))?;
                let Some(whole) = self.whole.take().filter(|_| is_here) else {
                    self.at = At::Through;
                    return Poll::Ready(Ok(()));
                };
                self.coming = Some(Coming { answer: whole.answer(), request: None });
            }
            let Some(coming) = &mut self.coming else { return Poll::Ready(Ok(())) };
            let answer = ready!(coming.answer.as_mut().poll(cx));
            let request = coming.request;
            self.coming = None;
            match (answer, request) {
                (Some(answer), request) => {
                    self.ahead.advance(request.unwrap_or(0));
                    self.out.stream(answer);
                }
                (None, Some(request)) => self.at = At::Within(request as u64),
                (None, None) => {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
            }
        }
    }

    /// Answers requests as long as that needs no wait. Ready when `hyper` has to continue, as
    /// [`Self::at`] then says, or when the client has gone.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut answered = 0;
        let polled = self.poll_turn(cx, &mut answered);
        if answered > 0 {
            self.head_timeout.renew();
        }
        polled
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, answered: &mut usize) -> Poll<io::Result<()>> {
        while matches!(self.at, At::Between) {
            if self.is_long {
                ready!(self.poll_long_head(cx))?;
                self.is_long = false;
            }
            let (mut headers, mut many) = ([EMPTY_HEADER; HEADERS], Vec::new());
            let next = match head::next(&self.ahead, &mut headers) {
                Next::Crowded => {
                    many.resize(MAX_HEADERS, EMPTY_HEADER);
                    head::next(&self.ahead, &mut many)
                }
                next => next,
            };
            match next {
                Next::Message(Message { head, body: None, .. }) => {
                    self.room = CHUNKS_AHEAD;
                    self.at = At::Chunked(head as u64, Chunks::new());
                }
                Next::Message(Message { head, body: Some(body), kind }) => {
                    let answer = match &kind {
                        _ if head > READ_AHEAD_BYTES => None,
                        Kind::Get(get) => {
                            self.quick.answer(get, self.out.head()).map(FastRequest::Answer)
                        }
                        Kind::Put(put) if body <= whole::MAX_WHOLE_BODY_BYTES => {
                            self.quick.take(put).map(FastRequest::Taken)
                        }
                        _ => None,
                    };
                    match answer {
                        Some(FastRequest::Answer(Direct::Whole(content))) => {
                            self.ahead.advance(head);
                            self.room = READ_AHEAD_BYTES;
                            self.out.add(content);
                        }
                        Some(FastRequest::Answer(Direct::Streamed(answer))) => {
                            self.coming = Some(Coming { answer, request: Some(head) });
                        }
                        Some(FastRequest::Taken(taker)) => {
                            self.ahead.advance(head);
                            let whole = Whole::new(body, taker, &mut self.ahead, self.pace);
                            self.room = room_of(head + whole.len());
                            self.whole = Some(whole);
                        }
                        None => {
                            self.at = At::Within((head as u64).saturating_add(body));
                            continue;
                        }
                    }
                    *answered += 1;
                    ready!(self.poll_out(cx))?;
                    if *answered == TURN {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Next::Refused(refused) => {
                    let (instead, why) = (refused.stand_in(), refused.why);
                    self.refuse(&instead, why);
                }
                Next::More if self.ahead.len() < READ_AHEAD_BYTES => {
                    if ready!(self.poll_ahead(cx))? == 0 {
                        self.at = At::Through;
                    }
                }
                Next::More if self.ahead.len() < MAX_HEAD => self.is_long = true,
                // `hyper` handles these.
                Next::More | Next::Crowded | Next::Unclear => self.at = At::Through,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads more of a long head before it is parsed again, so that it is not parsed for every
    /// byte.
    fn poll_long_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.ahead.len() < MAX_HEAD {
            // The end of the head may begin in the earlier bytes.
            let before = self.ahead.len().saturating_sub(2);
            if ready!(self.poll_ahead(cx))? == 0 {
                self.at = At::Through;
                break;
            }
            let new = &self.ahead[before..];
            if new.windows(2).any(|w| w == b"\n\n") || new.windows(3).any(|w| w == b"\n\r\n") {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Lets `hyper` answer a refusal, to an empty request in the place of this one.
    fn refuse(&mut self, instead: &str, why: Refusal) {
        // The connection ends with this request, so there is no other.
        self.answered.refuse(why);
        self.ahead = BytesMut::from(instead);
        self.at = At::Refused(instead.len() as u64);
    }

    /// Passes bytes of a request with a chunked body to `hyper`.
    fn poll_chunked(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
        head: u64,
        mut chunks: Chunks,
    ) -> Poll<io::Result<()>> {
        if head > 0 {
            let given = ready!(self.poll_give(cx, to, head))?;
            self.at = At::Chunked(head - given, chunks);
            return Poll::Ready(Ok(()));
        }
        if self.ahead.is_empty() && chunks.data() > 0 {
            // Read directly into the destination.
            let before = to.filled().len();
            ready!(self.poll_give(cx, to, chunks.data()))?;
            chunks.take(&to.filled()[before..]);
        } else {
            if self.ahead.is_empty() && ready!(self.poll_ahead(cx))? == 0 {
                self.at = At::Through;
                return Poll::Ready(Ok(()));
            }
            let n = self.ahead.len().min(to.remaining());
            let n = chunks.take(&self.ahead[..n]);
            to.put_slice(&self.ahead.split_to(n));
        }
        self.at = match chunks {
            Chunks::End => {
                self.room = READ_AHEAD_BYTES;
                At::Within(0)
            }
            // `hyper` ends the connection there.
            Chunks::Broken => At::Through,
            chunks => At::Chunked(0, chunks),
        };
        Poll::Ready(Ok(()))
    }

    /// Reads ahead at least one byte, or none at the end of the client's data.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.ahead.reserve(self.room.saturating_sub(self.ahead.len()).max(1));
        poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.ahead)
    }

    /// Passes at most `most` bytes to `hyper`; returns how many.
    fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
        most: u64,
    ) -> Poll<io::Result<u64>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if !self.ahead.is_empty() {
            let n = most.min(self.ahead.len()).min(to.remaining());
            to.put_slice(&self.ahead.split_to(n));
            return Poll::Ready(Ok(n as u64));
        }
        let stream = Pin::new(&mut self.stream);
        if to.remaining() <= most {
            let before = to.filled().len();
            ready!(stream.poll_read(cx, to))?;
            return Poll::Ready(Ok((to.filled().len() - before) as u64));
        }
        let mut part = ReadBuf::new(to.initialize_unfilled_to(most));
        ready!(stream.poll_read(cx, &mut part))?;
        let n = part.filled().len();
        to.advance(n);
        Poll::Ready(Ok(n as u64))
    }
}

/// Buffer size for a request of this many bytes, with some extra: if a read fills its buffer,
/// another system call is needed to learn whether more bytes are available.
fn room_of(request: usize) -> usize {
    (request + 1).next_multiple_of(4 << 10).max(READ_AHEAD_BYTES)
}

impl<Q: Quick + Unpin> AsyncRead for Wire<Q> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        ready!(me.poll_requests(cx))?;
        match me.at {
            At::Within(0) if !me.ahead.is_empty() => {
                // The next request arrived before this answer was sent; `hyper` is woken
                // afterwards.
                Poll::Pending
            }
            At::Within(0) => {
                // `hyper` checks whether the client is still connected.
                match ready!(me.poll_ahead(cx))? {
                    0 => Poll::Ready(Ok(())),
                    _ => Poll::Pending,
                }
            }
            At::Within(left) => {
                let given = ready!(me.poll_give(cx, to, left))?;
                me.at = At::Within(left - given);
                Poll::Ready(Ok(()))
            }
            At::Chunked(head, chunks) => me.poll_chunked(cx, to, head, chunks),
            At::Refused(0) => Poll::Pending,
            At::Refused(left) => {
                let given = ready!(me.poll_give(cx, to, left))?;
                me.at = At::Refused(left - given);
                Poll::Ready(Ok(()))
            }
            At::Between | At::Through => me.poll_give(cx, to, u64::MAX).map_ok(drop),
        }
    }
}

impl<Q: Quick + Unpin> AsyncWrite for Wire<Q> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        let polled = Pin::new(&mut me.stream).poll_write(cx, bytes);
        me.sending.watch(cx, polled, |sent| *sent as u64)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        let polled = Pin::new(&mut me.stream).poll_write_vectored(cx, parts);
        me.sending.watch(cx, polled, |sent| *sent as u64)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// `hyper` calls this when it has written everything.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        if matches!(me.at, At::Within(0)) && me.answered.take() {
            me.at = At::Between;
            // The last read may have returned pending to `hyper`.
            cx.waker().wake_by_ref();
        }
        Pin::new(&mut me.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        if me.linger.is_none() {
            ready!(Pin::new(&mut me.stream).poll_shutdown(cx))?;
        }
        match me.at {
            At::Refused(_) => {
                let linger = me.linger.get_or_insert_with(Linger::new);
                linger.poll(&mut me.stream, cx).map(Ok)
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}
