//! The index of one disk: key of an object -> its record, ordered by bucket and name.
//!
//! The log is the truth and the index a cache of it. Every batch of changes stores, atomically with
//! the changes, up to which position of the log it goes. So the index is never synced: after a
//! crash it has the state of some earlier position, and the rest of the log is applied to it again.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, OwnedWriteBatch, PersistMode};
use forebay_core::error::is_out_of_descriptors;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result};

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
/// In the state: the last batch that changed each part. In each part: the last batch that it has.
const MARKS: &[u8] = b"marks";
/// No other key is that short.
const MARK: &[u8] = b"\xff";
/// Longest key in bytes: the library panics on longer ones, in look-ups and scans too.
const MAX_KEY_BYTES: usize = u16::MAX as usize;
/// Indices in [`Index::parts`].
const PARTS: usize = 5;
const RECORDS: usize = 0;
const DOOMED: usize = 1;
const RESIDENTS: usize = 2;
const STRAYS: usize = 3;
const SEGMENTS: usize = 4;

/// Records of one disk.
pub(crate) struct Index {
    db: Database,
    records: Keyspace,
    /// Files that no record names any more and that may still be there.
    doomed: Keyspace,
    /// Generations that have a sidecar -> key.
    companions: Keyspace,
    /// Generations that may be evicted -> key, in the order of their commits.
    residents: Keyspace,
    /// Keys that another disk may hold an older copy of.
    strays: Keyspace,
    segments: Keyspace,
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
}

/// Numbers of batches.
#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    last: u64,
    /// The last batch that changed each part.
    of: [u64; PARTS],
}

impl Marks {
    fn encode(&self) -> Vec<u8> {
        std::iter::once(self.last).chain(self.of).flat_map(u64::to_be_bytes).collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut numbers = bytes.chunks(8).map(number);
        let last = numbers.next()??;
        let mut of = [0; PARTS];
        for slot in &mut of {
            *slot = numbers.next()??;
        }
        numbers.next().is_none().then_some(Self { last, of })
    }
}

/// Which names of a bucket a scan visits.
#[derive(Clone, Debug, Default)]
pub(crate) struct Span {
    pub(crate) bucket_id: u64,
    pub(crate) prefix: String,
    /// Names strictly greater than this.
    pub(crate) after: Option<String>,
    /// Names not greater than this.
    pub(crate) until: Option<String>,
}

impl Span {
    pub(crate) fn new(
        bucket_id: u64,
        prefix: &str,
        after: Option<&str>,
        until: Option<&str>,
    ) -> Self {
        Self {
            bucket_id,
            prefix: prefix.to_owned(),
            after: after.map(str::to_owned),
            until: until.map(str::to_owned),
        }
    }
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
        let index = Self {
            records: open("records")?,
            doomed: open("doomed")?,
            companions: open("companions")?,
            residents: open("residents")?,
            strays: open("strays")?,
            segments: open("segments")?,
            state: open("state")?,
            marks: Mutex::default(),
            db,
            io,
            disk,
            path: path.to_owned(),
            serving: AtomicBool::new(false),
            damaged: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
        };
        index.check_marks()?;
        Ok(index)
    }

    /// From now on damage is an outage: the index is rebuilt, and calls meanwhile fail with an
    /// error that allows a retry.
    pub(crate) fn serve(&self) {
        self.serving.store(true, Ordering::Relaxed);
    }

    /// Whether damage was found since the index was opened.
    pub(crate) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// Whether the library marked it as poisoned: its files may be damaged in places not read yet.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Relaxed)
    }

    /// Reads every record; [`ErrorCode::Corrupt`] where that cannot be done.
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

    /// Whether every part of the index has all that was written to it. Each part recovers by
    /// itself, and a damaged journal may leave one behind the others.
    fn check_marks(&self) -> Result<()> {
        let marks = self.state.get(MARKS).map_err(|e| self.failed(&e))?;
        let marks = match marks {
            Some(bytes) => Marks::decode(&bytes).ok_or_else(|| self.damaged("its marks"))?,
            None => Marks::default(),
        };
        for (part, expected) in self.parts().into_iter().zip(marks.of) {
            let mark = part.get(MARK).map_err(|e| self.failed(&e))?;
            let found = mark.map_or(Some(0), |bytes| number(&bytes));
            if found != Some(expected) {
                return Err(self.damaged("its parts are of different times"));
            }
        }
        *self.marks() = marks;
        Ok(())
    }

    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.locked()
    }

    /// The parts that batches change, beside the state.
    fn parts(&self) -> [&Keyspace; PARTS] {
        [&self.records, &self.doomed, &self.residents, &self.strays, &self.segments]
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
        Ok(Some(usage_counters))
    }

    /// Begins a batch of changes.
    pub(crate) fn batch(&self) -> Batch<'_> {
        let touched = [false; PARTS];
        Batch { index: self, inner: self.db.batch(), touched, seen: HashMap::new() }
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

    /// At most `limit` records in the order of keys, those after `after`.
    pub(crate) fn page(&self, after: Option<Vec<u8>>, limit: usize) -> Result<Vec<Record>> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        let page = self.entries(start).take(limit).map(|entry| {
            let (key, value) = entry?;
            self.decode(&key, &value)
        });
        page.collect()
    }

    /// Key of the object that this generation's sidecar belongs to.
    pub(crate) fn sidecar(&self, generation: u64) -> Result<Option<Vec<u8>>> {
        self.key_in(&self.companions, generation)
    }

    /// Records that a sidecar is kept for this generation, or is removed.
    pub(crate) fn set_sidecar(&self, generation: u64, key: Option<&[u8]>) -> Result<()> {
        self.step("index.companion")?;
        let id = generation.to_be_bytes();
        match key {
            Some(key) => self.companions.insert(id, key),
            None => self.companions.remove(id),
        }
        .map_err(|e| self.failed(&e))
    }

    /// Key of an object that may be evicted.
    pub(crate) fn resident(&self, generation: u64) -> Result<Option<Vec<u8>>> {
        self.key_in(&self.residents, generation)
    }

    /// At most `limit` objects that may be evicted, committed after `after`, the oldest first.
    pub(crate) fn residents(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>> {
        let from = (Bound::Excluded(after.to_be_bytes()), Bound::Unbounded);
        let mut out = Vec::new();
        for guard in self.residents.range::<[u8; 8], _>(from).take(limit) {
            let (id, key) = guard.into_inner().map_err(|e| self.failed(&e))?;
            out.extend(number(&id).map(|id| (id, key.to_vec())));
        }
        Ok(out)
    }

    fn key_in(&self, keyspace: &Keyspace, generation: u64) -> Result<Option<Vec<u8>>> {
        let key = keyspace.get(generation.to_be_bytes()).map_err(|e| self.failed(&e))?;
        Ok(key.map(|k| k.to_vec()))
    }

    fn numbers(&self, keyspace: &Keyspace) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        for guard in keyspace.iter() {
            let key = guard.key().map_err(|e| self.failed(&e))?;
            out.extend(number(&key));
        }
        Ok(out)
    }

    /// Visits the records of a span in the order of names.
    pub(crate) fn scan(&self, span: &Span) -> impl Iterator<Item = Result<Record>> + '_ {
        self.span(span).map(|entry| {
            let (key, value) = entry?;
            self.decode(&key, &value)
        })
    }

    /// Visits the entries of a span in the order of names, not decoded.
    pub(crate) fn span(
        &self,
        span: &Span,
    ) -> impl Iterator<Item = Result<(fjall::Slice, fjall::Slice)>> + '_ {
        let first = format::key(span.bucket_id, &span.prefix);
        // No key begins with a prefix that is longer than a key may be, and no key follows it.
        let too_long = check_key(&first).err();
        let start = match &span.after {
            Some(after) if format::key(span.bucket_id, after) >= first => {
                Bound::Excluded(format::key(span.bucket_id, after))
            }
            _ => Bound::Included(first.clone()),
        };
        let last = span.until.as_ref().map(|until| format::key(span.bucket_id, until));
        let entries = too_long.is_none().then(|| self.entries(start)).into_iter().flatten();
        too_long.map(Err).into_iter().chain(entries).take_while(move |entry| match entry {
            Ok((key, _)) => {
                key.starts_with(&first) && last.as_ref().is_none_or(|last| key[..] <= last[..])
            }
            Err(_) => true,
        })
    }

    /// Visits every record of the disk.
    pub(crate) fn all(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.entries(Bound::Unbounded).map(|entry| {
            let (key, value) = entry?;
            self.decode(&key, &value)
        })
    }

    /// Ids of all buckets that have an object here.
    pub(crate) fn buckets(&self) -> Result<Vec<u64>> {
        let mut out = BTreeSet::new();
        let mut start = Bound::Unbounded;
        while let Some(entry) = self.entries(start).next() {
            let (key, _) = entry?;
            let (id, _) = format::parse_key(&key)?;
            out.insert(id);
            match id.checked_add(1) {
                Some(next) => start = Bound::Included(format::key(next, "")),
                None => break,
            }
        }
        Ok(out.into_iter().collect())
    }

    fn entries(
        &self,
        start: Bound<Vec<u8>>,
    ) -> impl Iterator<Item = Result<(fjall::Slice, fjall::Slice)>> + '_ {
        let start = within_key_limit(start);
        self.records
            .range::<Vec<u8>, _>((start, Bound::Unbounded))
            .map(|guard| guard.into_inner().map_err(|e| self.failed(&e)))
            .filter(|entry| !matches!(entry, Ok((key, _)) if **key == *MARK))
    }

    pub(crate) fn decode(&self, key: &[u8], value: &[u8]) -> Result<Record> {
        format::decode_value(key, value, self.disk).map_err(|e| self.distrusted(&e.message))
    }

    /// Decodes the fields of an entry that a listing of sizes needs.
    pub(crate) fn glance(&self, value: &[u8]) -> Result<format::Glance> {
        format::glance_value(value).map_err(|e| self.distrusted(&e.message))
    }

    fn step(&self, what: &'static str) -> Result<()> {
        self.io.step(what).map_err(|e| self.failed(&fjall::Error::Io(e)))
    }

    fn damaged(&self, what: &str) -> Error {
        damaged(&self.path, what)
    }

    /// Converts an error of the library. Damage is recorded, so that the index is rebuilt when it
    /// is opened.
    fn failed(&self, e: &fjall::Error) -> Error {
        if matches!(e, fjall::Error::Poisoned) {
            self.poisoned.store(true, Ordering::Relaxed);
        }
        let error = failed(&self.path, e);
        if error.code == ErrorCode::Corrupt { self.distrust(error) } else { error }
    }

    fn distrusted(&self, what: &str) -> Error {
        self.distrust(self.damaged(what))
    }

    fn distrust(&self, error: Error) -> Error {
        if !self.damaged.swap(true, Ordering::Relaxed) {
            tracing::error!("{error}; it is to be made again from the log");
            let note = distrusted(&self.path);
            match self.io.create(&note) {
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => tracing::error!(path = %note.display(), "not written: {e}"),
            }
        }
        if !self.serving.load(Ordering::Relaxed) {
            return error;
        }
        // Not "corrupt": the object itself is sound and must not be dropped.
        Error::unavailable(format!("{}; it is made again just now", error.message))
    }
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

    /// Ends the batch with the accounts that belong to it. Of the segments in `touched`, those in
    /// the accounts are written and the others removed.
    pub(crate) fn commit(
        mut self,
        usage_counters: &UsageCounters,
        touched: &BTreeSet<u64>,
    ) -> Result<()> {
        self.inner.insert(&self.index.state, USAGE_COUNTERS, usage_counters.encode());
        for id in touched {
            match usage_counters.segments.get(id) {
                Some(s) => {
                    self.inner.insert(&self.index.segments, id.to_be_bytes(), s.encode());
                }
                None => self.inner.remove(&self.index.segments, id.to_be_bytes()),
            }
        }
        self.touched[SEGMENTS] |= !touched.is_empty();
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

/// Rejects a key that the library cannot hold, before the library panics on it.
fn check_key(key: &[u8]) -> Result<()> {
    if key.len() <= MAX_KEY_BYTES {
        return Ok(());
    }
    let text = format!("a key of {} bytes: an index takes at most {MAX_KEY_BYTES}", key.len());
    Err(Error::new(ErrorCode::InvalidName, text))
}

/// The same position among the possible keys: a bound longer than [`MAX_KEY_BYTES`] is followed by
/// the keys that are greater than its first bytes that the library takes.
fn within_key_limit(start: Bound<Vec<u8>>) -> Bound<Vec<u8>> {
    match start {
        Bound::Included(mut key) | Bound::Excluded(mut key) if key.len() > MAX_KEY_BYTES => {
            key.truncate(MAX_KEY_BYTES);
            Bound::Excluded(key)
        }
        start => start,
    }
}

/// Path of the file beside an index that marks it as damaged.
pub(crate) fn distrusted(index: &Path) -> PathBuf {
    index.with_extension("damaged")
}

fn damaged(path: &Path, what: &str) -> Error {
    let at = path.display();
    Error::new(ErrorCode::Corrupt, format!("index {at} is damaged: {what}"))
}

fn number(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_be_bytes)
}

fn failed(path: &Path, e: &fjall::Error) -> Error {
    let at = path.display();
    match e {
        fjall::Error::Io(io) if io.kind() == io::ErrorKind::StorageFull => {
            Error::from(io::Error::from(io::ErrorKind::StorageFull))
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io))
            if is_out_of_descriptors(io) =>
        {
            Error::out_of_descriptors(io)
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io))
            if matches!(
                io.kind(),
                io::ErrorKind::UnexpectedEof
                    | io::ErrorKind::InvalidData
                    | io::ErrorKind::InvalidInput
                    | io::ErrorKind::NotFound
            ) =>
        {
            damaged(path, &io.to_string())
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            Error::internal(format!("index {at}: {io}"))
        }
        fjall::Error::Locked => Error::internal(format!("index {at} is open elsewhere")),
        fjall::Error::Poisoned => Error::internal(format!("index {at}: an earlier write failed"))
            .hint("look at the disk, then restart the target"),
        other => damaged(path, &format!("{other:?}")),
    }
}
