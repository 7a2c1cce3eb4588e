//! Settings of traces.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Traces of requests. Each node keeps its finished spans for 10 s, and the traces that were chosen
/// (sampled, slow or failed) for an hour, both in bounded memory.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct TraceConfig {
    /// Makes spans of requests. `false`: `traceparent` of clients is ignored, and `forebay trace ls` shows
    /// nothing of this node.
    pub enabled: bool,
    /// URL of a collector that gets the chosen traces by OTLP over HTTP, in protobuf, such as
    /// `http://collector:4318`. Empty: none.
    pub endpoint: String,
    /// File with headers of the requests to the collector, such as `authorization: Bearer TOKEN`, one a
    /// line. It is read for each request. Empty: none.
    pub headers_file: String,
    /// Share of the requests of clients whose traces are chosen: 0 (none) to 1 (all). Slow and failed
    /// requests, and those whose `traceparent` is sampled, are chosen always.
    pub sample: f64,
    /// Milliseconds from which a request of a client is slow.
    pub slow_ms: u32,
}

impl Default for TraceConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            endpoint: String::new(),
            headers_file: String::new(),
            sample: 0.0,
            slow_ms: 1_000,
        }
    }
}

impl TraceConfig {
    pub(super) fn validate(&self) -> Result<()> {
        if !(0.0..=1.0).contains(&self.sample) {
            return Err(Error::invalid("trace.sample must be from 0 (no request) to 1 (all)"));
        }
        if self.slow_ms == 0 {
            return Err(Error::invalid("trace.slow_ms must be at least 1"));
        }
        let endpoint = self.endpoint.as_str();
        if !endpoint.is_empty()
            && !endpoint.starts_with("http://")
            && !endpoint.starts_with("https://")
        {
            // Without the URL, which may hold credentials.
            return Err(Error::invalid("trace.endpoint must begin with http:// or https://"));
        }
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_value_is_refused_by_the_name_of_its_key() {
        TraceConfig::default().validate().unwrap();
        let refused = |config: TraceConfig| config.validate().unwrap_err().message;
        let sample = TraceConfig { sample: 1.5, ..TraceConfig::default() };
        assert!(refused(sample).contains("trace.sample"));
        let slow = TraceConfig { slow_ms: 0, ..TraceConfig::default() };
        assert!(refused(slow).contains("trace.slow_ms"));
        let endpoint = TraceConfig { endpoint: "u:secret@host".into(), ..TraceConfig::default() };
        let message = refused(endpoint);
        assert!(message.contains("trace.endpoint") && !message.contains("secret"), "{message}");
    }
}
