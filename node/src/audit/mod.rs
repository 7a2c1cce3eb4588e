//! The audit log of a node: changes that requests made, and requests that were refused.
//!
//! Records go through a bounded queue to a task that appends them to a file and sends them to a
//! collector. Requests never wait for either. Lost records are counted: the metrics and the audit
//! log itself have their number.

mod collector;
mod file;
mod metrics;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::audit::{Outcome, Reason, Record, SCHEMA, SentBy};
use forebay_core::config::AuditConfig;
use forebay_core::date::format_rfc3339;
use forebay_core::{Error, NodeId, Result};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::collector::Collector;
use self::file::AuditFile;
pub use self::metrics::AuditMetrics;
pub(crate) use self::metrics::PREFIX;
use self::metrics::SinkMetrics;
use crate::clock::unix_ns;
use crate::identity::Identity;
use crate::lifecycle::Lifecycle;

/// Records that wait for the file, and for the collector. More are lost.
const MAX_WAITING: usize = 10_000;
/// Most records that are written at once.
const MAX_BATCH: usize = 512;
/// Pause without records after which a node that stops closes its audit log: the last requests are
/// still answered meanwhile.
const AFTER_STOP: Duration = Duration::from_millis(300);

/// The audit log of one node; cheap to clone. The default one keeps nothing.
#[derive(Clone, Debug, Default)]
pub struct Audit(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    node: NodeId,
    sinks: Vec<Queue>,
}

/// The way to one sink.
#[derive(Debug)]
struct Queue {
    lines: mpsc::Sender<String>,
    losses: Losses,
}

/// Counts the records that do not reach a sink.
#[derive(Clone, Debug)]
struct Losses {
    /// Lost records that no notice has reported yet.
    unreported: Arc<AtomicU64>,
    metrics: SinkMetrics,
}

/// An event, before the node, the time and the sender are added to it.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    pub event: &'a str,
    pub subject: &'a str,
    pub detail: &'a str,
    /// The reason of a refusal; `None`: it was done.
    pub refused: Option<Reason>,
    pub map_version: Option<u64>,
}

impl Audit {
    /// Opens the audit log of a configuration, and starts the tasks that write it and count in
    /// `metrics`. A relative path of the file begins in the node's folder.
    pub fn start(
        config: &AuditConfig,
        identity: &Identity,
        node_dir: &Path,
        lifecycle: &Lifecycle,
        metrics: &AuditMetrics,
    ) -> Result<Self> {
        let mut sinks = Vec::new();
        if !config.file.is_empty() {
            let path = node_dir.join(&config.file);
            if path.is_relative() {
                return Err(Error::invalid(
                    "audit.file is a relative path, and node.dir is not set",
                )
                .hint("give the file an absolute path"));
            }
            let file = AuditFile::open(path, config.max_size.0, config.keep)?;
            let (queue, records) = Queue::new(&identity.id, metrics.sink("file"));
            lifecycle.spawn(write(file, records, lifecycle.token()));
            sinks.push(queue);
        }
        if !config.url.is_empty() {
            let collector = Collector::new(&config.url)?;
            let (queue, records) = Queue::new(&identity.id, metrics.sink("collector"));
            lifecycle.spawn(collector.run(records, lifecycle.token()));
            sinks.push(queue);
        }
        let is_off = sinks.is_empty();
        Ok(Self((!is_off).then(|| Arc::new(Inner { node: identity.id.clone(), sinks }))))
    }

    /// Whether records are kept anywhere.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Keeps a record of the event. Never waits.
    pub(crate) fn record(&self, event: Event<'_>, sender: SentBy) {
        let Some(inner) = &self.0 else { return };
        let record = Record {
            schema: SCHEMA,
            time: format_rfc3339(unix_ns()),
            node: inner.node.clone(),
            event: event.event.to_owned(),
            subject: event.subject.to_owned(),
            detail: event.detail.to_owned(),
            result: if event.refused.is_some() { Outcome::Refused } else { Outcome::Done },
            error: event.refused,
            sender,
            map_version: event.map_version,
        };
        let line = line_of(&record);
        for queue in &inner.sinks {
            if queue.lines.try_send(line.clone()).is_err() {
                queue.losses.add(1);
            }
        }
    }
}

/// The record as one line; JSON escapes line ends.
fn line_of(record: &Record) -> String {
    // A record has only strings and numbers, which always serialize.
    serde_json::to_string(record).unwrap_or_default() + "\n"
}

/// The receiving end of a queue.
struct Records {
    node: NodeId,
    lines: mpsc::Receiver<String>,
    losses: Losses,
}

/// Lines for a sink: records, and a notice if records before them were lost.
struct Batch {
    lines: Vec<String>,
    /// Number of records, without the notice.
    records: u64,
    /// Number of lost records in the notice; 0: there is no notice.
    reported: u64,
}

impl Losses {
    fn add(&self, records: u64) {
        self.metrics.lost.inc_by(records);
        self.unreported.fetch_add(records, Ordering::Relaxed);
    }
}

impl Queue {
    fn new(node: &NodeId, metrics: SinkMetrics) -> (Self, Records) {
        let (sender, lines) = mpsc::channel(MAX_WAITING);
        let losses = Losses { unreported: Arc::default(), metrics };
        let queue = Self { lines: sender, losses: losses.clone() };
        (queue, Records { node: node.clone(), lines, losses })
    }
}

impl Records {
    /// Waits for the next lines. Returns `None` when the node has stopped and all are taken.
    async fn next(&mut self, stop: &CancellationToken) -> Option<Batch> {
        let mut lines = Vec::new();
        let over = async {
            stop.cancelled().await;
            tokio::time::sleep(AFTER_STOP).await;
        };
        tokio::select! {
            biased;
            _ = self.lines.recv_many(&mut lines, MAX_BATCH) => {}
            () = over => {}
        }
        let records = lines.len() as u64;
        let reported = self.losses.unreported.swap(0, Ordering::Relaxed);
        if reported > 0 {
            lines.push(self.notice_of(reported));
        }
        (!lines.is_empty()).then_some(Batch { lines, records, reported })
    }

    /// Counts the records of a batch that the sink has.
    fn count_delivered(&self, batch: &Batch) {
        self.losses.metrics.records.inc_by(batch.records);
    }

    /// Counts the records of a batch that the sink does not get. The next notice reports them, and
    /// what the notice in the batch reported.
    fn count_lost(&self, batch: &Batch) {
        self.losses.add(batch.records);
        self.losses.unreported.fetch_add(batch.reported, Ordering::Relaxed);
    }

    /// The record that says how many are missing.
    fn notice_of(&self, lost: u64) -> String {
        tracing::error!(lost, "the audit log cannot keep up: records are missing");
        line_of(&Record {
            schema: SCHEMA,
            time: format_rfc3339(unix_ns()),
            node: self.node.clone(),
            event: "audit records lost".to_owned(),
            subject: String::new(),
            detail: format!("count={lost}"),
            result: Outcome::Done,
            error: None,
            sender: SentBy { from: "this node".to_owned(), ..SentBy::default() },
            map_version: None,
        })
    }
}

/// Appends records to the file until the node stops.
async fn write(mut file: AuditFile, mut records: Records, stop: CancellationToken) {
    while let Some(batch) = records.next(&stop).await {
        let text = batch.lines.concat();
        let written = tokio::task::spawn_blocking(move || {
            let written = file.append(text.as_bytes());
            (file, written)
        });
        // The closure does not panic; if it ever did, the file would be gone.
        let Ok((same, written)) = written.await else { return };
        file = same;
        if let Err(e) = written {
            let lines = batch.records;
            tracing::error!(path = %file.path().display(), lines, "audit records are lost: {e}");
            records.count_lost(&batch);
            tokio::select! {
                () = tokio::time::sleep(file::RETRY_AFTER) => {}
                () = stop.cancelled() => return,
            }
        } else {
            records.count_delivered(&batch);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::identity::tests::identity;
    use crate::metrics::Metrics;

    fn event(name: &str) -> Event<'_> {
        Event { event: name, subject: "ais://b", detail: "", refused: None, map_version: Some(3) }
    }

    fn sender() -> SentBy {
        SentBy { from: "10.0.0.7".into(), ..SentBy::default() }
    }

    fn start(
        config: &AuditConfig,
        dir: &Path,
        lifecycle: &Lifecycle,
        metrics: &Metrics,
    ) -> Result<Audit> {
        Audit::start(config, &identity(), dir, lifecycle, metrics.audit())
    }

    /// An audit log whose full queue lost this number of records, and the other end of the queue.
    fn overflowing_by(lost: usize, metrics: &Metrics) -> (Audit, Records) {
        let (queue, records) = Queue::new(&identity().id, metrics.audit().sink("file"));
        let audit = Audit(Some(Arc::new(Inner { node: identity().id, sinks: vec![queue] })));
        for _ in 0..MAX_WAITING + lost {
            audit.record(event("e"), sender());
        }
        (audit, records)
    }

    /// Event and detail of the last line.
    fn notice(batch: &Batch) -> (String, String) {
        let last: Value = serde_json::from_str(batch.lines.last().unwrap()).unwrap();
        let text = |field: &str| last[field].as_str().unwrap().to_owned();
        (text("event"), text("detail"))
    }

    fn assert_exports(metrics: &Metrics, line: &str) {
        let page = metrics.render();
        assert!(page.lines().any(|l| l == line), "{line} is not in\n{page}");
    }

    fn lines(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[tokio::test]
    async fn records_are_in_the_file_when_the_node_has_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let config = AuditConfig { file: "audit.jsonl".into(), ..AuditConfig::default() };
        let lifecycle = Lifecycle::new();
        let metrics = Metrics::default();
        let audit = start(&config, dir.path(), &lifecycle, &metrics).unwrap();
        for i in 0..1_000 {
            audit.record(event(&format!("event {i}")), sender());
        }
        lifecycle.shutdown(Duration::from_secs(10)).await;

        let lines = lines(&dir.path().join("audit.jsonl"));
        assert_eq!(lines.len(), 1_000);
        assert_eq!(lines[999]["event"], "event 999");
        assert_eq!(lines[0]["node"], "gateway-1");
        assert_eq!(lines[0]["sender"]["from"], "10.0.0.7");
        assert_eq!(lines[0]["result"], "done");
        assert_exports(&metrics, "forebay_audit_records_total{sink=\"file\"} 1000");
        assert_exports(&metrics, "forebay_audit_lost_total{sink=\"file\"} 0");
    }

    #[tokio::test]
    async fn records_that_find_a_full_queue_are_counted_in_the_log_and_the_metrics() {
        let metrics = Metrics::default();
        let (_audit, mut records) = overflowing_by(7, &metrics);
        assert_exports(&metrics, "forebay_audit_lost_total{sink=\"file\"} 7");
        let batch = records.next(&CancellationToken::new()).await.unwrap();
        assert_eq!(notice(&batch), ("audit records lost".into(), "count=7".into()));
    }

    #[tokio::test]
    async fn a_notice_that_was_not_written_is_part_of_the_next_one() {
        let metrics = Metrics::default();
        let (_audit, mut records) = overflowing_by(7, &metrics);
        let batch = records.next(&CancellationToken::new()).await.unwrap();
        records.count_lost(&batch);
        let lost = 7 + batch.records;
        let next = records.next(&CancellationToken::new()).await.unwrap();
        assert_eq!(notice(&next).1, format!("count={lost}"));
        // The notice itself is no record.
        assert_exports(&metrics, &format!("forebay_audit_lost_total{{sink=\"file\"}} {lost}"));
    }

    #[tokio::test]
    async fn records_that_cannot_be_written_are_counted_in_the_metrics() {
        let dir = tempfile::tempdir().unwrap();
        let config = AuditConfig { file: "log/audit.jsonl".into(), ..AuditConfig::default() };
        let (lifecycle, metrics) = (Lifecycle::new(), Metrics::default());
        let audit = start(&config, dir.path(), &lifecycle, &metrics).unwrap();
        // A file in place of the folder: the audit file cannot be made again.
        std::fs::remove_dir_all(dir.path().join("log")).unwrap();
        std::fs::write(dir.path().join("log"), "").unwrap();
        for _ in 0..3 {
            audit.record(event("e"), sender());
        }
        lifecycle.shutdown(Duration::from_secs(10)).await;
        assert_exports(&metrics, "forebay_audit_records_total{sink=\"file\"} 0");
        assert_exports(&metrics, "forebay_audit_lost_total{sink=\"file\"} 3");
    }

    #[test]
    fn without_a_sink_nothing_is_kept() {
        assert!(!Audit::default().is_on());
        Audit::default().record(event("e"), sender());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_opened_stops_the_start() {
        let config = AuditConfig { file: "/proc/none/audit".into(), ..AuditConfig::default() };
        let error = start(&config, Path::new(""), &Lifecycle::new(), &Metrics::default());
        assert!(error.unwrap_err().message.contains("/proc/none/audit"));
    }
}
