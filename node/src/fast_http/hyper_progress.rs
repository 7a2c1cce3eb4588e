//! State of the answers that `hyper` sends over a connection.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::head::Refusal;
use crate::exchange::Exchange;

/// State shared by a connection and the service behind `hyper`.
#[derive(Default)]
pub(crate) struct HyperProgress {
    is_over: AtomicBool,
    refusal: OnceLock<Refusal>,
}

impl HyperProgress {
    /// The body of an answer, which records its end here.
    pub(crate) fn watch(
        self: Arc<Self>,
        body: axum::body::Body,
        exchange: Exchange,
    ) -> WatchedBody {
        WatchedBody { body, progress: self, exchange }
    }

    /// Records that the body of an answer has ended or was dropped.
    fn set_over(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    /// Whether a body has ended since the last call.
    pub(crate) fn take(&self) -> bool {
        self.is_over.swap(false, Ordering::Acquire)
    }

    /// Records why the connection's last request is refused. The connection ends with that answer.
    pub(crate) fn refuse(&self, why: Refusal) {
        let _ = self.refusal.set(why);
    }

    /// Why the connection's last request is refused; `hyper` gets an empty request in its place.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal.get().copied()
    }
}

/// The body of an answer; measured, and notifies the connection when it has ended or is dropped.
pub(crate) struct WatchedBody {
    body: axum::body::Body,
    progress: Arc<HyperProgress>,
    exchange: Exchange,
}

impl Drop for WatchedBody {
    fn drop(&mut self) {
        self.progress.set_over();
    }
}

impl Body for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                self.exchange.sent(frame.data_ref().map_or(0, |data| data.len() as u64));
            }
            Poll::Ready(Some(Err(e))) => self.exchange.broke(&e.to_string()),
            Poll::Ready(None) => self.exchange.complete(),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
