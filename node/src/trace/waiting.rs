//! Finished spans that wait for the choice of their traces, and the traces that were chosen lately.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};

use forebay_core::locks::MutexExt;
use forebay_core::trace::{ChoiceReason, Span, TraceId, TraceKey, TraceMark};

/// Time that spans wait, and that a choice counts for spans that end later.
pub(super) const WAIT_NS: u64 = 10_000_000_000;
/// Sets of spans with a lock of their own; the id of the trace selects one.
const SHARDS: usize = 8;
/// Most spans, and most chosen traces, in a shard.
const MAX_SPANS: usize = 2_048;
const MAX_CHOSEN: usize = 1_024;

/// The finished spans of the last 10 s; the oldest are dropped where there are too many.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    shards: [Mutex<Shard>; SHARDS],
}

#[derive(Debug, Default)]
struct Shard {
    by_trace: HashMap<TraceId, VecDeque<Arc<Span>>>,
    /// When each span was added, the oldest first. Those of chosen traces are gone already.
    order: VecDeque<(u64, TraceId)>,
    /// Until when a trace is chosen.
    chosen: HashMap<TraceId, (u64, ChoiceReason)>,
}

impl Waiting {
    /// Adds a span, unless its trace is chosen: then returns why.
    pub(super) fn add(&self, span: &Arc<Span>, now_ns: u64) -> Option<ChoiceReason> {
        let mut shard = self.shard(span.trace).locked();
        match shard.chosen.get(&span.trace) {
            Some((until, reason)) if *until >= now_ns => return Some(*reason),
            Some(_) => drop(shard.chosen.remove(&span.trace)),
            None => {}
        }
        shard.expire(now_ns);
        shard.by_trace.entry(span.trace).or_default().push_back(span.clone());
        shard.order.push_back((now_ns, span.trace));
        None
    }

    /// Chooses a trace. Returns its spans, or `None` if it was chosen before or there are too many.
    pub(super) fn choose(&self, mark: TraceMark, now_ns: u64) -> Option<Vec<Arc<Span>>> {
        let mut shard = self.shard(mark.trace).locked();
        shard.expire(now_ns);
        if shard.chosen.len() >= MAX_CHOSEN {
            shard.chosen.retain(|_, (until, _)| *until >= now_ns);
        }
        let is_known = shard.chosen.get(&mark.trace).is_some_and(|(until, _)| *until >= now_ns);
        if is_known || shard.chosen.len() >= MAX_CHOSEN {
            return None;
        }
        shard.chosen.insert(mark.trace, (now_ns + WAIT_NS, mark.reason));
        Some(shard.by_trace.remove(&mark.trace).unwrap_or_default().into())
    }

    /// The spans that a key names.
    pub(super) fn find(&self, key: TraceKey) -> Vec<Arc<Span>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let shard = shard.locked();
            let all = shard.by_trace.values().flatten();
            found.extend(all.filter(|span| key.matches(span)).cloned());
        }
        found
    }

    fn shard(&self, trace: TraceId) -> &Mutex<Shard> {
        let last = trace.to_bytes()[15];
        &self.shards[usize::from(last) % SHARDS]
    }
}

impl Shard {
    /// Drops spans that waited long enough, and the oldest of too many.
    fn expire(&mut self, now_ns: u64) {
        while let Some((added, trace)) = self.order.front().copied() {
            if self.order.len() < MAX_SPANS && added + WAIT_NS >= now_ns {
                return;
            }
            self.order.pop_front();
            if let Some(spans) = self.by_trace.get_mut(&trace) {
                spans.pop_front();
                if spans.is_empty() {
                    self.by_trace.remove(&trace);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::request::RequestId;
    use forebay_core::trace::SpanId;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn span(trace: u128, span: u64) -> Arc<Span> {
        let ids = (TraceId::new(trace).unwrap(), SpanId::new(span).unwrap(), None);
        Arc::new(Span::new(ids, RequestId(1), "get", 1))
    }

    fn slow(trace: u128) -> TraceMark {
        TraceMark { trace: TraceId::new(trace).unwrap(), reason: ChoiceReason::Slow }
    }

    #[test]
    fn a_choice_returns_what_waits_and_counts_for_what_ends_in_the_next_10_s() {
        let waiting = Waiting::default();
        assert_eq!(waiting.add(&span(8, 1), SECOND), None);
        assert_eq!(waiting.add(&span(16, 2), SECOND), None);
        let found = waiting.choose(slow(8), 2 * SECOND).unwrap();
        assert_eq!(found, [span(8, 1)]);
        assert_eq!(waiting.choose(slow(8), 3 * SECOND), None);
        assert_eq!(waiting.add(&span(8, 3), 12 * SECOND), Some(ChoiceReason::Slow));
        assert_eq!(waiting.add(&span(8, 4), 13 * SECOND), None);
        let key = TraceKey::Trace(TraceId::new(16).unwrap());
        assert!(waiting.find(key).is_empty(), "it waited longer than 10 s");
    }

    #[test]
    fn spans_and_chosen_traces_are_bounded() {
        let waiting = Waiting::default();
        for number in 1..=3 * MAX_SPANS as u64 {
            waiting.add(&span(8, number), SECOND);
        }
        let key = TraceKey::Trace(TraceId::new(8).unwrap());
        assert_eq!(waiting.find(key).len(), MAX_SPANS);
        let all = (1..=3 * MAX_CHOSEN as u128).filter_map(|n| waiting.choose(slow(8 * n), SECOND));
        assert_eq!(all.count(), MAX_CHOSEN);
        assert!(waiting.choose(slow(80), 12 * SECOND).is_some(), "the choices have expired");
    }
}
