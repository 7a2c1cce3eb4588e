//! Brings the index of a disk up to date with its log when the disk is opened, and rebuilds it from
//! the log where it is missing or not trusted.

mod inspect;
mod replay;
mod sweep;
mod tidy;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use forebay_core::{ErrorCode, Result};

pub(crate) use self::tidy::tidy;

use super::apply::Applier;
use super::disk::Disk;
use super::format;
use super::identity::failed;
use super::index::{Index, distrusted};
use super::log::{Log, Position};
use super::usage_counters::UsageCounters;

/// Records that reach the index in one batch.
const BATCH: usize = 1000;
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
                // The process ended before it sealed the segment, or a power cut took the seal.
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
        self.recover_sidecars(&index)?;
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

    fn recover_sidecars(&self, index: &Index) -> Result<()> {
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
}

/// The index with its accounts, if it was built completely. An index of an earlier version gets the
/// counters of its buckets.
fn complete(index: Index) -> Result<Option<(Index, UsageCounters)>> {
    if !index.is_complete()? {
        return Ok(None);
    }
    let mut usage_counters = index.usage_counters()?.unwrap_or_default();
    if !index.counts_buckets() {
        let mut applier = Applier::new(&index, &mut usage_counters);
        applier.count_buckets()?;
        applier.commit()?;
        tracing::info!(objects = usage_counters.objects, "counted the objects of each bucket");
    }
    Ok(Some((index, usage_counters)))
}
