//! Metrics of requests, by API, operation and result.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use forebay_core::request::Protocol;
use forebay_core::trace::TraceId;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec};

use crate::exemplar::Exemplars;
use crate::histogram::{Histogram, HistogramVec};
use crate::metric_families::Families;

/// Prefix of the names of these metrics.
pub(crate) const PREFIX: &str = "forebay_http_";

/// How a request ended, as a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Outcome {
    Ok,
    NotFound,
    /// Another target owns the object.
    WrongOwner,
    /// The node has too much to do (429).
    Busy,
    /// Another 4xx.
    Refused,
    /// 5xx, or an answer that broke off.
    Error,
    /// The client went away before the end of the answer.
    Aborted,
}

impl Outcome {
    pub(crate) fn of_status(status: u16) -> Self {
        match status {
            ..400 => Self::Ok,
            404 => Self::NotFound,
            421 => Self::WrongOwner,
            429 => Self::Busy,
            400..=499 => Self::Refused,
            _ => Self::Error,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::NotFound => "not_found",
            Self::WrongOwner => "wrong_owner",
            Self::Busy => "busy",
            Self::Refused => "refused",
            Self::Error => "error",
            Self::Aborted => "aborted",
        }
    }
}

/// The name of an API in labels.
pub(crate) fn api_name(protocol: Option<Protocol>) -> &'static str {
    match protocol {
        Some(Protocol::Native) => "api",
        Some(protocol) => protocol.name(),
        None => "unknown",
    }
}

type Key = (&'static str, &'static str, Outcome);

/// Counts and times of the requests of a node. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RequestMetrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    requests: IntCounterVec,
    first_byte: HistogramVec,
    whole: HistogramVec,
    in_flight: IntGaugeVec,
    series: RwLock<HashMap<Key, Arc<Series>>>,
    // Those of small reads, resolved once.
    gets: Arc<Series>,
}

/// The metrics of requests with the same labels.
#[derive(Debug)]
pub(crate) struct Series {
    requests: IntCounter,
    first_byte: Arc<Histogram>,
    whole: Arc<Histogram>,
}

impl Series {
    /// Counts a request. `first_byte` is the time until the head of its answer, if there was one.
    pub(crate) fn observe(&self, first_byte: Option<Duration>, whole: Duration) {
        self.requests.inc();
        if let Some(first_byte) = first_byte {
            self.first_byte.observe(first_byte);
        }
        self.whole.observe(whole);
    }

    /// Makes a chosen trace the example of the buckets that count its request.
    pub(crate) fn exemplify(&self, trace: TraceId, first_byte: Option<Duration>, whole: Duration) {
        if let Some(first_byte) = first_byte {
            self.first_byte.exemplify(first_byte, trace);
        }
        self.whole.exemplify(whole, trace);
    }
}

impl RequestMetrics {
    pub(crate) fn new(families: &Families) -> Self {
        let labels = ["api", "op", "result"];
        let requests = families.counters(
            "forebay_http_requests_total",
            "HTTP requests that the node answered",
            &labels,
        );
        let first_byte = families.histograms(
            "forebay_http_first_byte_seconds",
            "Time from the head of a request to the head of its answer",
            &labels,
        );
        let whole = families.histograms(
            "forebay_http_request_seconds",
            "Time from the head of a request to the end of its answer",
            &labels,
        );
        let in_flight = families.gauges(
            "forebay_http_requests_in_flight",
            "Requests in progress, without small reads that are answered at once",
            &["api"],
        );
        let gets = made(&requests, &first_byte, &whole, ("v1", "get", Outcome::Ok));
        let series = RwLock::default();
        Self(Arc::new(Inner { requests, first_byte, whole, in_flight, series, gets }))
    }

    /// The numbers of requests.
    pub(crate) fn counts(&self) -> &IntCounterVec {
        &self.0.requests
    }

    /// The examples of the times, by the series of their buckets.
    pub(crate) fn exemplars(&self) -> Exemplars {
        let mut all = self.0.first_byte.exemplars();
        all.extend(self.0.whole.exemplars());
        all
    }

    /// The metrics of successful reads of objects over v1.
    pub(crate) fn gets(&self) -> &Series {
        &self.0.gets
    }

    pub(crate) fn of(
        &self,
        api: &'static str,
        operation: &'static str,
        outcome: Outcome,
    ) -> Arc<Series> {
        let key = (api, operation, outcome);
        let series = self.0.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = series.get(&key) {
            return known.clone();
        }
        drop(series);
        let Inner { requests, first_byte, whole, .. } = &*self.0;
        let mut series = self.0.series.write().unwrap_or_else(PoisonError::into_inner);
        series.entry(key).or_insert_with(|| made(requests, first_byte, whole, key)).clone()
    }

    /// Counts a request of this API as in progress until the guard is dropped.
    pub(crate) fn begin(&self, api: &'static str) -> InFlight {
        let gauge = self.0.in_flight.with_label_values(&[api]);
        gauge.inc();
        InFlight(gauge)
    }
}

fn made(
    requests: &IntCounterVec,
    first_byte: &HistogramVec,
    whole: &HistogramVec,
    (api, operation, outcome): Key,
) -> Arc<Series> {
    let labels = [api, operation, outcome.name()];
    Arc::new(Series {
        requests: requests.with_label_values(&labels),
        first_byte: first_byte.with_label_values(&labels),
        whole: whole.with_label_values(&labels),
    })
}

/// A request in progress.
#[derive(Debug)]
pub(crate) struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}
