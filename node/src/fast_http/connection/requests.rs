//! Requests that are taken off the connection and answered without `hyper`.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use httparse::EMPTY_HEADER;

use super::{At, FastConnection, FastPath, PendingAnswer, READ_AHEAD_BYTES};
use crate::fast_http::byte_stream::{self, ByteStream};
use crate::fast_http::chunks::Chunks;
use crate::fast_http::head::{self, HEADERS, Kind, MAX_HEAD, MAX_HEADERS, Message, Next, Refusal};
use crate::fast_http::response_writer::FastAnswer;
use crate::fast_http::small_body::{self, SmallBody, Taker};

/// Minimum bytes that are read ahead of a chunked body, whose chunks may be small.
const CHUNKS_AHEAD: usize = 64 << 10;
/// Requests answered in one poll, before other connections get their turn.
const TURN: usize = 32;

/// How a request is handled without `hyper`.
enum FastRequest {
    Answer(FastAnswer),
    Taken(Taker),
}

impl<F: FastPath, S: ByteStream> FastConnection<F, S> {
    /// Finishes what was begun before anything else. The connection is not idle meanwhile.
    pub(super) fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = self.poll_answers(cx);
        // For a body, this node waits for the client.
        let waits = polled.is_pending() && self.small_body.is_none();
        if self.waits != waits {
            self.waits = waits;
            self.head_timeout.hold(waits);
        }
        polled
    }

    fn poll_answers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.out.poll_send(&mut self.stream, cx, &mut self.sending))?;
            if let Some(body) = &mut self.small_body {
                let is_whole = ready!(body.poll_fill(&mut self.stream, cx, &self.head_timeout))?;
                if let Some(body) = self.small_body.take() {
                    if !is_whole {
                        // `hyper` gets the request, and reports the end of the client's data.
                        body.give_back(&mut self.ahead);
                        self.at = At::Through;
                        cx.waker().wake_by_ref();
                        return Poll::Ready(Ok(()));
                    }
                    let answer = body.answer(&mut self.ahead);
                    self.coming = Some(PendingAnswer { answer, request: None });
                }
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
    pub(super) fn poll_requests(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
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
                            self.fast_path.answer(get, self.out.head()).map(FastRequest::Answer)
                        }
                        Kind::Put(put) if body <= small_body::MAX_SMALL_BODY_BYTES => {
                            self.fast_path.take(put).map(FastRequest::Taken)
                        }
                        _ => None,
                    };
                    match answer {
                        Some(FastRequest::Answer(FastAnswer::Whole(content))) => {
                            self.ahead.advance(head);
                            self.room = READ_AHEAD_BYTES;
                            self.out.add(content);
                        }
                        Some(FastRequest::Answer(FastAnswer::Streamed(answer))) => {
                            self.coming = Some(PendingAnswer { answer, request: Some(head) });
                        }
                        Some(FastRequest::Taken(taker)) => {
                            let body =
                                SmallBody::new((head, body), taker, &mut self.ahead, self.pace);
                            self.room = room_of(head + body.len());
                            self.small_body = Some(body);
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
                Next::More | Next::Crowded | Next::Unclear => {
                    byte_stream::note_foreign_protocol(&self.ahead);
                    self.at = At::Through;
                }
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
        self.progress.refuse(why);
        self.ahead = BytesMut::from(instead);
        self.at = At::Refused(instead.len() as u64);
    }
}

/// Buffer size for a request of this many bytes, with some extra: if a read fills its buffer,
/// another system call is needed to learn whether more bytes are available.
fn room_of(request: usize) -> usize {
    (request + 1).next_multiple_of(4 << 10).max(READ_AHEAD_BYTES)
}
