//! The end of a connection whose client may still be sending.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, ReadBuf};

/// Maximum time that a client may keep sending.
const WITHIN: Duration = Duration::from_secs(1);
/// Maximum bytes that are discarded.
const MAX_DRAINED_BYTES: usize = 8 << 20;

/// Reads what a client still sends after the answer that ends its connection. A connection that is
/// closed with unread bytes is reset, and the answer is lost.
pub(crate) struct Linger {
    alarm: Pin<Box<tokio::time::Sleep>>,
    read: usize,
}

impl Linger {
    pub(crate) fn new() -> Self {
        Self { alarm: Box::pin(tokio::time::sleep(WITHIN)), read: 0 }
    }

    /// Ready when the connection may be closed.
    pub(crate) fn poll(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
    ) -> Poll<()> {
        let mut bytes = [0; 8 << 10];
        while self.read < MAX_DRAINED_BYTES && self.alarm.as_mut().poll(cx).is_pending() {
            let mut room = ReadBuf::new(&mut bytes);
            let polled = Pin::new(&mut *stream).poll_read(cx, &mut room);
            match (ready!(polled), room.filled().len()) {
                (Err(_), _) | (Ok(()), 0) => break,
                (Ok(()), n) => self.read += n,
            }
        }
        Poll::Ready(())
    }
}
