//! The metadata of one object.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::checksum::{Checksum, ChecksumKind};
use crate::placement;
use crate::size::ByteRange;

/// Metadata of an object on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectMeta {
    /// Size in bytes.
    pub size: u64,
    /// `1`, `2`, … for native buckets; otherwise the cloud's own text (version id, generation).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<Checksum>,
    /// The cloud's ETag without quotes, if there is one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub etag: String,
    /// Last access, unix nanoseconds.
    #[serde(default)]
    pub atime_ns: u64,
    /// Last modification, unix nanoseconds.
    #[serde(default)]
    pub mtime_ns: u64,
    /// User's custom metadata.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub custom: BTreeMap<String, String>,
    /// The parts in which it was uploaded.
    #[serde(default, skip_serializing_if = "PartSizes::is_empty")]
    pub parts: PartSizes,
    /// Whether the bytes are in the cluster now (false: only the cloud has them).
    #[serde(default)]
    pub present: bool,
}

/// Prefix of custom metadata keys that a front uses itself (the Content-Type of an S3 upload);
/// users cannot see or set them.
pub const SYSTEM_PREFIX: &str = "s3:";

/// Whether a key of custom metadata is used by a front itself.
pub fn is_system_key(key: &str) -> bool {
    key.starts_with(SYSTEM_PREFIX)
}

impl ObjectMeta {
    /// The ETag that clients see on every front, without quotes: the object's own, or its MD5, or
    /// one derived from its checksum and its modification time. A derived one contains a dash, so
    /// that it is not mistaken for an MD5.
    pub fn s3_etag(&self) -> String {
        if !self.etag.is_empty() {
            return self.etag.clone();
        }
        match &self.checksum {
            Some(sum) if sum.kind == ChecksumKind::Md5 && self.parts.is_empty() => {
                sum.value.clone()
            }
            Some(sum) => format!("v1-{}-{:x}", sum.value, self.mtime_ns),
            None => format!("v1-{:x}-{:x}", self.size, self.mtime_ns),
        }
    }

    /// Custom metadata that users set.
    pub fn user_custom(&self) -> impl Iterator<Item = (&String, &String)> {
        self.custom.iter().filter(|(key, _)| !is_system_key(key))
    }
}

/// The ETag that clients see of a backend's object, without quotes: the backend's own, or one
/// derived from its version. It is the same before, while and after a copy is in the cluster.
pub fn remote_etag(etag: &str, version: &str, size: u64) -> String {
    match (etag, version) {
        ("", "") => format!("v1-{size:x}-0"),
        ("", version) => format!("v1-{:016x}-{size:x}", placement::digest(version)),
        (etag, _) => etag.to_owned(),
    }
}

/// Sizes of the parts of a multipart upload, in order; empty for other objects. Adjacent parts of
/// one size are stored as a run, so that many parts need few bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PartSizes(Vec<(u64, u64)>);

impl PartSizes {
    /// Pairs of a number of parts and the size of each.
    pub fn runs(&self) -> &[(u64, u64)] {
        &self.0
    }

    /// `12*8388608,1*77`; `None` if there are no parts.
    pub fn as_text(&self) -> Option<String> {
        let runs = self.0.iter().map(|(count, size)| format!("{count}*{size}"));
        (!self.is_empty()).then(|| runs.collect::<Vec<_>>().join(","))
    }

    /// Parses the output of [`Self::as_text`].
    pub fn from_text(text: &str) -> Option<Self> {
        let run = |run: &str| {
            let (count, size) = run.split_once('*')?;
            Some((count.parse().ok()?, size.parse().ok()?))
        };
        let parts = Self(text.split(',').map(run).collect::<Option<_>>()?);
        parts.total().map(|_| parts)
    }

    /// Total bytes of all parts; `None` on overflow.
    fn total(&self) -> Option<u64> {
        self.0
            .iter()
            .try_fold(0u64, |sum, (count, size)| count.checked_mul(*size)?.checked_add(sum))
    }

    /// Whether these are the parts of an object of `size` bytes.
    pub fn make(&self, size: u64) -> bool {
        self.is_empty() || self.total() == Some(size)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many parts there are.
    pub fn count(&self) -> u64 {
        self.0.iter().fold(0, |sum: u64, (count, _)| sum.saturating_add(*count))
    }

    /// Bytes of the largest part.
    pub fn largest(&self) -> u64 {
        self.0.iter().map(|(_, size)| *size).max().unwrap_or(0)
    }

    /// The range of the part with this number (from 1).
    pub fn range(&self, number: u64) -> Option<ByteRange> {
        let (mut before, mut start) = (0, 0);
        for (count, size) in &self.0 {
            if number > before && number - before <= *count {
                let start = start + (number - before - 1) * size;
                return Some(ByteRange { start, end: start + size });
            }
            before = before.saturating_add(*count);
            start += count * size;
        }
        None
    }
}

impl FromIterator<u64> for PartSizes {
    fn from_iter<I: IntoIterator<Item = u64>>(sizes: I) -> Self {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for size in sizes {
            match runs.last_mut() {
                Some((count, same)) if *same == size => *count += 1,
                _ => runs.push((1, size)),
            }
        }
        Self(runs)
    }
}

/// One row of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListEntry {
    pub name: String,
    #[serde(flatten)]
    pub meta: ObjectMeta,
    #[serde(default, skip_serializing_if = "RowKind::is_object")]
    pub kind: RowKind,
}

/// The kind of a listing row, when shards are listed with their members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RowKind {
    #[default]
    Object,
    /// An object whose members follow.
    Shard,
    /// A member, named `SHARD/MEMBER`.
    Member,
}

impl RowKind {
    fn is_object(&self) -> bool {
        *self == Self::Object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_found_by_its_number() {
        let parts: PartSizes = [5, 5, 5, 2].into_iter().collect();
        assert_eq!(parts.runs(), [(3, 5), (1, 2)]);
        assert_eq!((parts.count(), parts.largest()), (4, 5));
        assert_eq!(parts.range(1), Some(ByteRange { start: 0, end: 5 }));
        assert_eq!(parts.range(3), Some(ByteRange { start: 10, end: 15 }));
        assert_eq!(parts.range(4), Some(ByteRange { start: 15, end: 17 }));
        assert_eq!(parts.as_text().as_deref(), Some("3*5,1*2"));
        assert_eq!(PartSizes::from_text("3*5,1*2").as_ref(), Some(&parts));
        assert!(parts.make(17) && !parts.make(16));
        assert_eq!((parts.range(0), parts.range(5)), (None, None));
        assert!(PartSizes::default().is_empty());
        for wrong in ["", "5", "a*b", "1*", "2*18446744073709551615", "-1*5"] {
            assert_eq!(PartSizes::from_text(wrong), None, "{wrong}");
        }
    }

    fn with_checksum(kind: ChecksumKind, value: &str) -> ObjectMeta {
        let checksum = Some(Checksum { kind, value: value.into() });
        ObjectMeta { checksum, ..ObjectMeta::default() }
    }

    #[test]
    fn an_etag_looks_like_an_md5_only_when_it_is_one() {
        assert_eq!(with_checksum(ChecksumKind::Md5, "5d41").s3_etag(), "5d41");
        assert_eq!(with_checksum(ChecksumKind::Xxhash2, "26c7").s3_etag(), "v1-26c7-0");
        assert_eq!(ObjectMeta::default().s3_etag(), "v1-0-0");
        let cloud = ObjectMeta { etag: "abc".into(), ..with_checksum(ChecksumKind::Md5, "5d41") };
        assert_eq!(cloud.s3_etag(), "abc", "what the cloud says comes first");
    }

    #[test]
    fn a_backend_object_has_a_distinct_etag_for_each_version() {
        assert_eq!(remote_etag("abc", "7", 5), "abc", "what the backend says comes first");
        let made = remote_etag("", "7", 5);
        assert!(made.contains('-') && made == remote_etag("", "7", 5), "{made}");
        assert_ne!(made, remote_etag("", "8", 5));
        assert_eq!(remote_etag("", "", 5), remote_etag("", "", 5));
        assert_ne!(remote_etag("", "", 5), remote_etag("", "", 6));
    }

    #[test]
    fn what_a_front_keeps_for_itself_is_no_users() {
        let mut meta = ObjectMeta::default();
        meta.custom.insert("s3:content-type".into(), "text/plain".into());
        meta.custom.insert("label".into(), "cat".into());
        let keys: Vec<_> = meta.user_custom().map(|(k, _)| k.as_str()).collect();
        assert_eq!(keys, ["label"]);
    }
}
