//! The partial objects of a disk by key, with counters for each bucket.

use std::collections::BTreeMap;
use std::ops::Deref;

use super::Known;
use crate::bucket_counts::PartialCounts;

/// Entries by key. Counters change with the entries, under the same lock.
#[derive(Default)]
pub(super) struct Table {
    entries: BTreeMap<Vec<u8>, Known>,
    /// By bucket id; none of a bucket without partial objects.
    counts: BTreeMap<u64, PartialCounts>,
}

impl Deref for Table {
    type Target = BTreeMap<Vec<u8>, Known>;

    fn deref(&self) -> &Self::Target {
        &self.entries
    }
}

impl Table {
    pub(super) fn insert(&mut self, key: Vec<u8>, known: Known) {
        self.remove(&key);
        let counts = self.counts.entry(known.head.bucket_id).or_default();
        counts.objects += 1;
        counts.bytes += known.bytes;
        self.entries.insert(key, known);
    }

    pub(super) fn remove(&mut self, key: &[u8]) -> Option<Known> {
        let known = self.entries.remove(key)?;
        let id = known.head.bucket_id;
        if let Some(counts) = self.counts.get_mut(&id) {
            counts.objects -= 1;
            counts.bytes = counts.bytes.wrapping_sub(known.bytes);
            if counts.objects == 0 {
                self.counts.remove(&id);
            }
        }
        Some(known)
    }

    /// The entry of exactly this partial object. Its bytes change by [`Self::change_bytes`] alone.
    pub(super) fn get_mut(&mut self, key: &[u8], id: u64) -> Option<&mut Known> {
        self.entries.get_mut(key).filter(|known| known.id == id)
    }

    /// As [`Self::get_mut`], of the partial object that a key has now.
    pub(super) fn current_mut(&mut self, key: &[u8]) -> Option<&mut Known> {
        self.entries.get_mut(key)
    }

    /// Counts bytes of granules that were stored or dropped. A drop may be counted before the store of
    /// the same granule, so sums may wrap around in between.
    pub(super) fn change_bytes(&mut self, key: &[u8], id: u64, by: i64) {
        let Some(known) = self.entries.get_mut(key).filter(|known| known.id == id) else { return };
        known.bytes = known.bytes.wrapping_add_signed(by);
        if let Some(counts) = self.counts.get_mut(&known.head.bucket_id) {
            counts.bytes = counts.bytes.wrapping_add_signed(by);
        }
    }

    pub(super) fn counts_of(&self, bucket_id: u64) -> PartialCounts {
        self.counts.get(&bucket_id).copied().unwrap_or_default()
    }

    pub(super) fn counts(&self) -> &BTreeMap<u64, PartialCounts> {
        &self.counts
    }
}
