//! Batches of changes of the index.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fjall::OwnedWriteBatch;
use forebay_core::Result;

use super::key_limit::check_key;
use super::marks::{MARK, MARKS};
use super::{BUCKETS, DOOMED, Index, PARTS, RECORDS, RESIDENTS, SEGMENTS, STRAYS, USAGE_COUNTERS};
use crate::bucket_counts::WholeCounts;
use crate::format;
use crate::record::Record;
use crate::usage_counters::UsageCounters;

/// The segments and buckets whose accounts a batch changes.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) segments: BTreeSet<u64>,
    pub(crate) buckets: BTreeSet<u64>,
}

/// Changes that reach the index atomically.
pub(crate) struct Batch<'a> {
    index: &'a Index,
    inner: OwnedWriteBatch,
    /// Which parts of the index it changes.
    touched: [bool; PARTS],
    /// The records of the keys that this batch touched, after its changes.
    seen: HashMap<Vec<u8>, Option<Record>>,
}

impl Index {
    /// Begins a batch of changes.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let touched = [false; PARTS];
        Batch { index: self, inner: self.db.batch(), touched, seen: HashMap::new() }
    }
}

impl Batch<'_> {
    /// The record of a key after the changes of the batch so far.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        match self.seen.get(key) {
            Some(record) => Ok(record.clone()),
            None => self.index.get(key),
        }
    }

    pub(crate) fn put(&mut self, key: Vec<u8>, record: &Record) -> Result<()> {
        check_key(&key)?;
        self.touched[RECORDS] = true;
        self.inner.insert(&self.index.records, key.as_slice(), format::encode_value(record)?);
        self.seen.insert(key, Some(record.clone()));
        Ok(())
    }

    pub(crate) fn remove(&mut self, key: Vec<u8>) {
        self.touched[RECORDS] = true;
        self.inner.remove(&self.index.records, key.as_slice());
        self.seen.insert(key, None);
    }

    pub(crate) fn mark_for_delete(&mut self, file: u64) {
        self.touched[DOOMED] = true;
        self.inner.insert(&self.index.doomed, file.to_be_bytes(), b"");
    }

    pub(crate) fn unmark_for_delete(&mut self, file: u64) {
        self.touched[DOOMED] = true;
        self.inner.remove(&self.index.doomed, file.to_be_bytes());
    }

    pub(crate) fn put_resident(&mut self, generation: u64, key: &[u8]) {
        self.touched[RESIDENTS] = true;
        self.inner.insert(&self.index.residents, generation.to_be_bytes(), key);
    }

    pub(crate) fn remove_resident(&mut self, generation: u64) {
        self.touched[RESIDENTS] = true;
        self.inner.remove(&self.index.residents, generation.to_be_bytes());
    }

    /// Records that another disk may hold an older copy; `removed`: sequence of the record just
    /// removed.
    pub(crate) fn put_misplaced(&mut self, key: &[u8], removed: Option<u64>) {
        self.touched[STRAYS] = true;
        let value = removed.map_or(Vec::new(), |sequence| sequence.to_be_bytes().to_vec());
        self.inner.insert(&self.index.strays, key, value);
    }

    pub(crate) fn remove_misplaced(&mut self, key: &[u8]) {
        self.touched[STRAYS] = true;
        self.inner.remove(&self.index.strays, key);
    }

    /// Counts the objects of each bucket by a scan of the index as it was before this batch.
    pub(crate) fn count_buckets(&self) -> Result<BTreeMap<u64, WholeCounts>> {
        self.index.count_buckets()
    }

    /// Ends the batch with the accounts that belong to it. Of the segments and buckets in
    /// `touched`, those in the accounts are written and the others removed.
    pub(crate) fn commit(
        mut self,
        usage_counters: &UsageCounters,
        touched: &Touched,
    ) -> Result<()> {
        self.inner.insert(&self.index.state, USAGE_COUNTERS, usage_counters.encode());
        for id in &touched.segments {
            match usage_counters.segments.get(id) {
                Some(s) => {
                    self.inner.insert(&self.index.segments, id.to_be_bytes(), s.encode());
                }
                None => self.inner.remove(&self.index.segments, id.to_be_bytes()),
            }
        }
        self.touched[SEGMENTS] |= !touched.segments.is_empty();
        for id in &touched.buckets {
            match usage_counters.buckets().get(id) {
                Some(counts) => {
                    self.inner.insert(&self.index.buckets, id.to_be_bytes(), counts.encode());
                }
                None => self.inner.remove(&self.index.buckets, id.to_be_bytes()),
            }
        }
        self.touched[BUCKETS] |= !touched.buckets.is_empty();
        let mut marks = *self.index.marks();
        marks.last += 1;
        for (n, part) in
            self.index.parts().into_iter().enumerate().filter(|(n, _)| self.touched[*n])
        {
            marks.of[n] = marks.last;
            self.inner.insert(part, MARK, marks.last.to_be_bytes());
        }
        self.inner.insert(&self.index.state, MARKS, marks.encode());
        self.index.step("index.batch")?;
        self.inner.commit().map_err(|e| self.index.failed(&e))?;
        *self.index.marks() = marks;
        Ok(())
    }
}
