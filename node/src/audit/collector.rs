//! Sends records to a collector over HTTP.

use std::time::Duration;

use bytes::Bytes;
use forebay_core::{Error, Result};
use reqwest::{Client, Url};
use tokio_util::sync::CancellationToken;

use super::Records;

/// Timeout of one request.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
/// First and longest pause between attempts.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(30));

/// A collector, which gets each batch of records as the body of a POST, one JSON object a line.
#[derive(Debug)]
pub(super) struct Collector {
    client: Client,
    url: Url,
}

impl Collector {
    pub(super) fn new(url: &str) -> Result<Self> {
        // Without the URL, which may hold credentials.
        let bad = |e: &dyn std::fmt::Display| Error::invalid(format!("audit.url: {e}"));
        let parsed = Url::parse(url).map_err(|e| bad(&e))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(bad(&"it must begin with http:// or https://"));
        }
        crate::tls::choose_provider();
        let client = Client::builder().timeout(SEND_TIMEOUT).build().map_err(|e| bad(&e))?;
        Ok(Self { client, url: parsed })
    }

    /// Sends records until the node stops. A batch is sent again until the collector takes it;
    /// records that arrive meanwhile wait in their queue.
    pub(super) async fn run(self, mut records: Records, stop: CancellationToken) {
        while let Some(batch) = records.next(&stop).await {
            let lines = batch.lines.len();
            let body = Bytes::from(batch.lines.concat());
            let mut pause = RETRY_AFTER.0;
            while let Err(e) = self.send(&body).await {
                if stop.is_cancelled() {
                    tracing::error!(lines, "audit records do not reach {}: {e}", self.place());
                    records.count_lost(&batch);
                    return;
                }
                tracing::warn!(lines, "audit records wait for {}: {e}", self.place());
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.cancelled() => {}
                }
                pause = (pause * 2).min(RETRY_AFTER.1);
            }
            records.count_delivered(&batch);
        }
    }

    /// Sends one batch. Errors do not name the URL, which may hold credentials.
    async fn send(&self, body: &Bytes) -> reqwest::Result<()> {
        let request = self.client.post(self.url.clone());
        let request = request.header("content-type", "application/x-ndjson").body(body.clone());
        let answer = request.send().await.and_then(reqwest::Response::error_for_status);
        answer.map(drop).map_err(reqwest::Error::without_url)
    }

    /// The collector in a log line, without credentials of its URL.
    fn place(&self) -> String {
        self.url.origin().ascii_serialization()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::Queue;
    use super::*;
    use crate::identity::tests::identity;
    use crate::metrics::Metrics;

    #[test]
    fn only_urls_of_http_are_collectors() {
        assert!(Collector::new("https://user:word@logs.example.com/in").is_ok());
        for bad in ["logs.example.com", "file:///tmp/x", ""] {
            assert!(Collector::new(bad).unwrap_err().message.contains("audit.url"), "{bad}");
        }
    }

    #[tokio::test]
    async fn errors_do_not_name_the_credentials_of_the_url() {
        // Port 1 refuses connections.
        let collector = Collector::new("http://user:word@127.0.0.1:1/in?key=secret").unwrap();
        let error = collector.send(&Bytes::from_static(b"{}\n")).await.unwrap_err();
        let error = format!("{error} {error:?}");
        assert!(!error.contains("word") && !error.contains("secret"), "{error}");
        let error = Collector::new("ftp://user:word@127.0.0.1/").unwrap_err().to_string();
        assert!(!error.contains("word"), "{error}");
    }

    #[tokio::test]
    async fn records_that_the_collector_has_not_when_the_node_stops_are_counted() {
        let metrics = Metrics::default();
        let (queue, records) = Queue::new(&identity().id, metrics.audit().sink("collector"));
        queue.lines.try_send("{}\n".to_owned()).unwrap();
        let stop = CancellationToken::new();
        stop.cancel();
        // Port 1 refuses connections.
        Collector::new("http://127.0.0.1:1/").unwrap().run(records, stop).await;
        let page = metrics.render();
        assert!(page.contains("forebay_audit_lost_total{sink=\"collector\"} 1\n"), "{page}");
    }

    #[test]
    fn log_lines_do_not_name_the_credentials_of_the_url() {
        let collector = Collector::new("https://user:word@logs.example.com/in?key=1").unwrap();
        assert_eq!(collector.place(), "https://logs.example.com");
    }
}
