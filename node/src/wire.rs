//! A connection as `hyper` sees it, less the requests that are answered below it.
//!
//! A small object that lies in memory takes less time to find than `hyper` takes to hand the request
//! out and the answer back. So a request that can be answered at once is taken off the connection
//! while `hyper` waits for the next one, and never reaches it. All else goes through byte for byte:
//! this file only has to know where a request ends, and whether `hyper` has answered it.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use httparse::EMPTY_HEADER;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::{Sleep, Timer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::head::{self, Get, HEADERS, Message, Next};

/// Bytes of requests that are read ahead; a longer head is left to `hyper`.
const AHEAD: usize = 8 << 10;
/// Requests answered in one turn, before other connections get theirs.
const TURN: usize = 32;
/// Bodies up to this size go into one piece with their head.
const COPIED: usize = 16 << 10;
/// Memory for answers that a connection keeps.
const KEPT: usize = 64 << 10;

/// Answers requests at once, or leaves them to `hyper`.
pub(crate) trait Quick {
    /// Appends the answer's head, and the empty line behind it, to `out`; its body. `None`: nothing
    /// was appended, and nothing done.
    fn answer(&self, request: &Get<'_, '_>, out: &mut Vec<u8>) -> Option<Bytes>;
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
    at: At,
    /// What was read and given to nobody: `ahead[start..end]`.
    ahead: Vec<u8>,
    start: usize,
    end: usize,
    /// Answers on their way: bytes in one piece, of which `sent` are gone, and what follows.
    out: Vec<u8>,
    sent: usize,
    body: Bytes,
}

impl<Q: Quick> Wire<Q> {
    pub(crate) fn new(
        stream: TcpStream,
        quick: Q,
        answered: Arc<Answered>,
        patience: Arc<Patience>,
    ) -> Self {
        let (ahead, out, body) = (Vec::new(), Vec::new(), Bytes::new());
        let (at, start, end, sent) = (At::Between, 0, 0, 0);
        Self { stream, quick, answered, patience, at, ahead, start, end, out, sent, body }
    }

    /// Sends what is to be sent before anything else.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.out.len() || !self.body.is_empty() {
            let head = &self.out[self.sent..];
            let stream = Pin::new(&mut self.stream);
            let n = if self.body.is_empty() {
                ready!(stream.poll_write(cx, head))?
            } else {
                let parts = [IoSlice::new(head), IoSlice::new(&self.body)];
                ready!(stream.poll_write_vectored(cx, &parts))?
            };
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_head = n.min(self.out.len() - self.sent);
            self.sent += of_head;
            self.body.advance(n - of_head);
        }
        self.sent = 0;
        self.out.clear();
        self.out.shrink_to(KEPT);
        Poll::Ready(Ok(()))
    }

    /// Answers requests for as long as they can be answered at once. Ready when `hyper` has to go
    /// on, by what [`Self::at`] says then, or when the client is gone.
    fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut answered = 0;
        while matches!(self.at, At::Between) {
            let mut headers = [EMPTY_HEADER; HEADERS];
            match head::next(&self.ahead[self.start..self.end], &mut headers) {
                Next::Message(message) => {
                    let Message { head, body, get } = message;
                    let answer = match &get {
                        Some(get) => self.quick.answer(get, &mut self.out),
                        None => None,
                    };
                    let Some(content) = answer else {
                        self.at = At::Within((head as u64).saturating_add(body));
                        continue;
                    };
                    self.start += head;
                    if content.len() <= COPIED {
                        self.out.extend_from_slice(&content);
                    } else {
                        self.body = content;
                    }
                    self.patience.renew();
                    answered += 1;
                    ready!(self.poll_out(cx))?;
                    if answered == TURN {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Next::More if self.end - self.start < AHEAD => {
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
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.ahead.len() {
            self.ahead.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        self.ahead.resize(AHEAD, 0);
        let mut room = ReadBuf::new(&mut self.ahead[self.end..]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut room))?;
        let read = room.filled().len();
        self.end += read;
        Poll::Ready(Ok(read))
    }

    /// Gives `hyper` at most `most` bytes; how many.
    fn poll_give(
        &mut self,
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
        most: u64,
    ) -> Poll<io::Result<u64>> {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if self.start < self.end {
            let n = most.min(self.end - self.start).min(to.remaining());
            to.put_slice(&self.ahead[self.start..self.start + n]);
            self.start += n;
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
            At::Within(0) if me.start < me.end => {
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
        Pin::new(&mut me.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let me = self.get_mut();
        ready!(me.poll_out(cx))?;
        Pin::new(&mut me.stream).poll_write_vectored(cx, parts)
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

/// For how long a connection may be without a whole head of a request. One alarm serves all of its
/// requests: it is set anew only when it rings.
pub(crate) struct Patience {
    limit: Duration,
    clock: Mutex<Clock>,
}

struct Clock {
    until: Instant,
    alarm: Pin<Box<tokio::time::Sleep>>,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        let until = Instant::now() + limit;
        let alarm = Box::pin(tokio::time::sleep_until(until.into()));
        Self { limit, clock: Mutex::new(Clock { until, alarm }) }
    }

    fn renew(&self) {
        self.set(Instant::now() + self.limit);
    }

    fn set(&self, until: Instant) {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner).until = until;
    }

    fn poll_over(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut clock = self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            ready!(clock.alarm.as_mut().poll(cx));
            if Instant::now() >= clock.until {
                return Poll::Ready(());
            }
            let until = clock.until;
            clock.alarm.as_mut().reset(until.into());
        }
    }
}

/// [`Patience`] as `hyper` takes its time: for heads of requests alone.
pub(crate) struct HeadTimer(pub(crate) Arc<Patience>);

struct HeadSleep(Arc<Patience>);

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.set(deadline);
        Box::pin(HeadSleep(self.0.clone()))
    }

    fn reset(&self, _: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.0.set(deadline);
    }
}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.0.poll_over(cx)
    }
}

impl Sleep for HeadSleep {}
