//! Traces in the requests between nodes and in the API: marks, lists, and the spans of one trace.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{Span, SpanKind, TraceId};
use crate::request::RequestId;

/// Path of the marks of traces that another node chose.
pub const MARKS_PATH: &str = "/internal/v1/trace/marks";
/// Path of the chosen traces of a node.
pub const INTERNAL_TRACES_PATH: &str = "/internal/v1/traces";
/// Most traces in a list.
const MAX_LISTED_TRACES: usize = 500;

/// Why a trace was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChoiceReason {
    Sampled,
    Slow,
    Failed,
}

impl ChoiceReason {
    /// The name in listings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sampled => "sampled",
            Self::Slow => "slow",
            Self::Failed => "failed",
        }
    }
}

/// A trace of which a node ended a slow or failed request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
pub struct TraceMark {
    pub trace: TraceId,
    pub reason: ChoiceReason,
}

/// The marks of a node since it sent the last ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TraceMarks {
    pub marks: Vec<TraceMark>,
}

/// A trace by its id, or by the id of a request in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceKey {
    Trace(TraceId),
    Request(RequestId),
}

impl TraceKey {
    /// Parses the 32 digits of a trace or the 16 of a request; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let trace = || TraceId::parse(&text.to_ascii_lowercase()).map(Self::Trace);
        RequestId::parse(text).map(Self::Request).or_else(trace)
    }

    /// Whether the span belongs to what the key names.
    pub fn matches(&self, span: &Span) -> bool {
        match self {
            Self::Trace(trace) => span.trace == *trace,
            Self::Request(request) => span.request == *request,
        }
    }
}

/// A chosen trace in a list: its first request, and the totals of its spans.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct TraceSummary {
    pub trace: TraceId,
    pub reason: ChoiceReason,
    /// The first request of the cluster in the trace, its operation and its node.
    pub request: RequestId,
    pub name: String,
    pub node: String,
    #[serde(default)]
    pub bucket: String,
    #[serde(default)]
    pub object: String,
    #[serde(default)]
    pub status: u16,
    /// Unix nanoseconds of the first start and the last end.
    pub start_ns: u64,
    pub end_ns: u64,
    pub spans: usize,
}

/// The chosen traces of the last hour, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TracesReply {
    pub traces: Vec<TraceSummary>,
    /// Ids of nodes that did not reply.
    #[serde(default)]
    pub away: Vec<String>,
}

/// The spans of one trace, in the order of their starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TraceReply {
    pub spans: Vec<Span>,
    /// Ids of nodes that did not reply.
    #[serde(default)]
    pub away: Vec<String>,
}

impl TraceSummary {
    /// Summarizes the spans of a trace on one node; `None` without spans.
    pub fn of(spans: &[&Span], reason: ChoiceReason) -> Option<Self> {
        let first =
            spans.iter().min_by_key(|span| (span.kind != SpanKind::Server, span.start_ns))?;
        Some(Self {
            trace: first.trace,
            reason,
            request: first.request,
            name: first.name.to_string(),
            node: first.node.clone(),
            bucket: first.bucket.clone(),
            object: first.object.clone(),
            status: first.status,
            start_ns: spans.iter().map(|span| span.start_ns).min()?,
            end_ns: spans.iter().map(|span| span.end_ns).max()?,
            spans: spans.len(),
        })
    }

    /// Adds the part of another node.
    fn add(&mut self, other: Self) {
        let (spans, reason) = (self.spans + other.spans, self.reason.max(other.reason));
        let (start_ns, end_ns) = (self.start_ns.min(other.start_ns), self.end_ns.max(other.end_ns));
        if other.start_ns < self.start_ns {
            *self = other;
        }
        (self.spans, self.reason, self.start_ns, self.end_ns) = (spans, reason, start_ns, end_ns);
    }
}

/// Joins the lists of nodes: one row for each trace, the newest first.
pub fn summaries(lists: impl IntoIterator<Item = TraceSummary>) -> Vec<TraceSummary> {
    let mut by_trace: BTreeMap<TraceId, TraceSummary> = BTreeMap::new();
    for summary in lists {
        match by_trace.get_mut(&summary.trace) {
            Some(known) => known.add(summary),
            None => drop(by_trace.insert(summary.trace, summary)),
        }
    }
    let mut all: Vec<_> = by_trace.into_values().collect();
    all.sort_by_key(|summary| std::cmp::Reverse(summary.end_ns));
    all.truncate(MAX_LISTED_TRACES);
    all
}

/// Joins the spans of nodes: each span once, in the order of their starts.
pub fn merged(spans: impl IntoIterator<Item = Span>) -> Vec<Span> {
    let mut known = BTreeSet::new();
    let mut all: Vec<Span> =
        spans.into_iter().filter(|span| known.insert((span.trace, span.span))).collect();
    all.sort_by_key(|span| (span.start_ns, std::cmp::Reverse(span.end_ns)));
    all
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::SpanId;
    use super::*;

    fn span(span: u64, node: &str, times: (u64, u64)) -> Span {
        let ids = (TraceId::new(7).unwrap(), SpanId::new(span).unwrap(), None);
        let kind = SpanKind::Server;
        let node = node.to_owned();
        Span { end_ns: times.1, node, kind, ..Span::new(ids, RequestId(9), "get", times.0) }
    }

    #[test]
    fn a_trace_of_two_nodes_is_one_row_with_the_first_request() {
        let gateway = [span(1, "g", (10, 90))];
        let target = [span(2, "t", (20, 80)), span(3, "t", (30, 95))];
        let of = |spans: &[Span], reason| {
            TraceSummary::of(&spans.iter().collect::<Vec<_>>(), reason).unwrap()
        };
        let rows =
            summaries([of(&target, ChoiceReason::Failed), of(&gateway, ChoiceReason::Sampled)]);
        let [row] = rows.as_slice() else { panic!("{rows:?}") };
        assert_eq!((row.node.as_str(), row.spans, row.reason), ("g", 3, ChoiceReason::Failed));
        assert_eq!((row.start_ns, row.end_ns), (10, 95));
        assert_eq!(TraceSummary::of(&[], ChoiceReason::Slow), None);
    }

    #[test]
    fn a_span_that_two_replies_have_is_shown_once() {
        let spans = [span(2, "t", (20, 80)), span(1, "g", (10, 90)), span(2, "t", (20, 80))];
        let ids: Vec<_> = merged(spans).iter().map(|span| span.start_ns).collect();
        assert_eq!(ids, [10, 20]);
    }

    #[test]
    fn a_key_is_the_id_of_a_trace_or_of_a_request() {
        let (trace, request) = (TraceId::new(7).unwrap(), RequestId(9));
        assert_eq!(TraceKey::parse(&trace.to_string()), Some(TraceKey::Trace(trace)));
        assert_eq!(TraceKey::parse(&request.to_string()), Some(TraceKey::Request(request)));
        assert!(TraceKey::Request(request).matches(&span(1, "g", (1, 2))));
        for bad in ["", "../x", &"0".repeat(32), "12"] {
            assert_eq!(TraceKey::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_span_is_the_same_after_json() {
        let whole = Span { bucket: "s3://b".into(), bytes: 5, ..span(1, "g", (10, 90)) };
        let text = serde_json::to_string(&whole).unwrap();
        assert_eq!(serde_json::from_str::<Span>(&text).unwrap(), whole, "{text}");
    }
}
