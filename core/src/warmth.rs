//! Warmth of buckets: how much of a bucket is cached, and what its readers got from the cache.

use serde::{Deserialize, Serialize};

use crate::NodeId;
use crate::name::Bucket;
use crate::quota::{Amount, StoredPart};

/// Objects that were served to clients, and their bytes, by cache result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadCounts {
    /// From a copy in the cache.
    pub hit_objects: u64,
    pub hit_bytes: u64,
    /// Fetched from the backend for this reader.
    pub miss_objects: u64,
    pub miss_bytes: u64,
    /// From a fetch that another reader had started.
    pub coalesced_objects: u64,
    pub coalesced_bytes: u64,
}

impl ReadCounts {
    /// Adds the counts of another target.
    pub fn add(&mut self, other: &Self) {
        self.hit_objects += other.hit_objects;
        self.hit_bytes += other.hit_bytes;
        self.miss_objects += other.miss_objects;
        self.miss_bytes += other.miss_bytes;
        self.coalesced_objects += other.coalesced_objects;
        self.coalesced_bytes += other.coalesced_bytes;
    }

    /// The difference to earlier counts.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            hit_objects: self.hit_objects.saturating_sub(before.hit_objects),
            hit_bytes: self.hit_bytes.saturating_sub(before.hit_bytes),
            miss_objects: self.miss_objects.saturating_sub(before.miss_objects),
            miss_bytes: self.miss_bytes.saturating_sub(before.miss_bytes),
            coalesced_objects: self.coalesced_objects.saturating_sub(before.coalesced_objects),
            coalesced_bytes: self.coalesced_bytes.saturating_sub(before.coalesced_bytes),
        }
    }

    /// All objects that were served.
    pub fn objects(&self) -> u64 {
        self.hit_objects + self.miss_objects + self.coalesced_objects
    }

    /// All bytes that were served.
    pub fn bytes(&self) -> u64 {
        self.hit_bytes + self.miss_bytes + self.coalesced_bytes
    }

    /// Bytes that were served without another download.
    pub fn saved_bytes(&self) -> u64 {
        self.hit_bytes + self.coalesced_bytes
    }
}

/// Reads within a window of time that ends now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadWindow {
    /// Length of the window in seconds. It is shorter than an hour or a day if a target started
    /// within it.
    pub seconds: u64,
    #[serde(flatten)]
    pub reads: ReadCounts,
}

impl ReadWindow {
    /// Adds the window of another target. The sum has the shorter length.
    pub fn add(&mut self, other: &Self) {
        self.seconds = self.seconds.min(other.seconds);
        self.reads.add(&other.reads);
    }
}

/// The result of a complete listing of a bucket's backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListingTotals {
    pub objects: u64,
    pub bytes: u64,
    /// When the listing began, unix nanoseconds.
    pub taken_ns: u64,
}

/// `POST /internal/v1/bucket/warmth` on a target; answered with a [`TargetWarmth`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct WarmthRequest {
    /// The bucket; `None` for all buckets.
    #[serde(default)]
    pub bucket: Option<Bucket>,
}

/// The buckets of which a target has copies, or which it counted reads of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct TargetWarmth {
    #[serde(default)]
    pub buckets: Vec<TargetBucketWarmth>,
}

/// The part of one target in the warmth of a bucket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TargetBucketWarmth {
    pub bucket_id: u64,
    /// Whole copies on the target, whether it owns the object or not.
    pub objects: u64,
    /// Bytes of whole copies.
    pub bytes: u64,
    /// Objects of which only some ranges are on the target.
    pub partial_objects: u64,
    /// Bytes of these ranges.
    pub partial_bytes: u64,
    /// No whole copy was stored or last accessed before this time, unix nanoseconds; 0 if unknown.
    pub no_access_before_ns: u64,
    /// Reads of the last hour; `None` if there were none since the target started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hour: Option<ReadWindow>,
    /// Reads of the last day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub day: Option<ReadWindow>,
    /// The last complete listing of the backend that this target made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listing: Option<ListingTotals>,
    /// The part that counts towards the bucket's quota; `None` without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<StoredPart>,
}

/// The warmth of a bucket: the sum over the targets that replied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BucketWarmth {
    pub bucket: Bucket,
    /// Whether the bucket has a backend; else all its objects are in the cluster.
    pub backed: bool,
    /// Whether the bucket's copies are kept from eviction (`cache.pin`).
    pub pinned: bool,
    /// Whether `objects` and `bytes` are exact. Otherwise they may be too small or too large: a target
    /// did not reply; copies of a native bucket are missing or move; or the bucket has erasure coding,
    /// where small objects have more whole copies than large ones.
    #[serde(default)]
    pub exact: bool,
    /// Objects that are stored whole, from the number of whole copies on the targets. Of a bucket with a
    /// backend each object has one copy, at its owner; one that a former owner still has counts until it
    /// is dropped (`cache.unowned_s`). Of a native bucket with several copies the number of copies is
    /// divided by theirs.
    pub objects: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Objects of which only some ranges are cached.
    pub partial_objects: u64,
    /// Bytes of these ranges.
    pub partial_bytes: u64,
    /// No whole copy was stored or last accessed before this time, unix nanoseconds; 0 if unknown.
    pub no_access_before_ns: u64,
    /// Reads of the last hour.
    pub hour: ReadWindow,
    /// Reads of the last day.
    pub day: ReadWindow,
    /// Bytes that a cloud would have billed in the last hour without the cache; 0 if the backend has no
    /// costs.
    pub egress_saved_hour_bytes: u64,
    /// The same for the last day.
    pub egress_saved_day_bytes: u64,
    /// The last complete listing of the backend; `None` if no target made one since it started.
    #[serde(default)]
    pub listing: Option<ListingTotals>,
    /// Usage of the bucket's quota; `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota_used: Option<Amount>,
}

impl BucketWarmth {
    /// The warmth of a bucket before the part of any target was added.
    pub fn of(bucket: Bucket) -> Self {
        Self {
            bucket,
            backed: false,
            pinned: false,
            exact: false,
            objects: 0,
            bytes: 0,
            partial_objects: 0,
            partial_bytes: 0,
            no_access_before_ns: 0,
            hour: ReadWindow::default(),
            day: ReadWindow::default(),
            egress_saved_hour_bytes: 0,
            egress_saved_day_bytes: 0,
            listing: None,
            quota_used: None,
        }
    }

    /// Whole copies as a share of the objects of the last complete listing, at most 1. `None` if there
    /// is none, or if it found no objects.
    pub fn object_share(&self) -> Option<f64> {
        share(self.objects, self.listing?.objects)
    }

    /// The same for bytes, with those of partial copies.
    pub fn byte_share(&self) -> Option<f64> {
        share(self.bytes + self.partial_bytes, self.listing?.bytes)
    }

    /// Adds the part of a target.
    pub fn add(&mut self, part: &TargetBucketWarmth) {
        let bound = part.no_access_before_ns;
        if part.objects > 0 && (self.objects == 0 || bound < self.no_access_before_ns) {
            self.no_access_before_ns = bound;
        }
        self.objects += part.objects;
        self.bytes += part.bytes;
        self.partial_objects += part.partial_objects;
        self.partial_bytes += part.partial_bytes;
        for (sum, window) in [(&mut self.hour, &part.hour), (&mut self.day, &part.day)] {
            match window {
                Some(window) if *sum == ReadWindow::default() => *sum = *window,
                Some(window) => sum.add(window),
                None => {}
            }
        }
        let is_newer = |of: &ListingTotals| self.listing.is_none_or(|l| of.taken_ns > l.taken_ns);
        if let Some(newer) = part.listing.filter(is_newer) {
            self.listing = Some(newer);
        }
    }
}

fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).min(1.0))
}

/// `GET /api/v1/warmth` and `GET /api/v1/warmth/BUCKET`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarmthReply {
    /// In the order of names.
    pub buckets: Vec<BucketWarmth>,
    /// Number of targets in the sums.
    pub targets: usize,
    /// Targets that are missing in the sums: they did not reply, or are not alive.
    pub away: Vec<NodeId>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::Provider;

    #[test]
    fn parts_of_targets_add_up_and_the_newest_listing_counts() {
        let window = |seconds, hit_bytes| {
            let reads = ReadCounts { hit_objects: 1, hit_bytes, ..ReadCounts::default() };
            Some(ReadWindow { seconds, reads })
        };
        let listing = |objects, taken_ns| Some(ListingTotals { objects, bytes: 1_000, taken_ns });
        let one = TargetBucketWarmth {
            objects: 3,
            bytes: 300,
            no_access_before_ns: 50,
            hour: window(3_600, 10),
            listing: listing(8, 1),
            ..TargetBucketWarmth::default()
        };
        let other = TargetBucketWarmth {
            objects: 2,
            bytes: 100,
            partial_objects: 1,
            partial_bytes: 100,
            no_access_before_ns: 40,
            hour: window(60, 5),
            listing: listing(10, 2),
            ..TargetBucketWarmth::default()
        };
        let none = TargetBucketWarmth::default();
        let mut sum = BucketWarmth::of(Bucket::new(Provider::Aws, "b").unwrap());
        assert_eq!((sum.object_share(), sum.byte_share()), (None, None));
        [&none, &one, &other, &none].into_iter().for_each(|part| sum.add(part));
        assert_eq!((sum.objects, sum.bytes, sum.no_access_before_ns), (5, 400, 40));
        assert_eq!((sum.hour.seconds, sum.hour.reads.saved_bytes()), (60, 15));
        assert_eq!((sum.object_share(), sum.byte_share()), (Some(0.5), Some(0.5)));
        let young = TargetBucketWarmth { day: window(0, 1), ..TargetBucketWarmth::default() };
        (0..2).for_each(|_| sum.add(&young));
        assert_eq!((sum.day.seconds, sum.day.reads.hit_objects), (0, 2), "they just started");
        sum.objects = 11;
        assert_eq!(sum.object_share(), Some(1.0), "objects of the cloud were removed since");
    }

    #[test]
    fn a_target_of_an_earlier_version_may_leave_fields_out() {
        let read: TargetWarmth = serde_json::from_str(r#"{"buckets":[{"bucket_id":7}]}"#).unwrap();
        assert_eq!(read.buckets[0].bucket_id, 7);
    }
}
