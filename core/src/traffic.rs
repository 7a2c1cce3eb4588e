//! Traffic of a node: what clients requested within a short window, in sum, by bucket and by client.

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::url::{encode_query, query_pairs};

/// Length of the window in seconds.
pub const TRAFFIC_WINDOW_S: u64 = 5;
/// Buckets and clients that a node reports by name; the others are summed.
pub const MAX_NAMED_TRAFFIC: usize = 100;
/// Name of the sum of the buckets or clients that are not named.
pub const OTHER_TRAFFIC: &str = "other";

/// Upper bounds of the classes of latency in microseconds: from a read in the page cache to a batch
/// of an hour's download. A last class has no bound.
pub const LATENCY_BOUNDS_US: [u64; 23] = [
    10,
    25,
    50,
    100,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
    1_800_000_000,
];

/// Numbers of requests, objects and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrafficCounts {
    pub requests: u64,
    pub errors: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Objects that were served without a download for this reader.
    pub hits: u64,
    /// Objects that were downloaded for this reader.
    pub misses: u64,
}

impl TrafficCounts {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.errors += other.errors;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.hits += other.hits;
        self.misses += other.misses;
    }

    /// The difference to earlier counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            hits: self.hits.saturating_sub(before.hits),
            misses: self.misses.saturating_sub(before.misses),
        }
    }

    /// Whether nothing was counted.
    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }
}

/// Numbers of requests by class of latency; see [`LATENCY_BOUNDS_US`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LatencyCounts(pub Vec<u64>);

impl LatencyCounts {
    /// Adds the counts of another node.
    pub fn add(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (sum, count) in self.0.iter_mut().zip(&other.0) {
            *sum += count;
        }
    }

    /// The difference to earlier counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let before = before.0.iter().copied().chain(std::iter::repeat(0));
        Self(self.0.iter().zip(before).map(|(now, before)| now.saturating_sub(before)).collect())
    }

    /// All requests.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The latency in seconds that this share of the requests did not exceed, interpolated within its
    /// class. `None` without requests.
    pub fn quantile_s(&self, share: f64) -> Option<f64> {
        let total = self.total();
        if total == 0 {
            return None;
        }
        let rank = share * total as f64;
        let (mut below, mut from_us) = (0.0, 0);
        for (place, count) in self.0.iter().enumerate() {
            // A class without a bound counts as its lower bound.
            let to_us = LATENCY_BOUNDS_US.get(place).copied().unwrap_or(from_us);
            let count = *count as f64;
            if count > 0.0 && below + count >= rank {
                let part = ((rank - below) / count).clamp(0.0, 1.0);
                return Some((from_us as f64 + (to_us - from_us) as f64 * part) / 1e6);
            }
            (below, from_us) = (below + count, to_us);
        }
        Some(from_us as f64 / 1e6)
    }
}

/// `GET /internal/v1/traffic`: the traffic of one node in the last [`TRAFFIC_WINDOW_S`] seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeTraffic {
    /// Length of the window in seconds; shorter after a start.
    pub seconds: f64,
    pub total: TrafficCounts,
    pub latency: LatencyCounts,
    /// The busiest buckets.
    pub buckets: Vec<BucketTraffic>,
    /// The sum of the other buckets.
    pub other_buckets: TrafficCounts,
    /// The busiest clients.
    pub clients: Vec<ClientTraffic>,
    /// The sum of the other clients.
    pub other_clients: TrafficCounts,
}

/// The traffic of one bucket on a node. A request is an object that was read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketTraffic {
    pub bucket_id: u64,
    #[serde(flatten)]
    pub counts: TrafficCounts,
}

/// The traffic of one client on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientTraffic {
    /// Name of the user, or the address of a client without one.
    pub client: String,
    #[serde(flatten)]
    pub counts: TrafficCounts,
}

/// A request that a node finished, as `GET /api/v1/requests/live` sends it. It has no query and no
/// headers, which may hold secrets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveRequest {
    /// When it ended, RFC 3339.
    pub time: String,
    pub node: String,
    pub request_id: String,
    pub api: String,
    pub operation: String,
    /// URI of the bucket; `None` if the path names none.
    #[serde(default)]
    pub bucket: Option<String>,
    /// Name of the object.
    #[serde(default)]
    pub object: Option<String>,
    /// Address of the sender.
    pub client: String,
    #[serde(default)]
    pub user: Option<String>,
    /// Status of the answer; 0 if the client went away before it.
    pub status: u16,
    /// How it ended, as the label `result` of the metrics.
    pub result: String,
    pub duration_s: f64,
    /// Time to the first byte of the answer.
    #[serde(default)]
    pub ttfb_s: Option<f64>,
    /// Bytes of the answer's body.
    pub bytes: u64,
}

impl LiveRequest {
    /// Whether the request failed, or its client went away.
    pub fn is_failed(&self) -> bool {
        self.status >= 400 || matches!(self.result.as_str(), "error" | "aborted")
    }
}

/// One line of `GET /internal/v1/requests/live`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LiveEvent {
    Request(Box<LiveRequest>),
    /// The reader was too slow for this many requests.
    Dropped(u64),
    /// Nothing; it shows that the connection still works.
    Idle,
}

/// The requests that a stream of finished requests shows; empty fields match all.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveFilter {
    /// URI or plain name of the bucket.
    pub bucket: Option<String>,
    pub operation: Option<String>,
    pub api: Option<String>,
    /// Minimum duration in milliseconds.
    pub min_ms: f64,
    pub failed: bool,
    pub node: Option<String>,
}

impl LiveFilter {
    /// Reads the parameters of a query.
    pub fn parse(query: Option<&str>) -> Result<Self, Error> {
        let mut filter = Self::default();
        for (key, value) in query_pairs(query).into_iter().filter(|(_, value)| !value.is_empty()) {
            match key.as_str() {
                "bucket" => filter.bucket = Some(value),
                "operation" => filter.operation = Some(value),
                "api" => filter.api = Some(value),
                "node" => filter.node = Some(value),
                "failed" => filter.failed = matches!(value.as_str(), "true" | "1"),
                "min_ms" => {
                    let number = value.parse().ok().filter(|ms: &f64| ms.is_finite() && *ms >= 0.0);
                    let bad = || Error::invalid(format!("min_ms \"{value}\" is no number >= 0"));
                    filter.min_ms = number.ok_or_else(bad)?;
                }
                _ => {}
            }
        }
        Ok(filter)
    }

    /// The parameters as a query, for another node.
    pub fn to_query(&self) -> String {
        let texts = [
            ("bucket", &self.bucket),
            ("operation", &self.operation),
            ("api", &self.api),
            ("node", &self.node),
        ];
        let mut query = format!("min_ms={}", self.min_ms);
        for (key, value) in texts {
            if let Some(value) = value {
                query.push_str(&format!("&{key}={}", encode_query(value)));
            }
        }
        if self.failed {
            query.push_str("&failed=true");
        }
        query
    }

    /// Whether a request is shown. Requests between nodes and those for health and metrics are shown
    /// only if the filter names their API.
    pub fn matches(&self, request: &LiveRequest) -> bool {
        let is = |wanted: &Option<String>, value: &str| wanted.as_ref().is_none_or(|w| w == value);
        let is_bucket = |wanted: &str| {
            let uri = request.bucket.as_deref().unwrap_or("");
            uri == wanted || uri.rsplit('/').next() == Some(wanted)
        };
        let is_background = matches!(request.api.as_str(), "internal" | "operations");
        (self.api.is_some() || !is_background)
            && is(&self.operation, &request.operation)
            && is(&self.api, &request.api)
            && is(&self.node, &request.node)
            && self.bucket.as_deref().is_none_or(is_bucket)
            && request.duration_s * 1e3 >= self.min_ms
            && (!self.failed || request.is_failed())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_within_the_class_of_their_request() {
        let mut counts = LatencyCounts(vec![0; LATENCY_BOUNDS_US.len() + 1]);
        assert_eq!(counts.quantile_s(0.5), None);
        // 98 requests of 50 to 100 µs, two of 5 to 10 ms.
        (counts.0[3], counts.0[9]) = (98, 2);
        let p50 = counts.quantile_s(0.5).unwrap();
        assert!((50e-6..=100e-6).contains(&p50), "{p50}");
        let p99 = counts.quantile_s(0.99).unwrap();
        assert!((5e-3..=10e-3).contains(&p99), "{p99}");
        let mut endless = LatencyCounts(vec![0; LATENCY_BOUNDS_US.len() + 1]);
        endless.0[LATENCY_BOUNDS_US.len()] = 1;
        assert_eq!(endless.quantile_s(0.5), Some(1_800.0));
    }

    #[test]
    fn counts_add_up_and_differ_by_what_came_between() {
        let mut sum = LatencyCounts::default();
        sum.add(&LatencyCounts(vec![1, 2]));
        sum.add(&LatencyCounts(vec![0, 3, 4]));
        assert_eq!(sum, LatencyCounts(vec![1, 5, 4]));
        assert_eq!(sum.since(&LatencyCounts(vec![1, 2])).total(), 7);
        let counts = TrafficCounts { requests: 5, hits: 2, ..TrafficCounts::default() };
        let before = TrafficCounts { requests: 3, ..TrafficCounts::default() };
        assert_eq!(counts.since(&before).requests, 2);
        assert!(before.since(&before).is_zero());
    }

    #[test]
    fn a_filter_matches_by_all_of_its_fields() {
        let request = LiveRequest {
            time: String::new(),
            node: "t1".into(),
            request_id: "0".into(),
            api: "v1".into(),
            operation: "get".into(),
            bucket: Some("ais://data".into()),
            object: Some("a/b".into()),
            client: "10.0.0.1".into(),
            user: None,
            status: 404,
            result: "not_found".into(),
            duration_s: 0.02,
            ttfb_s: None,
            bytes: 0,
        };
        let matches = |text: &str| {
            let filter = LiveFilter::parse(Some(text)).unwrap();
            assert_eq!(LiveFilter::parse(Some(&filter.to_query())).unwrap(), filter);
            filter.matches(&request)
        };
        for text in
            ["", "bucket=data", "bucket=ais://data", "operation=get&api=v1&node=t1", "min_ms=20"]
        {
            assert!(matches(text), "{text}");
        }
        assert!(matches("failed=true"));
        for text in ["bucket=dat", "operation=put", "api=s3", "node=t2", "min_ms=20.5"] {
            assert!(!matches(text), "{text}");
        }
        for bad in ["min_ms=x", "min_ms=-1", "min_ms=NaN"] {
            assert!(LiveFilter::parse(Some(bad)).is_err(), "{bad}");
        }
    }
}
