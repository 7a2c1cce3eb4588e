//! A body whose hash must match the signed one.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use forebay_core::sign::BodyHasher;
use hyper::body::{Frame, SizeHint};

/// Passes a body through and fails at its end if the hash differs. Readers of signed bodies read
/// them completely before they act.
pub(super) struct Verified {
    body: Body,
    hasher: BodyHasher,
    signed: String,
    is_checked: bool,
}

impl Verified {
    pub(super) fn new(body: Body, signed: String) -> Self {
        Self { body, hasher: BodyHasher::new(), signed, is_checked: false }
    }

    fn check(&mut self) -> Result<(), axum::Error> {
        self.is_checked = true;
        if self.hasher.is(&self.signed) {
            return Ok(());
        }
        Err(axum::Error::new("the body is not the one that the node signed"))
    }
}

impl HttpBody for Verified {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            self.hasher.update(data);
        }
        // A reader that knows the length does not poll after the last piece.
        let is_end = frame.is_none() || self.body.is_end_stream();
        let failed = matches!(frame, Some(Err(_)));
        if is_end && !failed && !self.is_checked {
            self.check()?;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.is_checked && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
