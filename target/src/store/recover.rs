//! Brings the index of a disk up to date with its log when the disk is opened, and rebuilds it from
//! the log where it is missing or not trusted.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Error, ErrorCode, Result};

use super::apply::Applier;
use super::disk::{Disk, DiskFile};
use super::format::{self, FOOTER, MAX_RECORD};
use super::identity::failed;
use super::index::{Index, distrusted};
use super::log::{Entry, Found, Item, Log, Position};
use super::record::Record;
use super::shared::{Shared, object_path, work_path};
use super::usage_counters::UsageCounters;

/// Records that reach the index in one batch.
const BATCH: usize = 1000;
/// Nearly every record with its footer fits into the last bytes of this number.
const SHORT_TAIL: u64 = 4096;
/// Any record, with a torn one behind it, fits into these.
const LONG_TAIL: u64 = 2 * (MAX_RECORD + FOOTER) as u64;
/// If more keys than this are replayed, all of the disk counts as replayed.
const MANY_KEYS: usize = 100_000;

/// An index that is up to date with the log.
pub(crate) struct Recovered {
    pub(crate) index: Index,
    pub(crate) usage_counters: UsageCounters,
    pub(crate) replayed: Replayed,
}

/// Keys that the index learned from the log just now.
pub(crate) enum Replayed {
    Keys(Vec<Vec<u8>>),
    All,
}

/// The parts of a disk that is being opened.
pub(crate) struct Site<'a> {
    pub(crate) io: Arc<dyn Disk>,
    pub(crate) root: &'a Path,
    pub(crate) log: &'a Log,
    pub(crate) number: usize,
    /// Rebuild the index in any case.
    pub(crate) rebuild: bool,
    /// Read the whole index before it is trusted.
    pub(crate) check: bool,
    /// The disk was written by a version without a log: its files are the truth.
    pub(crate) files_are_truth: bool,
}

impl Site<'_> {
    /// Opens the index and applies the missing records of the log.
    pub(crate) fn recover(&self) -> Result<Recovered> {
        let path = self.root.join(".forebay").join("index");
        let note = distrusted(&path);
        let noted = self.io.open(&note).is_ok();
        if !self.rebuild && !self.files_are_truth && !noted {
            // Some damage ends the process within the library: the next start must rebuild the
            // index.
            if let Err(e) = self.io.create(&note) {
                tracing::warn!(path = %note.display(), "not written: {e}");
            }
            let index = Index::open(&path, self.io.clone(), self.number);
            let checked =
                |index: Index| if self.check { index.check().map(|()| index) } else { Ok(index) };
            let index = index.and_then(checked);
            self.clear(&note)?;
            match index.and_then(complete).and_then(|index| self.try_catch_up(index)) {
                Ok(Some(recovered)) => return Ok(recovered),
                Ok(None) => {}
                Err(e) if e.code == ErrorCode::Corrupt => {
                    tracing::warn!("{e}; it is made again from the log");
                }
                Err(e) => return Err(e.hint("start with --rebuild-index if the disk is sound")),
            }
        }
        self.io.remove_tree(&path).map_err(failed("remove", &path))?;
        let index = Index::open(&path, self.io.clone(), self.number)?;
        let recovered = self.rebuild(index)?;
        self.clear(&note)?;
        Ok(recovered)
    }

    fn clear(&self, note: &Path) -> Result<()> {
        match self.io.unlink(note) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(failed("remove", note)),
        }
    }

    fn try_catch_up(&self, index: Option<(Index, UsageCounters)>) -> Result<Option<Recovered>> {
        let Some((index, usage_counters)) = index else { return Ok(None) };
        if !self.has_all_of(&usage_counters) {
            let disk = self.root.display();
            tracing::warn!(%disk, "the log is shorter than its index says: index made again");
            return Ok(None);
        }
        self.catch_up(index, usage_counters).map(Some)
    }

    /// Segments with their lengths. Those set aside are included: they may be readable the next
    /// time, and an index with their records must not return older values instead.
    fn there(&self) -> HashMap<u64, u64> {
        let aside = self.log.damaged().into_iter().map(|(segment, _)| (segment, u64::MAX));
        aside.chain(self.log.segments()).collect()
    }

    /// Whether the log has everything that the index refers to.
    fn has_all_of(&self, usage_counters: &UsageCounters) -> bool {
        let there = self.there();
        let needed = |id: &u64| usage_counters.segments.get(id).is_some_and(|s| s.live > 0);
        let lost =
            usage_counters.segments.keys().filter(|id| needed(id) && !there.contains_key(id));
        let at = usage_counters.position;
        let is_short = there.get(&at.segment).is_some_and(|len| *len < at.offset);
        lost.count() == 0 && !is_short
    }

    fn catch_up(&self, index: Index, mut usage_counters: UsageCounters) -> Result<Recovered> {
        let on_disk: HashSet<u64> = self.log.segments().into_iter().map(|(id, _)| id).collect();
        let there = self.there();
        let lost: Vec<u64> =
            usage_counters.segments.keys().copied().filter(|id| !there.contains_key(id)).collect();
        if !lost.is_empty() {
            let mut applier = Applier::new(&index, &mut usage_counters);
            lost.into_iter().for_each(|segment| applier.forget_segment(segment));
            applier.commit()?;
        }
        for id in on_disk.into_iter().filter(|id| *id < usage_counters.position.segment) {
            match usage_counters.segments.get(&id) {
                // A power cut took the frames that ended the segment.
                Some(s) => self.log.cut(id, s.len)?,
                // Released by compaction before a crash.
                None => drop(self.log.remove(id, false)?),
            }
        }
        let from = usage_counters.position;
        let mut keys = Vec::new();
        let replay = self.replay(&index, &mut usage_counters, from, true, |key| {
            if keys.len() <= MANY_KEYS {
                keys.push(key);
            }
        })?;
        if replay.records > 0 {
            let disk = self.root.display();
            tracing::info!(%disk, records = replay.records, "replayed the end of the log");
        }
        let replayed = if keys.len() > MANY_KEYS { Replayed::All } else { Replayed::Keys(keys) };
        Ok(Recovered { index, usage_counters, replayed })
    }

    fn rebuild(&self, index: Index) -> Result<Recovered> {
        let mut usage_counters = UsageCounters::default();
        // An unreadable segment may be readable the next time, and removals may hide objects in it:
        // it counts as live.
        let mut applier = Applier::new(&index, &mut usage_counters);
        for (segment, _) in self.log.damaged() {
            applier.keep_segment(segment);
        }
        applier.commit()?;
        let replay =
            self.replay(&index, &mut usage_counters, Position::default(), false, |_| ())?;
        let adopted = self.sweep_files(&index, &mut usage_counters)?;
        self.relearn_companions(&index)?;
        index.set_complete()?;
        if replay.records + adopted > 0 {
            tracing::info!(
                disk = %self.root.display(),
                records = replay.records,
                damaged = replay.damaged,
                adopted,
                "index made again"
            );
        }
        Ok(Recovered { index, usage_counters, replayed: Replayed::All })
    }

    fn replay(
        &self,
        index: &Index,
        usage_counters: &mut UsageCounters,
        from: Position,
        check_payload: bool,
        mut note: impl FnMut(Vec<u8>),
    ) -> Result<Replay> {
        let mut replay = Replay::default();
        let mut applier = Applier::new(index, usage_counters);
        let mut pending = 0;
        // A preallocated segment without frames ends at its header.
        let mut ends = self.log.segments_with_room(from.segment);
        ends.insert(from.segment, from.offset);
        for found in self.log.scan(from, check_payload) {
            let found = found?;
            let (Found::Damaged { at, len } | Found::Entry { at, len, .. }) = &found;
            ends.insert(at.segment, at.offset + len);
            match found {
                Found::Damaged { at, len } => {
                    applier.pass(at, len);
                    replay.damaged += 1;
                }
                // Never synced, and a crash took a part of it: counts as not written.
                Found::Entry { at, len, payload_sound: Some(false), .. } => {
                    self.log.wipe(at)?;
                    applier.pass(at, len);
                }
                Found::Entry { at, len, entry, .. } => {
                    if let Entry::Put(record) = &entry {
                        note(format::key(record.bucket_id, &record.name));
                    }
                    let applied = applier.apply(at, len, with_disk(entry, self.number))?;
                    // A batch has its position with it; only damage separates them.
                    let known = |new: &Record, old: &Record| {
                        (new.sequence, new.spot()) == (old.sequence, old.spot())
                    };
                    if let (Some(new), Some(old)) = (&applied.new, &applied.old)
                        && check_payload
                        && known(new, old)
                    {
                        let what = "the index is damaged: it is ahead of its own position";
                        return Err(Error::new(ErrorCode::Corrupt, what));
                    }
                    replay.records += 1;
                }
            }
            pending += 1;
            if pending == BATCH {
                let (batch, usage_counters) = applier.next_batch();
                batch?;
                applier = Applier::new(index, usage_counters);
                pending = 0;
            }
        }
        applier.commit()?;
        ends.into_iter().try_for_each(|(segment, end)| self.log.cut(segment, end))?;
        Ok(replay)
    }

    /// Processes files under `objects/` that no record names. Those that are sound and newer than
    /// the log's records of their keys become objects again, the others are removed. On a sound
    /// disk there are none. They are the objects of a disk whose log lost records or never existed.
    fn sweep_files(&self, index: &Index, usage_counters: &mut UsageCounters) -> Result<u64> {
        let mut named = HashSet::new();
        for record in index.all() {
            named.extend(record?.extents().iter().map(|e| e.id));
        }
        let mut newest: HashMap<Vec<u8>, Record> = HashMap::new();
        for id in self.object_files()? {
            if named.contains(&id) {
                continue;
            }
            let path = object_path(self.root, id);
            match inspect(&*self.io, &path, id)? {
                Finding::Object(record) => {
                    let key = format::key(record.bucket_id, &record.name);
                    let known = index.get(&key)?.map_or(0, |r| r.sequence);
                    let best = newest.get(&key).map_or(known, |r| r.sequence.max(known));
                    if record.sequence > best {
                        newest.insert(key, *record);
                    }
                }
                Finding::Torn => {}
                Finding::Damaged(e) if e.code == ErrorCode::Unsupported => return Err(e),
                Finding::Damaged(e) => self.set_aside(&path, &e)?,
            }
        }
        self.drop_removed(&mut newest)?;
        let kept: HashSet<u64> =
            newest.values().flat_map(|r| r.extents().iter().map(|e| e.id)).collect();
        let adopted = self.adopt(index, usage_counters, newest.into_values().collect())?;
        // Only now: after a crash before this point they are all found again.
        for id in self.object_files()? {
            if !named.contains(&id) && !kept.contains(&id) {
                let path = object_path(self.root, id);
                self.io.unlink(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(adopted)
    }

    /// Drops candidates that were removed or replaced since, according to the log.
    fn drop_removed(&self, candidates: &mut HashMap<Vec<u8>, Record>) -> Result<()> {
        if candidates.is_empty() {
            return Ok(());
        }
        for found in self.log.scan(Position::default(), false) {
            let Found::Entry { entry, payload_sound: None | Some(true), .. } = found? else {
                continue;
            };
            let (key, sequence) = match &entry {
                Entry::Put(r) => (format::key(r.bucket_id, &r.name), r.sequence),
                Entry::Remove { bucket_id, name, sequence } => {
                    (format::key(*bucket_id, name), *sequence)
                }
            };
            if candidates.get(&key).is_some_and(|c| c.sequence < sequence) {
                candidates.remove(&key);
            }
        }
        Ok(())
    }

    /// Writes records of files into the log.
    fn adopt(
        &self,
        index: &Index,
        usage_counters: &mut UsageCounters,
        mut records: Vec<Record>,
    ) -> Result<u64> {
        records.sort_by_key(|r| r.sequence);
        for chunk in records.chunks(BATCH) {
            let items: Vec<Item> = chunk
                .iter()
                .map(|r| Item { entry: Entry::Put(Box::new(r.clone())), payload: Bytes::new() })
                .collect();
            let location_cache = self.log.append(&items)?;
            self.log.sync()?;
            let mut applier = Applier::new(index, usage_counters);
            for (record, spot) in chunk.iter().zip(location_cache) {
                let mut record = record.clone();
                record.set_spot(spot);
                record.disk = self.number;
                let at = Position { segment: spot.segment, offset: u64::from(spot.offset) };
                applier.apply(at, record.frame_bytes(), Entry::Put(Box::new(record)))?;
            }
            applier.commit()?;
        }
        Ok(records.len() as u64)
    }

    fn relearn_companions(&self, index: &Index) -> Result<()> {
        let folder = self.root.join("companions");
        let names = self.io.list(&folder).map_err(failed("list", &folder))?;
        let there: HashSet<u64> =
            names.iter().filter_map(|n| u64::from_str_radix(n, 16).ok()).collect();
        if there.is_empty() {
            return Ok(());
        }
        for record in index.all() {
            let record = record?;
            if there.contains(&record.generation) {
                let key = format::key(record.bucket_id, &record.name);
                index.set_sidecar(record.generation, Some(&key))?;
            }
        }
        Ok(())
    }

    fn object_files(&self) -> Result<Vec<u64>> {
        let objects = self.root.join("objects");
        let mut ids = Vec::new();
        for dir in self.io.list(&objects).map_err(failed("list", &objects))? {
            let dir = objects.join(dir);
            for name in self.io.list(&dir).map_err(failed("list", &dir))? {
                match u64::from_str_radix(&name, 16) {
                    Ok(id) => ids.push(id),
                    Err(_) => {
                        let path = dir.join(&name);
                        tracing::warn!(path = %path.display(), "not an object file, left alone");
                    }
                }
            }
        }
        Ok(ids)
    }

    fn set_aside(&self, path: &Path, why: &Error) -> Result<()> {
        let aside = self.root.join(".forebay").join("lost");
        self.io.create_dir(&aside).map_err(failed("create folder", &aside))?;
        let to = aside.join(path.file_name().unwrap_or_default());
        self.io.rename(path, &to).map_err(failed("rename", path))?;
        tracing::warn!(path = %path.display(), "damaged, moved to .forebay/lost: {why}");
        Ok(())
    }
}

#[derive(Default)]
struct Replay {
    records: u64,
    damaged: u64,
}

/// The index with its accounts, if it was built completely.
fn complete(index: Index) -> Result<Option<(Index, UsageCounters)>> {
    if !index.is_complete()? {
        return Ok(None);
    }
    let usage_counters = index.usage_counters()?.unwrap_or_default();
    Ok(Some((index, usage_counters)))
}

/// Completes the file operations that a crash interrupted: removes doomed files, moves those whose
/// record is in the log, removes those that were never finished.
pub(crate) fn tidy(shared: &Shared) -> Result<()> {
    let doomed = shared.index.doomed()?;
    if !doomed.is_empty() {
        let mut usage_counters = shared.usage_counters();
        let mut applier = Applier::new(&shared.index, &mut usage_counters);
        for file in doomed {
            if shared.unlink_file(file) {
                applier.batch.unmark_for_delete(file);
            }
        }
        applier.commit()?;
    }
    let work = shared.root.join("work");
    for name in shared.io.list(&work).map_err(failed("list", &work))? {
        let path = work.join(&name);
        let named = match u64::from_str_radix(&name, 16) {
            Ok(id) => is_named(shared, id)?,
            Err(_) => None,
        };
        match named {
            Some(id) => {
                let (from, to) = (work_path(&shared.root, id), object_path(&shared.root, id));
                shared.io.rename(&from, &to).map_err(failed("rename", &from))?;
            }
            None => shared.io.unlink(&path).map_err(failed("remove", &path))?,
        }
    }
    Ok(())
}

/// Whether a record names this file of `work/`.
fn is_named(shared: &Shared, id: u64) -> Result<Option<u64>> {
    let Finding::Object(trailer) = inspect(&*shared.io, &work_path(&shared.root, id), id)? else {
        return Ok(None);
    };
    let record = shared.index.get(&format::key(trailer.bucket_id, &trailer.name))?;
    Ok(record.filter(|r| r.extents().iter().any(|e| e.id == id)).map(|_| id))
}

/// The result of inspecting one file.
enum Finding {
    Object(Box<Record>),
    /// Never finished: a power cut lost the bytes that were not synced.
    Torn,
    /// Not readable as an object, for another reason than a power cut.
    Damaged(Error),
}

fn inspect(io: &dyn Disk, path: &Path, id: u64) -> Result<Finding> {
    let file = io.open(path).map_err(failed("open", path))?;
    let len = file.size().map_err(failed("measure", path))?;
    let mut result = tail(&*file, len, SHORT_TAIL).map_err(failed("read", path))?;
    if len > SHORT_TAIL && !matches!(result, Ok(Some(_))) {
        result = tail(&*file, len, LONG_TAIL).map_err(failed("read", path))?;
    }
    let end = len.min(8) as usize;
    let mut last = [0; 8];
    file.read_exact_at(&mut last[..end], len - end as u64).map_err(failed("read", path))?;
    Ok(match result {
        Ok(Some(record)) => match record.extents() {
            [only] if only.id == id && only.size + format::table_len(only.size) < len => {
                Finding::Object(Box::new(record))
            }
            extents if extents.iter().any(|e| e.id == id) => Finding::Object(Box::new(record)),
            _ => Finding::Damaged(Error::new(ErrorCode::Corrupt, "its record is of another file")),
        },
        Ok(None) if last == [0; 8] => Finding::Torn,
        Ok(None) => Finding::Damaged(Error::new(ErrorCode::Corrupt, "it has no footer")),
        Err(e) => Finding::Damaged(e),
    })
}

fn tail(file: &dyn DiskFile, len: u64, most: u64) -> std::io::Result<Result<Option<Record>>> {
    let mut bytes = vec![0; len.min(most) as usize];
    file.read_exact_at(&mut bytes, len.saturating_sub(most))?;
    Ok(format::decode_tail(&bytes))
}

fn with_disk(entry: Entry, disk: usize) -> Entry {
    match entry {
        Entry::Put(mut record) => {
            record.disk = disk;
            Entry::Put(record)
        }
        removal => removal,
    }
}
