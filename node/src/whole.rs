//! The body of a request that is read whole, below `hyper`, before it is dealt with.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::BoxFuture;
use tokio::net::TcpStream;
use tokio_util::io::poll_read_buf;

use crate::head_timeout::HeadTimeout;
use crate::outgoing::Streamed;
use crate::stall::{ClientPace, StallTimer};

/// Longest body that is read so: what a connection may hold in memory for it.
pub(crate) const MAX_WHOLE_BODY_BYTES: u64 = 64 << 10;

/// What makes the answer once the body is here. Without one the connection ends.
pub(crate) type Taker = Box<dyn FnOnce(Bytes) -> BoxFuture<'static, Option<Streamed>> + Send>;

/// A body of which a part is here.
pub(crate) struct Whole {
    body: BytesMut,
    len: usize,
    taker: Taker,
    timer: StallTimer,
}

impl Whole {
    /// `len`: bytes of the body, at most [`MAX_WHOLE_BODY_BYTES`]; what of it was read ahead is taken.
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

    /// Reads what is missing; fails when the client does not send it. False: it is gone.
    pub(crate) fn poll_fill(
        &mut self,
        stream: &mut TcpStream,
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

    /// Hands the body over; the answer.
    pub(crate) fn answer(self) -> BoxFuture<'static, Option<Streamed>> {
        (self.taker)(self.body.freeze())
    }
}
