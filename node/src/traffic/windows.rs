//! Windows over counters: the difference between the newest sample and one some seconds older.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Instant;

use forebay_core::overview::NodeHistory;
use forebay_core::traffic::{
    BucketTraffic, ClientTraffic, LatencyCounts, MAX_NAMED_TRAFFIC, NodeTraffic, TRAFFIC_WINDOW_S,
    TrafficCounts,
};

use super::history::History;

/// All counters at one time.
#[derive(Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    /// The same time, unix.
    pub(super) at_ns: u64,
    pub(super) total: TrafficCounts,
    pub(super) latency: LatencyCounts,
    /// By bucket id.
    pub(super) buckets: BTreeMap<u64, TrafficCounts>,
    pub(super) clients: HashMap<String, TrafficCounts>,
    pub(super) other_clients: TrafficCounts,
}

impl Sample {
    /// The traffic of the node since an earlier sample.
    fn total_since(&self, before: &Self) -> TrafficCounts {
        let total = self.total.since(&before.total);
        if self.buckets.is_empty() {
            return total;
        }
        // A target counts bytes of objects, also those of forwarded requests.
        let (none, mut of_objects) = (TrafficCounts::default(), TrafficCounts::default());
        for (id, counts) in &self.buckets {
            of_objects.add(&counts.since(before.buckets.get(id).unwrap_or(&none)));
        }
        TrafficCounts { requests: total.requests, errors: total.errors, ..of_objects }
    }
}

/// The samples of the last seconds, the oldest first, and the sums of the last minutes.
#[derive(Debug, Default)]
pub(super) struct Windows {
    samples: VecDeque<Sample>,
    history: History,
}

impl Windows {
    /// Adds a sample. The counters of `forgotten` clients begin anew if they come back.
    pub(super) fn add(&mut self, sample: Sample, forgotten: &[String]) {
        for earlier in &mut self.samples {
            for client in forgotten {
                earlier.clients.remove(client);
            }
        }
        if let Some(last) = self.samples.back() {
            let (total, latency) = (sample.total_since(last), sample.latency.since(&last.latency));
            let time = sample.at.saturating_duration_since(last.at);
            self.history.add(sample.at_ns, time, &total, &latency);
        }
        self.samples.push_back(sample);
        while self.samples.len() > TRAFFIC_WINDOW_S as usize + 1 {
            self.samples.pop_front();
        }
    }

    /// The sums of the last minutes.
    pub(super) fn history(&self) -> NodeHistory {
        self.history.report()
    }

    /// The traffic between the oldest and the newest sample.
    pub(super) fn report(&self) -> NodeTraffic {
        let (Some(first), Some(last)) = (self.samples.front(), self.samples.back()) else {
            return NodeTraffic::default();
        };
        let none = TrafficCounts::default();
        let buckets = last.buckets.iter().map(|(id, counts)| {
            let counts = counts.since(first.buckets.get(id).unwrap_or(&none));
            BucketTraffic { bucket_id: *id, counts }
        });
        let (buckets, other_buckets) = busiest(buckets, |row| row.counts);
        let clients = last.clients.iter().map(|(client, counts)| {
            let counts = counts.since(first.clients.get(client).unwrap_or(&none));
            ClientTraffic { client: client.clone(), counts }
        });
        let (clients, mut other_clients) = busiest(clients, |row| row.counts);
        other_clients.add(&last.other_clients.since(&first.other_clients));
        NodeTraffic {
            seconds: last.at.saturating_duration_since(first.at).as_secs_f64(),
            total: last.total_since(first),
            latency: last.latency.since(&first.latency),
            buckets,
            other_buckets,
            clients,
            other_clients,
        }
    }
}

/// The rows with the most bytes and requests, and the sum of the others. Rows of zeros are left out.
fn busiest<T>(
    rows: impl Iterator<Item = T>,
    counts: impl Fn(&T) -> TrafficCounts,
) -> (Vec<T>, TrafficCounts) {
    let mut rows: Vec<T> = rows.filter(|row| !counts(row).is_zero()).collect();
    let mut rest = TrafficCounts::default();
    rows.sort_by_key(|row| {
        let counts = counts(row);
        std::cmp::Reverse((counts.read_bytes + counts.written_bytes, counts.requests))
    });
    if rows.len() > MAX_NAMED_TRAFFIC {
        rows.drain(MAX_NAMED_TRAFFIC..).for_each(|row| rest.add(&counts(&row)));
    }
    (rows, rest)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(at: Instant, buckets: BTreeMap<u64, TrafficCounts>) -> Sample {
        Sample {
            at,
            at_ns: 0,
            total: TrafficCounts::default(),
            latency: LatencyCounts::default(),
            buckets,
            clients: HashMap::new(),
            other_clients: TrafficCounts::default(),
        }
    }

    #[test]
    fn buckets_past_the_bound_are_summed() {
        let start = Instant::now();
        let mut windows = Windows::default();
        assert_eq!(windows.report(), NodeTraffic::default());
        windows.add(sample(start, BTreeMap::new()), &[]);
        let counts = |id| TrafficCounts { read_bytes: id, requests: 1, ..TrafficCounts::default() };
        let buckets = (1..=MAX_NAMED_TRAFFIC as u64 + 2).map(|id| (id, counts(id))).collect();
        windows.add(sample(start + Duration::from_secs(1), buckets), &[]);
        let report = windows.report();
        assert_eq!(report.buckets.len(), MAX_NAMED_TRAFFIC);
        assert_eq!(report.buckets[0].bucket_id, MAX_NAMED_TRAFFIC as u64 + 2);
        let rest = TrafficCounts { read_bytes: 3, requests: 2, ..TrafficCounts::default() };
        assert_eq!((report.other_buckets, report.seconds), (rest, 1.0));
        // Bytes of the node are those of its buckets.
        let all: u64 = (1..=MAX_NAMED_TRAFFIC as u64 + 2).sum();
        assert_eq!(report.total.read_bytes, all);
        let slots = windows.history().slots;
        assert_eq!((slots.len(), slots[0].seconds, slots[0].total.read_bytes), (1, 1.0, all));
    }

    #[test]
    fn a_forgotten_client_that_comes_back_counts_from_zero() {
        let start = Instant::now();
        let mut windows = Windows::default();
        let counts = |requests| TrafficCounts { requests, ..TrafficCounts::default() };
        let with = |second, requests| Sample {
            clients: HashMap::from([("eva".to_owned(), counts(requests))]),
            ..sample(start + Duration::from_secs(second), BTreeMap::new())
        };
        windows.add(with(0, 90), &[]);
        windows.add(with(1, 3), &["eva".to_owned()]);
        assert_eq!(windows.report().clients[0].counts.requests, 3);
    }
}
