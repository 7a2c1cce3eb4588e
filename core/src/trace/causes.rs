//! The time of a trace by the causes of waits.

use super::{Span, SpanKind};
use crate::feed::{Cause, Feed};

/// Where several spans run at once, the time counts for the first cause of this list.
const BY_PRIORITY: [Cause; 4] = [Cause::Cold, Cause::Disk, Cause::Queue, Cause::Network];

/// The cause that the time of a span counts for; `None` for spans whose rest is not a wait.
fn cause_of(span: &Span) -> Option<Cause> {
    match (span.kind, &*span.name) {
        (SpanKind::Client, _) | (_, "cold read") => Some(Cause::Cold),
        (_, "disk read") => Some(Cause::Disk),
        (_, "queue") => Some(Cause::Queue),
        // The rest of a request: work of the node, and the way of the bytes to the client.
        (SpanKind::Server, _) => Some(Cause::Network),
        (SpanKind::Internal, _) => None,
    }
}

/// The time of a trace by cause, in the form of a feed of one step, so that [`findings`] has the
/// remedies.
///
/// [`findings`]: crate::feed::advice::findings
pub fn causes(spans: &[Span]) -> Feed {
    let timed = |span: &Span| {
        let cause = cause_of(span)?;
        let priority = BY_PRIORITY.iter().position(|known| *known == cause)?;
        Some((priority, span.start_ns, span.end_ns))
    };
    let timed: Vec<(usize, u64, u64)> = spans.iter().filter_map(timed).collect();
    // Starts and ends in order; between two of them, the same spans run.
    let mut edges: Vec<(u64, usize, bool)> = Vec::with_capacity(timed.len() * 2);
    for (priority, start, end) in timed {
        edges.push((start, priority, true));
        edges.push((end.max(start), priority, false));
    }
    edges.sort_unstable_by_key(|(time, _, begins)| (*time, !*begins));
    let (mut running, mut seconds) = ([0_u32; BY_PRIORITY.len()], [0.0; BY_PRIORITY.len()]);
    let mut before = edges.first().map_or(0, |edge| edge.0);
    for (time, priority, begins) in edges {
        if let Some(first) = running.iter().position(|count| *count > 0) {
            seconds[first] += (time - before) as f64 / 1e9;
        }
        before = time;
        match begins {
            true => running[priority] += 1,
            false => running[priority] = running[priority].saturating_sub(1),
        }
    }
    let mut feed = Feed { steps: 1, wait_s: seconds.iter().sum(), ..Feed::default() };
    feed.step_s = feed.wait_s;
    let [cold, disk, queue, network] = seconds;
    (feed.causes.cold, feed.causes.disk) = (cold, disk);
    (feed.causes.queue, feed.causes.network) = (queue, network);
    let buckets = spans.iter().map(|span| &span.bucket).filter(|bucket| !bucket.is_empty());
    feed.buckets =
        buckets.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect();
    let roots = spans.iter().filter(|span| span.kind == SpanKind::Server && span.bytes > 0);
    feed.bytes = roots.map(|span| span.bytes).max().unwrap_or(0);
    feed
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::{SpanId, TraceId};
    use super::*;
    use crate::request::RequestId;

    fn span(name: &'static str, kind: SpanKind, seconds: (u64, u64)) -> Span {
        let ids = (TraceId::new(7).unwrap(), SpanId::new(1).unwrap(), None);
        let (start, end) = (seconds.0 * 1_000_000_000, seconds.1 * 1_000_000_000);
        Span { kind, end_ns: end, ..Span::new(ids, RequestId(9), name, start) }
    }

    #[test]
    fn each_moment_counts_once_for_the_deepest_cause() {
        let spans = [
            span("get", SpanKind::Server, (0, 10)),
            span("queue", SpanKind::Internal, (0, 1)),
            span("cold read", SpanKind::Internal, (1, 8)),
            span("backend get", SpanKind::Client, (2, 6)),
            span("backend get", SpanKind::Client, (3, 7)),
            span("disk read", SpanKind::Internal, (7, 9)),
        ];
        let feed = causes(&spans);
        let found = (feed.causes.cold, feed.causes.disk, feed.causes.queue, feed.causes.network);
        assert_eq!(found, (7.0, 1.0, 1.0, 1.0));
        assert_eq!(feed.wait_s, 10.0);
    }

    #[test]
    fn a_trace_without_spans_waited_for_nothing() {
        assert_eq!(causes(&[]).wait_s, 0.0);
    }
}
