//! Histograms of durations that are cheap enough for every request.
//!
//! A histogram of the `prometheus` crate changes five shared atomics for each observation, which two
//! threads that serve small reads feel. These have one set of counters for each of a few groups of
//! threads, and are added up when the metrics are read (record 0072).

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram as Sample, LabelPair, Metric, MetricFamily, MetricType};

use forebay_core::locks::MutexExt;
use forebay_core::trace::TraceId;
pub(crate) use forebay_core::traffic::LATENCY_BOUNDS_US as BOUNDS_US;

use crate::clock::unix_ns;
use crate::exemplar::{Exemplar, Exemplars};

/// Sets of counters; threads take them in turn.
pub(crate) const SHARDS: usize = 8;

/// Durations of one kind.
#[derive(Debug, Default)]
pub struct Histogram {
    shards: [Shard; SHARDS],
    /// The last chosen trace of each bucket, once there is one.
    exemplars: OnceLock<Mutex<[Option<Exemplar>; BOUNDS_US.len() + 1]>>,
}

/// The counters of some threads, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Shard {
    /// By bucket; the last one has no upper bound.
    counts: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

thread_local! {
    static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The set of counters of this thread.
pub(crate) fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    SHARD.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        mine.get()
    })
}

impl Histogram {
    pub fn observe(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let shard = &self.shards[shard()];
        shard.counts[bucket_of(ns)].fetch_add(1, Ordering::Relaxed);
        shard.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// Makes a trace the example of the bucket of an observation.
    pub(crate) fn exemplify(&self, duration: Duration, trace: TraceId) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let (seconds, unix_s) = (duration.as_secs_f64(), unix_ns() as f64 / 1e9);
        let mut exemplars = self.exemplars.get_or_init(Mutex::default).locked();
        exemplars[bucket_of(ns)] = Some(Exemplar { trace, seconds, unix_s });
    }

    /// The examples, with the upper bounds of their buckets as the text has them.
    fn exemplars(&self) -> Vec<(String, Exemplar)> {
        let Some(exemplars) = self.exemplars.get() else { return Vec::new() };
        let bound = |place: usize| match BOUNDS_US.get(place) {
            Some(bound) => (*bound as f64 / 1e6).to_string(),
            None => "+Inf".to_owned(),
        };
        let all = exemplars.locked();
        let known = all.iter().enumerate().filter_map(|(place, one)| Some((bound(place), (*one)?)));
        known.collect()
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        let counts = self.shards.iter().flat_map(|shard| &shard.counts);
        counts.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// Numbers of observations by bucket; the last one has no upper bound.
    pub(crate) fn by_bucket(&self) -> Vec<u64> {
        let total = |bucket: usize| -> u64 {
            self.shards.iter().map(|shard| shard.counts[bucket].load(Ordering::Relaxed)).sum()
        };
        (0..=BOUNDS_US.len()).map(total).collect()
    }

    fn sample(&self) -> Sample {
        let total = |bucket: usize| -> u64 {
            self.shards.iter().map(|shard| shard.counts[bucket].load(Ordering::Relaxed)).sum()
        };
        let mut count = 0;
        let buckets = BOUNDS_US.iter().enumerate().map(|(place, bound)| {
            count += total(place);
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound as f64 / 1e6);
            bucket.set_cumulative_count(count);
            bucket
        });
        let mut sample = Sample::default();
        sample.set_bucket(buckets.collect());
        sample.set_sample_count(count + total(BOUNDS_US.len()));
        let sum: u64 = self.shards.iter().map(|shard| shard.sum_ns.load(Ordering::Relaxed)).sum();
        sample.set_sample_sum(sum as f64 / 1e9);
        sample
    }
}

/// The bucket of a duration. Most are short, so a linear search ends early.
fn bucket_of(ns: u64) -> usize {
    BOUNDS_US.iter().position(|bound| ns <= bound * 1_000).unwrap_or(BOUNDS_US.len())
}

/// A family of histograms, by the values of its labels. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HistogramVec(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    desc: Desc,
    series: RwLock<HashMap<Vec<String>, Arc<Histogram>>>,
}

impl HistogramVec {
    pub(crate) fn new(name: &str, help: &str, labels: &[&str]) -> prometheus::Result<Self> {
        let labels = labels.iter().map(|label| (*label).to_owned()).collect();
        let desc = Desc::new(name.to_owned(), help.to_owned(), labels, HashMap::new())?;
        Ok(Self(Arc::new(Inner { desc, series: RwLock::default() })))
    }

    /// The histogram of these values of the labels, which are as many as the labels.
    pub fn with_label_values(&self, values: &[&str]) -> Arc<Histogram> {
        debug_assert_eq!(values.len(), self.0.desc.variable_labels.len());
        let key: Vec<String> = values.iter().map(|value| (*value).to_owned()).collect();
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = series.get(&key) {
            return known.clone();
        }
        drop(series);
        let mut series = self.0.series.write().unwrap_or_else(PoisonError::into_inner);
        series.entry(key).or_default().clone()
    }

    /// The examples of all histograms, by the series of their buckets.
    pub(crate) fn exemplars(&self) -> Exemplars {
        let desc = &self.0.desc;
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut all = Exemplars::new();
        for (values, histogram) in series.iter() {
            let labels = desc.variable_labels.iter().zip(values);
            let mut labels: Vec<_> = labels.map(|(name, v)| format!("{name}=\"{v}\",")).collect();
            labels.sort();
            let start = format!("{}_bucket{{{}le=\"", desc.fq_name, labels.concat());
            let found = histogram.exemplars().into_iter();
            all.extend(found.map(|(bound, one)| (format!("{start}{bound}\"}}"), one)));
        }
        all
    }
}

impl Collector for HistogramVec {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.0.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let desc = &self.0.desc;
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        let metrics = series.iter().map(|(values, histogram)| {
            let labels = desc.variable_labels.iter().zip(values).map(|(name, value)| {
                let mut label = LabelPair::default();
                label.set_name(name.clone());
                label.set_value(value.clone());
                label
            });
            let mut labels: Vec<_> = labels.collect();
            labels.sort();
            let mut metric = Metric::from_label(labels);
            metric.set_histogram(histogram.sample());
            metric
        });
        let mut family = MetricFamily::default();
        family.set_name(desc.fq_name.clone());
        family.set_help(desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        family.set_metric(metrics.collect());
        vec![family]
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use prometheus::{Encoder, Registry, TextEncoder};

    use super::*;

    #[test]
    fn observations_of_all_threads_are_added_up_by_bucket() {
        let family = HistogramVec::new("forebay_t_seconds", "Times", &["op", "api"]).unwrap();
        let get = family.with_label_values(&["get", "v1"]);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    get.observe(Duration::from_micros(10));
                    get.observe(Duration::from_micros(2_600));
                    get.observe(Duration::from_secs(7_200));
                });
            }
        });
        assert_eq!(family.with_label_values(&["get", "v1"]).count(), 12);
        let registry = Registry::new();
        registry.register(Box::new(family)).unwrap();
        let mut text = Vec::new();
        TextEncoder::new().encode(&registry.gather(), &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for line in [
            "# TYPE forebay_t_seconds histogram",
            "forebay_t_seconds_bucket{api=\"v1\",op=\"get\",le=\"0.00001\"} 4",
            "forebay_t_seconds_bucket{api=\"v1\",op=\"get\",le=\"0.0025\"} 4",
            "forebay_t_seconds_bucket{api=\"v1\",op=\"get\",le=\"0.005\"} 8",
            "forebay_t_seconds_bucket{api=\"v1\",op=\"get\",le=\"1800\"} 8",
            "forebay_t_seconds_bucket{api=\"v1\",op=\"get\",le=\"+Inf\"} 12",
            "forebay_t_seconds_sum{api=\"v1\",op=\"get\"} 28800.01044",
            "forebay_t_seconds_count{api=\"v1\",op=\"get\"} 12",
        ] {
            assert!(text.contains(line), "{line} not in\n{text}");
        }
    }
}
