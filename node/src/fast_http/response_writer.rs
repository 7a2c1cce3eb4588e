//! The output of a connection below `hyper`: answers in order, each a head and a body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use futures::StreamExt;
use futures::future::BoxFuture;

use super::byte_stream::ByteStream;
use super::piece::{Piece, Pieces};
use crate::stall::StallTimer;

/// Bodies up to this size are copied into one buffer with their head.
const COPIED: usize = 16 << 10;
/// Maximum bytes of that buffer that a connection keeps.
const MAX_KEPT_BYTES: usize = 64 << 10;
/// Maximum bytes sent in one poll, before other connections get their turn.
const TURN: u64 = 4 << 20;

/// An answer that does not pass `hyper`.
pub enum FastAnswer {
    /// The whole body; status line and headers are written already.
    Whole(Bytes),
    /// An answer that takes a while to find. `None`: `hyper` has to answer the request.
    Streamed(BoxFuture<'static, Option<StreamedAnswer>>),
}

/// An answer whose body comes in pieces.
pub struct StreamedAnswer {
    /// Status line and headers, the body's length among them.
    pub head: Vec<u8>,
    /// Bytes of the body. If fewer come, the connection ends.
    pub len: u64,
    pub body: Pieces,
}

/// Data that is being sent.
#[derive(Default)]
pub(crate) struct ResponseWriter {
    /// Bytes in one buffer, of which `sent` were sent.
    head: Vec<u8>,
    sent: usize,
    /// The next piece of the body; never empty.
    piece: Option<Piece>,
    /// The rest of the body, with the number of bytes that are to come.
    rest: Option<(Pieces, u64)>,
}

impl ResponseWriter {
    /// The buffer for heads; only while nothing else is being sent.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        &mut self.head
    }

    /// Appends a body after the head.
    pub(crate) fn add(&mut self, body: Bytes) {
        if body.len() <= COPIED {
            self.head.extend_from_slice(&body);
        } else {
            self.piece = Some(Piece::Bytes(body));
        }
    }

    /// Sends an answer.
    pub(crate) fn stream(&mut self, answer: StreamedAnswer) {
        let StreamedAnswer { head, len, body } = answer;
        self.head.extend_from_slice(&head);
        self.rest = Some((body, len));
    }

    /// Sends everything; fails if the client does not read.
    pub(crate) fn poll_send(
        &mut self,
        stream: &mut impl ByteStream,
        cx: &mut Context<'_>,
        timer: &mut StallTimer,
    ) -> Poll<io::Result<()>> {
        let mut turn = TURN;
        loop {
            let bytes = self.sent < self.head.len();
            let n = match &mut self.piece {
                Some(Piece::File(part)) if !bytes => {
                    let polled = stream.poll_send_file(part, cx);
                    match ready!(timer.watch(cx, polled, |sent| sent.unwrap_or(0)))? {
                        Some(n) => n,
                        None => {
                            self.replace_file()?;
                            continue;
                        }
                    }
                }
                None if !bytes => match self.poll_piece(cx)? {
                    Poll::Ready(true) => continue,
                    Poll::Ready(false) => break,
                    Poll::Pending => {
                        // TLS may hold bytes that were written.
                        let _ = Pin::new(&mut *stream).poll_flush(cx)?;
                        return Poll::Pending;
                    }
                },
                _ => {
                    let polled = self.poll_bytes(stream, cx);
                    ready!(timer.watch(cx, polled, |sent| *sent))?
                }
            };
            self.piece.take_if(|piece| piece.is_empty());
            turn = turn.saturating_sub(n);
            if turn == 0 {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        if self.sent > 0 {
            let polled = Pin::new(&mut *stream).poll_flush(cx);
            ready!(timer.watch(cx, polled, |()| 0))?;
        }
        self.sent = 0;
        self.head.clear();
        self.head.shrink_to(MAX_KEPT_BYTES);
        Poll::Ready(Ok(()))
    }

    /// Takes the next piece of the body; false at its end.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let Some((pieces, left)) = &mut self.rest else { return Poll::Ready(Ok(false)) };
        let piece = match ready!(pieces.poll_next_unpin(cx)) {
            Some(Ok(piece)) if piece.len() <= *left => piece,
            None if *left == 0 => {
                self.rest = None;
                return Poll::Ready(Ok(false));
            }
            Some(Err(e)) => return Poll::Ready(Err(io::Error::other(e))),
            _ => return Poll::Ready(Err(io::Error::other("a body has not its announced length"))),
        };
        *left -= piece.len();
        self.piece = (!piece.is_empty()).then_some(piece);
        Poll::Ready(Ok(true))
    }

    /// Replaces the rest of a file's part by its alternative source.
    fn replace_file(&mut self) -> io::Result<()> {
        let (Some(Piece::File(part)), Some((rest, left))) = (self.piece.take(), self.rest.take())
        else {
            return Err(io::Error::other("no file is being sent"));
        };
        let instead = part.instead.ok_or(io::ErrorKind::UnexpectedEof)?;
        let missing = part.end - part.start;
        let pieces = instead(part.start).chain(rest).boxed();
        self.rest = Some((pieces, left + missing));
        Ok(())
    }

    /// Sends bytes from memory; returns how many.
    fn poll_bytes(
        &mut self,
        stream: &mut impl ByteStream,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<u64>> {
        let (head, stream) = (&self.head[self.sent..], Pin::new(stream));
        let n = match &mut self.piece {
            Some(Piece::Bytes(body)) => {
                let parts = [IoSlice::new(head), IoSlice::new(body)];
                let n = ready!(stream.poll_write_vectored(cx, &parts))?;
                body.advance(n.saturating_sub(head.len()));
                n
            }
            _ => ready!(stream.poll_write(cx, head))?,
        };
        self.sent += n.min(head.len());
        match n {
            0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            n => Poll::Ready(Ok(n as u64)),
        }
    }
}
