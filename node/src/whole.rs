//! The body of a request that is read completely, below `hyper`, before the request is handled.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use tokio::io::AsyncRead;
use tokio_util::io::poll_read_buf;

use crate::head_timeout::HeadTimeout;
use crate::outgoing::Streamed;
use crate::stall::{ClientPace, StallTimer};

/// Maximum length of such a body: the memory that a connection may hold for it.
pub(crate) const MAX_WHOLE_BODY_BYTES: u64 = 64 << 10;

/// Makes the answer once the body has arrived. If there is no answer, the connection ends.
pub(crate) type Taker = Box<dyn FnOnce(Bytes) -> BoxFuture<'static, Option<Streamed>> + Send>;

/// A body that has partly arrived.
pub(crate) struct Whole {
    body: BytesMut,
    len: usize,
    taker: Taker,
    timer: StallTimer,
}

impl Whole {
    /// `len`: bytes of the body, at most [`MAX_WHOLE_BODY_BYTES`]; bytes in `ahead` that belong to
    /// it are moved.
    pub(crate) fn new(len: u64, taker: Taker, ahead: &mut BytesMut, pace: ClientPace) -> Self {
        let len = len.min(MAX_WHOLE_BODY_BYTES) as usize;
        let body = if len <= ahead.len() {
            ahead.split_to(len)
        } else {
            let mut body = BytesMut::with_capacity(len);
            body.extend_from_slice(ahead);
            ahead.clear();
            body
        };
        Self { body, len, taker, timer: StallTimer::new(pace) }
    }

    /// Bytes of the body.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn missing(&self) -> usize {
        self.len - self.body.len()
    }

    /// Reads the missing bytes; fails if the client does not send them. False: the client has gone.
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

    /// Passes the body to the taker; returns the answer.
    pub(crate) fn answer(self) -> BoxFuture<'static, Option<Streamed>> {
        (self.taker)(self.body.freeze())
    }
}
