//! OpenMetrics from the Prometheus text of the same metrics, with exemplars.
//! Format: <https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md>.

use std::fmt::Write;

use axum::http::{HeaderMap, header};
use axum::response::Response;

use crate::exemplar::{Exemplar, Exemplars};
use crate::metrics::Metrics;
use crate::reply::with_type;

/// Media type in `Accept`, and of the answer.
const MEDIA_TYPE: &str = "application/openmetrics-text";
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT_TYPE: &str = "text/plain; version=0.0.4";

/// The answer to a request for this text of metrics, in the format that the request accepts.
pub fn answer(headers: &HeaderMap, metrics: &Metrics, text: String) -> Response {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let is_open = accepted.flat_map(|value| value.split(',')).any(|kind| {
        let kind = kind.split(';').next().unwrap_or(kind);
        kind.trim().eq_ignore_ascii_case(MEDIA_TYPE)
    });
    match is_open {
        true => with_type(CONTENT_TYPE, open_metrics(&text, &metrics.exemplars())),
        false => with_type(TEXT_TYPE, text),
    }
}

/// Writes Prometheus text as OpenMetrics.
fn open_metrics(text: &str, exemplars: &Exemplars) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    // A family has its help before its type, which decides the name.
    let mut help: Option<&str> = None;
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = Some(rest);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            family(&mut out, rest, help.take());
        } else if !line.starts_with('#') {
            sample(&mut out, line, exemplars);
        }
    }
    out.push_str("# EOF\n");
    out
}

/// Writes type and help of a family. The family of a counter is named without `_total`.
fn family(out: &mut String, kind: &str, help: Option<&str>) {
    let (name, kind) = kind.split_once(' ').unwrap_or((kind, "unknown"));
    let (shown, kind) = match (name.strip_suffix("_total"), kind) {
        (Some(short), "counter") => (short, kind),
        (None, "counter") => (name, "unknown"),
        _ => (name, kind),
    };
    let _ = writeln!(out, "# TYPE {shown} {kind}");
    if let Some((_, help)) = help.and_then(|help| help.split_once(' ')) {
        let _ = writeln!(out, "# HELP {shown} {}", help.replace('"', "\\\""));
    }
}

/// Writes a sample, with its exemplar.
fn sample(out: &mut String, line: &str, exemplars: &Exemplars) {
    let Some((series, _)) = line.rsplit_once(' ') else { return };
    let bound = series.rfind("le=\"").filter(|_| series.contains("_bucket{"));
    let Some(start) = bound.map(|at| at + 4) else {
        out.push_str(line);
        out.push('\n');
        return;
    };
    let len = line[start..].find('"').unwrap_or(0);
    let (before, bound, after) = (&line[..start], &line[start..start + len], &line[start + len..]);
    out.push_str(before);
    out.push_str(&canonical(bound));
    out.push_str(after);
    if let Some(Exemplar { trace, seconds, unix_s }) = exemplars.get(series) {
        let _ = write!(out, " # {{trace_id=\"{trace}\"}} {seconds} {unix_s:.3}");
    }
    out.push('\n');
}

/// A bound as OpenMetrics writes it: never without a point or an exponent.
fn canonical(bound: &str) -> String {
    let Some(number) = bound.parse::<f64>().ok().filter(|number| number.is_finite()) else {
        return bound.to_owned();
    };
    if number != 0.0 && number < 1e-4 {
        let text = format!("{number:e}");
        return match text.split_once("e-") {
            Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
            None => text,
        };
    }
    format!("{number:?}")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::trace::TraceId;

    use super::*;

    const TEXT: &str = "\
# HELP a_total Requests of \"a\"
# TYPE a_total counter
a_total{op=\"get\"} 3
# HELP t_seconds Times
# TYPE t_seconds histogram
t_seconds_bucket{op=\"get\",le=\"0.00001\"} 1
t_seconds_bucket{op=\"get\",le=\"30\"} 2
t_seconds_bucket{op=\"get\",le=\"+Inf\"} 2
t_seconds_sum{op=\"get\"} 1.5
t_seconds_count{op=\"get\"} 2
";

    #[test]
    fn text_becomes_open_metrics_with_exemplars_in_their_buckets() {
        let trace = TraceId::new(7).unwrap();
        let exemplar = Exemplar { trace, seconds: 1.25, unix_s: 1_700_000_000.5 };
        let series = "t_seconds_bucket{op=\"get\",le=\"30\"}".to_owned();
        let open = open_metrics(TEXT, &Exemplars::from([(series, exemplar)]));
        let expected = format!(
            "\
# TYPE a counter
# HELP a Requests of \\\"a\\\"
a_total{{op=\"get\"}} 3
# TYPE t_seconds histogram
# HELP t_seconds Times
t_seconds_bucket{{op=\"get\",le=\"1e-05\"}} 1
t_seconds_bucket{{op=\"get\",le=\"30.0\"}} 2 # {{trace_id=\"{trace}\"}} 1.25 1700000000.500
t_seconds_bucket{{op=\"get\",le=\"+Inf\"}} 2
t_seconds_sum{{op=\"get\"}} 1.5
t_seconds_count{{op=\"get\"}} 2
# EOF
"
        );
        assert_eq!(open, expected);
    }

    #[test]
    fn bounds_have_a_point_or_an_exponent() {
        for (bound, expected) in
            [("1", "1.0"), ("0.00025", "0.00025"), ("0.000025", "2.5e-05"), ("1800", "1800.0")]
        {
            assert_eq!(canonical(bound), expected);
        }
    }

    #[test]
    fn a_request_without_the_type_in_accept_gets_the_text_unchanged() {
        let metrics = Metrics::default();
        let kind = |accept: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            answer(&headers, &metrics, TEXT.to_owned()).headers()["content-type"].clone()
        };
        assert_eq!(kind("*/*"), TEXT_TYPE);
        assert_eq!(
            kind("text/plain;q=0.5,application/openmetrics-text;version=1.0.0"),
            CONTENT_TYPE
        );
    }
}
