//! Traces of a node: spans of its requests and of their calls to backends, which of them are chosen,
//! and their export (record 0077).
//!
//! A span that ends waits 10 s in bounded memory. A trace is chosen if it is sampled, or if any node
//! ends a slow or failed request of it: that node sends a mark to all others, and each of them
//! keeps and exports its spans of the trace, those that end within the next 10 s too.

mod child;
mod choice;
mod encode;
mod export;
mod http;
mod kept;
mod marks;
mod metrics;
mod request;
mod start;
mod waiting;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::config::TraceConfig;
use forebay_core::locks::MutexExt;
use forebay_core::request::{Protocol, RequestContext};
use forebay_core::trace::{
    ChoiceReason, Span, SpanId, SpanKind, TraceId, TraceKey, TraceMark, TraceSummary, merged,
};
use tokio::sync::mpsc;

pub use self::child::{ChildSpan, child, stage};
use self::choice::Choice;
pub use self::http::{key_of, routes};
use self::kept::KeptTraces;
use self::marks::Marks;
pub(crate) use self::metrics::PREFIX;
pub use self::metrics::TraceMetrics;
pub(crate) use self::request::RequestTrace;
use self::waiting::Waiting;
use crate::clock::unix_ns;

/// Makes and chooses the spans of a node; cheap to clone. The default one makes none.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    choice: Choice,
    waiting: Waiting,
    kept: std::sync::Mutex<KeptTraces>,
    marks: Marks,
    /// The way to the collector, if there is one.
    queue: Option<mpsc::Sender<Arc<Span>>>,
    metrics: TraceMetrics,
    node: String,
    next_span: AtomicU64,
}

impl Tracer {
    fn of(
        config: &TraceConfig,
        node: &str,
        queue: Option<mpsc::Sender<Arc<Span>>>,
        metrics: &TraceMetrics,
    ) -> Self {
        let (waiting, kept, marks) = Default::default();
        Self(Some(Arc::new(Inner {
            choice: Choice::new(config),
            waiting,
            kept,
            marks,
            queue,
            metrics: metrics.clone(),
            node: node.to_owned(),
            next_span: AtomicU64::new(rand::random()),
        })))
    }

    /// The trace of a request that this node begins to answer; `None` if it gets no span.
    pub(crate) fn begin(&self, about: &RequestContext) -> Option<RequestTrace> {
        let inner = self.0.as_ref()?;
        let has_span = match about.protocol {
            Protocol::Operations => false,
            // Heartbeats and the like work for no request of a client.
            Protocol::Internal => about.trace.is_some(),
            _ => true,
        };
        has_span.then(|| {
            let trace = trace_of(about);
            let is_sampled = inner.choice.is_sampled(about);
            let parent = about.trace.map(|sender| sender.span);
            RequestTrace::new(self.clone(), (trace, self.new_span(), parent), is_sampled)
        })
    }

    /// Whether a small read that took this long gets a span: other ones are too many.
    pub(crate) fn has_small(&self, about: &RequestContext, took: Duration) -> bool {
        let is_wanted =
            |inner: &Arc<Inner>| inner.choice.is_sampled(about) || inner.choice.is_slow(took);
        self.0.as_ref().is_some_and(is_wanted)
    }

    /// Whether a request of a client that took this long is slow.
    pub(crate) fn is_slow(&self, took: Duration) -> bool {
        self.0.as_ref().is_some_and(|inner| inner.choice.is_slow(took))
    }

    /// A new id. The ids of a process are spread evenly over all numbers.
    fn new_span(&self) -> SpanId {
        const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
        let next = || {
            let next = self.0.as_ref().map(|inner| &inner.next_span);
            next.and_then(|next| SpanId::new(next.fetch_add(SPREAD, Ordering::Relaxed)))
        };
        // Zero, which is no id, comes once in 2^64 times, and not twice in a row.
        next().or_else(next).unwrap_or(SpanId::MAX)
    }

    /// Takes a finished span; `sampled` is set if its trace is chosen from the start. Returns whether its
    /// trace is chosen.
    fn finish(&self, span: Span, sampled: Option<ChoiceReason>) -> bool {
        let Some(inner) = &self.0 else { return false };
        let span = Arc::new(span);
        if let Some(reason) = sampled {
            inner.keep([span], reason);
            return true;
        }
        match inner.waiting.add(&span, unix_ns()) {
            Some(reason) => {
                inner.keep([span], reason);
                true
            }
            None => false,
        }
    }

    /// Chooses the trace of a slow or failed request, here and on all other nodes.
    fn mark(&self, trace: TraceId, reason: ChoiceReason) {
        let Some(inner) = &self.0 else { return };
        let mark = TraceMark { trace, reason };
        if inner.choose(mark) && !inner.marks.add(mark) {
            inner.metrics.dropped_mark();
        }
    }

    /// Chooses traces that another node marked.
    pub fn marked(&self, marks: &[TraceMark]) {
        let Some(inner) = &self.0 else { return };
        for mark in marks.iter().take(marks::MAX_MARKS) {
            inner.choose(*mark);
        }
    }

    /// The chosen traces of this node.
    pub fn summaries(&self) -> Vec<TraceSummary> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let mut all = inner.kept.locked().summaries(unix_ns());
        all.iter_mut().for_each(|summary| summary.node.clone_from(&inner.node));
        all
    }

    /// The spans of this node that a key names, also those of traces that were not chosen, for 10 s.
    pub fn spans(&self, key: TraceKey) -> Vec<Span> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let mut found = inner.kept.locked().find(key);
        found.extend(inner.waiting.find(key));
        let named = found.iter().map(|span| Span { node: inner.node.clone(), ..(**span).clone() });
        merged(named)
    }

    /// Makes the span of a small read that [`Self::has_small`] wants. Returns the id of its trace.
    pub(crate) fn finish_small(
        &self,
        about: &RequestContext,
        took: Duration,
        describe: impl FnOnce(&mut Span),
    ) -> TraceId {
        let (parent, now) = (about.trace.map(|sender| sender.span), unix_ns());
        let (trace, start) = (trace_of(about), now.saturating_sub(nanos(took)));
        let span = Span::new((trace, self.new_span(), parent), about.id, "get", start);
        let mut span = Span { end_ns: now, kind: SpanKind::Server, ..span };
        describe(&mut span);
        let is_sampled = self.0.as_ref().is_some_and(|inner| inner.choice.is_sampled(about));
        if !is_sampled {
            self.mark(trace, ChoiceReason::Slow);
        }
        self.finish(span, is_sampled.then_some(ChoiceReason::Sampled));
        trace
    }
}

impl Inner {
    /// Chooses a trace, and keeps its spans that wait. Returns whether it was not chosen before.
    fn choose(&self, mark: TraceMark) -> bool {
        match self.waiting.choose(mark, unix_ns()) {
            Some(spans) => {
                self.keep(spans, mark.reason);
                true
            }
            None => false,
        }
    }

    /// Keeps spans of a chosen trace for listings, and queues them for the collector.
    fn keep(&self, spans: impl IntoIterator<Item = Arc<Span>>, reason: ChoiceReason) {
        for span in spans {
            self.kept.locked().add(&span, reason);
            if let Some(queue) = &self.queue
                && queue.try_send(span).is_err()
            {
                self.metrics.dropped(1);
            }
        }
    }
}

/// The trace of a request: the sender's, or one of its own.
fn trace_of(about: &RequestContext) -> TraceId {
    about.trace.map_or_else(|| TraceId::of_request(about.id), |sender| sender.trace)
}

/// Nanoseconds of a duration of a request.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
