//! Bodies of requests that were answered before they were read.
//!
//! If a connection is closed while its client still sends, it is reset and the answer is lost: the
//! client would see a broken connection instead of the refusal. Therefore the rest of a body that a
//! handler drops is read and discarded, up to a limit.
//!
//! While a handler reads a body, the client has to send it at the minimum rate.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use bytes::{Buf, Bytes};
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::runtime::Handle;

use crate::stall::{ClientPace, StallTimer};

/// Maximum bytes that are discarded; for more, the cost exceeds the value of a clear answer.
const MAX_DRAINED_BYTES: usize = 8 << 20;
/// Maximum time that a client may take to send them.
const WITHIN: Duration = Duration::from_secs(5);

/// Whether the client still waits for `100 Continue`, which the first read of the body sends.
#[derive(Clone)]
pub(crate) struct Waits(Option<Arc<AtomicBool>>);

impl Waits {
    /// `expects`: the request has `Expect: 100-continue`.
    pub(crate) fn new(expects: bool) -> Self {
        Self(expects.then(|| Arc::new(AtomicBool::new(true))))
    }

    /// Whether the client has not received `100 Continue` yet.
    pub(crate) fn still(&self) -> bool {
        self.0.as_ref().is_some_and(|waits| waits.load(Ordering::Relaxed))
    }

    fn sent_continue(&self) {
        if let Some(waits) = &self.0 {
            waits.store(false, Ordering::Relaxed);
        }
    }
}

/// A body whose rest is read when it is dropped.
pub(crate) struct DrainedBody {
    body: Option<Incoming>,
    waits: Waits,
    timer: StallTimer,
}

impl DrainedBody {
    pub(crate) fn new(body: Incoming, waits: Waits, pace: ClientPace) -> Self {
        Self { body: Some(body), waits, timer: StallTimer::new(pace) }
    }
}

impl Body for DrainedBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let me = self.get_mut();
        me.waits.sent_continue();
        let Some(body) = &mut me.body else { return Poll::Ready(None) };
        let polled = match Pin::new(body).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                me.timer.moved(frame.data_ref().map_or(0, |data| data.len() as u64));
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Some(Err(e))) => Some(Err(e.into())),
            Poll::Ready(None) => None,
            Poll::Pending => {
                ready!(me.timer.poll_stalled(context));
                Some(Err(me.timer.error().into()))
            }
        };
        // The body is not read any further.
        me.body = None;
        Poll::Ready(polled)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        let Some(body) = self.body.take() else { return };
        if self.waits.still() || body.is_end_stream() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(tokio::time::timeout(WITHIN, throw_away(body)));
        }
    }
}

async fn throw_away(mut body: Incoming) {
    let mut left = MAX_DRAINED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let size = frame.data_ref().map_or(0, Buf::remaining);
        match left.checked_sub(size) {
            Some(rest) => left = rest,
            None => return,
        }
    }
}
