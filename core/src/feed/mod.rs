//! Feeds of training loops: how long the steps of a loop waited, and for what. No I/O: clients report
//! feeds, gateways keep the newest ones ([`board`]), and [`advice`] names causes with their remedies.

pub mod advice;
pub mod board;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Path of all feeds; that of one feed has its id after a slash.
pub const FEEDS_PATH: &str = "/api/v1/feeds";
/// Path at which a gateway returns the feeds that were reported to it.
pub const INTERNAL_FEEDS_PATH: &str = "/internal/v1/feeds";

/// Most characters of an id.
const MAX_ID_CHARS: usize = 128;
/// Most characters of the name of a job and of a host.
const MAX_NAME_CHARS: usize = 200;
/// Most buckets of a feed.
pub const MAX_FEED_BUCKETS: usize = 64;

/// One of the reasons for which a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cause {
    /// An object came from the cloud.
    Cold,
    /// A target read from its disk.
    Disk,
    /// The request waited at a target, or for a target that was busy.
    Queue,
    /// Bytes were on the network.
    Network,
    /// The client's own work: checksums, unpacking, copies.
    Client,
    /// The user's functions: decoding and transforms.
    Decode,
    /// Samples were put together to a batch.
    Collate,
    /// No worker had made the batch, or the batch was on its way from a worker.
    Worker,
}

impl Cause {
    /// All causes, in the order of their columns.
    pub const ALL: [Self; 8] = [
        Self::Cold,
        Self::Disk,
        Self::Queue,
        Self::Network,
        Self::Client,
        Self::Decode,
        Self::Collate,
        Self::Worker,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Disk => "disk",
            Self::Queue => "queue",
            Self::Network => "network",
            Self::Client => "client",
            Self::Decode => "decode",
            Self::Collate => "collate",
            Self::Worker => "worker",
        }
    }
}

/// Seconds of waiting by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Causes {
    pub cold: f64,
    pub disk: f64,
    pub queue: f64,
    pub network: f64,
    pub client: f64,
    pub decode: f64,
    pub collate: f64,
    pub worker: f64,
}

impl Causes {
    /// The seconds of one cause.
    pub fn get(&self, cause: Cause) -> f64 {
        match cause {
            Cause::Cold => self.cold,
            Cause::Disk => self.disk,
            Cause::Queue => self.queue,
            Cause::Network => self.network,
            Cause::Client => self.client,
            Cause::Decode => self.decode,
            Cause::Collate => self.collate,
            Cause::Worker => self.worker,
        }
    }

    /// Seconds of all causes.
    pub fn total(&self) -> f64 {
        Cause::ALL.iter().map(|cause| self.get(*cause)).sum()
    }

    fn add(&mut self, other: &Self) {
        self.cold += other.cold;
        self.disk += other.disk;
        self.queue += other.queue;
        self.network += other.network;
        self.client += other.client;
        self.decode += other.decode;
        self.collate += other.collate;
        self.worker += other.worker;
    }
}

/// The steps of one loader in one process, since its first step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Feed {
    /// Unique in the cluster: of this loader in this process.
    pub id: String,
    /// Name of the job, the same on all ranks.
    #[serde(default)]
    pub name: String,
    /// Host of the client.
    #[serde(default)]
    pub host: String,
    #[serde(default)]
    pub rank: u32,
    /// URIs of the buckets that are read.
    #[serde(default)]
    pub buckets: Vec<String>,
    /// When the gateway received the report, unix seconds.
    #[serde(default)]
    pub updated: u64,
    pub steps: u64,
    /// Samples in these steps; 0 if unknown.
    #[serde(default)]
    pub samples: u64,
    /// Bytes that were read for these steps.
    #[serde(default)]
    pub bytes: u64,
    /// Seconds that the loop waited for batches.
    pub wait_s: f64,
    /// Seconds of all steps, with the waits.
    pub step_s: f64,
    /// The waits by cause; what is missing to `wait_s` has no known cause.
    #[serde(default)]
    pub causes: Causes,
}

impl Feed {
    /// Returns an error if a field is too long, or is no number of seconds.
    pub fn check(&self) -> Result<()> {
        let is_of_id = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || self.id.len() > MAX_ID_CHARS || !self.id.chars().all(is_of_id) {
            return Err(Error::invalid(format!("feed: invalid id \"{}\"", self.id)).hint(format!(
                "1 to {MAX_ID_CHARS} letters, digits, dots, hyphens and underscores"
            )));
        }
        for (field, text) in [("name", &self.name), ("host", &self.host)] {
            if text.chars().count() > MAX_NAME_CHARS || text.chars().any(char::is_control) {
                let text =
                    format!("feed {}: {field} is not of {MAX_NAME_CHARS} characters", self.id);
                return Err(Error::invalid(text));
            }
        }
        if self.buckets.len() > MAX_FEED_BUCKETS {
            let text = format!("feed {}: more than {MAX_FEED_BUCKETS} buckets", self.id);
            return Err(Error::invalid(text));
        }
        let causes = Cause::ALL.iter().map(|cause| self.causes.get(*cause));
        let seconds = causes.chain([self.wait_s, self.step_s]);
        if seconds.into_iter().any(|seconds| !seconds.is_finite() || seconds < 0.0) {
            return Err(Error::invalid(format!("feed {}: seconds are not negative", self.id)));
        }
        Ok(())
    }

    /// The share of the time of the steps that was waiting, 0 to 1.
    pub fn wait_share(&self) -> f64 {
        if self.step_s > 0.0 { (self.wait_s / self.step_s).min(1.0) } else { 0.0 }
    }

    /// One feed of several: sums, with the buckets of all. `None` if there are none.
    pub fn merged(feeds: &[Self]) -> Option<Self> {
        let (first, others) = feeds.split_first()?;
        let mut sum = first.clone();
        for other in others {
            sum.updated = sum.updated.max(other.updated);
            sum.steps += other.steps;
            sum.samples += other.samples;
            sum.bytes += other.bytes;
            sum.wait_s += other.wait_s;
            sum.step_s += other.step_s;
            sum.causes.add(&other.causes);
            let new = other.buckets.iter().filter(|uri| !first.buckets.contains(uri));
            sum.buckets.extend(new.cloned());
        }
        sum.buckets.sort();
        sum.buckets.dedup();
        Some(sum)
    }
}

/// The answer to `GET /api/v1/feeds`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FeedsReply {
    /// The feeds that were reported within the last minutes, by name and rank.
    pub feeds: Vec<Feed>,
    /// Gateways whose feeds are missing because they did not reply.
    pub away: Vec<String>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn feed(id: &str, rank: u32) -> Feed {
        let causes = Causes { cold: 3.0, network: 1.0, ..Causes::default() };
        let buckets = vec![format!("s3://b{rank}"), "s3://all".to_owned()];
        let (id, name) = (id.to_owned(), "job".to_owned());
        Feed {
            id,
            name,
            rank,
            buckets,
            steps: 5,
            wait_s: 4.0,
            step_s: 8.0,
            causes,
            ..Feed::default()
        }
    }

    #[test]
    fn ranks_are_merged_to_sums_and_each_bucket_is_there_once() {
        let merged = Feed::merged(&[feed("a", 0), feed("b", 1)]).unwrap();
        assert_eq!((merged.steps, merged.wait_s, merged.causes.cold), (10, 8.0, 6.0));
        assert_eq!(merged.buckets, ["s3://all", "s3://b0", "s3://b1"]);
        assert_eq!(merged.wait_share(), 0.5);
        assert_eq!(Feed::merged(&[]), None);
    }

    #[test]
    fn a_report_without_bounds_is_refused() {
        feed("host-1.x_2", 0).check().unwrap();
        let with = |change: fn(&mut Feed)| {
            let mut changed = feed("a", 0);
            change(&mut changed);
            changed.check().unwrap_err()
        };
        with(|f| f.id = String::new());
        with(|f| f.id = "a/b".into());
        with(|f| f.id = "a".repeat(129));
        with(|f| f.name = "x".repeat(201));
        with(|f| f.host = "a\nb".into());
        with(|f| f.buckets = vec![String::new(); 65]);
        with(|f| f.wait_s = -1.0);
        with(|f| f.causes.disk = f64::NAN);
    }

    #[test]
    fn the_names_of_causes_are_those_of_the_json() {
        let mut causes = serde_json::to_value(Causes::default()).unwrap();
        for cause in Cause::ALL {
            assert_eq!(serde_json::to_value(cause).unwrap(), cause.name());
            causes[cause.name()] = 1.0.into();
        }
        let causes: Causes = serde_json::from_value(causes).unwrap();
        assert_eq!(causes.total(), 8.0);
        assert_eq!(serde_json::to_value(causes).unwrap().as_object().unwrap().len(), 8);
    }
}
