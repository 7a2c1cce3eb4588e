//! What a connection has to know of the answers that `hyper` sends over it.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use crate::head::Refusal;

/// What a connection and the service behind `hyper` tell each other.
#[derive(Default)]
pub(crate) struct Answered {
    is_over: AtomicBool,
    refusal: OnceLock<Refusal>,
}

impl Answered {
    /// The body of an answer is at its end, or was let go.
    pub(crate) fn tell(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    pub(crate) fn take(&self) -> bool {
        self.is_over.swap(false, Ordering::Acquire)
    }

    /// The connection's last request is refused. It ends with that, so there is no other.
    pub(crate) fn refuse(&self, why: Refusal) {
        let _ = self.refusal.set(why);
    }

    /// Why the connection's last request is refused, which in its place is an empty one.
    pub(crate) fn refusal(&self) -> Option<Refusal> {
        self.refusal.get().copied()
    }
}

/// The body of an answer that tells when nothing more of it comes.
pub(crate) struct NotifyOnDrop {
    body: axum::body::Body,
    answered: Arc<Answered>,
}

impl NotifyOnDrop {
    pub(crate) fn new(body: axum::body::Body, answered: Arc<Answered>) -> Self {
        Self { body, answered }
    }
}

impl Drop for NotifyOnDrop {
    fn drop(&mut self) {
        self.answered.tell();
    }
}

impl Body for NotifyOnDrop {
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
