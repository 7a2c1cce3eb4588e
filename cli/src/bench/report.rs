//! The result of a load, as a table and as JSON.

use forebay_core::date::format_rfc3339;
use forebay_core::size::ByteSize;
use forebay_node::clock::unix_ns;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::load::Measured;
use crate::failure::Failure;
use crate::output::{self, Format};
use crate::session::Session;

/// Version of the JSON document.
const SCHEMA: u32 = 1;
/// Shown quantiles and their names.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];

/// A finished load.
#[derive(Debug)]
pub(super) struct Report {
    kind: String,
    uri: String,
    endpoint: String,
    jobs: u16,
    pub(super) requests: u64,
    measured: Measured,
}

impl Report {
    pub(super) fn new(
        session: &Session,
        kind: &str,
        uri: &str,
        jobs: u16,
        measured: Measured,
    ) -> Self {
        let (kind, uri) = (kind.to_owned(), uri.to_owned());
        let endpoint = session.endpoint.clone();
        Self { kind, uri, endpoint, jobs, requests: measured.requests, measured }
    }

    /// Number of failed requests.
    pub(super) fn failed(&self) -> u64 {
        self.measured.errors.values().map(|(count, _)| count).sum()
    }

    pub(super) fn print(&self, session: &Session) -> Result<(), Failure> {
        if session.format == Format::Table {
            for (word, (count, message)) in &self.measured.errors {
                session.warn(format!("{count} requests failed ({word}), such as: {message}"));
            }
        }
        output::one(session.format, &self.uri, &self.lines(), &self.json())
    }

    fn rate(&self, count: u64) -> f64 {
        count as f64 / self.measured.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn lines(&self) -> Vec<(&'static str, String)> {
        let measured = &self.measured;
        let each = |count: u64| format!("{count} ({:.1} a second)", self.rate(count));
        // A rate of bytes is far below the largest number.
        let rate = ByteSize(self.rate(measured.bytes) as u64);
        let mut lines = vec![
            ("load", format!("{} {}, {} jobs", self.kind, self.uri, self.jobs)),
            ("time", format!("{:.1} s", measured.elapsed.as_secs_f64())),
            ("requests", each(measured.requests)),
        ];
        if measured.objects != measured.requests {
            lines.push(("objects", each(measured.objects)));
        }
        lines.push(("bytes", format!("{} ({rate} a second)", ByteSize(measured.bytes))));
        lines.push(("latency", latencies(&measured.latency)));
        if !measured.first.is_empty() {
            lines.push(("first byte", latencies(&measured.first)));
        }
        lines.push(("failed", self.failed().to_string()));
        lines
    }

    fn json(&self) -> Value {
        let measured = &self.measured;
        let errors: serde_json::Map<_, _> =
            measured.errors.iter().map(|(word, (count, _))| (word.clone(), json!(count))).collect();
        json!({
            "schema": SCHEMA,
            "kind": self.kind,
            "uri": self.uri,
            "endpoint": self.endpoint,
            "version": env!("CARGO_PKG_VERSION"),
            "time": format_rfc3339(unix_ns()),
            "jobs": self.jobs,
            "seconds": measured.elapsed.as_secs_f64(),
            "requests": measured.requests,
            "objects": measured.objects,
            "bytes": measured.bytes,
            "failed": self.failed(),
            "errors": errors,
            "requests_per_s": self.rate(measured.requests),
            "objects_per_s": self.rate(measured.objects),
            "bytes_per_s": self.rate(measured.bytes),
            "latency_ms": latencies_json(&measured.latency),
            "first_byte_ms": latencies_json(&measured.first),
        })
    }
}

fn millis(micros: u64) -> f64 {
    micros as f64 / 1000.0
}

fn latencies(histogram: &Histogram<u64>) -> String {
    if histogram.is_empty() {
        return "-".to_owned();
    }
    let quantiles = QUANTILES
        .map(|(name, q)| format!("{name} {:.2} ms", millis(histogram.value_at_quantile(q))));
    format!("{}, most {:.2} ms", quantiles.join(", "), millis(histogram.max()))
}

fn latencies_json(histogram: &Histogram<u64>) -> Value {
    if histogram.is_empty() {
        return Value::Null;
    }
    let mut shown: serde_json::Map<_, _> = QUANTILES
        .iter()
        .map(|(name, q)| (name.to_string(), json!(millis(histogram.value_at_quantile(*q)))))
        .collect();
    shown.insert("mean".into(), json!(histogram.mean() / 1000.0));
    shown.insert("max".into(), json!(millis(histogram.max())));
    Value::Object(shown)
}
