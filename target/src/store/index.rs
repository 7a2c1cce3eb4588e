//! The index of one disk: key of an object -> its record, ordered by bucket and name.
//!
//! The files are the truth and the index can be made again from them (`rebuild`). *Marks* name
//! files about to appear or to go: whoever changes a file marks it first, so that after a crash
//! only marked files need a look.

use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use forebay_core::{Error, ErrorCode, Result};

use super::disk::Disk;
use super::format;
use super::record::{Record, RecordMeta};

const CACHE: u64 = 64 << 20;
const MAX_JOURNALS: u64 = 128 << 20;
/// Says that the index is whole; absent while it is being built.
const COMPLETE: &[u8] = b"complete";

/// Records of one disk.
pub(crate) struct Index {
    db: Database,
    records: Keyspace,
    marks: Keyspace,
    state: Keyspace,
    io: Arc<dyn Disk>,
    disk: usize,
    path: PathBuf,
    /// Makes reading an entry and then changing it one step.
    changes: Mutex<()>,
    /// Changes made, and how many of them are known to be on the disk.
    made: AtomicU64,
    synced: Mutex<u64>,
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

impl Index {
    /// Opens the index in folder `path`, an empty one when there is none.
    pub(crate) fn open(path: &Path, io: Arc<dyn Disk>, disk: usize) -> Result<Self> {
        let broken = |e: fjall::Error| failed(path, &e);
        let db = Database::builder(path)
            .cache_size(CACHE)
            .max_journaling_size(MAX_JOURNALS)
            .worker_threads(1)
            .open()
            .map_err(broken)?;
        let open = |name| db.keyspace(name, KeyspaceCreateOptions::default).map_err(broken);
        let (records, marks, state) = (open("records")?, open("marks")?, open("state")?);
        Ok(Self {
            db,
            records,
            marks,
            state,
            io,
            disk,
            path: path.to_owned(),
            changes: Mutex::new(()),
            made: AtomicU64::new(0),
            synced: Mutex::new(0),
        })
    }

    /// Whether the index was built to its end.
    pub(crate) fn is_complete(&self) -> Result<bool> {
        self.state.contains_key(COMPLETE).map_err(|e| self.failed(&e))
    }

    pub(crate) fn set_complete(&self) -> Result<()> {
        self.step("index.complete")?;
        self.state.insert(COMPLETE, b"").map_err(|e| self.failed(&e))?;
        self.persist()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Record>> {
        let value = self.records.get(key).map_err(|e| self.failed(&e))?;
        value.map(|v| format::decode_value(key, &v, self.disk)).transpose()
    }

    /// Notes that the file `generation` of `key` is about to appear or to go.
    pub(crate) fn mark(&self, generation: u64, key: &[u8]) -> Result<()> {
        self.step("index.mark")?;
        self.marks.insert(generation.to_be_bytes(), key).map_err(|e| self.failed(&e))
    }

    pub(crate) fn unmark(&self, generation: u64) -> Result<()> {
        self.step("index.unmark")?;
        self.marks.remove(generation.to_be_bytes()).map_err(|e| self.failed(&e))
    }

    pub(crate) fn is_marked(&self, generation: u64) -> Result<bool> {
        self.marks.contains_key(generation.to_be_bytes()).map_err(|e| self.failed(&e))
    }

    /// All marks: generation and key.
    pub(crate) fn marks(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        let mut out = Vec::new();
        for guard in self.marks.iter() {
            let (id, key) = guard.into_inner().map_err(|e| self.failed(&e))?;
            if let Some((id, [])) = id.split_first_chunk::<8>() {
                out.push((u64::from_be_bytes(*id), key.to_vec()));
            }
        }
        Ok(out)
    }

    /// Makes `record` the object's entry; marks the file of the one before, which is returned.
    pub(crate) fn publish(&self, record: &Record) -> Result<Option<Record>> {
        let key = format::key(record.bucket_id, &record.name);
        let value = format::encode_value(record)?;
        let _changing = self.lock();
        let old = self.get(&key)?;
        self.step("index.publish")?;
        let mut batch = self.db.batch();
        batch.insert(&self.records, key.as_slice(), value);
        batch.remove(&self.marks, record.generation.to_be_bytes());
        if let Some(old) = &old {
            batch.insert(&self.marks, old.generation.to_be_bytes(), key);
        }
        batch.commit().map_err(|e| self.failed(&e))?;
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(old)
    }

    /// Puts an entry in, without looking at what is there.
    pub(crate) fn insert(&self, record: &Record) -> Result<()> {
        let key = format::key(record.bucket_id, &record.name);
        let value = format::encode_value(record)?;
        self.step("index.insert")?;
        self.records.insert(key, value).map_err(|e| self.failed(&e))
    }

    /// Changes the metadata of `record`'s entry. `None`: the entry is of another commit by now.
    pub(crate) fn change(
        &self,
        record: &Record,
        f: impl FnOnce(&mut RecordMeta),
    ) -> Result<Option<Record>> {
        let key = format::key(record.bucket_id, &record.name);
        let _changing = self.lock();
        let Some(mut now) = self.get(&key)?.filter(|r| r.generation == record.generation) else {
            return Ok(None);
        };
        f(&mut now.meta);
        let value = format::encode_value(&now)?;
        self.step("index.change")?;
        self.records.insert(key, value).map_err(|e| self.failed(&e))?;
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(Some(now))
    }

    /// Moves the time of access of an entry, if it still is of commit `generation`.
    pub(crate) fn set_atime(&self, key: &[u8], generation: u64, atime_ns: u64) -> Result<()> {
        let _changing = self.lock();
        let Some(mut now) = self.get(key)?.filter(|r| r.generation == generation) else {
            return Ok(());
        };
        now.meta.atime_ns = now.meta.atime_ns.max(atime_ns);
        let value = format::encode_value(&now)?;
        self.step("index.atime")?;
        self.records.insert(key, value).map_err(|e| self.failed(&e))?;
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    /// Removes the entry of `key` if it still is of commit `generation`, and the mark in any case.
    pub(crate) fn erase(&self, key: &[u8], generation: u64) -> Result<Option<Record>> {
        let _changing = self.lock();
        let now = self.get(key)?.filter(|r| r.generation == generation);
        self.step("index.erase")?;
        let mut batch = self.db.batch();
        if now.is_some() {
            batch.remove(&self.records, key);
        }
        batch.remove(&self.marks, generation.to_be_bytes());
        batch.commit().map_err(|e| self.failed(&e))?;
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(now)
    }

    /// Visits the records of a span in the order of names.
    pub(crate) fn scan(&self, span: &Span) -> impl Iterator<Item = Result<Record>> + '_ {
        let first = format::key(span.bucket_id, &span.prefix);
        let start = match &span.after {
            Some(after) if format::key(span.bucket_id, after) >= first => {
                Bound::Excluded(format::key(span.bucket_id, after))
            }
            _ => Bound::Included(first.clone()),
        };
        let last = span.until.as_ref().map(|until| format::key(span.bucket_id, until));
        self.entries(start)
            .take_while(move |entry| match entry {
                Ok((key, _)) => {
                    key.starts_with(&first) && last.as_ref().is_none_or(|last| key <= last)
                }
                Err(_) => true,
            })
            .map(|entry| {
                let (key, value) = entry?;
                format::decode_value(&key, &value, self.disk)
            })
    }

    /// Visits every record of the disk.
    pub(crate) fn all(&self) -> impl Iterator<Item = Result<Record>> + '_ {
        self.entries(Bound::Unbounded).map(|entry| {
            let (key, value) = entry?;
            format::decode_value(&key, &value, self.disk)
        })
    }

    /// Ids of all buckets that have an object here.
    pub(crate) fn buckets(&self) -> Result<Vec<u64>> {
        let mut out = Vec::new();
        let mut start = Bound::Unbounded;
        while let Some(entry) = self.entries(start).next() {
            let (key, _) = entry?;
            let (id, _) = format::parse_key(&key)?;
            out.push(id);
            match id.checked_add(1) {
                Some(next) => start = Bound::Included(format::key(next, "")),
                None => break,
            }
        }
        Ok(out)
    }

    fn entries(
        &self,
        start: Bound<Vec<u8>>,
    ) -> impl Iterator<Item = Result<(Vec<u8>, Vec<u8>)>> + '_ {
        self.records.range::<Vec<u8>, _>((start, Bound::Unbounded)).map(|guard| {
            let (key, value) = guard.into_inner().map_err(|e| self.failed(&e))?;
            Ok((key.to_vec(), value.to_vec()))
        })
    }

    /// Returns when every change made so far survives a power cut; callers at once share a sync.
    pub(crate) fn persist(&self) -> Result<()> {
        let mine = self.made.load(Ordering::SeqCst);
        let mut synced = self.synced.lock().unwrap_or_else(|e| e.into_inner());
        if *synced >= mine && mine > 0 {
            return Ok(());
        }
        let covered = self.made.load(Ordering::SeqCst);
        self.step("index.persist")?;
        self.db.persist(PersistMode::SyncData).map_err(|e| self.failed(&e))?;
        *synced = covered;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn step(&self, what: &'static str) -> Result<()> {
        self.io.step(what).map_err(|e| self.failed(&fjall::Error::Io(e)))
    }

    fn failed(&self, e: &fjall::Error) -> Error {
        failed(&self.path, e)
    }
}

fn failed(path: &Path, e: &fjall::Error) -> Error {
    let at = path.display();
    match e {
        fjall::Error::Io(io) if io.kind() == io::ErrorKind::StorageFull => {
            Error::from(io::Error::from(io::ErrorKind::StorageFull))
        }
        fjall::Error::Io(io) | fjall::Error::Storage(fjall::LsmError::Io(io)) => {
            Error::internal(format!("index {at}: {io}"))
        }
        fjall::Error::Locked => Error::internal(format!("index {at} is open elsewhere")),
        fjall::Error::Poisoned => Error::internal(format!("index {at}: an earlier write failed"))
            .hint("look at the disk, then restart the target"),
        other => Error::new(ErrorCode::Corrupt, format!("index {at} is damaged: {other:?}")),
    }
}
