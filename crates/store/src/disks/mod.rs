//! The disks of a store: which are in use, and which of them has, or should have, an object.

mod admit;
mod copies;
mod leave;
mod outdated;
#[cfg(test)]
mod outdated_tests;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use arc_swap::ArcSwap;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};
use tokio::sync::watch;

pub(super) use self::admit::Terms;

use super::DiskSettings;
use super::claim::Claim;
use super::disk::Disk;
use super::identity::Identity;
use super::location_cache::LocationCache;
use super::observer::Observer;
use super::recover::Replayed;
use super::space::{EvictionNotifier, Usage};
use super::state::{DiskReport, DiskState, Slot};
use super::volume::Volume;

/// All disks that the store was given.
pub(crate) struct Disks {
    pub(super) io: Arc<dyn Disk>,
    online: ArcSwap<Vec<Arc<Volume>>>,
    bell: Arc<EvictionNotifier>,
    /// Locations of small objects on all disks in use.
    location_cache: Arc<LocationCache>,
    /// Order of records over all disks, so that of two copies the newer one is known.
    sequence: Arc<AtomicU64>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// Some disk is not in use. An object that is not found may be there, and one that is written
    /// or removed now may have an older copy there.
    degraded: Arc<AtomicBool>,
    /// The cluster whose objects the disks hold; empty until it is known.
    cluster: ArcSwap<String>,
    /// Held for moments only: no disk I/O under this lock.
    change: Mutex<Change>,
    /// Counts disks that were taken into or out of use.
    turns: watch::Sender<u64>,
    /// Counts the times that objects were lost with a disk, or with their bytes on it.
    losses: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
pub(super) struct Change {
    /// How often the store was opened.
    opens: u64,
    /// Keys that the disks opened last learned from their logs.
    replayed: Vec<(usize, Replayed)>,
    /// Every disk by its number.
    pub(super) slots: Vec<Slot>,
}

impl Disks {
    pub(crate) fn open(settings: Vec<DiskSettings>, io: Arc<dyn Disk>) -> Result<Self> {
        if settings.is_empty() {
            return Err(Error::invalid("a target needs at least one disk")
                .hint("give a folder in a [[disk]] section"));
        }
        let wanted = |s: &&DiskSettings| s.disabled.is_none();
        let claims: Vec<_> = settings
            .iter()
            .map(|s| Some(s).filter(wanted).map(|s| Claim::take(s, io.clone())))
            .collect();
        let claimed = || claims.iter().flatten().flatten();
        let cluster = claimed().map(|c| &c.identity.cluster).find(|id| !id.is_empty());
        let cluster = cluster.cloned().unwrap_or_default();
        // A disk that belongs to another target is an error of the settings; the other disks do not
        // help.
        claimed().try_for_each(|claim| claim.check_owner(&cluster))?;
        let claimed = claimed();
        let opens = claimed.map(|c| c.identity.opens).max().unwrap_or(0) + 1;
        let slots = settings.into_iter().map(Slot::new).collect();
        let disks = Self {
            io,
            online: ArcSwap::default(),
            bell: Arc::default(),
            location_cache: Arc::default(),
            sequence: Arc::new(AtomicU64::new(Identity::first_sequence(opens))),
            observer: OnceLock::new(),
            degraded: Arc::default(),
            cluster: ArcSwap::from_pointee(cluster),
            change: Mutex::new(Change { opens, slots, ..Change::default() }),
            turns: watch::Sender::new(0),
            losses: Arc::default(),
        };
        let mut first_error = None;
        for (number, claim) in claims.into_iter().enumerate() {
            let Some(claim) = claim else { continue };
            if let Err(e) = claim.and_then(|claim| disks.admit(number, claim, Terms::Known)) {
                let mut change = disks.lock();
                tracing::error!(disk = %change.slots[number].settings.path.display(), "not in use: {e}");
                change.slots[number].state = DiskState::Away(e.to_string());
                // Another disk may be mounted in its place.
                disks.losses.send_modify(|n| *n += 1);
                first_error = first_error.or(Some(e));
            }
        }
        // A tombstone may be on a disk that came into use after that of its object.
        disks.online.load().iter().try_for_each(|volume| disks.drop_removed(volume))?;
        disks.show_degraded(&disks.lock());
        match first_error.filter(|_| disks.online.load().is_empty()) {
            Some(e) => Err(e),
            None => Ok(disks),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Change> {
        self.change.locked()
    }

    /// Updates the flag by which readers and writers know whether objects may be on disks that are
    /// not in use.
    fn show_degraded(&self, change: &Change) {
        let hidden = change.slots.iter().any(|slot| slot.state.hides_objects());
        self.degraded.store(hidden, Ordering::SeqCst);
    }

    /// Sets the state of a disk.
    pub(super) fn stand(&self, change: &mut Change, number: usize, state: DiskState) {
        change.slots[number].state = state;
        self.show_degraded(change);
    }

    /// The cluster whose objects the disks hold, if it is known.
    pub(crate) fn cluster(&self) -> Option<String> {
        Some(self.cluster.load().as_ref().clone()).filter(|id| !id.is_empty())
    }

    /// Records on the disks which cluster their objects belong to. Blocks on the disks.
    pub(crate) fn note_cluster(&self, id: &str) -> Result<()> {
        if **self.cluster.load() == *id {
            return Ok(());
        }
        self.online.load().iter().try_for_each(|volume| volume.belong_to("", id))?;
        self.cluster.store(Arc::new(id.to_owned()));
        Ok(())
    }

    /// The disks that are to be tried again.
    pub(crate) fn away(&self) -> Vec<usize> {
        let change = self.lock();
        let slots = change.slots.iter().enumerate();
        slots.filter(|(_, slot)| slot.state.wants_trial()).map(|(number, _)| number).collect()
    }

    /// The first disk that may hide objects, and why it is not in use.
    pub(crate) fn first_hidden(&self) -> Option<(PathBuf, DiskState)> {
        let change = self.lock();
        let hidden = change.slots.iter().find(|slot| slot.state.hides_objects())?;
        Some((hidden.settings.path.clone(), hidden.state.clone()))
    }

    /// All disks but those that were detached.
    pub(crate) fn report(&self) -> Vec<DiskReport> {
        let (change, online) = (self.lock(), self.online.load());
        let volume = |number| online.iter().find(|v| v.number() == number);
        let usage = |number| volume(number).map_or(Usage::default(), |v| v.room().usage());
        let slots = change.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.state != DiskState::Detached)
            .map(|(number, slot)| DiskReport {
                path: slot.settings.path.clone(),
                state: slot.state.clone(),
                usage: usage(number),
                note: slot.note.clone(),
                file_system: volume(number).and_then(|v| v.shared().file_system()),
            })
            .collect()
    }

    /// Whether some disk is not in use.
    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::SeqCst)
    }

    /// Counts disks that were taken into or out of use.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    /// Counts the times that objects were lost with a disk, or with their bytes on it.
    pub(crate) fn losses(&self) -> &watch::Sender<u64> {
        &self.losses
    }

    /// Notifies the watchers of the set of disks.
    pub(crate) fn turn(&self) {
        self.location_cache.clear();
        self.turns.send_modify(|n| *n += 1);
    }

    /// The disks in use.
    pub(crate) fn online(&self) -> Arc<Vec<Arc<Volume>>> {
        self.online.load_full()
    }

    /// Notifies `observer` of all changes of all disks from now on.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        let _change = self.lock();
        if self.observer.set(observer.clone()).is_err() {
            tracing::error!("a store has one observer only");
            return;
        }
        self.online.load().iter().for_each(|volume| volume.observe(observer.clone()));
    }

    /// The budget of each disk by its number; 0 for a disk that is not in use.
    pub(crate) fn budgets(&self) -> Vec<u64> {
        let mut budgets = vec![0; self.lock().slots.len()];
        for volume in self.online.load().iter() {
            budgets[volume.number()] = volume.room().usage().budget;
        }
        budgets
    }

    pub(crate) fn location_cache(&self) -> &LocationCache {
        &self.location_cache
    }

    pub(crate) fn bell(&self) -> &EvictionNotifier {
        &self.bell
    }

    /// The disk of this number.
    pub(crate) fn number(&self, number: usize) -> Result<Arc<Volume>> {
        let online = self.online.load();
        let found = online.iter().find(|v| v.number() == number);
        found.cloned().ok_or_else(|| Error::unavailable("the object's disk is not in use just now"))
    }
}
