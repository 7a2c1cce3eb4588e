//! How a large object of a backend is split into ranges, each fetched by a request of its own.

use super::BackendKind;
use crate::cloud_rules::{CloudRule, CloudRules};

/// Objects of a cloud above this size are fetched by ranges, unless their bucket sets another limit.
const RANGES_ABOVE_BYTES: u64 = 32 << 20;
const RANGE_BYTES: u64 = 8 << 20;

/// The split of large objects of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchRanges {
    /// Objects up to this size are fetched by one request.
    pub above: u64,
    /// Bytes of a range.
    pub range: u64,
}

impl FetchRanges {
    /// Returns the split for a bucket with these rules. Concurrent reads do not make a folder faster.
    pub fn of(kind: Option<BackendKind>, cloud: &CloudRules) -> Self {
        let usual = if kind == Some(BackendKind::Folder) { u64::MAX } else { RANGES_ABOVE_BYTES };
        let above = cloud.number(CloudRule::RangesAbove).unwrap_or(usual);
        Self { above, range: RANGE_BYTES.min(above) }
    }

    /// Returns the number of requests that read an object of this size by ranges.
    pub fn requests(&self, size: u64) -> u64 {
        if size <= self.above { 1 } else { size.div_ceil(self.range.max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_large_object_of_a_cloud_is_read_by_ranges_and_one_of_a_folder_by_one_request() {
        let cloud = FetchRanges::of(Some(BackendKind::S3), &CloudRules::default());
        let requests = |size| cloud.requests(size);
        assert_eq!([requests(0), requests(32 * MIB), requests(32 * MIB + 1)], [1, 1, 5]);
        assert_eq!([requests(40 * MIB), requests(40 * MIB + 1)], [5, 6]);
        let folder = FetchRanges::of(Some(BackendKind::Folder), &CloudRules::default());
        assert_eq!(folder.requests(1 << 50), 1);
    }

    #[test]
    fn the_limit_of_a_bucket_is_also_the_largest_range() {
        let rules = CloudRules::default().with(CloudRule::RangesAbove, 2 * MIB);
        let small = FetchRanges::of(Some(BackendKind::Folder), &rules);
        assert_eq!((small.requests(2 * MIB), small.requests(5 * MIB)), (1, 3));
    }
}
