//! Endless answers: their number is bounded, and each ends with the node.

use std::sync::Arc;

use axum::body::Body;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use forebay_core::traffic::{LiveEvent, LiveFilter};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Traffic;

/// Endless answers that a node sends at once.
const MAX_STREAMS: usize = 64;

/// Bounds the number of endless answers of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct StreamLimit(Arc<Semaphore>);

/// One endless answer, until it is dropped.
#[derive(Debug)]
pub struct StreamPermit(#[allow(dead_code)] OwnedSemaphorePermit);

impl Default for StreamLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_STREAMS)))
    }
}

impl StreamLimit {
    /// Begins an endless answer, or refuses it if there are too many.
    pub fn begin(&self) -> Result<StreamPermit> {
        self.0.clone().try_acquire_owned().map(StreamPermit).map_err(|_| {
            let text = format!("this node already sends {MAX_STREAMS} live streams");
            Error::new(ErrorCode::TooManyRequests, text).hint("close one, or use another gateway")
        })
    }
}

/// The requests of this node that a filter shows, as lines of JSON, until the reader leaves or the node
/// stops.
pub fn requests_stream(
    traffic: &Traffic,
    node: &NodeId,
    filter: LiveFilter,
    permit: StreamPermit,
    stop: CancellationToken,
) -> Response {
    let filter = LiveFilter { node: None, ..filter };
    let start = (traffic.live().listen(), filter, node.to_string(), permit, stop);
    let lines = futures::stream::unfold(start, |mut state| async move {
        let (listener, filter, node, _, stop) = &mut state;
        let mut event = tokio::select! {
            event = listener.next_shown(filter) => event?,
            () = stop.cancelled() => return None,
        };
        if let LiveEvent::Request(request) = &mut event {
            request.node.clone_from(node);
        }
        let mut line = serde_json::to_vec(&event).ok()?;
        line.push(b'\n');
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(line)), state))
    });
    let kind = [(header::CONTENT_TYPE, "application/x-ndjson")];
    (kind, Body::from_stream(lines)).into_response()
}
