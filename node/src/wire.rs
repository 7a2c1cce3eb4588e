//! A connection as `hyper` sees it, less the requests that are answered below it.
//!
//! A small object that lies in memory takes less time to find than `hyper` takes to hand the request
//! out and the answer back. So a request that can be answered at once is taken off the connection
//! while `hyper` waits for the next one, and never reaches it; so is one with a small body, which is
//! read right to where it is kept. All else goes through byte for byte: this file only has to know
//! where a request ends, and whether `hyper` has answered it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use futures::future::BoxFuture;
use httparse::EMPTY_HEADER;
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use crate::head::{self, Asked, HEADERS, Kind, Message, Next};
use crate::outgoing::{Direct, Outgoing, Streamed};
use crate::patience::Patience;
use crate::stall::{ClientPace, StallTimer};
use crate::whole::{self, Taker, Whole};

/// Bytes of requests that are read ahead, at least; a longer head is left to `hyper`.
const AHEAD: usize = 8 << 10;
/// Requests answered in one turn, before other connections get theirs.
const TURN: usize = 32;

/// Answers requests at once, or leaves them to `hyper`.
pub(crate) trait Quick {
    /// Appends the answer's head, and the empty line behind it, to `out`; its body. If that comes
    /// later, or not (`None`), nothing was appended, and nothing done.
    fn answer(&self, request: &Asked<'_, '_>, out: &mut Vec<u8>) -> Option<Direct>;

    /// Takes a PUT, whose body is still to come, or does not.
    fn take(&self, request: &Asked<'_, '_>) -> Option<Taker>;
}

/// What a connection and the service behind `hyper` tell each other.
#[derive(Default)]
pub(crate) struct Answered(AtomicBool);

impl Answered {
    /// The body of an answer is at its end, or was let go.
    pub(crate) fn tell(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Acquire)
    }
}

/// The body of an answer that tells when nothing more of it comes.
pub(crate) struct Told {
    body: axum::body::Body,
    answered: Arc<Answered>,
}

impl Told {
    pub(crate) fn new(body: axum::body::Body, answered: Arc<Answered>) -> Self {
        Self { body, answered }
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.answered.tell();
    }
}

impl Body for Told {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Where in the conversation the bytes are that come next from the client.
#[derive(Clone, Copy, Debug)]
enum At {
    /// Before a request; `hyper` waits for it.
    Between,
    /// In a request that `hyper` gets, so many bytes before its end; it has not been answered.
    Within(u64),
    /// Anywhere: all that comes is `hyper`'s.
    Through,
}

/// A connection of a client.
pub(crate) struct Wire<Q> {
    stream: TcpStream,
    quick: Q,
    answered: Arc<Answered>,
    patience: Arc<Patience>,
    pace: ClientPace,
    /// For what is sent, here or by `hyper`.
    sending: StallTimer,
    at: At,
    /// What was read and given to nobody.
    ahead: BytesMut,
    /// Bytes that are read ahead: a request like the last one, whole, so that its body is not copied.
    room: usize,
    out: Outgoing,
    /// A request that was taken, and whose body is being read.
    whole: Option<Whole>,
    coming: Option<Coming>,
    /// Something has been on its way for more than a turn.
    waits: bool,
}

/// What becomes of a request that `hyper` does not get.
enum Begun {
    Answer(Direct),
    Taken(Taker),
}

/// An answer that is being found.
struct Coming {
    answer: BoxFuture<'static, Option<Streamed>>,
    /// Bytes of its request at the beginning of what was read ahead, which `hyper` gets if there is
    /// no answer. `None`: they were taken.
    request: Option<usize>,
}

impl<Q: Quick> Wire<Q> {
    pub(crate) fn new(
        stream: TcpStream,
        quick: Q,
        answered: Arc<Answered>,
        patience: Arc<Patience>,
        pace: ClientPace,
    ) -> Self {
        let sending = StallTimer::new(pace);
        let (at, ahead, room) = (At::Between, BytesMut::new(), AHEAD);
        let (out, whole, coming, waits) = (Outgoing::default(), None, None, false);
        Self {
            stream,
            quick,
            answered,
            patience,
            pace,
            sending,
            at,
            ahead,
            room,
            out,
            whole,
            coming,
            waits,
        }
    }

    /// Ends what was begun before anything else. The connection is not at rest meanwhile.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.poll_answers(cx);
        // For a body it is the client that is waited for.
        let waits = polled.is_pending() && self.whole.is_none();
        if self.waits != waits {
            self.waits = waits;
            self.patience.hold(waits);
        }
        polled
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.out.poll_send(&mut self.stream, cx, &mut self.sending))?;
            if let Some(whole) = &mut self.whole {
                let is_here = ready!(whole.poll_fill(&mut self.stream, cx, &self.patience))?;
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

    /// Answers requests for as long as they can be answered at once. Ready when `hyper` has to go
    /// on, by what [`Self::at`] says then, or when the client is gone.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut answered = 0;
        let polled = self.poll_turn(cx, &mut answered);
        if answered > 0 {
            self.patience.renew();
        }
        polled
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, answered: &mut usize) -> Poll<io::Result<()>> {
        while matches!(self.at, At::Between) {
            let mut headers = [EMPTY_HEADER; HEADERS];
            match head::next(&self.ahead, &mut headers) {
                Next::Message(message) => {
                    let Message { head, body, kind } = message;
                    let answer = match &kind {
                        Kind::Get(get) => {
                            self.quick.answer(get, self.out.head()).map(Begun::Answer)
                        }
                        Kind::Put(put) if body <= whole::MOST => {
                            self.quick.take(put).map(Begun::Taken)
                        }
                        _ => None,
                    };
                    match answer {
                        Some(Begun::Answer(Direct::Whole(content))) => {
                            self.ahead.advance(head);
                            self.room = AHEAD;
                            self.out.add(content);
                        }
                        Some(Begun::Answer(Direct::Streamed(answer))) => {
                            self.coming = Some(Coming { answer, request: Some(head) });
                        }
                        Some(Begun::Taken(taker)) => {
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
                Next::More if self.ahead.len() < AHEAD => {
                    if ready!(self.poll_ahead(cx))? == 0 {
                        self.at = At::Through;
                    }
                }
                Next::More | Next::Unclear => self.at = At::Through,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads ahead, at least a byte but for the end of what the client sends.
    fn poll_ahead(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.ahead.reserve(self.room.saturating_sub(self.ahead.len()).max(1));
        poll_read_buf(Pin::new(&mut self.stream), cx, &mut self.ahead)
    }

    /// Gives `hyper` at most `most` bytes; how many.
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

/// Room for a request of so many bytes and a few more: what fills its room leaves open whether more
/// is there, which takes another call of the system to learn.
fn room_of(request: usize) -> usize {
    (request + 1).next_multiple_of(4 << 10).max(AHEAD)
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
                // The next request is here before this one's answer is out; then hyper is woken.
                Poll::Pending
            }
            At::Within(0) => {
                // `hyper` wants to know whether the client is still there.
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

    /// `hyper` calls this when it has written all it has.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        if matches!(me.at, At::Within(0)) && me.answered.take() {
            me.at = At::Between;
            // It may have been told that nothing is there to read.
            cx.waker().wake_by_ref();
        }
        Pin::new(&mut me.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        Pin::new(&mut me.stream).poll_shutdown(cx)
    }
}
