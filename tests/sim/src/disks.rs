//! The two disks of each target, and faults of them: a disk is lost with all that is on it, or it is
//! out of use for a time and comes back with what it had, without what was written or removed
//! meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use forebay_core::copies::Stamp;
use forebay_core::erasure::Slice;
use forebay_core::locks::MutexExt;

use crate::exec::{MS, SECOND};
use crate::slices::SliceRecord;
use crate::target::{Key, Record, Target};
use crate::world::{At, NEMESIS, W, World, bucket_of};

/// Number of disks of a target.
const DISKS: u64 = 2;

/// The disk that is out of use, shared by a target and the view of its engine.
#[derive(Clone, Default)]
pub(crate) struct AwayDisk(Arc<Mutex<Option<Away>>>);

#[derive(Default)]
struct Away {
    disk: u64,
    /// The content of that disk.
    records: BTreeMap<Key, Record>,
    slices: BTreeMap<Key, Vec<SliceRecord>>,
    tombstones: BTreeMap<Key, Stamp>,
    /// Copies that were removed from the other disk meanwhile: they are removed from this one, too.
    removed: BTreeSet<Key>,
    removed_slices: BTreeSet<(Key, Slice, Stamp)>,
}

impl AwayDisk {
    pub(crate) fn is_away(&self) -> bool {
        self.0.locked().is_some()
    }

    /// Whether an object that was not found may be on the disk that is out of use.
    pub(crate) fn may_have(&self, bucket: &forebay_core::Bucket, name: &str) -> bool {
        let away = self.0.locked();
        let is_removed = |key: &Key| bucket_of(key.0) == *bucket && key.1 == name;
        away.as_ref().is_some_and(|away| !away.removed.iter().any(is_removed))
    }

    /// The stamp of the copy of an object on the disk that is out of use, and the slices there.
    pub(crate) fn content(&self, key: &Key) -> (Option<Stamp>, Vec<SliceRecord>) {
        let away = self.0.locked();
        let Some(away) = away.as_ref() else { return (None, Vec::new()) };
        let copy = away.records.get(key).map(|record| record.stamp);
        (copy, away.slices.get(key).cloned().unwrap_or_default())
    }

    /// The copy of an object on the disk that is out of use.
    pub(crate) fn record(&self, key: &Key) -> Option<Record> {
        self.0.locked().as_ref().and_then(|away| away.records.get(key).copied())
    }

    /// Records that a copy was removed from the disk that is in use.
    pub(crate) fn note_removal(&self, key: &Key) {
        if let Some(away) = self.0.locked().as_mut() {
            away.removed.insert(key.clone());
        }
    }

    /// The same for a slice.
    pub(crate) fn note_slice_removal(&self, key: &Key, slice: Slice, stamp: Stamp) {
        if let Some(away) = self.0.locked().as_mut() {
            away.removed_slices.insert((key.clone(), slice, stamp));
        }
    }
}

/// Whether an object's copy and slices are on this disk of each target.
fn is_on(disk: u64, key: &Key) -> bool {
    key.1.bytes().map(u64::from).sum::<u64>() % DISKS == disk
}

impl Target {
    /// Takes a disk out of use.
    fn take_away(&self, disk: u64) {
        let mut away = Away { disk, ..Away::default() };
        self.records.borrow_mut().retain(|key, record| {
            let goes = is_on(disk, key);
            if goes {
                away.records.insert(key.clone(), *record);
            }
            !goes
        });
        self.slices.borrow_mut().retain(|key, slices| {
            let goes = is_on(disk, key);
            if goes {
                away.slices.insert(key.clone(), std::mem::take(slices));
            }
            !goes
        });
        self.tombstones.borrow_mut().retain(|key, stamp| {
            let goes = is_on(disk, key);
            if goes {
                away.tombstones.insert(key.clone(), *stamp);
            }
            !goes
        });
        *self.away.0.locked() = Some(away);
        self.lose_objects();
    }

    /// Takes the disk into use again, without the objects that were written or removed meanwhile.
    fn bring_back(&self) -> Option<u64> {
        let Away { disk, records, slices, tombstones, removed, removed_slices } =
            self.away.0.locked().take()?;
        for (key, stamp) in tombstones {
            let mut here = self.tombstones.borrow_mut();
            let now = here.entry(key).or_insert(stamp);
            *now = (*now).max(stamp);
        }
        let is_removed = |key: &Key, stamp| self.tombstone(key) >= Some(stamp);
        let mut here = self.records.borrow_mut();
        for (key, record) in records {
            if !removed.contains(&key) && !is_removed(&key, record.stamp) {
                here.entry(key).or_insert(record);
            }
        }
        let mut here = self.slices.borrow_mut();
        for (key, slices) in slices {
            let now = here.entry(key.clone()).or_default();
            for back in slices {
                let same =
                    |other: &SliceRecord| (other.slice, other.stamp) == (back.slice, back.stamp);
                let gone = (key.clone(), back.slice, back.stamp);
                let is_gone = removed_slices.contains(&gone) || is_removed(&key, back.stamp);
                if !now.iter().any(same) && !is_gone {
                    now.push(back);
                }
            }
            if now.is_empty() {
                here.remove(&key);
            }
        }
        self.got_disk_back.set(true);
        self.process().late_tombstones.ring();
        Some(disk)
    }

    fn lose_objects(&self) {
        let process = self.process();
        process.view.lose_objects();
        process.lost.ring();
    }
}

impl World {
    /// A disk fails: for good, or for a time.
    pub(crate) fn break_disk(self: &W) {
        let Some(at) = self.any_target().filter(|_| self.plan.disks) else { return };
        if self.plan.disks_return && self.exec.percent(70) {
            self.take_disk_away(at);
        } else {
            self.lose_disk(at);
        }
    }

    /// A target loses one disk with all objects on it, while every object has a copy elsewhere.
    fn lose_disk(self: &W, at: At) {
        let is_quiescent = self.group.newest().is_quiescent();
        if !is_quiescent || self.targets.iter().any(Target::has_lost_objects) {
            return;
        }
        let (target, disk) = (self.target(at), self.exec.below(DISKS));
        let safe = |key: &Key| {
            let slices = target.slices_of(key).into_iter().map(|here| here.stamp);
            let mine = target.get(key).map(|record| record.stamp).into_iter().chain(slices).max();
            let others = self.targets.iter().filter(|other| other.at != at);
            self.is_readable(key, mine.unwrap_or_default(), others)
        };
        if !target.keys().iter().filter(|key| is_on(disk, key)).all(safe) {
            return;
        }
        self.note(|| format!("target {at} loses disk {disk}"));
        target.records.borrow_mut().retain(|key, _| !is_on(disk, key));
        target.slices.borrow_mut().retain(|key, _| !is_on(disk, key));
        target.tombstones.borrow_mut().retain(|key, _| !is_on(disk, key));
        target.lose_objects();
    }

    fn take_disk_away(self: &W, at: At) {
        if self.target(at).away.is_away() {
            return;
        }
        let disk = self.exec.below(DISKS);
        self.note(|| format!("disk {disk} of target {at} goes out of use"));
        self.target(at).take_away(disk);
        let (world, away) = (self.clone(), self.exec.between(500 * MS, 30 * SECOND));
        self.exec.spawn(NEMESIS, async move {
            world.exec.sleep(away).await;
            world.bring_disk_back(at);
        });
    }

    /// Takes the disk of a target into use again, if one is away.
    pub(crate) fn bring_disk_back(&self, at: At) {
        if let Some(disk) = self.target(at).bring_back() {
            self.note(|| format!("disk {disk} of target {at} is back"));
        }
    }
}
