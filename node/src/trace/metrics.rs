//! Counters of traces.

use prometheus::{IntCounter, IntCounterVec};

use crate::metric_families::Families;

/// Prefix of the names of these metrics.
pub(crate) const PREFIX: &str = "forebay_trace_";

/// Counts spans on their way to the collector; cheap to clone.
#[derive(Clone, Debug)]
pub struct TraceMetrics {
    exported: IntCounter,
    dropped: IntCounter,
    dropped_marks: IntCounter,
}

impl TraceMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let spans: IntCounterVec = families.counters(
            "forebay_trace_spans_total",
            "Spans of chosen traces: `exported` to the collector, or `dropped` because it is slow or fails",
            &["result"],
        );
        let marks = families.counters(
            "forebay_trace_dropped_marks_total",
            "Slow or failed requests of which the other nodes got no mark, because there were too many",
            &[],
        );
        let of = |result: &str| spans.with_label_values(&[result]);
        let dropped_marks = marks.with_label_values(&[] as &[&str]);
        Self { exported: of("exported"), dropped: of("dropped"), dropped_marks }
    }

    pub(super) fn exported(&self, spans: usize) {
        self.exported.inc_by(spans as u64);
    }

    pub(super) fn dropped(&self, spans: usize) {
        self.dropped.inc_by(spans as u64);
    }

    pub(super) fn dropped_mark(&self) {
        self.dropped_marks.inc();
    }
}
