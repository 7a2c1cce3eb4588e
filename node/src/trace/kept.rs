//! The chosen traces of the last hour, for listings.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use forebay_core::trace::{ChoiceReason, Span, TraceId, TraceKey, TraceSummary};

/// Time that a chosen trace is kept.
const KEEP_NS: u64 = 3_600_000_000_000;
/// Most traces, spans of all traces, and spans of one trace.
const MAX_TRACES: usize = 512;
const MAX_SPANS: usize = 16_384;
const MAX_SPANS_OF_TRACE: usize = 2_048;

/// The chosen traces; the oldest are dropped where there are too many.
#[derive(Debug, Default)]
pub(super) struct KeptTraces {
    traces: HashMap<TraceId, KeptTrace>,
    /// The oldest first.
    order: VecDeque<TraceId>,
    spans: usize,
}

#[derive(Debug)]
struct KeptTrace {
    reason: ChoiceReason,
    spans: Vec<Arc<Span>>,
}

impl KeptTraces {
    /// Adds a span of a chosen trace.
    pub(super) fn add(&mut self, span: &Arc<Span>, reason: ChoiceReason) {
        let trace = self.traces.entry(span.trace).or_insert_with(|| {
            self.order.push_back(span.trace);
            KeptTrace { reason, spans: Vec::new() }
        });
        trace.reason = trace.reason.max(reason);
        if trace.spans.len() < MAX_SPANS_OF_TRACE {
            trace.spans.push(span.clone());
            self.spans += 1;
        }
        while self.order.len() > MAX_TRACES || self.spans > MAX_SPANS {
            self.drop_oldest();
        }
    }

    /// The traces that ended within the last hour.
    pub(super) fn summaries(&mut self, now_ns: u64) -> Vec<TraceSummary> {
        let is_over = |trace: &KeptTrace| {
            trace.spans.iter().all(|span| span.end_ns.saturating_add(KEEP_NS) < now_ns)
        };
        while self.order.front().and_then(|id| self.traces.get(id)).is_some_and(is_over) {
            self.drop_oldest();
        }
        let summary = |trace: &KeptTrace| {
            let spans: Vec<&Span> = trace.spans.iter().map(Arc::as_ref).collect();
            TraceSummary::of(&spans, trace.reason)
        };
        self.traces.values().filter_map(summary).collect()
    }

    /// The spans that a key names. The id of a request names all spans of its trace.
    pub(super) fn find(&self, key: TraceKey) -> Vec<Arc<Span>> {
        let named = match key {
            TraceKey::Trace(trace) => self.traces.get(&trace),
            TraceKey::Request(_) => {
                self.traces.values().find(|trace| trace.spans.iter().any(|span| key.matches(span)))
            }
        };
        named.map_or_else(Vec::new, |trace| trace.spans.clone())
    }

    fn drop_oldest(&mut self) {
        let Some(oldest) = self.order.pop_front() else { return };
        if let Some(trace) = self.traces.remove(&oldest) {
            self.spans -= trace.spans.len();
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::request::RequestId;
    use forebay_core::trace::SpanId;

    use super::*;

    fn span(trace: u128, span: u64) -> Arc<Span> {
        let ids = (TraceId::new(trace).unwrap(), SpanId::new(span).unwrap(), None);
        Arc::new(Span::new(ids, RequestId(trace as u64), "get", 1))
    }

    #[test]
    fn traces_and_spans_are_bounded_and_the_oldest_go_first() {
        let mut kept = KeptTraces::default();
        for trace in 1..=3 * MAX_TRACES as u128 {
            kept.add(&span(trace, 1), ChoiceReason::Sampled);
        }
        assert_eq!(kept.summaries(2).len(), MAX_TRACES);
        assert!(kept.find(TraceKey::Request(RequestId(1))).is_empty());
        let newest = TraceKey::Request(RequestId(3 * MAX_TRACES as u64));
        assert_eq!(kept.find(newest).len(), 1);
        for number in 1..=3 * MAX_SPANS as u64 {
            kept.add(&span(5, number), ChoiceReason::Slow);
        }
        let found = kept.find(TraceKey::Trace(TraceId::new(5).unwrap()));
        assert_eq!(found.len(), MAX_SPANS_OF_TRACE);
        assert!(kept.spans <= MAX_SPANS);
    }

    #[test]
    fn a_trace_that_ended_more_than_an_hour_ago_is_not_listed() {
        let mut kept = KeptTraces::default();
        kept.add(&span(5, 1), ChoiceReason::Failed);
        assert_eq!(kept.summaries(KEEP_NS).len(), 1);
        assert!(kept.summaries(KEEP_NS + 2).is_empty());
        assert_eq!(kept.spans, 0);
    }
}
