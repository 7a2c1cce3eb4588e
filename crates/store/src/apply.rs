//! Applies one record of the log to the index and the accounts. The result is the same while the
//! store runs, after a crash, and when the index is rebuilt.

use forebay_core::Result;

use super::format;
use super::index::{Batch, Index, Touched};
use super::location_cache::Known;
use super::log::{Entry, Position};
use super::recency::Touch;
use super::record::Record;
use super::usage_counters::{Shift, UsageCounters};

/// A batch of changes that is being built, with the accounts that belong to it.
pub(crate) struct Applier<'a> {
    pub(crate) batch: Batch<'a>,
    pub(crate) usage_counters: &'a mut UsageCounters,
    touched: Touched,
}

/// The effect of one record.
#[derive(Debug, Default)]
pub(crate) struct Applied {
    /// The record of the object after the change; `None` if it was removed.
    pub(crate) new: Option<Record>,
    /// The record that was replaced or removed.
    pub(crate) old: Option<Record>,
    /// Files that no record refers to any more.
    pub(crate) doomed: Vec<u64>,
}

impl Applied {
    /// A record of the object that was changed. `None` if nothing was changed.
    pub(crate) fn any(&self) -> Option<&Record> {
        self.new.as_ref().or(self.old.as_ref())
    }

    /// The location of a commit that is new. `None` for a moved record, because it may be about to
    /// be replaced on another disk.
    pub(crate) fn fresh(&self) -> Option<Known> {
        let is_moved =
            |new: &&Record| self.old.as_ref().is_some_and(|old| old.generation == new.generation);
        self.new.as_ref().filter(|new| !is_moved(new)).and_then(Known::of)
    }
}

impl<'a> Applier<'a> {
    pub(crate) fn new(index: &'a Index, usage_counters: &'a mut UsageCounters) -> Self {
        Self { batch: index.batch(), usage_counters, touched: Touched::default() }
    }

    /// Applies the record of the frame at `at`, which has `len` bytes. Changes nothing if the index
    /// has a newer record.
    pub(crate) fn apply(&mut self, at: Position, len: u64, entry: Entry) -> Result<Applied> {
        self.pass(at, len);
        match entry {
            Entry::Put(record) => self.put(*record),
            Entry::Remove { bucket_id, name, sequence } => {
                self.usage_counters.shift(at.segment, Shift::Sequence(sequence));
                self.usage_counters.shift(at.segment, Shift::Removal(len));
                self.remove(format::key(bucket_id, &name), sequence)
            }
        }
    }

    /// Moves the position past a stretch of the log, whatever is in it.
    pub(crate) fn pass(&mut self, at: Position, len: u64) {
        let end = at.offset + len;
        self.touched.segments.insert(at.segment);
        self.usage_counters.shift(at.segment, Shift::End(end));
        self.usage_counters.position = Position { segment: at.segment, offset: end };
    }

    /// Puts changed metadata of the same record into the index alone.
    pub(crate) fn refresh(&mut self, record: &Record) -> Result<()> {
        self.batch.put(format::key(record.bucket_id, &record.name), record)
    }

    /// Notes an access in the index alone. `None`: the commit is not there any more.
    pub(crate) fn accessed(&mut self, touch: &Touch) -> Result<Option<Record>> {
        let current = self.batch.get(&touch.key)?;
        let Some(mut record) = current.filter(|now| now.generation == touch.generation) else {
            return Ok(None);
        };
        record.meta.atime_ns = record.meta.atime_ns.max(touch.atime_ns);
        self.batch.put(touch.key.to_vec(), &record)?;
        Ok(Some(record))
    }

    /// Keeps a segment that cannot be read, and the removals that may hide its records.
    pub(crate) fn keep_segment(&mut self, segment: u64) {
        self.pass(Position { segment, offset: 0 }, 0);
        self.usage_counters.shift(segment, Shift::Sequence(0));
    }

    /// Counts the objects of each bucket, for an index of an earlier version, which did not.
    pub(crate) fn count_buckets(&mut self) -> Result<()> {
        let counts = self.batch.count_buckets()?;
        self.touched.buckets.extend(counts.keys());
        self.usage_counters.set_buckets(counts);
        Ok(())
    }

    /// Drops the accounts of a segment whose live records were all moved.
    pub(crate) fn forget_segment(&mut self, segment: u64) {
        self.touched.segments.insert(segment);
        self.usage_counters.forget(segment);
    }

    pub(crate) fn commit(self) -> Result<()> {
        self.next_batch().0
    }

    /// Ends this batch; the accounts are there for the next one.
    pub(crate) fn next_batch(self) -> (Result<()>, &'a mut UsageCounters) {
        (self.batch.commit(self.usage_counters, &self.touched), self.usage_counters)
    }

    fn put(&mut self, record: Record) -> Result<Applied> {
        let segment = record.spot().segment;
        self.usage_counters.shift(segment, Shift::Sequence(record.sequence));
        let key = format::key(record.bucket_id, &record.name);
        let old = self.batch.get(&key)?;
        if let Some(now) = &old
            && now.sequence > record.sequence
        {
            return Ok(Applied {
                doomed: self.mark_for_delete(&record, Some(now)),
                ..Applied::default()
            });
        }
        let doomed = match &old {
            Some(old) => {
                self.subtract(old);
                self.mark_for_delete(old, Some(&record))
            }
            None => Vec::new(),
        };
        self.set_resident(&key, old.as_ref(), Some(&record));
        self.add(&record);
        self.batch.put(key, &record)?;
        Ok(Applied { new: Some(record), old, doomed })
    }

    fn remove(&mut self, key: Vec<u8>, sequence: u64) -> Result<Applied> {
        let Some(old) = self.batch.get(&key)?.filter(|r| r.sequence < sequence) else {
            return Ok(Applied::default());
        };
        self.subtract(&old);
        self.set_resident(&key, Some(&old), None);
        self.batch.remove(key);
        let doomed = self.mark_for_delete(&old, None);
        Ok(Applied { new: None, old: Some(old), doomed })
    }

    fn add(&mut self, record: &Record) {
        self.touched.buckets.insert(record.bucket_id);
        self.usage_counters.add(record);
        self.live(record, record.frame_bytes() as i64);
    }

    fn subtract(&mut self, record: &Record) {
        self.touched.buckets.insert(record.bucket_id);
        self.usage_counters.subtract(record);
        self.live(record, -(record.frame_bytes() as i64));
    }

    fn live(&mut self, record: &Record, by: i64) {
        let segment = record.spot().segment;
        self.touched.segments.insert(segment);
        self.usage_counters.shift(segment, Shift::Live(by));
    }

    /// Notes files of `gone` that `kept` does not need; they are removed after the batch.
    fn mark_for_delete(&mut self, gone: &Record, kept: Option<&Record>) -> Vec<u64> {
        let needed = kept.map_or(&[][..], Record::extents);
        let ids = gone.extents().iter().filter(|e| !needed.iter().any(|n| n.id == e.id));
        let doomed: Vec<u64> = ids.map(|e| e.id).collect();
        doomed.iter().for_each(|id| self.batch.mark_for_delete(*id));
        doomed
    }

    fn set_resident(&mut self, key: &[u8], old: Option<&Record>, new: Option<&Record>) {
        let id = |r: Option<&Record>| r.filter(|r| r.evictable()).map(|r| r.generation);
        let (old, new) = (id(old), id(new));
        if old == new {
            return;
        }
        if let Some(generation) = old {
            self.batch.remove_resident(generation);
        }
        if let Some(generation) = new {
            self.batch.put_resident(generation, key);
        }
    }
}
