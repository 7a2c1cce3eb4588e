//! The overview of a cluster: rates of its nodes, buckets and clients, its disks, jobs and alerts.

mod alerts;
mod history;

pub use self::alerts::{Alert, NodeView, Severity, alerts};
pub use self::history::{
    HISTORY_SLOT_S, HistoryPoint, MAX_HISTORY_SLOTS, NodeHistory, NodeSlot, OverviewHistory,
    slot_of, summed_history,
};

use serde::{Deserialize, Serialize};

use crate::job::{JobState, JobStatus};
use crate::state::Role;
use crate::traffic::{LatencyCounts, TrafficCounts};

/// Buckets and clients that an overview names; the others are summed under `other`.
pub const MAX_OVERVIEW_ROWS: usize = 50;
/// Jobs in an overview.
pub const MAX_OVERVIEW_JOBS: usize = 50;
/// How long a job that is over stays in the overview, in seconds.
pub const SHOWN_JOB_S: u64 = 600;

/// `GET /api/v1/overview`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Overview {
    /// When it was collected, RFC 3339.
    pub at: String,
    /// Length of the window that rates are of, in seconds.
    pub interval_s: u64,
    /// The sum over the nodes that answered. Bytes, hits and misses are those of targets; a request
    /// counts at the node that answered it, and not at the gateway that redirected it.
    pub cluster: Rates,
    pub nodes: Vec<OverviewNode>,
    /// The busiest buckets first; those without traffic are left out.
    pub buckets: Vec<OverviewBucket>,
    /// The busiest clients first.
    pub clients: Vec<OverviewClient>,
    /// Running jobs, and those that ended in the last minutes.
    pub jobs: Vec<OverviewJob>,
    pub alerts: Vec<Alert>,
}

/// Rates over the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    pub requests_per_s: f64,
    /// Answers with a status of 5xx, and answers that broke off.
    pub errors_per_s: f64,
    pub read_bytes_per_s: f64,
    pub written_bytes_per_s: f64,
    pub hits_per_s: f64,
    pub misses_per_s: f64,
    /// The share of reads without a download; `None` without reads.
    pub hit_rate: Option<f64>,
    /// Median of the whole time of requests in seconds; `None` without requests, and for buckets and
    /// clients.
    pub p50_s: Option<f64>,
    pub p99_s: Option<f64>,
}

impl Rates {
    /// The rates of counts over a window of `seconds`.
    pub fn of(counts: &TrafficCounts, seconds: f64) -> Self {
        let per_s = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
        let reads = counts.hits + counts.misses;
        Self {
            requests_per_s: per_s(counts.requests),
            errors_per_s: per_s(counts.errors),
            read_bytes_per_s: per_s(counts.read_bytes),
            written_bytes_per_s: per_s(counts.written_bytes),
            hits_per_s: per_s(counts.hits),
            misses_per_s: per_s(counts.misses),
            hit_rate: (reads > 0).then(|| counts.hits as f64 / reads as f64),
            p50_s: None,
            p99_s: None,
        }
    }

    /// The same rates with the quantiles of a latency.
    #[must_use]
    pub fn with_latency(self, latency: &LatencyCounts) -> Self {
        Self { p50_s: latency.quantile_s(0.5), p99_s: latency.quantile_s(0.99), ..self }
    }

    /// The part of a node's rates that counts in those of the cluster: bytes that a gateway passes on
    /// are counted by the target.
    #[must_use]
    pub fn of_cluster(self, role: Role) -> Self {
        match role {
            Role::Gateway => Self { read_bytes_per_s: 0.0, written_bytes_per_s: 0.0, ..self },
            Role::Target => self,
        }
    }

    /// Adds the rates of another node. Quantiles do not add up and are removed.
    pub fn add(&mut self, other: &Self) {
        self.requests_per_s += other.requests_per_s;
        self.errors_per_s += other.errors_per_s;
        self.read_bytes_per_s += other.read_bytes_per_s;
        self.written_bytes_per_s += other.written_bytes_per_s;
        self.hits_per_s += other.hits_per_s;
        self.misses_per_s += other.misses_per_s;
        let reads = self.hits_per_s + self.misses_per_s;
        self.hit_rate = (reads > 0.0).then(|| self.hits_per_s / reads);
        (self.p50_s, self.p99_s) = (None, None);
    }

    /// The bytes per second in both directions.
    pub fn bytes_per_s(&self) -> f64 {
        self.read_bytes_per_s + self.written_bytes_per_s
    }
}

/// A node in the overview.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverviewNode {
    pub id: String,
    /// `gateway` or `target`.
    pub role: String,
    /// `alive`, `down`, `draining` or `drained`.
    pub state: String,
    pub url: String,
    /// Whether the node sent its figures in time; without an answer its rates are 0.
    pub answered: bool,
    /// Whether the node is the leading gateway.
    pub leads: bool,
    pub uptime_s: u64,
    /// Memory of the node's process in bytes.
    pub memory_bytes: u64,
    /// Use of the processor by the node's process, in percent of one.
    pub cpu_percent: f64,
    #[serde(flatten)]
    pub rates: Rates,
    pub disks: Vec<OverviewDisk>,
}

/// A disk of a target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverviewDisk {
    pub path: String,
    /// Bytes of the budget that are used.
    pub used_bytes: u64,
    /// The budget in bytes.
    pub size_bytes: u64,
    /// `in_use`, `leaving`, `away`, `mending` or `disabled`.
    pub state: String,
}

/// A bucket in the overview. A request is an object that was read or written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverviewBucket {
    /// `other` for the sum of the rest.
    pub name: String,
    /// Empty for the sum of the rest.
    pub provider: String,
    /// Such as `s3://name`.
    pub uri: String,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A client in the overview.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverviewClient {
    /// Name of the user, or the address of a client without one; `other` for the sum of the rest.
    pub client: String,
    #[serde(flatten)]
    pub rates: Rates,
}

/// A job in the overview.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverviewJob {
    pub id: String,
    pub kind: String,
    /// `running`, `done`, `failed` or `stopped`.
    pub state: String,
    /// URI of the bucket; `None` for a job on the whole cluster.
    pub bucket: Option<String>,
    /// Objects that are done, or that needed no work.
    pub done: u64,
    /// Expected number of objects; `None` while it is unknown.
    pub total: Option<u64>,
    pub errors: u64,
    /// Remaining seconds at the average pace so far; `None` while that is unknown.
    pub eta_s: Option<f64>,
}

impl OverviewJob {
    /// The row of a job at `now_ns`.
    pub fn of(job: &JobStatus, now_ns: u64) -> Self {
        let done = job.objects + job.present;
        let total = (job.total_objects > 0).then_some(job.total_objects.max(done));
        let seconds = now_ns.saturating_sub(job.started_ns) as f64 / 1e9;
        let eta_s = match total {
            Some(total) if job.state == JobState::Running && done > 0 => {
                Some(seconds * (total - done) as f64 / done as f64)
            }
            _ => None,
        };
        let state = match job.state {
            JobState::Running => "running",
            JobState::Done => "done",
            JobState::Failed => "failed",
            JobState::Stopped => "stopped",
        };
        Self {
            id: job.id.clone(),
            kind: job.kind.as_str().to_owned(),
            state: state.to_owned(),
            bucket: job.bucket.as_ref().map(ToString::to_string),
            done,
            total,
            errors: job.errors,
            eta_s,
        }
    }
}

/// Whether a job belongs in an overview at `now_ns`.
pub fn is_shown_job(job: &JobStatus, now_ns: u64) -> bool {
    !job.is_over() || now_ns.saturating_sub(job.ended_ns) < SHOWN_JOB_S * 1_000_000_000
}

/// Sorts rows by bytes and requests, the busiest first, and sums those beyond `limit` into one row
/// that `other` makes.
pub fn busiest<T>(
    mut rows: Vec<T>,
    limit: usize,
    rates: impl Fn(&mut T) -> &mut Rates,
    other: impl FnOnce(Rates) -> T,
) -> Vec<T> {
    let key = |row: &mut T| {
        let rates = rates(row);
        (rates.bytes_per_s(), rates.requests_per_s)
    };
    let mut keyed: Vec<_> = rows.drain(..).map(|mut row| (key(&mut row), row)).collect();
    keyed.sort_by(|(a, _), (b, _)| b.0.total_cmp(&a.0).then(b.1.total_cmp(&a.1)));
    let mut rows: Vec<T> = keyed.into_iter().map(|(_, row)| row).collect();
    if rows.len() > limit {
        let mut rest = Rates::default();
        for mut row in rows.drain(limit..) {
            rest.add(rates(&mut row));
        }
        rows.push(other(rest));
    }
    rows
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::job::{JobKind, JobSpec};

    #[test]
    fn rates_are_counts_by_seconds_and_unknown_without_reads() {
        let counts = TrafficCounts {
            requests: 50,
            read_bytes: 1_000,
            hits: 3,
            misses: 1,
            ..TrafficCounts::default()
        };
        let rates = Rates::of(&counts, 5.0);
        assert_eq!((rates.requests_per_s, rates.read_bytes_per_s), (10.0, 200.0));
        assert_eq!(rates.hit_rate, Some(0.75));
        assert_eq!(Rates::of(&TrafficCounts::default(), 5.0).hit_rate, None);
        assert_eq!(Rates::of(&counts, 0.0).requests_per_s, 0.0);
    }

    #[test]
    fn the_rest_is_summed_and_never_dropped() {
        let client = |name: &str, bytes: f64| OverviewClient {
            client: name.into(),
            rates: Rates { read_bytes_per_s: bytes, requests_per_s: 1.0, ..Rates::default() },
        };
        let rows = vec![client("a", 1.0), client("b", 5.0), client("c", 3.0), client("d", 2.0)];
        let other = |rates| OverviewClient { client: "other".into(), rates };
        let rows = busiest(rows, 2, |row| &mut row.rates, other);
        let names: Vec<_> = rows.iter().map(|row| row.client.as_str()).collect();
        assert_eq!(names, ["b", "c", "other"]);
        assert_eq!(rows[2].rates.read_bytes_per_s, 3.0);
        assert_eq!(rows[2].rates.requests_per_s, 2.0);
    }

    #[test]
    fn a_job_has_an_eta_once_it_made_progress() {
        let spec = JobSpec::new(JobKind::Prefetch, "j");
        let mut job = JobStatus::new(&spec, 0);
        assert_eq!(OverviewJob::of(&job, 10_000_000_000).eta_s, None);
        (job.objects, job.present, job.total_objects) = (20, 5, 100);
        let row = OverviewJob::of(&job, 10_000_000_000);
        assert_eq!((row.done, row.total, row.eta_s), (25, Some(100), Some(30.0)));
        (job.state, job.ended_ns) = (JobState::Done, 10_000_000_000);
        assert_eq!(OverviewJob::of(&job, 11_000_000_000).eta_s, None);
        assert!(is_shown_job(&job, 11_000_000_000));
        assert!(!is_shown_job(&job, 11_000_000_000 + SHOWN_JOB_S * 1_000_000_000));
    }

    #[test]
    fn an_overview_is_read_back_as_it_was_written() {
        let node = OverviewNode { id: "t1".into(), answered: true, ..OverviewNode::default() };
        let overview = Overview { nodes: vec![node], interval_s: 5, ..Overview::default() };
        let text = serde_json::to_string(&overview).unwrap();
        assert!(text.contains("\"requests_per_s\":0.0") && text.contains("\"p99_s\":null"));
        assert_eq!(serde_json::from_str::<Overview>(&text).unwrap(), overview);
    }
}
