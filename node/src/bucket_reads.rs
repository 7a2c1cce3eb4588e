//! Counters of what each bucket's readers got: from the cache, from the backend, or from a fetch that
//! another reader had started. Also the sums over the last hour and the last day, and what clients
//! wrote.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use forebay_core::bucket::BucketInfo;
use forebay_core::locks::MutexExt;
use forebay_core::traffic::TrafficCounts;
use forebay_core::warmth::{ReadCounts, ReadWindow};
use prometheus::{IntCounter, IntCounterVec};

use crate::clock::{Clock, SystemClock};
use crate::metric_families::Families;

/// Buckets that the metrics name; the others have the label [`OTHER`].
pub const MAX_NAMED_BUCKETS: usize = 100;
/// Buckets with sums over the last hour and day; of others they are not known.
pub const MAX_TRACKED_BUCKETS: usize = 1_000;
/// Label of the buckets that the metrics do not name.
const OTHER: &str = "other";
/// How often [`BucketReads::sample`] is to be called, in seconds.
pub const SAMPLE_INTERVAL_S: u64 = 60;
/// Lengths of the windows in seconds, and how often a sample is kept for each.
const HOUR: Span = Span { length_s: 3_600, step_s: SAMPLE_INTERVAL_S };
const DAY: Span = Span { length_s: 86_400, step_s: 15 * 60 };

/// Seconds by which a sample may come early.
const EARLY_S: u64 = 5;

/// A window of time, and the resolution of its start.
#[derive(Clone, Copy, Debug)]
struct Span {
    length_s: u64,
    step_s: u64,
}

/// The counters of all buckets; cheap to clone.
#[derive(Clone, Debug)]
pub struct BucketReads(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    objects: IntCounterVec,
    bytes: IntCounterVec,
    /// By bucket id. Readers find their bucket without a lock.
    known: ArcSwap<BTreeMap<u64, Arc<BucketCounter>>>,
    /// Labels that are in use; they stay when a bucket is removed, as counters must not fall.
    /// Held while a bucket is added.
    named: Mutex<Vec<String>>,
    clock: SystemClock,
}

/// The counters of one bucket.
#[derive(Debug)]
pub struct BucketCounter {
    hit: Cell,
    miss: Cell,
    coalesced: Cell,
    written_objects: AtomicU64,
    written_bytes: AtomicU64,
    /// Requests that the node failed.
    failed: AtomicU64,
    /// The sums of all buckets that the metrics do not name, if this is one of them.
    other: Option<[Cell; 3]>,
    /// `None` beyond [`MAX_TRACKED_BUCKETS`].
    samples: Option<Mutex<Samples>>,
}

/// Objects and their bytes.
#[derive(Clone, Debug)]
struct Cell {
    objects: IntCounter,
    bytes: IntCounter,
}

/// Sums at earlier times, the oldest first.
#[derive(Debug)]
struct Samples {
    hour: VecDeque<(u64, ReadCounts)>,
    day: VecDeque<(u64, ReadCounts)>,
}

impl Default for BucketReads {
    /// Counters that are not exported.
    fn default() -> Self {
        Self::new(&Families::default())
    }
}

impl BucketReads {
    pub(crate) fn new(families: &Families) -> Self {
        let labels = ["bucket", "result"];
        Self(Arc::new(Inner {
            objects: families.counters(
                "forebay_bucket_get_objects_total",
                "Objects served to clients, by bucket and cache result",
                &labels,
            ),
            bytes: families.counters(
                "forebay_bucket_get_bytes_total",
                "Bytes of objects served to clients, by bucket and cache result",
                &labels,
            ),
            known: ArcSwap::default(),
            named: Mutex::default(),
            clock: SystemClock::default(),
        }))
    }

    fn now_s(&self) -> u64 {
        self.0.clock.now_ms() / 1000
    }

    /// Returns the counters of a bucket; they are made at its first read.
    pub fn of(&self, info: &BucketInfo) -> Arc<BucketCounter> {
        match self.0.known.load().get(&info.id) {
            Some(counter) => Arc::clone(counter),
            None => self.add(info.id, info.bucket.to_string(), self.now_s()),
        }
    }

    /// Counts a served object of a bucket, as [`BucketCounter::served`].
    pub fn served(&self, info: &BucketInfo, result: &str, bytes: u64) {
        match self.0.known.load().get(&info.id) {
            Some(counter) => counter.served(result, bytes),
            None => self.of(info).served(result, bytes),
        }
    }

    fn add(&self, bucket_id: u64, label: String, now_s: u64) -> Arc<BucketCounter> {
        let mut named = self.0.named.locked();
        let known = self.0.known.load_full();
        if let Some(counter) = known.get(&bucket_id) {
            return Arc::clone(counter);
        }
        let is_named = named.contains(&label) || named.len() < MAX_NAMED_BUCKETS;
        if is_named && !named.contains(&label) {
            named.push(label.clone());
        }
        let cell = |bucket: &str, result: &str| Cell {
            objects: self.0.objects.with_label_values(&[bucket, result]),
            bytes: self.0.bytes.with_label_values(&[bucket, result]),
        };
        let cells = |bucket: &str| ["hit", "miss", "coalesced"].map(|result| cell(bucket, result));
        let ([hit, miss, coalesced], other) = match is_named {
            true => (cells(&label), None),
            false => ([(); 3].map(|()| Cell::unseen()), Some(cells(OTHER))),
        };
        let (written_objects, written_bytes, failed) = Default::default();
        let mut counter = BucketCounter {
            hit,
            miss,
            coalesced,
            written_objects,
            written_bytes,
            failed,
            other,
            samples: None,
        };
        let tracked = known.values().filter(|counter| counter.samples.is_some()).count();
        if tracked < MAX_TRACKED_BUCKETS {
            let start = VecDeque::from([(now_s, counter.total())]);
            let samples = Samples { hour: start.clone(), day: start };
            counter.samples = Some(Mutex::new(samples));
        }
        let counter = Arc::new(counter);
        let mut known = BTreeMap::clone(&known);
        known.insert(bucket_id, Arc::clone(&counter));
        self.0.known.store(Arc::new(known));
        counter
    }

    /// The counts of all buckets that were used, by bucket id.
    pub(crate) fn counts(&self) -> BTreeMap<u64, TrafficCounts> {
        self.0.known.load().iter().map(|(id, counter)| (*id, counter.traffic())).collect()
    }

    /// Drops the entry of a bucket that was removed. Its series stay exported.
    pub fn forget(&self, bucket_id: u64) {
        let _adding = self.0.named.locked();
        let mut known = BTreeMap::clone(&self.0.known.load());
        if known.remove(&bucket_id).is_some() {
            self.0.known.store(Arc::new(known));
        }
    }

    /// Keeps the sums of all buckets as of now; called every [`SAMPLE_INTERVAL_S`].
    pub fn sample(&self) {
        self.sample_at(self.now_s());
    }

    fn sample_at(&self, now_s: u64) {
        for counter in self.0.known.load().values() {
            if let Some(samples) = &counter.samples {
                let total = counter.total();
                let mut samples = samples.locked();
                HOUR.keep(&mut samples.hour, now_s, total);
                DAY.keep(&mut samples.day, now_s, total);
            }
        }
    }

    /// The reads of a bucket in the last hour and in the last day. `None` if it was not read
    /// since the start of the process, or if more than [`MAX_TRACKED_BUCKETS`] are read.
    pub fn windows(&self, bucket_id: u64) -> Option<(ReadWindow, ReadWindow)> {
        self.windows_at(bucket_id, self.now_s())
    }

    fn windows_at(&self, bucket_id: u64, now_s: u64) -> Option<(ReadWindow, ReadWindow)> {
        let known = self.0.known.load();
        let counter = known.get(&bucket_id)?;
        let (samples, total) = (counter.samples.as_ref()?.locked(), counter.total());
        if total == ReadCounts::default() {
            return None;
        }
        Some((HOUR.window(&samples.hour, now_s, total), DAY.window(&samples.day, now_s, total)))
    }
}

impl Span {
    fn keep(self, samples: &mut VecDeque<(u64, ReadCounts)>, now_s: u64, total: ReadCounts) {
        // A sample that comes a little early still counts.
        let due = |(last_s, _): &(u64, ReadCounts)| now_s + EARLY_S >= last_s + self.step_s;
        if samples.back().is_none_or(due) {
            samples.push_back((now_s, total));
        }
        // One sample that is as old as the window, or older, is its start.
        while samples.get(1).is_some_and(|(at_s, _)| at_s + self.length_s <= now_s) {
            samples.pop_front();
        }
    }

    fn window(
        self,
        samples: &VecDeque<(u64, ReadCounts)>,
        now_s: u64,
        total: ReadCounts,
    ) -> ReadWindow {
        let is_start = |(at_s, _): &&(u64, ReadCounts)| at_s + self.length_s <= now_s;
        let start = samples.iter().rev().find(is_start).or(samples.front());
        let (at_s, before) = start.copied().unwrap_or((now_s, total));
        ReadWindow { seconds: now_s.saturating_sub(at_s), reads: total.since(&before) }
    }
}

impl Cell {
    fn unseen() -> Self {
        let counter = || IntCounter::new("unseen", "unseen").expect("a valid name");
        Self { objects: counter(), bytes: counter() }
    }

    fn add(&self, bytes: u64) {
        self.objects.inc();
        self.bytes.inc_by(bytes);
    }
}

impl BucketCounter {
    /// Counts a served object: `result` is `hit`, `miss` or `coalesced`.
    pub fn served(&self, result: &str, bytes: u64) {
        let n = match result {
            "hit" => 0,
            "miss" => 1,
            _ => 2,
        };
        [&self.hit, &self.miss, &self.coalesced][n].add(bytes);
        if let Some(other) = &self.other {
            other[n].add(bytes);
        }
    }

    /// Counts an object, or a part of one, that a client wrote.
    pub fn wrote(&self, bytes: u64) {
        self.written_objects.fetch_add(1, Ordering::Relaxed);
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts a request that the node failed.
    pub(crate) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts so far, each object that was read or written as a request.
    fn traffic(&self) -> TrafficCounts {
        let reads = self.total();
        let errors = self.failed.load(Ordering::Relaxed);
        TrafficCounts {
            requests: reads.objects() + self.written_objects.load(Ordering::Relaxed) + errors,
            errors,
            read_bytes: reads.bytes(),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            hits: reads.hit_objects + reads.coalesced_objects,
            misses: reads.miss_objects,
        }
    }

    fn total(&self) -> ReadCounts {
        ReadCounts {
            hit_objects: self.hit.objects.get(),
            hit_bytes: self.hit.bytes.get(),
            miss_objects: self.miss.objects.get(),
            miss_bytes: self.miss.bytes.get(),
            coalesced_objects: self.coalesced.objects.get(),
            coalesced_bytes: self.coalesced.bytes.get(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read(reads: &BucketReads, id: u64, now_s: u64, result: &str) {
        reads.add(id, format!("ais://b{id}"), now_s).served(result, 10);
    }

    #[test]
    fn windows_have_what_was_read_within_them() {
        let reads = BucketReads::default();
        assert_eq!(reads.windows_at(1, 0), None);
        let (mut hour, mut day) = (0, 0);
        for minute in 0..2 * 24 * 60u64 {
            let now_s = minute * 60;
            read(&reads, 1, now_s, if minute % 3 == 0 { "miss" } else { "hit" });
            reads.sample_at(now_s);
            let (in_hour, in_day) = reads.windows_at(1, now_s).unwrap();
            hour = in_hour.reads.objects();
            day = in_day.reads.objects();
            assert!(in_hour.seconds <= 3_660 && in_day.seconds <= 86_400 + 900, "{minute}");
        }
        // The start of a window is known to its step: a minute, and a quarter of an hour.
        assert!((60..=61).contains(&hour), "{hour}");
        assert!((1_440..=1_455).contains(&day), "{day}");
        let (in_hour, _) = reads.windows_at(1, 2 * 86_400 - 60).unwrap();
        assert_eq!(in_hour.reads.miss_objects, 20);
        assert_eq!(in_hour.reads.hit_bytes, in_hour.reads.hit_objects * 10);
        let known = reads.0.known.load();
        let samples = known[&1].samples.as_ref().unwrap().locked();
        assert!(samples.hour.len() <= 62 && samples.day.len() <= 98);
    }

    #[test]
    fn an_object_that_is_read_or_written_counts_as_a_request_of_its_bucket() {
        let reads = BucketReads::default();
        for result in ["hit", "coalesced", "miss"] {
            read(&reads, 1, 0, result);
        }
        let counter = reads.add(1, "ais://b1".into(), 0);
        counter.wrote(7);
        counter.failed();
        let counts = reads.counts()[&1];
        assert_eq!((counts.requests, counts.errors, counts.hits, counts.misses), (5, 1, 2, 1));
        assert_eq!((counts.read_bytes, counts.written_bytes), (30, 7));
    }

    #[test]
    fn a_young_process_shows_how_long_it_has_counted() {
        let reads = BucketReads::default();
        read(&reads, 1, 1_000, "coalesced");
        let (hour, day) = reads.windows_at(1, 1_120).unwrap();
        assert_eq!((hour.seconds, day.seconds, hour.reads.coalesced_objects), (120, 120, 1));
    }

    #[test]
    fn the_metrics_name_a_hundred_buckets_and_sum_the_others() {
        let families = Families::default();
        let reads = BucketReads::new(&families);
        for id in 0..MAX_TRACKED_BUCKETS as u64 + 5 {
            read(&reads, id, 0, "hit");
        }
        let counted = |bucket: &str| reads.0.objects.with_label_values(&[bucket, "hit"]).get();
        assert_eq!(counted("ais://b99"), 1);
        assert_eq!(counted(OTHER), (MAX_TRACKED_BUCKETS + 5 - MAX_NAMED_BUCKETS) as u64);
        assert_eq!(reads.windows_at(500, 9).unwrap().0.reads.hit_objects, 1);
        assert_eq!(reads.windows_at(MAX_TRACKED_BUCKETS as u64, 9), None);
        let series: usize = families.gather().iter().map(|f| f.get_metric().len()).sum();
        assert_eq!(series, 2 * 3 * (MAX_NAMED_BUCKETS + 1));
        // A bucket that is made again under its name goes on with the same series.
        reads.forget(7);
        reads.add(9_999, "ais://b7".into(), 0).served("hit", 10);
        assert_eq!(counted("ais://b7"), 2);
        assert_eq!(reads.windows_at(9_999, 9).unwrap().0.reads.hit_objects, 1);
    }
}
