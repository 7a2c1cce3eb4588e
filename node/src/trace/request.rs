//! The trace of one request on this node: its own span, and those of the work for it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_core::request::RequestId;
use forebay_core::trace::{ChoiceReason, Span, SpanId, SpanKind, TraceContext, TraceId};

use super::{Tracer, nanos};
use crate::clock::unix_ns;
use crate::exchange::{CurrentRequest, current};

/// Most spans of the work for one request on one node; others are counted.
const MAX_CHILDREN: u32 = 512;
/// Stages that are shorter get no span.
const LEAST_STAGE: Duration = Duration::from_millis(1);

/// The span of a request in progress.
#[derive(Debug)]
pub(crate) struct RequestTrace {
    tracer: Tracer,
    trace: TraceId,
    span: SpanId,
    parent: Option<SpanId>,
    is_sampled: bool,
    started: Instant,
    is_marked: AtomicBool,
    children: AtomicU32,
}

impl RequestTrace {
    pub(super) fn new(
        tracer: Tracer,
        (trace, span, parent): (TraceId, SpanId, Option<SpanId>),
        is_sampled: bool,
    ) -> Self {
        let (is_marked, children) = Default::default();
        Self {
            tracer,
            trace,
            span,
            parent,
            is_sampled,
            started: Instant::now(),
            is_marked,
            children,
        }
    }

    /// What requests to other nodes carry.
    pub(crate) fn context(&self) -> TraceContext {
        TraceContext { trace: self.trace, span: self.span, is_sampled: self.is_sampled }
    }

    pub(crate) fn tracer(&self) -> &Tracer {
        &self.tracer
    }

    /// The span of the request, which took this long until now.
    pub(crate) fn server_span(&self, id: RequestId, name: &'static str, took: Duration) -> Span {
        let now = unix_ns();
        let ids = (self.trace, self.span, self.parent);
        Span {
            end_ns: now,
            kind: SpanKind::Server,
            left_out: self.children.load(Ordering::Relaxed).saturating_sub(MAX_CHILDREN),
            ..Span::new(ids, id, name, now.saturating_sub(nanos(took)))
        }
    }

    /// Takes a finished span of the request or of the work for it. Returns whether its trace is chosen.
    pub(crate) fn finish(&self, span: Span) -> bool {
        self.tracer.finish(span, self.is_sampled)
    }

    /// Chooses the trace on all nodes.
    pub(crate) fn mark(&self, reason: ChoiceReason) {
        if !self.is_sampled && !self.is_marked.swap(true, Ordering::Relaxed) {
            self.tracer.mark(self.trace, reason);
        }
    }

    /// A span of work for the request; `None` if there are too many.
    fn child(&self, id: RequestId, name: &'static str, start_ns: u64) -> Option<Span> {
        if self.children.fetch_add(1, Ordering::Relaxed) >= MAX_CHILDREN {
            return None;
        }
        let ids = (self.trace, self.tracer.new_span(), Some(self.span));
        Some(Span::new(ids, id, name, start_ns))
    }

    fn finish_child(&self, span: Span) {
        // The trace is chosen now, not at the end of the request: the spans of its beginning would
        // not wait so long.
        if self.tracer.is_slow(self.started.elapsed()) {
            self.mark(ChoiceReason::Slow);
        }
        self.finish(span);
    }
}

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
