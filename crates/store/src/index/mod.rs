//! The index of one disk: key of an object -> its record, ordered by bucket and name.
//!
//! The log is the truth and the index a cache of it. Every batch of changes stores, atomically with
//! the changes, up to which position of the log it goes. So the index is never synced: after a
//! crash it has the state of some earlier position, and the rest of the log is applied to it again.

mod batch;
mod damage;
mod generations;
mod key_limit;
mod marks;
mod scan;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use forebay_core::Result;

pub(crate) use self::batch::{Batch, Touched};
pub(crate) use self::damage::distrusted;
pub use self::scan::Span;

use self::damage::{damaged, failed};
use self::key_limit::check_key;
use self::marks::{MARK, Marks};
use super::bucket_counts::WholeCounts;
use super::disk::Disk;
use super::format;
use super::record::Record;
use super::usage_counters::{SegmentUsage, UsageCounters};

const CACHE: u64 = 64 << 20;
const MAX_JOURNALS: u64 = 64 << 20;
const MEMTABLE: u64 = 16 << 20;
/// Marks the index as complete; absent while it is being built.
const COMPLETE: &[u8] = b"complete";
const USAGE_COUNTERS: &[u8] = b"tally";
/// Indices in [`Index::parts`].
const PARTS: usize = 6;
const RECORDS: usize = 0;
const DOOMED: usize = 1;
const RESIDENTS: usize = 2;
const STRAYS: usize = 3;
const SEGMENTS: usize = 4;
const BUCKETS: usize = 5;

/// Records of one disk.
pub(crate) struct Index {
    db: Database,
    records: Keyspace,
    /// Files that no record names any more and that may still be there.
    doomed: Keyspace,
    /// Generations that have a sidecar -> key.
    sidecars: Keyspace,
    /// Generations that may be evicted -> key, in the order of their commits.
    residents: Keyspace,
    /// Keys that another disk may hold an older copy of.
    strays: Keyspace,
    segments: Keyspace,
    /// Bucket ids -> counters of their records.
    buckets: Keyspace,
    state: Keyspace,
    marks: Mutex<Marks>,
    io: Arc<dyn Disk>,
    disk: usize,
    path: PathBuf,
    /// The store uses the index. From now on the caller does not have to handle damage.
    serving: AtomicBool,
    damaged: AtomicBool,
    /// The library marked it as poisoned, without a reason.
    poisoned: AtomicBool,
    /// It had counters of its buckets when it was opened.
    counts_buckets: bool,
}

impl Index {
    /// Opens the index in folder `path`, an empty one when there is none.
    pub(crate) fn open(path: &Path, io: Arc<dyn Disk>, disk: usize) -> Result<Self> {
        // For damage that it does not expect, the library panics in some of its parts.
        let opened = catch_unwind(AssertUnwindSafe(|| Self::open_unguarded(path, io, disk)));
        opened.unwrap_or_else(|_| Err(damaged(path, "opening it failed in an unexpected way")))
    }

    fn open_unguarded(path: &Path, io: Arc<dyn Disk>, disk: usize) -> Result<Self> {
        let broken = |e: fjall::Error| failed(path, &e);
        let db = Database::builder(path)
            .cache_size(CACHE)
            .max_journaling_size(MAX_JOURNALS)
            .worker_threads(1)
            .open()
            .map_err(broken)?;
        let options = || KeyspaceCreateOptions::default().max_memtable_size(MEMTABLE);
        let open = |name| db.keyspace(name, options).map_err(broken);
        let mut index = Self {
            records: open("records")?,
            doomed: open("doomed")?,
            sidecars: open("companions")?,
            residents: open("residents")?,
            strays: open("strays")?,
            segments: open("segments")?,
            buckets: open("buckets")?,
            state: open("state")?,
            marks: Mutex::default(),
            db,
            io,
            disk,
            path: path.to_owned(),
            serving: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            counts_buckets: false,
        };
        index.counts_buckets = index.check_marks()?;
        Ok(index)
    }

    /// Reads every record; [`forebay_core::ErrorCode::Corrupt`] where that cannot be done.
    pub(crate) fn check(&self) -> Result<()> {
        let read = || self.all().try_for_each(|record| record.map(drop));
        let checked = catch_unwind(AssertUnwindSafe(read));
        checked.unwrap_or_else(|_| Err(self.damaged("reading it failed in an unexpected way")))
    }

    /// Whether the index was built completely.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        self.state.contains_key(COMPLETE).map_err(|e| self.failed(&e))
    }

    /// Marks the index as complete. Makes the built entries durable first, because building takes
    /// long.
    pub(crate) fn set_complete(&self) -> Result<()> {
        self.step("index.complete")?;
        self.state.insert(COMPLETE, b"").map_err(|e| self.failed(&e))?;
        self.persist()
    }

    /// Makes all batches so far survive a power cut.
    pub(crate) fn persist(&self) -> Result<()> {
        self.step("index.persist")?;
        self.db.persist(PersistMode::SyncData).map_err(|e| self.failed(&e))
    }

    /// Moves the memory tables of some parts (a bit mask; the state is the last bit) to the disk.
    #[cfg(test)]
    pub(crate) fn flush(&self, parts: u8) -> Result<()> {
        for (n, part) in self.parts().into_iter().chain([&self.state]).enumerate() {
            if parts & 1 << n != 0 {
                part.rotate_memtable_and_wait().map_err(|e| self.failed(&e))?;
            }
        }
        Ok(())
    }

    /// The parts that batches change, beside the state.
    fn parts(&self) -> [&Keyspace; PARTS] {
        [&self.records, &self.doomed, &self.residents, &self.strays, &self.segments, &self.buckets]
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        check_key(key)?;
        // Damaged blocks have checksums; other damage may make the library panic.
        let value = catch_unwind(AssertUnwindSafe(|| self.records.get(key)));
        let value = value.map_err(|_| self.distrusted("a look-up failed in an unexpected way"))?;
        let value = value.map_err(|e| self.failed(&e))?;
        value.map(|v| self.decode(key, &v)).transpose()
    }

    /// The accounts as of the last batch. `None`: there are none.
    pub(crate) fn usage_counters(&self) -> Result<Option<UsageCounters>> {
        let Some(value) = self.state.get(USAGE_COUNTERS).map_err(|e| self.failed(&e))? else {
            return Ok(None);
        };
        let mut usage_counters =
            UsageCounters::decode(&value).ok_or_else(|| self.damaged("its accounts"))?;
        for guard in self.segments.iter() {
            let (id, value) = guard.into_inner().map_err(|e| self.failed(&e))?;
            if *id == *MARK {
                continue;
            }
            let segment = SegmentUsage::decode(&value).zip(number(&id));
            let (segment, id) = segment.ok_or_else(|| self.damaged("a segment's accounts"))?;
            usage_counters.adopt(id, segment);
        }
        let mut buckets = BTreeMap::new();
        for guard in self.buckets.iter() {
            let (id, value) = guard.into_inner().map_err(|e| self.failed(&e))?;
            if *id == *MARK {
                continue;
            }
            let counts = number(&id).zip(WholeCounts::decode(&value));
            buckets.extend([counts.ok_or_else(|| self.damaged("a bucket's counters"))?]);
        }
        usage_counters.set_buckets(buckets);
        Ok(Some(usage_counters))
    }

    /// Whether the index had counters of its buckets when it was opened. Those of earlier versions
    /// had none.
    pub(crate) fn counts_buckets(&self) -> bool {
        self.counts_buckets
    }

    /// Counts the records of each bucket by a scan.
    fn count_buckets(&self) -> Result<BTreeMap<u64, WholeCounts>> {
        let count = || {
            let mut buckets = BTreeMap::<u64, WholeCounts>::new();
            for record in self.all() {
                let record = record?;
                buckets.entry(record.bucket_id).or_default().add(&record);
            }
            Ok(buckets)
        };
        let counted = catch_unwind(AssertUnwindSafe(count));
        counted.unwrap_or_else(|_| Err(self.damaged("reading it failed in an unexpected way")))
    }

    /// Makes the index look like one of an earlier version, without counters of its buckets.
    #[cfg(test)]
    pub(crate) fn forget_buckets(&self) -> Result<()> {
        let mut batch = self.db.batch();
        for guard in self.buckets.iter() {
            let key = guard.key().map_err(|e| self.failed(&e))?;
            batch.remove(&self.buckets, key);
        }
        let mut marks = self.marks().encode();
        marks.truncate(marks.len() - 8);
        batch.insert(&self.state, self::marks::MARKS, marks);
        batch.commit().map_err(|e| self.failed(&e))
    }

    /// Cuts the counters of one bucket short.
    #[cfg(test)]
    pub(crate) fn damage_buckets(&self) -> Result<()> {
        self.buckets.insert(1u64.to_be_bytes(), b"short").map_err(|e| self.failed(&e))
    }

    /// Files to be removed.
    pub(crate) fn doomed(&self) -> Result<Vec<u64>> {
        self.numbers(&self.doomed)
    }

    /// Keys that another disk may hold an older copy of. If the newest known record of the key was
    /// removed, also its sequence.
    pub(crate) fn strays(&self) -> Result<Vec<(Vec<u8>, Option<u64>)>> {
        let mut out = Vec::new();
        for guard in self.strays.iter() {
            let (key, value) = guard.into_inner().map_err(|e| self.failed(&e))?;
            if *key != *MARK {
                out.push((key.to_vec(), number(&value)));
            }
        }
        Ok(out)
    }

    /// The entry of one key in [`Self::strays`], if there is one.
    pub(crate) fn misplaced(&self, key: &[u8]) -> Result<Option<Option<u64>>> {
        check_key(key)?;
        let value = self.strays.get(key).map_err(|e| self.failed(&e))?;
        Ok(value.map(|v| number(&v)))
    }

    pub(crate) fn decode(&self, key: &[u8], value: &[u8]) -> Result<Record> {
        format::decode_value(key, value, self.disk).map_err(|e| self.distrusted(&e.message))
    }

    /// Decodes the fields of an entry that a listing of sizes needs.
    pub(crate) fn glance(&self, value: &[u8]) -> Result<format::Glance> {
        format::glance_value(value).map_err(|e| self.distrusted(&e.message))
    }

    fn numbers(&self, keyspace: &Keyspace) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        for guard in keyspace.iter() {
            let key = guard.key().map_err(|e| self.failed(&e))?;
            out.extend(number(&key));
        }
        Ok(out)
    }

    fn step(&self, what: &'static str) -> Result<()> {
        self.io.step(what).map_err(|e| self.failed(&fjall::Error::Io(e)))
    }
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}
