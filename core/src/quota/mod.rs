//! Quotas of native buckets: the most bytes and objects that a bucket may hold in the whole cluster.
//!
//! Each target reports its part of a bucket's usage with its heartbeat ([`QuotaReport`]). The leading
//! gateway sums the parts and grants each target how much the bucket may grow there until the next
//! report ([`Ledger`], [`QuotaGrant`]). A target accepts writes within its grant ([`QuotaGate`]), so
//! the targets together stay within the quota. Decisions only; nothing here does I/O.

mod gate;
mod ledger;

use std::ops::AddAssign;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use self::gate::{Attempt, QuotaGate, SampleMark};
pub use self::ledger::{GRANT_VALID_MS, Ledger};
use crate::bucket::BucketInfo;
use crate::config::nearest;
use crate::erasure::Erasure;
use crate::error::{Error, ErrorCode, Result};
use crate::size::ByteSize;

/// Section of a bucket's properties. It is a stored name, see [`crate::bucket`].
pub const SECTION: &str = "quota";

const KEYS: [&str; 2] = ["bytes", "objects"];

/// Bytes and objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Amount {
    pub bytes: u64,
    pub objects: u64,
}

impl Amount {
    /// More than any bucket can hold.
    pub const MAX: Self = Self { bytes: u64::MAX, objects: u64::MAX };

    pub fn is_zero(&self) -> bool {
        *self == Self::default()
    }

    /// Whether `need` fits.
    pub fn covers(&self, need: &Self) -> bool {
        need.bytes <= self.bytes && need.objects <= self.objects
    }

    /// The difference, without going below zero.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    #[must_use]
    pub fn max(&self, other: &Self) -> Self {
        self.zip(other, Ord::max)
    }

    #[must_use]
    pub fn min(&self, other: &Self) -> Self {
        self.zip(other, Ord::min)
    }

    /// The part of one of `n`, rounded down.
    #[must_use]
    pub fn over(&self, n: u64) -> Self {
        Self { bytes: self.bytes / n.max(1), objects: self.objects / n.max(1) }
    }

    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self { bytes: f(self.bytes, other.bytes), objects: f(self.objects, other.objects) }
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(&other);
    }
}

/// The quota of a bucket; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketQuota {
    /// Logical bytes: an object counts with its size, however many copies or slices it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Objects and, in a bucket that keeps them, older versions and delete markers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}

impl BucketQuota {
    pub fn is_set(&self) -> bool {
        *self != Self::default()
    }

    /// The most that the bucket may hold.
    pub fn limit(&self) -> Amount {
        let (bytes, objects) = (self.bytes, self.objects);
        Amount { bytes: bytes.unwrap_or(u64::MAX), objects: objects.unwrap_or(u64::MAX) }
    }

    /// Applies a JSON object with some of the limits; the others stay. Nothing changes on an error.
    pub fn apply(&mut self, value: &Value) -> Result<()> {
        let given = match value {
            Value::Null => &Map::new(),
            Value::Object(given) => given,
            _ => {
                return Err(Error::invalid("bucket property \"quota\" must be a JSON object")
                    .hint("for example {\"bytes\":\"10GiB\",\"objects\":1000000}"));
            }
        };
        let mut new = *self;
        for (key, value) in given {
            match key.as_str() {
                "bytes" => new.bytes = limit("bytes", value, "a size such as \"10GiB\"")?,
                "objects" => new.objects = limit("objects", value, "a number of objects")?,
                _ => {
                    let e = Error::invalid(format!("unknown bucket property \"quota.{key}\""));
                    return Err(match nearest(key, KEYS) {
                        Some(near) => e.hint(format!("did you mean \"{near}\"?")),
                        None => e.hint(format!("there are {}", KEYS.join(", "))),
                    });
                }
            }
        }
        *self = new;
        Ok(())
    }

    /// The error of a write that the quota does not allow.
    pub fn exceeded(&self, bucket: &str, used: &Amount, need: &Amount) -> Error {
        let objects = self.objects.filter(|most| used.objects.saturating_add(need.objects) > *most);
        let text = match (objects, self.bytes) {
            (Some(most), _) => format!(
                "bucket \"{bucket}\" may hold {most} objects (quota.objects) and has {}",
                used.objects
            ),
            (None, Some(most)) => format!(
                "bucket \"{bucket}\" may hold {} (quota.bytes), has {}, and the write adds {}",
                ByteSize(most),
                ByteSize(used.bytes),
                ByteSize(need.bytes)
            ),
            (None, None) => format!("the quota of bucket \"{bucket}\" is used up"),
        };
        Error::new(ErrorCode::QuotaExceeded, text)
            .hint("delete objects, or raise the quota with forebay bucket set")
    }
}

/// Parses one limit. `null`, "none" and "off" remove it.
fn limit(key: &str, value: &Value, wanted: &str) -> Result<Option<u64>> {
    let wrong = || {
        let text = format!("invalid bucket property quota.{key} = {value}: it must be {wanted}");
        Error::invalid(text).hint("or \"none\" for no limit")
    };
    match value {
        Value::Null => Ok(None),
        Value::String(text) if matches!(text.as_str(), "none" | "off") => Ok(None),
        Value::Number(n) => n.as_u64().map(Some).ok_or_else(wrong),
        Value::String(text) if key == "bytes" => match ByteSize::parse(text) {
            Ok(size) => Ok(Some(size.0)),
            Err(_) => Err(wrong()),
        },
        Value::String(text) => text.parse().map(Some).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

impl BucketInfo {
    /// The quota of the bucket.
    pub fn quota(&self) -> BucketQuota {
        let Some(section) = self.extra.get(SECTION) else { return BucketQuota::default() };
        let limit = |key| section.get(key).and_then(Value::as_u64);
        BucketQuota { bytes: limit("bytes"), objects: limit("objects") }
    }

    /// Changes limits of the quota. It is a section in `extra`, which older versions of the program
    /// keep as it is.
    pub fn set_quota(&mut self, value: &Value) -> Result<()> {
        let mut quota = self.quota();
        quota.apply(value)?;
        if quota.is_set() {
            self.extra.insert(SECTION.to_owned(), json!(quota));
        } else {
            self.extra.remove(SECTION);
        }
        Ok(())
    }
}

/// The part of a bucket that one target stores, as it is on its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StoredPart {
    /// Whole copies of objects.
    pub copies: Amount,
    /// Older versions and delete markers, which have one copy.
    #[serde(skip_serializing_if = "Amount::is_zero")]
    pub versions: Amount,
    /// Slices of objects, by scheme.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slices: Vec<StoredSlices>,
}

/// Slices of one scheme of erasure coding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSlices {
    pub data: u8,
    pub parity: u8,
    pub stored: Amount,
}

impl StoredPart {
    /// Adds the part of another target.
    pub fn add(&mut self, other: &Self) {
        self.copies += other.copies;
        self.versions += other.versions;
        for slices in &other.slices {
            let is_same =
                |own: &&mut StoredSlices| (own.data, own.parity) == (slices.data, slices.parity);
            match self.slices.iter_mut().find(is_same) {
                Some(own) => own.stored += slices.stored,
                None => self.slices.push(*slices),
            }
        }
    }

    /// The logical usage, if this is the sum over all targets. A large object of a coded bucket is one
    /// whole copy and its slices, a small one `parity + 1` whole copies. While copies are missing the
    /// result is too small by their part.
    pub fn logical(&self, copies: u32, erasure: Option<&Erasure>) -> Amount {
        let mut sliced = Amount::default();
        for slices in &self.slices {
            let width = u64::from(slices.data) + u64::from(slices.parity);
            sliced.objects += slices.stored.objects.div_ceil(width.max(1));
            let bytes = slices.stored.bytes.saturating_mul(u64::from(slices.data));
            sliced.bytes += bytes / width.max(1);
        }
        // Slices are padded.
        let sliced = sliced.min(&self.copies);
        let whole = self.copies.minus(&sliced);
        let each = erasure.map_or(u64::from(copies), |e| e.metadata_holders() as u64).max(1);
        let whole =
            Amount { bytes: whole.bytes.div_ceil(each), objects: whole.objects.div_ceil(each) };
        whole.plus(&sliced).plus(&self.versions)
    }
}

/// A target's report of one bucket that has a quota.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaReport {
    pub bucket_id: u64,
    /// Number of the sample of the counters; the grant names it.
    pub sample: u64,
    /// Age of the sample when it was sent, in milliseconds.
    pub age_ms: u64,
    pub stored: StoredPart,
    /// Growth by writes that were in progress at the sample.
    #[serde(skip_serializing_if = "Amount::is_zero")]
    pub pending: Amount,
    /// Growth by writes that wait for a grant.
    #[serde(skip_serializing_if = "Amount::is_zero")]
    pub wanted: Amount,
}

/// The leader's answer to a [`QuotaReport`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct QuotaGrant {
    pub bucket_id: u64,
    /// As in the report.
    pub sample: u64,
    /// Usage of the bucket in the cluster, with writes in progress.
    pub used: Amount,
    /// How much the bucket may grow at this target after the sample.
    pub grant: Amount,
    /// Age of the oldest sample in `used`, in milliseconds.
    pub oldest_ms: u64,
}

#[cfg(test)]
#[path = "tests.rs"]
#[allow(clippy::unwrap_used)]
mod cluster_tests;

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::{Bucket, Provider};

    fn info(provider: Provider) -> BucketInfo {
        BucketInfo::requested(Bucket::new(provider, "b").unwrap(), None)
    }

    #[test]
    fn limits_are_set_one_by_one_and_removed() {
        let mut info = info(Provider::Ais);
        info.set_quota(&json!({"bytes": "2MiB"})).unwrap();
        info.set_quota(&json!({"objects": "7"})).unwrap();
        assert_eq!(info.quota(), BucketQuota { bytes: Some(2 << 20), objects: Some(7) });
        info.set_quota(&json!({"bytes": "none"})).unwrap();
        assert_eq!(info.quota(), BucketQuota { bytes: None, objects: Some(7) });
        info.set_quota(&json!({"objects": null})).unwrap();
        assert!(!info.quota().is_set() && info.extra.is_empty());
    }

    #[test]
    fn wrong_limits_are_refused_by_name_and_change_nothing() {
        for (value, words) in [
            (json!({"bytes": "much"}), "quota.bytes"),
            (json!({"objects": -1}), "quota.objects"),
            (json!({"objects": 1.5}), "quota.objects"),
            (json!({"bites": 1}), "quota.bites"),
            (json!(7), "JSON object"),
        ] {
            let mut info = info(Provider::Ais);
            info.set_quota(&json!({"bytes": 9})).unwrap();
            let e = info.set_quota(&value).unwrap_err();
            assert!(e.message.contains(words), "{value}: {e}");
            assert_eq!(info.quota().bytes, Some(9));
        }
    }

    #[test]
    fn a_quota_is_for_native_buckets() {
        let mut native = info(Provider::Ais);
        native.set_quota(&json!({"objects": 3})).unwrap();
        native.validate().unwrap();
        let mut cloud = info(Provider::Aws);
        cloud.set_quota(&json!({"objects": 3})).unwrap();
        let e = cloud.validate().unwrap_err();
        assert!(e.message.contains("quota") && e.hint.unwrap().contains("share"));
    }

    #[test]
    fn copies_and_slices_count_as_one_object_and_versions_count_each() {
        let amount = |bytes, objects| Amount { bytes, objects };
        let two = StoredPart { copies: amount(80, 4), ..StoredPart::default() };
        assert_eq!(two.logical(2, None), amount(40, 2));
        // One large object of 400 bytes in 2+2 slices, and two small ones of 10 bytes in 3 copies.
        let slices = StoredSlices { data: 2, parity: 2, stored: amount(800, 4) };
        let coded = StoredPart {
            copies: amount(400 + 60, 1 + 6),
            slices: vec![slices],
            ..StoredPart::default()
        };
        assert_eq!(coded.logical(1, Some(&Erasure::default())), amount(420, 3));
        let versions = StoredPart { versions: amount(5, 1), ..two };
        assert_eq!(versions.logical(2, None), amount(45, 3));
    }

    #[test]
    fn the_error_names_bucket_quota_and_usage() {
        let quota = BucketQuota { bytes: Some(2 << 20), objects: Some(5) };
        let used = Amount { bytes: 1 << 20, objects: 5 };
        let e = quota.exceeded("b", &used, &Amount { bytes: 1, objects: 1 });
        assert!(e.message.contains("may hold 5 objects"), "{e}");
        let e = quota.exceeded("b", &used, &Amount { bytes: 3 << 20, objects: 0 });
        for words in ["\"b\"", "2MiB", "has 1MiB", "adds 3MiB", "bucket set"] {
            assert!(e.to_string().contains(words), "{e}");
        }
        assert_eq!(e.code.status(), 507);
        assert!(!e.code.is_transient());
    }
}
