//! The disks of a store: which are in use, and which of them has, or should have, an object.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result, placement};
use tokio::sync::watch;

use super::DiskSettings;
use super::claim::{Claim, Setting};
use super::disk::Disk;
use super::format;
use super::identity::{Identity, failed};
use super::location_cache::LocationCache;
use super::observer::{Arrival, Observer};
use super::record::Record;
use super::recover::Replayed;
use super::space::{EvictionNotifier, Usage};
use super::state::{DiskReport, DiskState, Seen, Slot};
use super::volume::Volume;

/// How often a disk that was taken out of use is checked, until its last user released it.
const RETIRING: Duration = Duration::from_millis(20);

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

/// The conditions under which a disk comes into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terms {
    /// It was in use before, or is to be from the start.
    Known,
    /// The disk is new to this store. Objects on it may be outdated, so it must be empty.
    Empty,
    /// Taken into use with all objects on it.
    Adopted,
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

    /// Takes a locked and identified disk into use.
    pub(super) fn admit(&self, number: usize, claim: Claim, terms: Terms) -> Result<()> {
        let (owner, cluster) = (claim.node().to_owned(), self.cluster.load_full());
        match terms {
            Terms::Known => claim.check_owner(&cluster)?,
            Terms::Adopted => claim.identity.check_owner(claim.path(), "", &cluster)?,
            Terms::Empty => {}
        }
        let opens = self.opens_for(number, &claim.identity)?;
        let id = claim.identity.id.clone();
        let mounted = self.io.is_mount(claim.path()).unwrap_or(false);
        let site = Setting {
            number,
            opens,
            sequence: self.sequence.clone(),
            bell: self.bell.clone(),
            location_cache: self.location_cache.clone(),
            degraded: self.degraded.clone(),
            losses: self.losses.clone(),
        };
        let (volume, replayed) = claim.open(site)?;
        let volume = Arc::new(volume);
        let objects = volume.room().usage().objects;
        if terms == Terms::Empty && objects > 0 {
            let at = volume.path().display();
            return Err(Error::new(ErrorCode::Conflict, format!("{at} holds {objects} objects"))
                .hint(
                    "what was deleted since they were written comes back with them: attach it \
                       by force if they are wanted, or empty the folder",
                ));
        }
        volume.belong_to(&owner, &cluster)?;
        if let Some(observer) = self.observer.get() {
            volume.observe(observer.clone());
            // The observer has read only the disks that were there at the start.
            for record in volume.records() {
                observer.inserted(number, &Arrival::of(&record?));
            }
        }
        self.drop_overtaken(&volume)?;
        let mut change = self.lock();
        if change.opens > opens {
            volume.raise(change.opens)?;
        }
        let slot = &mut change.slots[number];
        let taken_out = match slot.state {
            DiskState::Disabled { .. } => true,
            DiskState::Detached => terms == Terms::Known,
            _ => false,
        };
        if taken_out {
            return Err(Error::unavailable("it was taken out by command meanwhile"));
        }
        slot.seen = Some(Seen { id, mounted });
        (slot.note, slot.doubted) = (String::new(), false);
        change.replayed.push((number, replayed));
        self.online.rcu(|online| {
            let mut online = Vec::clone(online);
            online.push(volume.clone());
            online.sort_by_key(|v| v.number());
            online
        });
        self.stand(&mut change, number, DiskState::InUse);
        drop(change);
        self.turn();
        Ok(())
    }

    /// How often the store was opened, as an attached disk has to record it.
    fn opens_for(&self, number: usize, identity: &Identity) -> Result<u64> {
        let mut change = self.lock();
        let seen = change.slots[number].seen.as_ref();
        let back = seen.is_some_and(|seen| seen.id == identity.id);
        let known = identity.opens < change.opens || (back && identity.opens == change.opens);
        if !known {
            // The disk was used by a store that was opened more often: every disk must record that,
            // or sequences would repeat.
            change.opens = identity.opens + 1;
            self.sequence.fetch_max(Identity::first_sequence(change.opens), Ordering::SeqCst);
            self.online.load().iter().try_for_each(|v| v.raise(change.opens))?;
        }
        Ok(change.opens)
    }

    /// Removes from a disk that comes back the objects that were written or removed while it was
    /// away, before readers see them.
    fn drop_overtaken(&self, volume: &Arc<Volume>) -> Result<()> {
        let mut old = Vec::new();
        for other in self.online.load().iter() {
            for (key, removed) in other.shared().index.strays()? {
                let newest = other.shared().index.get(&key)?.map(|r| r.sequence).or(removed);
                let found = volume.shared().index.get(&key)?;
                old.extend(found.filter(|r| newest.is_some_and(|newest| r.sequence < newest)));
            }
        }
        if !old.is_empty() {
            tracing::info!(disk = %volume.path().display(), objects = old.len(), "overtaken, removed");
        }
        volume.remove_all_blocking(&old).map(drop)
    }

    /// Takes a disk out of use and sets its state. Waits for nothing, because the disk may hang.
    pub(crate) fn leave(&self, volume: &Arc<Volume>, state: DiskState) {
        let mut change = self.lock();
        if !self.online.load().iter().any(|v| Arc::ptr_eq(v, volume)) {
            return;
        }
        match &state {
            DiskState::Away(_) | DiskState::Mending => {
                tracing::error!(disk = %volume.path().display(), "out of use: {state}");
            }
            _ => tracing::info!(disk = %volume.path().display(), "out of use: {state}"),
        }
        let was = &change.slots[volume.number()].state;
        if *was != DiskState::Leaving || state.hides_objects() {
            // Before a reader looks for one of its objects and does not find it.
            self.losses.send_modify(|n| *n += 1);
        }
        self.stand(&mut change, volume.number(), state);
        let slot = &mut change.slots[volume.number()];
        let ending = Arc::new(());
        slot.ending = Arc::downgrade(&ending);
        slot.doubted |= volume.shared().index.is_poisoned();
        self.online.rcu(|online| {
            let rest = online.iter().filter(|v| !Arc::ptr_eq(v, volume));
            rest.cloned().collect::<Vec<_>>()
        });
        drop(change);
        volume.retire();
        if let Some(observer) = self.observer.get() {
            observer.left(volume.number());
        }
        self.turn();
        let end = std::thread::Builder::new().name(format!("retire-{}", volume.number()));
        let volume = volume.clone();
        // Dropping it waits for its threads, and those may wait for the disk.
        let ended = end.spawn(move || {
            while Arc::strong_count(&volume) > 1 {
                std::thread::sleep(RETIRING);
            }
            drop(volume);
            drop(ending);
        });
        if let Err(e) = ended {
            tracing::error!("no thread to end a disk: {e}");
        }
    }

    /// Takes a disk out of use if its index is damaged, so that the index is rebuilt. Returns true
    /// if it is damaged.
    pub(crate) fn repair_if_damaged(&self, volume: &Arc<Volume>) -> bool {
        let damaged = volume.shared().index.is_damaged();
        if damaged {
            self.leave(volume, DiskState::Mending);
        }
        damaged
    }

    /// Tries to take a disk into use that is not in use. Blocks for as long as the disk does.
    pub(crate) fn try_again(&self, number: usize) -> Result<()> {
        let mut settings = {
            let change = self.lock();
            let Some(slot) = change.slots.get(number).filter(|s| s.state.wants_trial()) else {
                return Ok(());
            };
            let mut settings = slot.settings.clone();
            if let Some(seen) = &slot.seen {
                settings.mount |= seen.mounted;
                settings.rebuild_index = false;
            }
            settings.check_index = slot.doubted;
            settings
        };
        settings.disabled = None;
        let path = &settings.path;
        // A missing folder is not created: its disk may come back.
        self.io.list(path).map_err(failed("list", path))?;
        let claim = Claim::take(&settings, self.io.clone());
        let tried = claim.and_then(|c| self.admit(number, c, Terms::Known));
        match &tried {
            Ok(()) => tracing::info!(disk = %path.display(), "in use again"),
            Err(e) => {
                let state = DiskState::Away(e.to_string());
                let mut change = self.lock();
                let before = &change.slots[number].state;
                if before.wants_trial() && *before != state {
                    tracing::warn!(disk = %path.display(), "still not in use: {e}");
                    self.stand(&mut change, number, state);
                }
            }
        }
        tried
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

    /// Whether the records of this key prove that no disk that is away has an object of it.
    pub(crate) fn is_removed(&self, key: &[u8]) -> Result<bool> {
        for volume in self.online.load().iter() {
            if volume.shared().index.misplaced(key)?.flatten().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
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

    /// The newest record of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Record>> {
        let online = self.online.load();
        if let [only] = online.as_slice() {
            let found = only.get(key);
            // There is no other disk: the key is unknown while the index is rebuilt.
            return if found.is_err() && self.repair_if_damaged(only) { Ok(None) } else { found };
        }
        Ok(self.copies_in(&online, key)?.pop())
    }

    /// All records of a key, the newest last.
    pub(crate) fn copies(&self, key: &[u8]) -> Result<Vec<Record>> {
        self.copies_in(&self.online.load(), key)
    }

    fn copies_in(&self, online: &[Arc<Volume>], key: &[u8]) -> Result<Vec<Record>> {
        let mut copies = Vec::new();
        for volume in online {
            match volume.get(key) {
                Err(_) if self.repair_if_damaged(volume) => {}
                found => copies.extend(found?),
            }
        }
        copies.sort_by_key(|r| r.sequence);
        Ok(copies)
    }

    /// Whether a disk other than `volume` has this key, or may have it because it is not in use.
    pub(crate) fn is_elsewhere(&self, volume: &Volume, key: &[u8]) -> Result<bool> {
        if self.is_degraded() {
            return Ok(true);
        }
        for other in self.online.load().iter().filter(|v| v.number() != volume.number()) {
            if other.shared().index.get(key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The disks that take objects, the one where this object belongs first.
    pub(crate) fn by_score(&self, bucket_id: u64, name: &str) -> Vec<Arc<Volume>> {
        let mut volumes = Vec::clone(&self.online.load());
        volumes.retain(|v| !v.shared().is_leaving());
        if volumes.len() > 1 {
            let digest = placement::object_digest(&format!("{bucket_id:016x}/"), name);
            volumes.sort_by_key(|v| std::cmp::Reverse(v.score(digest)));
        }
        volumes
    }

    /// Keys of which another disk may have an older copy, since the last call.
    pub(crate) fn take_strays(&self) -> Result<Vec<(Arc<Volume>, Vec<u8>)>> {
        let online = self.online();
        let replayed = std::mem::take(&mut self.lock().replayed);
        if online.len() < 2 {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for volume in online.iter() {
            let strays = volume.shared().index.strays()?;
            let mut keys: Vec<_> = strays.into_iter().map(|(key, _)| key).collect();
            for (_, learned) in replayed.iter().filter(|(number, _)| *number == volume.number()) {
                match learned {
                    Replayed::Keys(learned) => keys.extend(learned.iter().cloned()),
                    Replayed::All => {
                        for record in volume.records() {
                            let record = record?;
                            keys.push(format::key(record.bucket_id, &record.name));
                        }
                    }
                }
            }
            for key in keys {
                if self.is_elsewhere(volume, &key)?
                    || volume.shared().index.misplaced(&key)?.is_some()
                {
                    found.push((volume.clone(), key));
                }
            }
        }
        Ok(found)
    }
}
