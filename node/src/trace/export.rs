//! Sends spans of chosen traces to a collector, by OTLP over HTTP in protobuf.
//! Format: <https://opentelemetry.io/docs/specs/otlp/#otlphttp>.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use forebay_core::config::TraceConfig;
use forebay_core::trace::Span;
use forebay_core::{Error, Result};
use prost::Message;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::TraceMetrics;
use super::encode::{Resource, request};
use crate::identity::Identity;
use crate::secret_file;

/// Path of traces below the endpoint.
const TRACES_PATH: &str = "/v1/traces";
/// Most spans in a request.
const MAX_BATCH: usize = 512;
/// Pause in which spans are collected for one request.
const COLLECT_FOR: Duration = Duration::from_millis(500);
/// Timeout of a request, and of the last one of a node that stops.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const LAST_TIMEOUT: Duration = Duration::from_secs(2);
/// Pauses before the second and the third try of a request. After it, its spans are dropped.
const RETRY_AFTER: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// Time between warnings about a collector that fails.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// The way to a collector.
pub(super) struct Exporter {
    client: Client,
    url: Url,
    headers_file: String,
    resource: Resource,
    metrics: TraceMetrics,
    warned: Option<Instant>,
}

/// Why a request failed.
struct Failure {
    /// Without URL and headers, which may hold credentials.
    text: String,
    is_transient: bool,
}

impl Exporter {
    pub(super) fn new(
        config: &TraceConfig,
        identity: &Identity,
        metrics: TraceMetrics,
    ) -> Result<Self> {
        // Without the URL, which may hold credentials.
        let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("trace.endpoint: {e}"));
        let mut url = Url::parse(&config.endpoint).map_err(|e| bad(&e))?;
        let path = url.path().trim_end_matches('/').to_owned();
        if !path.ends_with(TRACES_PATH) {
            url.set_path(&format!("{path}{TRACES_PATH}"));
        }
        crate::tls::choose_provider();
        let client = Client::builder().timeout(SEND_TIMEOUT).build().map_err(|e| bad(&e))?;
        let resource = Resource { node: identity.id.to_string(), role: identity.role.name() };
        let headers_file = config.headers_file.clone();
        let exporter = Self { client, url, headers_file, resource, metrics, warned: None };
        if !config.headers_file.is_empty() {
            let file = Path::new(&config.headers_file);
            let text = secret_file::read_text("trace.headers_file", file)?;
            headers_of(&text).map_err(|e| Error::invalid(format!("trace.headers_file: {e}")))?;
        }
        Ok(exporter)
    }

    /// Sends spans until the node stops, and then those that wait.
    pub(super) async fn run(
        mut self,
        mut spans: mpsc::Receiver<Arc<Span>>,
        stop: CancellationToken,
    ) {
        while !stop.is_cancelled() {
            let mut batch = Vec::new();
            tokio::select! {
                taken = spans.recv_many(&mut batch, MAX_BATCH) => if taken == 0 { return },
                () = stop.cancelled() => break,
            }
            if batch.len() < MAX_BATCH {
                tokio::select! {
                    () = tokio::time::sleep(COLLECT_FOR) => {}
                    () = stop.cancelled() => {}
                }
                while batch.len() < MAX_BATCH
                    && let Ok(span) = spans.try_recv()
                {
                    batch.push(span);
                }
            }
            self.deliver(&batch, &stop).await;
        }
        // Requests that end while the node stops have their spans here.
        tokio::time::sleep(COLLECT_FOR).await;
        let mut batch = Vec::new();
        while let Ok(span) = spans.try_recv() {
            batch.push(span);
        }
        if !batch.is_empty() {
            self.deliver(&batch, &stop).await;
        }
    }

    /// Sends a batch, up to three times.
    async fn deliver(&mut self, batch: &[Arc<Span>], stop: &CancellationToken) {
        let body = Bytes::from(request(&self.resource, batch).encode_to_vec());
        let mut pauses = RETRY_AFTER.iter();
        loop {
            let failure = match self.send(&body, stop).await {
                Ok(()) => return self.metrics.exported(batch.len()),
                Err(failure) => failure,
            };
            self.warn(&failure.text);
            let pause = pauses.next().filter(|_| failure.is_transient && !stop.is_cancelled());
            let Some(pause) = pause else { return self.metrics.dropped(batch.len()) };
            tokio::select! {
                () = tokio::time::sleep(*pause) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn send(&self, body: &Bytes, stop: &CancellationToken) -> Result<(), Failure> {
        let failed = |text: String| Failure { text, is_transient: true };
        let mut headers = HeaderMap::new();
        if !self.headers_file.is_empty() {
            let text = tokio::fs::read_to_string(&self.headers_file).await;
            let text = text.map_err(|e| failed(format!("{}: {e}", self.headers_file)))?;
            headers = headers_of(&text).map_err(failed)?;
        }
        headers.insert("content-type", HeaderValue::from_static("application/x-protobuf"));
        let timeout = if stop.is_cancelled() { LAST_TIMEOUT } else { SEND_TIMEOUT };
        let call = self.client.post(self.url.clone()).headers(headers).body(body.clone());
        let answer = call.timeout(timeout).send().await;
        let answer = answer.map_err(|e| failed(e.without_url().to_string()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(());
        }
        let is_transient = matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        );
        Err(Failure { text: format!("it answers {status}"), is_transient })
    }

    /// Logs a failure, at most once a minute.
    fn warn(&mut self, failure: &str) {
        if self.warned.is_none_or(|last| last.elapsed() >= WARN_EVERY) {
            self.warned = Some(Instant::now());
            // The origin has no credentials.
            let collector = self.url.origin().ascii_serialization();
            tracing::warn!(collector, "traces do not reach the collector: {failure}");
        }
    }
}

/// The headers of a file: `name: value`, one a line. Errors do not have the value.
fn headers_of(text: &str) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    for (place, line) in lines {
        let header = line.split_once(':').and_then(|(name, value)| {
            let mut value = HeaderValue::from_str(value.trim()).ok()?;
            value.set_sensitive(true);
            Some((HeaderName::from_bytes(name.trim().as_bytes()).ok()?, value))
        });
        let (name, value) =
            header.ok_or_else(|| format!("line {} is no header `name: value`", place + 1))?;
        headers.insert(name, value);
    }
    Ok(headers)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_headers_has_one_a_line_and_errors_do_not_show_them() {
        let headers = headers_of("authorization: Bearer s3cret\n\nx-scope:  a:b \n").unwrap();
        assert_eq!(headers["authorization"], "Bearer s3cret");
        assert_eq!(headers["x-scope"], "a:b");
        assert!(!format!("{headers:?}").contains("s3cret"));
        let error = headers_of("x: y\nBearer s3cret").unwrap_err();
        assert!(error.contains("line 2") && !error.contains("s3cret"), "{error}");
    }
}
