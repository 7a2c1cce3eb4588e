//! A body of a request that can be read again from its start, up to a size.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use forebay_core::locks::MutexExt;
use hyper::body::{Frame, SizeHint};

/// Maximum bytes that are kept of a body; a longer one can be sent to another node only if no handler
/// has read of it.
pub(super) const MAX_KEPT_BYTES: usize = 16 << 20;

/// The body of a request, and what was read of it. Cheap to clone.
#[derive(Clone)]
pub(super) struct KeptBody(Arc<Mutex<Kept>>);

struct Kept {
    read: Vec<Bytes>,
    bytes: usize,
    /// Whether more was read than is kept.
    is_cut: bool,
    rest: Body,
}

impl KeptBody {
    pub(super) fn new(rest: Body) -> Self {
        Self(Arc::new(Mutex::new(Kept { read: Vec::new(), bytes: 0, is_cut: false, rest })))
    }

    /// The body for its first reader.
    pub(super) fn reader(&self) -> Body {
        Body::new(Reader { kept: self.clone(), at: 0 })
    }

    /// The body from its start; `None` if too much was read of it. Earlier readers must be gone.
    pub(super) fn again(&self) -> Option<Body> {
        let is_cut = self.0.locked().is_cut;
        (!is_cut).then(|| self.reader())
    }
}

struct Reader {
    kept: KeptBody,
    /// Number of kept pieces that this reader has returned.
    at: usize,
}

impl HttpBody for Reader {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let me = self.get_mut();
        let mut kept = me.kept.0.locked();
        if let Some(piece) = kept.read.get(me.at).cloned() {
            me.at += 1;
            return Poll::Ready(Some(Ok(Frame::data(piece))));
        }
        let polled = Pin::new(&mut kept.rest).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(piece) = frame.data_ref()
            && !kept.is_cut
        {
            kept.bytes += piece.len();
            if kept.bytes > MAX_KEPT_BYTES {
                (kept.is_cut, kept.read) = (true, Vec::new());
            } else {
                kept.read.push(piece.clone());
                me.at += 1;
            }
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        let kept = self.kept.0.locked();
        self.at >= kept.read.len() && kept.rest.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let kept = self.kept.0.locked();
        let of_rest = kept.rest.size_hint();
        let left: u64 = kept.read.iter().skip(self.at).map(|piece| piece.len() as u64).sum();
        match of_rest.exact() {
            Some(rest) => SizeHint::with_exact(rest + left),
            None => SizeHint::default(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_body_is_read_again_from_its_start_also_where_the_first_reader_stopped() {
        let pieces = ["one", "two", "three"].map(|text| Ok::<_, std::io::Error>(Bytes::from(text)));
        let kept = KeptBody::new(Body::from_stream(futures::stream::iter(pieces)));
        let mut first = kept.reader();
        assert_eq!(first.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
        drop(first);
        for _ in 0..2 {
            let all = kept.again().unwrap().collect().await.unwrap().to_bytes();
            assert_eq!(all, "onetwothree");
        }
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_not_read_twice() {
        let kept = KeptBody::new(Body::from(vec![0; MAX_KEPT_BYTES + 1]));
        let all = kept.again().unwrap().collect().await.unwrap().to_bytes();
        assert_eq!(all.len(), MAX_KEPT_BYTES + 1);
        assert!(kept.again().is_none());
    }
}
