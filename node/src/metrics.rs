//! The metrics of a node: every name in one place, one registry per node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use forebay_core::intra::FileSystemUsage;
use forebay_core::state::Role;
use prometheus::core::Collector;
use prometheus::{Encoder, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, TextEncoder};

use crate::audit::{self, AuditMetrics};
use crate::bill::Bills;
use crate::bucket_reads::BucketReads;
use crate::exchange::metrics::{self as requests, RequestMetrics};
use crate::exemplar::Exemplars;
use crate::histogram::{Histogram, HistogramVec};
use crate::metric_families::{Families, Family};
use crate::rates::RateMetrics;
use crate::tls::{self, TlsMetrics};
use crate::trace::{self, TraceMetrics};
use crate::traffic::Traffic;

/// Families that a gateway exports, by prefix.
const OF_GATEWAY: [&str; 5] =
    [requests::PREFIX, tls::PREFIX, audit::PREFIX, trace::PREFIX, BUILD_INFO];
/// The version of the program, as labels.
const BUILD_INFO: &str = "forebay_build_info";

/// A node's counters; cheap to clone. Labels never hold object names.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    families: Families,
    requests: RequestMetrics,
    backend_requests: IntCounterVec,
    backend_times: HistogramVec,
    backend_bytes: IntCounterVec,
    get_bytes: IntCounterVec,
    get_objects: IntCounterVec,
    batch_entries: IntCounterVec,
    open_batches: IntGauge,
    batch_bytes: IntGauge,
    batch_queue: Arc<Histogram>,
    disk_times: DiskTimes,
    evicted: IntCounterVec,
    rates: RateMetrics,
    reads: Checks,
    scrubs: Checks,
    store: [IntGauge; 3],
    disks: IntGaugeVec,
    file_systems: [IntGaugeVec; 2],
    bills: Bills,
    bucket_reads: BucketReads,
    traffic: Traffic,
    audit: AuditMetrics,
    tls: TlsMetrics,
    traces: TraceMetrics,
    // Counters of every warm read, resolved once without a lookup by labels.
    hit_bytes: IntCounter,
    hit_objects: IntCounter,
    ok_entries: IntCounter,
}

/// Times of operations on the files of disks, by the path of the disk.
#[derive(Clone, Debug)]
pub struct DiskTimes {
    pub reads: HistogramVec,
    pub writes: HistogramVec,
    pub syncs: HistogramVec,
}

/// The reason for a comparison of stored bytes with their checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckPath {
    /// A read.
    Read,
    /// The scrubber.
    Scrub,
}

/// Results of comparing stored bytes with their checksums, on one path. Resolved per path, since
/// every read counts here.
#[derive(Debug)]
struct Checks {
    blocks: IntCounter,
    bytes: IntCounter,
    damaged: IntCounter,
    healed: IntCounter,
    lost: IntCounter,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::of(Role::Target)
    }
}

impl Metrics {
    /// The metrics of a node of this role. A gateway exports the requests that it answers itself.
    /// It serves no objects, so it does not export object counters, which would always be 0.
    pub fn of(role: Role) -> Self {
        let (families, unseen) = (Families::default(), Families::default());
        let families_of = |name: &str| match role {
            Role::Gateway if !OF_GATEWAY.contains(&name) => &unseen,
            Role::Gateway | Role::Target => &families,
        };
        let counter = |name: &str, help: &str, labels: &[&str]| {
            families_of(name).counters(name, help, labels)
        };
        let times = |name: &str, help: &str, labels: &[&str]| {
            families_of(name).histograms(name, help, labels)
        };
        let gauge =
            |name: &str, help: &str, label: &str| families_of(name).gauges(name, help, &[label]);
        let plain = |name: &str, help: &str| families_of(name).gauge(name, help);
        let bucket_reads = BucketReads::new(families_of(""));
        let build_info = families_of(BUILD_INFO).gauges(
            BUILD_INFO,
            "Always 1; the labels name the version and the role of the node",
            &["version", "role"],
        );
        build_info.with_label_values(&[env!("CARGO_PKG_VERSION"), role.name()]).set(1);
        families.process();
        let store = [
            plain("forebay_store_objects", "Objects on the disks of the target"),
            plain("forebay_store_bytes", "Bytes of the objects on the disks of the target"),
            plain("forebay_store_budget_bytes", "Bytes that the target may use on its disks"),
        ];
        let file_systems = [
            gauge("forebay_disk_size_bytes", "Size of the file system of a disk", "disk"),
            gauge("forebay_disk_free_bytes", "Free bytes on the file system of a disk", "disk"),
        ];
        let batches = gauge("forebay_batches", "Batches in progress", "state");
        let batch_bytes = gauge(
            "forebay_batch_held_bytes",
            "Bytes of batch entries that were read and are not sent yet",
            "state",
        );
        let disks = gauge("forebay_disks", "Disks of the target, by state", "state");
        let path = |name: &str, help: &str| counter(name, help, &["path"]);
        let checked = [
            path("forebay_checked_blocks_total", "Stored blocks compared with their checksums"),
            path("forebay_checked_bytes_total", "Stored bytes compared with their checksums"),
            path("forebay_damaged_total", "Times that stored bytes did not match their checksum"),
            path(
                "forebay_healed_total",
                "Damaged copies that were repaired, or dropped to be fetched again",
            ),
            path(
                "forebay_lost_total",
                "Times that damage was found and no other copy could repair it",
            ),
        ];
        let of = |path: &str| {
            let [blocks, bytes, damaged, healed, lost] =
                checked.each_ref().map(|c| c.with_label_values(&[path]));
            Checks { blocks, bytes, damaged, healed, lost }
        };
        let get_bytes = counter(
            "forebay_get_bytes_total",
            "Bytes of objects served to clients, by cache result",
            &["result"],
        );
        let get_objects = counter(
            "forebay_get_objects_total",
            "Objects served to clients, by cache result",
            &["result"],
        );
        let batch_entries =
            counter("forebay_batch_entries_total", "Batch entries answered", &["result"]);
        Self(Arc::new(Inner {
            ok_entries: batch_entries.with_label_values(&["ok"]),
            hit_bytes: get_bytes.with_label_values(&["hit"]),
            hit_objects: get_objects.with_label_values(&["hit"]),
            requests: RequestMetrics::new(families_of(requests::PREFIX)),
            backend_requests: counter(
                "forebay_backend_requests_total",
                "Requests to backends",
                &["provider", "op", "result"],
            ),
            backend_times: times(
                "forebay_backend_request_seconds",
                "Time of a request to a backend, for an object until its first byte",
                &["provider", "op", "result"],
            ),
            backend_bytes: counter(
                "forebay_backend_bytes_total",
                "Bytes of objects that were read from backends",
                &["provider"],
            ),
            get_bytes,
            get_objects,
            batch_entries,
            open_batches: batches.with_label_values(&["open"]),
            batch_bytes: batch_bytes.with_label_values(&["open"]),
            batch_queue: times(
                "forebay_batch_queue_seconds",
                "Time that a batch of a client waited until it was admitted or refused",
                &[],
            )
            .with_label_values(&[]),
            disk_times: DiskTimes {
                reads: times(
                    "forebay_disk_read_seconds",
                    "Time of a read of a file on a disk, without small reads from the page cache",
                    &["disk"],
                ),
                writes: times(
                    "forebay_disk_write_seconds",
                    "Time of a write to a file on a disk",
                    &["disk"],
                ),
                syncs: times(
                    "forebay_disk_sync_seconds",
                    "Time of a sync of a file on a disk",
                    &["disk"],
                ),
            },
            evicted: counter(
                "forebay_evicted_bytes_total",
                "Bytes of cached copies that were evicted, by reason",
                &["reason"],
            ),
            rates: RateMetrics {
                delayed: counter(
                    "forebay_rate_delayed_total",
                    "Requests for objects, and pieces of their bodies, that waited for a rate, by reason",
                    &["reason"],
                ),
                refused: counter(
                    "forebay_rate_refused_total",
                    "Requests for objects that were refused with 429 (S3: 503) because of a rate, by reason",
                    &["reason"],
                ),
            },
            reads: of("read"),
            scrubs: of("scrub"),
            store,
            disks,
            file_systems,
            bills: Bills::new(families_of("")),
            traffic: Traffic::new(bucket_reads.clone()),
            bucket_reads,
            audit: AuditMetrics::new(families_of(audit::PREFIX)),
            tls: TlsMetrics::new(families_of(tls::PREFIX)),
            traces: TraceMetrics::new(families_of(trace::PREFIX)),
            families,
        }))
    }

    /// The metrics of requests.
    pub fn requests(&self) -> &RequestMetrics {
        &self.0.requests
    }

    pub fn backend_request(&self, provider: &str, op: &str, result: &str, time: Duration) {
        self.0.backend_requests.with_label_values(&[provider, op, result]).inc();
        self.0.backend_times.with_label_values(&[provider, op, result]).observe(time);
    }

    /// Times of the disks.
    pub fn disk_times(&self) -> &DiskTimes {
        &self.0.disk_times
    }

    /// Records how long a batch of a client waited for a slot.
    pub fn batch_queued(&self, time: Duration) {
        self.0.batch_queue.observe(time);
    }

    pub fn backend_bytes(&self, provider: &str, bytes: u64) {
        self.0.backend_bytes.with_label_values(&[provider]).inc_by(bytes);
    }

    /// Counts a served object: `result` is `hit`, `miss` or `coalesced`.
    pub fn served(&self, result: &str, bytes: u64) {
        if result == "hit" {
            self.0.hit_bytes.inc_by(bytes);
            self.0.hit_objects.inc();
            return;
        }
        self.0.get_bytes.with_label_values(&[result]).inc_by(bytes);
        self.0.get_objects.with_label_values(&[result]).inc();
    }

    /// Bytes served so far with this result.
    pub fn get_bytes(&self, result: &str) -> u64 {
        self.0.get_bytes.with_label_values(&[result]).get()
    }

    /// The counters of what clouds bill.
    pub fn bills(&self) -> &Bills {
        &self.0.bills
    }

    /// The counters of what readers of each bucket got.
    pub fn bucket_reads(&self) -> &BucketReads {
        &self.0.bucket_reads
    }

    /// The traffic of clients.
    pub fn traffic(&self) -> &Traffic {
        &self.0.traffic
    }

    /// The counters of the audit log.
    pub fn audit(&self) -> &AuditMetrics {
        &self.0.audit
    }

    /// The counters of TLS.
    pub fn tls(&self) -> &TlsMetrics {
        &self.0.tls
    }

    /// The counters of traces.
    pub fn traces(&self) -> &TraceMetrics {
        &self.0.traces
    }

    /// The examples of the times of requests.
    pub(crate) fn exemplars(&self) -> Exemplars {
        self.0.requests.exemplars()
    }

    /// Counts an entry of a batch: `ok`, `missing` or `error`.
    pub fn batch_entry(&self, result: &str) {
        if result == "ok" {
            return self.0.ok_entries.inc();
        }
        self.0.batch_entries.with_label_values(&[result]).inc();
    }

    /// Changes the number of bytes of entries that batches hold.
    pub fn batch_bytes(&self, more: i64) {
        self.0.batch_bytes.add(more);
    }

    /// Changes the number of batches in progress.
    pub fn batches(&self, more: i64) {
        self.0.open_batches.add(more);
    }

    /// The counters of requests over a rate.
    pub fn rates(&self) -> &RateMetrics {
        &self.0.rates
    }

    pub fn evicted(&self, reason: &str, bytes: u64) {
        self.0.evicted.with_label_values(&[reason]).inc_by(bytes);
    }

    fn checks(&self, path: CheckPath) -> &Checks {
        match path {
            CheckPath::Read => &self.0.reads,
            CheckPath::Scrub => &self.0.scrubs,
        }
    }

    /// Counts stored bytes that were compared with their checksums.
    pub fn checked(&self, path: CheckPath, blocks: u64, bytes: u64) {
        let checks = self.checks(path);
        checks.blocks.inc_by(blocks);
        checks.bytes.inc_by(bytes);
    }

    /// Counts stored bytes that failed their check.
    pub fn damaged(&self, path: CheckPath) {
        self.checks(path).damaged.inc();
    }

    /// Counts a damaged copy that was dropped because its backend has the bytes.
    pub fn healed(&self, path: CheckPath) {
        self.checks(path).healed.inc();
    }

    /// Counts damaged bytes that no other node has.
    pub fn lost(&self, path: CheckPath) {
        self.checks(path).lost.inc();
    }

    /// Sets the gauges of the store: objects, their bytes, and the bytes that may be used.
    pub fn store(&self, objects: u64, bytes: u64, budget: u64) {
        for (gauge, value) in self.0.store.iter().zip([objects, bytes, budget]) {
            gauge.set(value as i64);
        }
    }

    /// Sets the size and the free bytes of the file systems of `disks`, by path; removes other
    /// paths.
    pub fn file_systems<'a>(&self, disks: impl Iterator<Item = (&'a str, FileSystemUsage)>) {
        let [sizes, free] = &self.0.file_systems;
        sizes.reset();
        free.reset();
        for (disk, usage) in disks {
            sizes.with_label_values(&[disk]).set(usage.size as i64);
            free.with_label_values(&[disk]).set(usage.free as i64);
        }
    }

    /// Sets how many disks are in a state.
    pub fn disks(&self, state: &str, count: u64) {
        self.0.disks.with_label_values(&[state]).set(count as i64);
    }

    /// Requests over v1 answered so far, under the names of v1: `get.n`, `err.get.n`.
    pub fn tracker(&self) -> BTreeMap<String, u64> {
        const OPS: [(&str, &str); 5] =
            [("get", "get"), ("put", "put"), ("delete", "del"), ("head", "head"), ("list", "lst")];
        let mut counts = BTreeMap::new();
        for family in self.0.requests.counts().collect() {
            for series in family.get_metric() {
                let label = |name: &str| {
                    let pair = series.get_label().iter().find(|l| l.name() == name);
                    pair.map_or("", |l| l.value())
                };
                let short = OPS.iter().find(|(op, _)| *op == label("op")).map(|(_, short)| short);
                let n = series.get_counter().get_value() as u64;
                if let Some(short) = short.filter(|_| label("api") == "v1" && n > 0) {
                    let failed = if label("result") == "ok" { "" } else { "err." };
                    *counts.entry(format!("{failed}{short}.n")).or_default() += n;
                }
            }
        }
        counts
    }

    /// All families that the node exports, those without samples too.
    pub fn families(&self) -> Vec<Family> {
        self.0.families.all()
    }

    /// The Prometheus text exposition.
    pub fn render(&self) -> String {
        let mut out = Vec::new();
        match TextEncoder::new().encode(&self.0.families.gather(), &mut out) {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(e) => format!("# {e}\n"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::metrics::Outcome;

    #[test]
    fn what_is_counted_is_exported_under_the_promised_names() {
        let m = Metrics::default();
        let request = |api, outcome| {
            let series = m.requests().of(api, "get", outcome);
            series.observe(Some(Duration::from_micros(20)), Duration::from_millis(3));
        };
        request("v1", Outcome::Ok);
        request("v1", Outcome::NotFound);
        request("v1", Outcome::Refused);
        request("api", Outcome::Ok);
        m.backend_request("aws", "get", "ok", Duration::from_millis(30));
        m.served("hit", 5);
        m.batch_entry("ok");
        m.checked(CheckPath::Read, 2, 70_000);
        m.damaged(CheckPath::Scrub);
        m.lost(CheckPath::Scrub);
        let counts = [("err.get.n", 2), ("get.n", 1)].map(|(k, v)| (k.to_owned(), v));
        assert_eq!(m.tracker(), counts.into());
        let text = m.render();
        for line in [
            "forebay_http_requests_total{api=\"v1\",op=\"get\",result=\"ok\"} 1",
            "forebay_http_first_byte_seconds_count{api=\"v1\",op=\"get\",result=\"ok\"} 1",
            "forebay_http_request_seconds_bucket{api=\"v1\",op=\"get\",result=\"ok\",le=\"0.005\"} 1",
            "forebay_backend_requests_total{op=\"get\",provider=\"aws\",result=\"ok\"} 1",
            "forebay_backend_request_seconds_bucket{op=\"get\",provider=\"aws\",result=\"ok\",le=\"0.05\"} 1",
            "forebay_get_bytes_total{result=\"hit\"} 5",
            "forebay_batch_entries_total{result=\"ok\"} 1",
            "forebay_checked_blocks_total{path=\"read\"} 2",
            "forebay_checked_bytes_total{path=\"read\"} 70000",
            "forebay_damaged_total{path=\"scrub\"} 1",
            "forebay_healed_total{path=\"read\"} 0",
            "forebay_lost_total{path=\"scrub\"} 1",
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn a_gateway_exports_its_requests_and_nothing_of_objects() {
        let m = Metrics::of(Role::Gateway);
        m.served("hit", 5);
        let text = m.render();
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names: Vec<_> = names.filter(|name| !name.starts_with("process_")).collect();
        let expected = [
            "forebay_build_info gauge",
            "forebay_http_first_byte_seconds histogram",
            "forebay_http_request_seconds histogram",
            "forebay_http_requests_total counter",
            "forebay_trace_dropped_marks_total counter",
            "forebay_trace_spans_total counter",
        ];
        assert_eq!(names, expected);
    }
}
