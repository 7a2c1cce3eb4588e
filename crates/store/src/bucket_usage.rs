//! Counters of the copies of each bucket on the disks, kept with the index, so that an answer needs no
//! scan.

use std::collections::BTreeMap;
use std::ops::Add;

use super::bucket_counts::{PartialCounts, WholeCounts};
use super::volume::Volume;
use super::{Store, blocking};

/// Copies that are stored under one bucket id on the disks in use.
///
/// The store counts what is on its disks, whether this target owns the object or not: copies of owners
/// and additional copies have the bucket's id, and all of them count. Slices, older versions and
/// tombstones have ids of their own ([`forebay_core::history`], [`forebay_core::erasure`]), so they are
/// not objects of the bucket. If an object is on two disks while it is moved, it counts on both until
/// the older copy is removed. A bucket without objects has no counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BucketUsage {
    /// Whole copies.
    pub objects: u64,
    /// Bytes of their payload.
    pub bytes: u64,
    /// Objects of which only some ranges are stored.
    pub partial_objects: u64,
    /// Bytes of the stored granules of these objects.
    pub partial_bytes: u64,
    /// Lower bound, unix nanoseconds: no whole copy was stored or last accessed before it. Exact
    /// while no copy of the bucket was removed or accessed again. 0 if it is not known, or if there
    /// are no whole copies.
    pub no_access_before_ns: u64,
}

impl Add for BucketUsage {
    type Output = Self;

    fn add(self, o: Self) -> Self {
        let bound = match (self.objects, o.objects) {
            (0, _) => o.no_access_before_ns,
            (_, 0) => self.no_access_before_ns,
            _ => self.no_access_before_ns.min(o.no_access_before_ns),
        };
        Self {
            objects: self.objects + o.objects,
            bytes: self.bytes + o.bytes,
            partial_objects: self.partial_objects + o.partial_objects,
            partial_bytes: self.partial_bytes + o.partial_bytes,
            no_access_before_ns: bound,
        }
    }
}

impl From<WholeCounts> for BucketUsage {
    fn from(counts: WholeCounts) -> Self {
        let WholeCounts { objects, bytes, oldest_ns } = counts;
        Self { objects, bytes, no_access_before_ns: oldest_ns, ..Self::default() }
    }
}

impl From<PartialCounts> for BucketUsage {
    fn from(counts: PartialCounts) -> Self {
        let PartialCounts { objects, bytes } = counts;
        Self { partial_objects: objects, partial_bytes: bytes, ..Self::default() }
    }
}

impl Volume {
    /// The counters of one bucket on this disk. Blocks while the disk commits a group.
    fn bucket_usage(&self, bucket_id: u64) -> BucketUsage {
        let whole = self.shared().usage_counters().bucket(bucket_id);
        BucketUsage::from(whole) + self.shared().partials.counts_of(bucket_id).into()
    }

    /// The counters of all buckets on this disk. Blocks while the disk commits a group.
    fn bucket_usages(&self) -> Vec<(u64, BucketUsage)> {
        let whole = self.shared().usage_counters().buckets().clone();
        let whole = whole.into_iter().map(|(id, counts)| (id, counts.into()));
        let partial = self.shared().partials.counts();
        whole.chain(partial.into_iter().map(|(id, counts)| (id, counts.into()))).collect()
    }
}

impl Store {
    /// The counters of one bucket id over the disks in use, as of the last committed changes. Its cost does not
    /// depend on the number of objects.
    pub async fn bucket_usage(&self, bucket_id: u64) -> super::Result<BucketUsage> {
        let volumes = self.volumes();
        blocking(move || {
            let usages = volumes.iter().map(|volume| volume.bucket_usage(bucket_id));
            Ok(usages.fold(BucketUsage::default(), Add::add))
        })
        .await
    }

    /// [`Self::bucket_usage`] of every bucket id that has copies on the disks in use.
    pub async fn bucket_usages(&self) -> super::Result<BTreeMap<u64, BucketUsage>> {
        let volumes = self.volumes();
        blocking(move || {
            let mut all = BTreeMap::<u64, BucketUsage>::new();
            for (id, usage) in volumes.iter().flat_map(|volume| volume.bucket_usages()) {
                let sum = all.entry(id).or_default();
                *sum = *sum + usage;
            }
            Ok(all)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_without_whole_copies_does_not_lower_the_bound_of_others() {
        let some = BucketUsage { objects: 1, no_access_before_ns: 9, ..BucketUsage::default() };
        let none = BucketUsage { partial_objects: 2, ..BucketUsage::default() };
        let sum = BucketUsage { partial_objects: 2, ..some };
        assert_eq!((some + none, none + some), (sum, sum));
        let other = BucketUsage { no_access_before_ns: 4, ..some };
        assert_eq!((some + other).no_access_before_ns, 4);
    }
}
