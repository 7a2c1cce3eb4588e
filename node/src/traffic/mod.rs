//! Traffic of clients at this node: counters for the whole node and for each client, their windows of
//! the last seconds, sums of the last minutes, and the stream of finished requests.
//!
//! Every request of a client counts in [`Traffic::finished`], on counters of its own thread: the cost
//! is a few uncontended atomics and a look-up without a lock (record 0075). Counters of buckets are
//! those of [`BucketReads`]. A task samples all of them once a second.

mod clients;
mod history;
mod live;
mod stream;
mod windows;

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::overview::NodeHistory;
use forebay_core::request::{Caller, Protocol};
use forebay_core::traffic::{LatencyCounts, NodeTraffic, TrafficCounts};
use tokio_util::sync::CancellationToken;

use self::clients::Clients;
pub(crate) use self::live::FinishedRequest;
pub use self::live::{Listener, LiveRequests};
pub use self::stream::{StreamLimit, StreamPermit, requests_stream};
use self::windows::{Sample, Windows};
use crate::bucket_reads::BucketReads;
use crate::clock::unix_ns;
use crate::histogram::{Histogram, SHARDS, shard};

/// Time between samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Operations that watch the cluster: they do not count, as they would show mostly themselves.
const WATCHING: [&str; 4] = ["overview", "overview_live", "overview_history", "requests_live"];

/// The traffic of a node; cheap to clone.
#[derive(Clone, Debug)]
pub struct Traffic(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Whole times of requests; their number is that of all requests.
    latency: Histogram,
    total: Counter,
    clients: Clients,
    buckets: BucketReads,
    windows: Mutex<Windows>,
    live: LiveRequests,
}

/// Counters with a cache line for each of a few groups of threads.
#[derive(Debug, Default)]
struct Counter {
    shards: [Shard; SHARDS],
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Shard {
    requests: AtomicU64,
    errors: AtomicU64,
    sent_bytes: AtomicU64,
    written_bytes: AtomicU64,
}

impl Counter {
    fn add(&self, is_error: bool, sent_bytes: u64, written_bytes: u64) {
        let shard = &self.shards[shard()];
        shard.requests.fetch_add(1, Ordering::Relaxed);
        shard.sent_bytes.fetch_add(sent_bytes, Ordering::Relaxed);
        if is_error {
            shard.errors.fetch_add(1, Ordering::Relaxed);
        }
        if written_bytes > 0 {
            shard.written_bytes.fetch_add(written_bytes, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> TrafficCounts {
        let mut counts = TrafficCounts::default();
        for shard in &self.shards {
            counts.requests += shard.requests.load(Ordering::Relaxed);
            counts.errors += shard.errors.load(Ordering::Relaxed);
            counts.read_bytes += shard.sent_bytes.load(Ordering::Relaxed);
            counts.written_bytes += shard.written_bytes.load(Ordering::Relaxed);
        }
        counts
    }
}

/// A finished request, as far as the counters need it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished<'a> {
    pub(crate) from: IpAddr,
    pub(crate) user: Option<&'a str>,
    pub(crate) operation: &'static str,
    pub(crate) status: u16,
    /// Whether the node failed: 5xx, or an answer that broke off.
    pub(crate) is_error: bool,
    pub(crate) sent_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) time: Duration,
}

/// Whether requests like this are those of clients, which count here: not those between nodes, and not
/// those that another node counts and forwards.
pub(crate) fn is_of_client(protocol: Protocol, caller: Caller) -> bool {
    let is_counted_api = !matches!(protocol, Protocol::Internal | Protocol::Operations);
    is_counted_api && !matches!(caller, Caller::Node | Caller::S3Relay)
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new(BucketReads::default())
    }
}

impl Traffic {
    /// The traffic of a node whose buckets are counted in `buckets`.
    pub(crate) fn new(buckets: BucketReads) -> Self {
        let (latency, total, clients) = Default::default();
        let (windows, live) = Default::default();
        Self(Arc::new(Inner { latency, total, clients, buckets, windows, live }))
    }

    /// The stream of finished requests.
    pub fn live(&self) -> &LiveRequests {
        &self.0.live
    }

    /// Counts a finished request of a client. A redirected request counts where it is answered.
    pub(crate) fn finished(&self, request: &Finished<'_>) {
        let is_redirect = matches!(request.status, 301 | 302 | 307 | 308);
        if is_redirect || WATCHING.contains(&request.operation) {
            return;
        }
        let Finished { is_error, sent_bytes, written_bytes, .. } = *request;
        self.0.latency.observe(request.time);
        self.0.total.add(is_error, sent_bytes, written_bytes);
        self.0.clients.count(request.from, request.user, |counter| {
            counter.add(is_error, sent_bytes, written_bytes);
        });
    }

    /// Counts a request that the node failed to the bucket that it was about.
    pub(crate) fn failed(&self, info: &BucketInfo) {
        self.0.buckets.of(info).failed();
    }

    /// The traffic of the last seconds, from the samples.
    pub fn window(&self) -> NodeTraffic {
        self.0.windows.locked().report()
    }

    /// The traffic of the last minutes, from the samples.
    pub fn history(&self) -> NodeHistory {
        self.0.windows.locked().history()
    }

    /// Takes samples once a second until the node stops.
    pub async fn run(self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(SAMPLE_INTERVAL);
        loop {
            tokio::select! {
                at = ticks.tick() => self.sample(at.into_std()),
                () = stop.cancelled() => return,
            }
        }
    }

    fn sample(&self, at: Instant) {
        let Inner { latency, total, clients, buckets, .. } = &*self.0;
        let forgotten = clients.forget_idle(at);
        let sample = Sample {
            at,
            at_ns: unix_ns(),
            total: total.counts(),
            latency: LatencyCounts(latency.by_bucket()),
            buckets: buckets.counts(),
            clients: clients.counts(),
            other_clients: clients.other(),
        };
        self.0.windows.locked().add(sample, &forgotten);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn request(last: u8, user: Option<&str>) -> Finished<'_> {
        Finished {
            from: IpAddr::from([10, 0, 0, last]),
            user,
            operation: "get",
            status: 200,
            is_error: false,
            sent_bytes: 10,
            written_bytes: 0,
            time: Duration::from_micros(60),
        }
    }

    #[test]
    fn a_window_has_exactly_the_requests_of_its_seconds() {
        let traffic = Traffic::default();
        let start = Instant::now();
        let at = |second: u64| start + Duration::from_secs(second);
        traffic.sample(at(0));
        for second in 1..=10u64 {
            for _ in 0..second {
                traffic.finished(&request(1, None));
            }
            traffic.finished(&Finished { status: 307, ..request(2, None) });
            traffic.finished(&Finished { operation: "overview", ..request(2, None) });
            traffic.finished(&Finished { status: 500, is_error: true, ..request(3, Some("eva")) });
            traffic.sample(at(second));
        }
        let window = traffic.window();
        // The seconds 6 to 10.
        assert_eq!(window.seconds, 5.0);
        assert_eq!((window.total.requests, window.total.errors), (45, 5));
        assert_eq!((window.total.read_bytes, window.latency.total()), (450, 45));
        let clients: Vec<_> =
            window.clients.iter().map(|c| (c.client.as_str(), c.counts.requests)).collect();
        assert_eq!(clients, [("10.0.0.1", 40), ("eva", 5)]);
        assert!(window.other_clients.is_zero());
    }

    #[test]
    fn requests_of_many_threads_are_all_counted() {
        let traffic = Traffic::default();
        traffic.sample(Instant::now());
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let traffic = &traffic;
                scope.spawn(move || {
                    for n in 0..2_000u32 {
                        traffic.finished(&request((n % 50) as u8, (thread == 0).then_some("eva")));
                    }
                });
            }
        });
        traffic.sample(Instant::now() + Duration::from_secs(1));
        let window = traffic.window();
        assert_eq!((window.total.requests, window.clients.len()), (16_000, 51));
        let sum: u64 = window.clients.iter().map(|client| client.counts.requests).sum();
        assert_eq!(sum, 16_000);
    }
}
