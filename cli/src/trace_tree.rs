//! The spans of a trace as a tree, one a line, with bars of their time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use forebay_core::trace::{Span, SpanId, SpanKind};

use crate::top::duration;

/// Columns of a bar.
const BAR_WIDTH: u64 = 30;

/// The tree as text. Spans whose parent is not among them, such as one of the client, are roots.
pub(crate) fn text(spans: &[Span]) -> String {
    let ids: BTreeSet<SpanId> = spans.iter().map(|span| span.span).collect();
    let mut children: BTreeMap<Option<SpanId>, Vec<&Span>> = BTreeMap::new();
    for span in spans {
        let parent = span.parent.filter(|parent| ids.contains(parent) && *parent != span.span);
        children.entry(parent).or_default().push(span);
    }
    let start = spans.iter().map(|span| span.start_ns).min().unwrap_or(0);
    let end = spans.iter().map(|span| span.end_ns).max().unwrap_or(0);
    let mut text = String::new();
    if let Some(first) = spans.first() {
        let took = duration(end.saturating_sub(start) as f64 / 1e9);
        let _ = writeln!(text, "trace {}, {} spans, {took}", first.trace, spans.len());
    }
    // A list of children is taken when it is shown, so that ids in a circle end.
    let mut take = |parent: Option<SpanId>, depth: usize| {
        let found = children.remove(&parent).unwrap_or_default();
        found.into_iter().rev().map(move |span| (span, depth)).collect::<Vec<_>>()
    };
    let mut open = take(None, 0);
    while let Some((span, depth)) = open.pop() {
        line(&mut text, span, depth, (start, end));
        open.extend(take(Some(span.span), depth + 1));
    }
    text
}

fn line(text: &mut String, span: &Span, depth: usize, (start, end): (u64, u64)) {
    let seconds = |ns: u64| duration(ns as f64 / 1e9);
    let (took, after) = (seconds(span.duration_ns()), seconds(span.start_ns.saturating_sub(start)));
    let whole = end.saturating_sub(start).max(1);
    let at = |ns: u64| {
        (u128::from(ns.saturating_sub(start)) * u128::from(BAR_WIDTH) / u128::from(whole)) as usize
    };
    let width = BAR_WIDTH as usize;
    let first = at(span.start_ns).min(width - 1);
    let last = at(span.end_ns).clamp(first + 1, width);
    let bar = format!("{}{}", " ".repeat(first), "#".repeat(last - first));
    let indent = "  ".repeat(depth);
    let mark = if span.is_error { " !" } else { "" };
    let result = match (span.kind, span.status) {
        (SpanKind::Server, 1..) => span.status.to_string(),
        _ => span.result.to_string(),
    };
    let provider = match span.kind {
        SpanKind::Client => format!(" {}", span.api),
        _ => String::new(),
    };
    let subject = match span.kind {
        SpanKind::Internal => String::new(),
        _ => subject(&span.bucket, &span.object),
    };
    let row = format!(
        "{took:>8} {:>8} |{bar:<width$}| {indent}{}{provider}  {}  {subject} {result}{mark}",
        format!("+{after}"),
        span.name,
        span.node,
    );
    let _ = writeln!(text, "{}", row.trim_end());
    if span.left_out > 0 {
        let pad = " ".repeat(BAR_WIDTH as usize + 20);
        let _ = writeln!(text, "{pad}{indent}  {} more spans were left out", span.left_out);
    }
}

/// A bucket with an object; `-` for neither.
pub(crate) fn subject(bucket: &str, object: &str) -> String {
    match (bucket, object) {
        ("", _) => "-".to_owned(),
        (bucket, "") => bucket.to_owned(),
        (bucket, object) => format!("{bucket}/{object}"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::borrow::Cow;

    use forebay_core::request::RequestId;
    use forebay_core::trace::TraceId;

    use super::*;

    fn span(name: &'static str, id: u64, parent: Option<u64>, ms: (u64, u64)) -> Span {
        let parent = parent.and_then(SpanId::new);
        let ids = (TraceId::new(7).unwrap(), SpanId::new(id).unwrap(), parent);
        let end_ns = ms.1 * 1_000_000;
        Span { end_ns, node: "t1".into(), ..Span::new(ids, RequestId(1), name, ms.0 * 1_000_000) }
    }

    #[test]
    fn children_are_below_their_parents_with_bars_at_their_time() {
        let backend = Span {
            kind: SpanKind::Client,
            api: Cow::Borrowed("aws"),
            bucket: "s3://b".into(),
            object: "o".into(),
            result: Cow::Borrowed("ok"),
            ..span("backend get", 3, Some(2), (50, 100))
        };
        // The parent of the first one is a span of the client.
        let shown = text(&[
            span("batch", 1, Some(99), (0, 100)),
            span("get", 2, Some(1), (0, 50)),
            backend,
        ]);
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines[0].starts_with("trace 0000") && lines[0].ends_with("3 spans, 100.0ms"));
        assert!(lines[1].contains("| batch  t1"), "{shown}");
        assert!(lines[2].contains("|   get  t1"), "{shown}");
        assert!(lines[3].contains("|     backend get aws  t1  s3://b/o ok"), "{shown}");
        assert!(lines[3].contains(&format!("|{}{}|", " ".repeat(15), "#".repeat(15))), "{shown}");
    }

    #[test]
    fn spans_in_a_circle_and_no_spans_end() {
        assert_eq!(text(&[]), "");
        let circle = [span("a", 1, Some(2), (0, 1)), span("b", 2, Some(1), (0, 1))];
        assert_eq!(text(&circle).lines().count(), 1);
        assert_eq!(text(&[span("a", 1, Some(1), (0, 1))]).lines().count(), 2);
    }
}
