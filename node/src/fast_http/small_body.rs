//! The body of a request that is read completely, below `hyper`, before the request is handled.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use super::head_timeout::HeadTimeout;
use super::response_writer::StreamedAnswer;
use crate::stall::{ClientPace, StallTimer};

/// Maximum length of such a body: the memory that a connection may hold for it.
pub(crate) const MAX_SMALL_BODY_BYTES: u64 = 64 << 10;

/// Makes the answer once the body has arrived. If there is no answer, the connection ends.
pub(crate) type Taker = Box<dyn FnOnce(Bytes) -> BoxFuture<'static, Option<StreamedAnswer>> + Send>;

/// A body that has partly arrived.
pub(crate) struct SmallBody {
    body: BytesMut,
    len: usize,
    /// Bytes of the request's head that stay in the bytes read ahead until the body is complete.
    kept_head: usize,
    taker: Taker,
    timer: StallTimer,
}

impl SmallBody {
    /// `head` and `len`: bytes of the request's head, at the beginning of `ahead`, and of its body,
    /// at most [`MAX_SMALL_BODY_BYTES`]. Bytes in `ahead` that belong to the body are moved.
    pub(crate) fn new(
        (head, len): (usize, u64),
        taker: Taker,
        ahead: &mut BytesMut,
        pace: ClientPace,
    ) -> Self {
        let len = len.min(MAX_SMALL_BODY_BYTES) as usize;
        let (body, kept_head) = if head + len <= ahead.len() {
            ahead.advance(head);
            (ahead.split_to(len), 0)
        } else {
            let mut body = BytesMut::with_capacity(len);
            body.extend_from_slice(&ahead[head..]);
            ahead.truncate(head);
            (body, head)
        };
        Self { body, len, kept_head, taker, timer: StallTimer::new(pace) }
    }

    /// Bytes of the body.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn missing(&self) -> usize {
        self.len - self.body.len()
    }

    /// Reads the missing bytes; fails if the client does not send them. False: the client's
    /// data has ended.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        head_timeout: &HeadTimeout,
    ) -> Poll<io::Result<bool>> {
        while self.missing() > 0 {
            let missing = self.missing();
            let mut room = (&mut self.body).limit(missing);
            let polled = poll_read_buf(Pin::new(&mut *stream), cx, &mut room);
            if ready!(self.timer.watch(cx, polled, |read| *read as u64))? == 0 {
                return Poll::Ready(Ok(false));
            }
            head_timeout.renew();
        }
        Poll::Ready(Ok(true))
    }

    /// Removes the request from the bytes read ahead and passes the body to the taker; returns the
    /// answer.
    pub(crate) fn answer(self, ahead: &mut BytesMut) -> BoxFuture<'static, Option<StreamedAnswer>> {
        ahead.advance(self.kept_head);
        (self.taker)(self.body.freeze())
    }

    /// Puts an incomplete body behind the head of its request again.
    pub(crate) fn give_back(self, ahead: &mut BytesMut) {
        ahead.extend_from_slice(&self.body);
    }
}
