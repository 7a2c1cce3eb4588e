//! The connection as the stream that `hyper` reads and writes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{At, FastConnection, FastPath, READ_AHEAD_BYTES};
use crate::fast_http::byte_stream::ByteStream;
use crate::fast_http::chunks::Chunks;
use crate::fast_http::linger::Linger;

impl<F: FastPath, S: ByteStream> FastConnection<F, S> {
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

impl<F: FastPath + Unpin, S: ByteStream> AsyncRead for FastConnection<F, S> {
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

impl<F: FastPath + Unpin, S: ByteStream> AsyncWrite for FastConnection<F, S> {
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
        if matches!(me.at, At::Within(0)) && me.progress.take() {
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
