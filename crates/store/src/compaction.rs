//! Compaction: copies live records of the emptiest segments to the head of the log, and removes
//! those segments.
//!
//! A copy keeps its sequence and generation, so a crash in between leaves two equal records, of
//! which the later one counts. The old segment is removed only after the copies were synced.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result};

use super::change::Change;
use super::committer::Committer;
use super::log::{Entry, Found};
use super::record::{Place, Record};
use super::shared::Shared;
use super::usage_counters::SegmentUsage;

/// A segment is rewritten when this part of it is dead,
const DEAD_PERCENT: u64 = 50;
/// or this part while space is short.
const DEAD_PERCENT_PRESSED: u64 = 5;
/// Segments below this part of the usual size are merged when there are many.
const SMALL_SHARE: u64 = 4;
const MANY_SMALL: usize = 16;
/// Bytes copied at once. A rest follows that limits the copying to this many bytes a second, unless
/// space is short.
const STEP_BYTES: u64 = 1 << 20;
const STEP_CHANGES: usize = 256;
const BYTES_PER_SECOND: u64 = 64 << 20;
/// How often an idle disk is checked.
const PERIOD: Duration = Duration::from_secs(1);
/// A segment of which more than this part died since the last check is left alone, unless space is
/// short: its objects are being overwritten, and dead bytes need not be copied.
const DYING_SHARE: u64 = 64;

/// Compacts the log of one disk.
pub(crate) struct Compactor {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    shared: Arc<Shared>,
    committer: Arc<Committer>,
    segment_bytes: u64,
    stop: AtomicBool,
    sleep: (Mutex<()>, Condvar),
    /// Segments that cannot be read, or hold damaged records of objects which exist nowhere else.
    /// Locked while one segment is rewritten, so that only one is.
    stuck: Mutex<Vec<u64>>,
}

impl Compactor {
    pub(crate) fn start(
        shared: Arc<Shared>,
        committer: Arc<Committer>,
        segment_bytes: u64,
    ) -> Result<Self> {
        let aside = shared.log.damaged().into_iter().map(|(segment, _)| segment).collect();
        let inner = Arc::new(Inner {
            shared,
            committer,
            segment_bytes,
            stop: AtomicBool::new(false),
            sleep: Default::default(),
            stuck: Mutex::new(aside),
        });
        let name = format!("compact-{}", inner.shared.number);
        let mine = inner.clone();
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || mine.run())
            .map_err(|e| Error::internal(format!("no thread for compaction: {e}")))?;
        Ok(Self { inner, thread: Some(thread) })
    }

    /// Rewrites segments while space is short and rewriting frees some. Returns the bytes freed.
    pub(crate) fn reclaim(&self) -> Result<u64> {
        let mut freed = 0;
        if self.inner.shared.room.is_pressed() {
            freed += self.inner.shared.give_up_spares();
        }
        while self.inner.shared.room.wants_compaction() {
            match self.inner.one(DEAD_PERCENT_PRESSED, &HashSet::new(), false)? {
                Some(bytes) => freed += bytes,
                None => break,
            }
        }
        Ok(freed)
    }

    /// Rewrites every segment that has anything dead in it. Returns the bytes freed.
    #[cfg(test)]
    pub(crate) fn compact_all(&self) -> Result<u64> {
        let mut freed = 0;
        let last = self.inner.shared.log.end().segment;
        while let Some(segment) = self.inner.candidate(0, last, &HashSet::new()) {
            freed += self.inner.rewrite(segment, false)?;
        }
        Ok(freed)
    }
}

impl Drop for Compactor {
    fn drop(&mut self) {
        self.inner.stop.store(true, Ordering::Relaxed);
        self.inner.sleep.1.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("compaction panicked");
        }
    }
}

impl Inner {
    fn run(&self) {
        let mut seen = BTreeMap::new();
        while !self.rest(PERIOD) {
            self.shared.give_up_old_spares();
            let dying = self.dying(&mut seen);
            loop {
                match self.one(DEAD_PERCENT, &dying, true) {
                    Ok(Some(_)) if !self.is_stopped() => {}
                    Ok(_) => break,
                    Err(e) => {
                        tracing::warn!(disk = %self.shared.root.display(), "compaction: {e}");
                        break;
                    }
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Sleeps. Returns true when compaction is to stop.
    fn rest(&self, time: Duration) -> bool {
        let (lock, bell) = &self.sleep;
        let held = lock.locked();
        let stopped = || self.is_stopped();
        drop(bell.wait_timeout_while(held, time, |()| !stopped()));
        stopped()
    }

    /// Segments whose objects are being overwritten. `seen`: dead bytes of each segment at the last
    /// check; replaced by the present ones.
    fn dying(&self, seen: &mut BTreeMap<u64, u64>) -> HashSet<u64> {
        let now = self.shared.usage_counters().segments.clone();
        let died = |id: &u64, s: &SegmentUsage| {
            s.dead().saturating_sub(seen.get(id).copied().unwrap_or(0))
        };
        let is_dying = |id: &u64, s: &SegmentUsage| s.live > 0 && died(id, s) > s.len / DYING_SHARE;
        let dying = now.iter().filter(|(id, s)| is_dying(id, s)).map(|(id, _)| *id).collect();
        *seen = now.into_iter().map(|(id, s)| (id, s.dead())).collect();
        if self.shared.room.is_pressed() { HashSet::new() } else { dying }
    }

    /// Rewrites the segment that frees most, if it is none of `spared`. `None` if none is worth it.
    fn one(&self, percent: u64, spared: &HashSet<u64>, paced: bool) -> Result<Option<u64>> {
        self.shared.check_alive()?;
        match self.candidate(percent, self.shared.log.end().segment, spared) {
            Some(segment) => self.rewrite(segment, paced).map(Some),
            None => Ok(None),
        }
    }

    /// The segment below `active` with the largest dead part, of those with at least `percent`.
    fn candidate(&self, percent: u64, active: u64, spared: &HashSet<u64>) -> Option<u64> {
        let stuck = self.stuck.locked();
        let usage_counters = self.shared.usage_counters();
        // The copies need free space first.
        let room = self.shared.io.space(&self.shared.root).map_or(u64::MAX, |s| s.free / 2);
        let sealed = || {
            let idle = usage_counters.segments.iter().filter(|(id, _)| **id < active);
            let idle = idle.filter(|(id, _)| !stuck.contains(id) && !spared.contains(id));
            idle.filter(|(_, s)| s.len - s.dead().min(s.len) <= room)
        };
        let emptiest = sealed()
            .filter(|(_, s)| s.dead() > 0 && s.dead() * 100 >= s.len * percent)
            .max_by_key(|(_, s)| s.dead() * 1000 / s.len.max(1));
        let small: Vec<_> =
            sealed().filter(|(_, s)| s.len < self.segment_bytes / SMALL_SHARE).collect();
        let small = small.first().filter(|_| small.len() >= MANY_SMALL);
        emptiest.or(small.copied()).map(|(id, _)| *id)
    }

    /// Copies the live records of a segment and removes it. Returns the bytes freed.
    fn rewrite(&self, segment: u64, paced: bool) -> Result<u64> {
        let mut stuck = self.stuck.locked();
        // Another rewrite may have processed it since it was chosen.
        let before = self.shared.usage_counters().segments.get(&segment).map(|s| s.dead());
        let Some(before) = before else { return Ok(0) };
        // Waits until records just written to it are in the index.
        self.committer.submit_blocking(Vec::new())?;
        let is_empty = |s: &SegmentUsage| s.live == 0 && s.removals == 0;
        let is_empty = self.shared.usage_counters().segments.get(&segment).is_some_and(is_empty);
        // A segment without live records is not read.
        let whole = is_empty || self.move_on(segment, paced)?;
        if self.is_stopped() {
            return Ok(0);
        }
        self.committer.submit_blocking(vec![Change::Release { segment }])?;
        let gone = !self.shared.usage_counters().segments.contains_key(&segment);
        if !gone {
            tracing::warn!(segment, whole, "a segment keeps damaged records and stays");
            stuck.push(segment);
        }
        Ok(if gone { before } else { 0 })
    }

    /// Copies all live records of a segment to the head of the log, unless compaction stops
    /// meanwhile. False if some of it is damaged.
    fn move_on(&self, segment: u64, paced: bool) -> Result<bool> {
        let mut step = Step::default();
        let mut whole = true;
        for found in self.shared.log.scan_segment(segment, false) {
            let change = match found? {
                Found::Entry { entry: Entry::Put(record), .. } => match self.copy(&record) {
                    Ok(change) => change,
                    Err(e) if e.code == ErrorCode::Corrupt => {
                        whole = false;
                        None
                    }
                    Err(e) => return Err(e),
                },
                Found::Entry { entry: Entry::Remove { bucket_id, name, sequence }, .. } => {
                    Some(Change::WriteTombstone { from: segment, bucket_id, name, sequence })
                }
                Found::Damaged { .. } => None,
            };
            step.changes.extend(change);
            if step.bytes() >= STEP_BYTES || step.changes.len() >= STEP_CHANGES {
                let bytes = step.bytes();
                self.committer.submit_blocking(std::mem::take(&mut step.changes))?;
                if paced && !self.shared.room.wants_compaction() {
                    let nanos = bytes.saturating_mul(1_000_000_000) / BYTES_PER_SECOND;
                    if self.rest(Duration::from_nanos(nanos)) {
                        return Ok(whole);
                    }
                }
            }
        }
        self.committer.submit_blocking(step.changes)?;
        Ok(whole)
    }

    /// The copy of a record, if it is the newest of its object.
    fn copy(&self, record: &Record) -> Result<Option<Change>> {
        let Some(now) = self.shared.current(record)? else { return Ok(None) };
        if now.sequence != record.sequence || now.spot() != record.spot() {
            return Ok(None);
        }
        let payload = match &now.place {
            Place::Files(..) => Bytes::new(),
            Place::Log(spot) => match self.shared.log.read(spot, now.size) {
                Ok(Some((_, payload))) => payload,
                Ok(None) => return Ok(None),
                // A damaged copy of an object that a backend has is worth nothing.
                Err(e) if e.code == ErrorCode::Corrupt && now.evictable() => {
                    let generation = Some(now.generation);
                    let (bucket_id, name) = (now.bucket_id, now.name);
                    return Ok(Some(Change::Remove { bucket_id, name, generation }));
                }
                Err(e) => return Err(e),
            },
        };
        Ok(Some(Change::Move { record: Box::new(now), payload }))
    }
}

/// Changes that go to the committer together.
#[derive(Default)]
struct Step {
    changes: Vec<Change>,
}

impl Step {
    fn bytes(&self) -> u64 {
        self.changes.iter().map(|c| c.payload() as u64).sum()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::crash_tests::folder;
    use super::super::tests::owned;
    use super::super::{DiskSettings, RealDisk, Store};
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_segment_that_is_being_written_over_is_left_alone_until_it_rests_or_room_is_short() {
        let dir = folder();
        let settings = DiskSettings::new(dir.path(), Some(16 << 20));
        let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
        let write = async |name: usize| {
            let payload = Bytes::from(vec![7; 20_000]);
            store.put(1, &name.to_string(), payload, owned()).await.unwrap();
        };
        for name in 0..30 {
            write(name).await;
        }
        let volume = store.volumes()[0].clone();
        let (inner, shared) = (&volume.compactor().inner, volume.shared());
        let candidate = |dying| inner.candidate(DEAD_PERCENT, shared.log.end().segment, dying);
        let mut seen = BTreeMap::new();
        assert_eq!(inner.dying(&mut seen), HashSet::new());
        for name in 0..10 {
            write(name).await;
        }
        let dying = inner.dying(&mut seen);
        assert_eq!(dying, HashSet::from([1]));
        assert_eq!((candidate(&dying), candidate(&HashSet::new())), (None, Some(1)));
        assert_eq!(inner.dying(&mut seen), HashSet::new(), "it rests");
        write(10).await;
        assert_eq!(inner.dying(&mut seen), HashSet::from([1]));
        let _held = shared.room.try_reserve(13 << 20).unwrap();
        assert!(shared.room.is_pressed());
        write(11).await;
        assert_eq!(inner.dying(&mut seen), HashSet::new(), "room is short");
    }
}
