//! Spans of the work for the current request: calls to backends, and stages.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::trace::{Span, SpanKind};

use super::nanos;
use crate::clock::unix_ns;
use crate::exchange::{CurrentRequest, current};

/// Stages that are shorter get no span.
const LEAST_STAGE: Duration = Duration::from_millis(1);

/// The span of a call to a backend. It ends when it is dropped.
#[derive(Debug)]
pub struct ChildSpan {
    request: Arc<CurrentRequest>,
    /// Taken at the end.
    span: Option<Span>,
}

/// Begins the span of a call to a backend for the current request; `None` if it has no trace.
pub fn child(
    name: &'static str,
    provider: &'static str,
    bucket: &str,
    object: &str,
) -> Option<ChildSpan> {
    let request = current()?;
    let span = request.trace()?.child(request.id(), name, unix_ns())?;
    let (bucket, object) = (bucket.to_owned(), object.to_owned());
    let (kind, api) = (SpanKind::Client, Cow::Borrowed(provider));
    // A call that is dropped before its result has none.
    let result = Cow::Borrowed("cancelled");
    let span = Some(Span { bucket, object, kind, api, result, ..span });
    Some(ChildSpan { request, span })
}

impl ChildSpan {
    /// Records the result of the call, as metrics name it.
    pub fn set_result(&mut self, result: &'static str, is_error: bool) {
        if let Some(span) = &mut self.span {
            (span.result, span.is_error) = (Cow::Borrowed(result), is_error);
        }
    }

    /// Counts bytes sent or received.
    pub fn add_bytes(&mut self, bytes: u64) {
        if let Some(span) = &mut self.span {
            span.bytes += bytes;
        }
    }
}

impl Drop for ChildSpan {
    fn drop(&mut self) {
        if let (Some(mut span), Some(trace)) = (self.span.take(), self.request.trace()) {
            span.end_ns = unix_ns();
            trace.finish_child(span);
        }
    }
}

/// Records a stage of the current request that began at `started` and ends now. Short stages get no
/// span.
pub fn stage(name: &'static str, started: Instant) {
    let took = started.elapsed();
    if took < LEAST_STAGE {
        return;
    }
    let Some(request) = current() else { return };
    let Some(trace) = request.trace() else { return };
    let now = unix_ns();
    if let Some(span) = trace.child(request.id(), name, now.saturating_sub(nanos(took))) {
        trace.finish_child(Span { end_ns: now, ..span });
    }
}
