//! The trace of one request on this node: its ids, and what ends with it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use forebay_core::request::RequestId;
use forebay_core::trace::{ChoiceReason, Span, SpanId, SpanKind, TraceContext, TraceId};

use super::{Tracer, nanos};
use crate::clock::unix_ns;

/// Most spans of the work for one request on one node; others are counted.
const MAX_CHILDREN: u32 = 512;

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

    /// The context that requests to other nodes carry.
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

    /// Takes the finished span of the request, which is slow or failed if there is a reason to choose it.
    /// Returns whether its trace is chosen.
    pub(crate) fn end(&self, span: Span, reason: Option<ChoiceReason>) -> bool {
        if let Some(reason) = reason {
            self.mark(reason);
        }
        let sampled = || reason.unwrap_or(ChoiceReason::Sampled);
        self.tracer.finish(span, self.is_sampled.then(sampled))
    }

    /// Chooses the trace on all nodes.
    fn mark(&self, reason: ChoiceReason) {
        if !self.is_sampled && !self.is_marked.swap(true, Ordering::Relaxed) {
            self.tracer.mark(self.trace, reason);
        }
    }

    /// A span of work for the request; `None` if there are too many.
    pub(super) fn child(&self, id: RequestId, name: &'static str, start_ns: u64) -> Option<Span> {
        if self.children.fetch_add(1, Ordering::Relaxed) >= MAX_CHILDREN {
            return None;
        }
        let ids = (self.trace, self.tracer.new_span(), Some(self.span));
        Some(Span::new(ids, id, name, start_ns))
    }

    /// Takes a finished span of work for the request.
    pub(super) fn finish_child(&self, span: Span) {
        // The trace is chosen now, not at the end of the request: the spans of its beginning would
        // not wait so long.
        if self.tracer.is_slow(self.started.elapsed()) {
            self.mark(ChoiceReason::Slow);
        }
        self.tracer.finish(span, self.is_sampled.then_some(ChoiceReason::Sampled));
    }
}
