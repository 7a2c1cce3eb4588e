//! The disks of a store: which are in use, and which of them has, or should have, an object.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use forebay_core::{Error, Result, placement};
use tokio::sync::watch;

use super::DiskSettings;
use super::disk::Disk;
use super::format;
use super::identity::{Identity, failed};
use super::observer::{Arrival, Observer};
use super::record::Record;
use super::recover::Replayed;
use super::space::EvictorBell;
use super::volume::{Claim, Setting, Volume};

/// How often a disk that was taken out of use is looked at, until nobody has it any more.
const RETIRING: Duration = Duration::from_millis(20);

/// All disks that the store was given.
pub(crate) struct Disks {
    io: Arc<dyn Disk>,
    settings: Vec<DiskSettings>,
    online: ArcSwap<Vec<Arc<Volume>>>,
    bell: Arc<EvictorBell>,
    /// Order of records over all disks, so that of two copies the newer one is known.
    sequence: Arc<AtomicU64>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// Some disk is not in use: what is not found may lie there, and what is written or removed
    /// now may have an older copy there.
    degraded: Arc<AtomicBool>,
    /// Held for moments only: no disk is waited for.
    change: Mutex<Change>,
    /// Counts comings and goings of disks.
    turns: watch::Sender<u64>,
}

#[derive(Default)]
struct Change {
    /// How often the store was opened.
    opens: u64,
    /// What the disks opened last learned from their logs.
    replayed: Vec<(usize, Replayed)>,
    /// The disks that are not in use, and why.
    away: BTreeMap<usize, String>,
    /// The disks that were in use at some time.
    seen: BTreeMap<usize, Seen>,
}

struct Seen {
    id: String,
    /// It was a file system of its own: the folder under it is another disk's.
    mounted: bool,
}

impl Disks {
    pub(crate) fn open(settings: Vec<DiskSettings>, io: Arc<dyn Disk>) -> Result<Self> {
        if settings.is_empty() {
            return Err(Error::invalid("a target needs at least one disk")
                .hint("give a folder in a [[disk]] section"));
        }
        let claims: Vec<_> = settings.iter().map(|s| Claim::take(s, io.clone())).collect();
        let opens = claims.iter().flatten().map(|c| c.identity.opens).max().unwrap_or(0) + 1;
        let disks = Self {
            io,
            settings,
            online: ArcSwap::default(),
            bell: Arc::default(),
            sequence: Arc::new(AtomicU64::new(Identity::first_sequence(opens))),
            observer: OnceLock::new(),
            degraded: Arc::default(),
            change: Mutex::new(Change { opens, ..Change::default() }),
            turns: watch::Sender::new(0),
        };
        let mut first_error = None;
        for (number, claim) in claims.into_iter().enumerate() {
            if let Err(e) = claim.and_then(|claim| disks.admit(number, claim)) {
                tracing::error!(disk = %disks.settings[number].path.display(), "not in use: {e}");
                disks.note_away(&mut disks.lock(), number, &e);
                first_error = first_error.or(Some(e));
            }
        }
        match first_error.filter(|_| disks.online.load().is_empty()) {
            Some(e) => Err(e),
            None => Ok(disks),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Change> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a claimed disk into use.
    fn admit(&self, number: usize, claim: Claim) -> Result<()> {
        let opens = self.opens_for(number, &claim.identity)?;
        let id = claim.identity.id.clone();
        let mounted = self.io.is_mount(&self.settings[number].path).unwrap_or(false);
        let site = Setting {
            number,
            opens,
            sequence: self.sequence.clone(),
            bell: self.bell.clone(),
            degraded: self.degraded.clone(),
        };
        let (volume, replayed) = claim.open(site)?;
        let volume = Arc::new(volume);
        if let Some(observer) = self.observer.get() {
            volume.observe(observer.clone());
            // It looked at the disks that were there at the start only.
            for record in volume.records() {
                observer.inserted(number, &Arrival::of(&record?));
            }
        }
        self.drop_overtaken(&volume)?;
        let mut change = self.lock();
        if change.opens > opens {
            volume.raise(change.opens)?;
        }
        change.replayed.push((number, replayed));
        change.seen.insert(number, Seen { id, mounted });
        self.online.rcu(|online| {
            let mut online = Vec::clone(online);
            online.push(volume.clone());
            online.sort_by_key(|v| v.number());
            online
        });
        change.away.remove(&number);
        self.degraded.store(!change.away.is_empty(), Ordering::SeqCst);
        drop(change);
        self.turns.send_modify(|n| *n += 1);
        Ok(())
    }

    /// How often the store was opened, as a disk that comes into use has to note it.
    fn opens_for(&self, number: usize, identity: &Identity) -> Result<u64> {
        let mut change = self.lock();
        let back = change.seen.get(&number).is_some_and(|seen| seen.id == identity.id);
        let known = identity.opens < change.opens || (back && identity.opens == change.opens);
        if !known {
            // It was in another store for longer: every disk must know, or sequences would repeat.
            change.opens = identity.opens + 1;
            self.sequence.fetch_max(Identity::first_sequence(change.opens), Ordering::SeqCst);
            self.online.load().iter().try_for_each(|v| v.raise(change.opens))?;
        }
        Ok(change.opens)
    }

    /// Removes from a disk that comes back what was written or removed while it was away, before
    /// anybody can read it.
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

    fn note_away(&self, change: &mut Change, number: usize, why: &dyn std::fmt::Display) {
        self.degraded.store(true, Ordering::SeqCst);
        change.away.insert(number, why.to_string());
    }

    /// Takes a disk out of use. Nothing waits for it: it may hang.
    pub(crate) fn leave(&self, volume: Arc<Volume>, why: &dyn std::fmt::Display) {
        let mut change = self.lock();
        if !self.online.load().iter().any(|v| Arc::ptr_eq(v, &volume)) {
            return;
        }
        self.note_away(&mut change, volume.number(), why);
        self.online.rcu(|online| {
            let rest = online.iter().filter(|v| !Arc::ptr_eq(v, &volume));
            rest.cloned().collect::<Vec<_>>()
        });
        drop(change);
        tracing::error!(disk = %volume.path().display(), "out of use: {why}");
        volume.retire();
        self.turns.send_modify(|n| *n += 1);
        let end = std::thread::Builder::new().name(format!("retire-{}", volume.number()));
        // Its end waits for its threads, and those may wait for the disk.
        let ended = end.spawn(move || {
            while Arc::strong_count(&volume) > 1 {
                std::thread::sleep(RETIRING);
            }
            drop(volume);
        });
        if let Err(e) = ended {
            tracing::error!("no thread to end a disk: {e}");
        }
    }

    /// Tries to take a disk into use that is not. Blocks for as long as the disk does.
    pub(crate) fn try_again(&self, number: usize) -> Result<()> {
        let Some(settings) = self.settings.get(number) else { return Ok(()) };
        let path = &settings.path;
        let seen = self.lock().seen.get(&number).map(|seen| seen.mounted);
        let mut settings = settings.clone();
        if let Some(mounted) = seen {
            settings.mount |= mounted;
            settings.rebuild_index = false;
        }
        // A folder that went away is not made again: its disk may come back.
        self.io.list(path).map_err(failed("list", path))?;
        let tried = Claim::take(&settings, self.io.clone()).and_then(|c| self.admit(number, c));
        match &tried {
            Ok(()) => tracing::info!(disk = %path.display(), "in use again"),
            Err(e) => {
                let before = self.lock().away.insert(number, e.to_string());
                if before.is_none_or(|before| before != e.to_string()) {
                    tracing::warn!(disk = %path.display(), "still not in use: {e}");
                }
            }
        }
        tried
    }

    /// The disks that are not in use, and why.
    pub(crate) fn away(&self) -> Vec<(usize, PathBuf, String)> {
        let change = self.lock();
        let away = change.away.iter();
        away.map(|(n, why)| (*n, self.settings[*n].path.clone(), why.clone())).collect()
    }

    /// Whether some disk is not in use.
    pub(crate) fn is_degraded(&self) -> bool {
        self.degraded.load(Ordering::SeqCst)
    }

    /// Whether what is known of this key proves that no disk that is away has an object of it.
    pub(crate) fn is_removed(&self, key: &[u8]) -> Result<bool> {
        for volume in self.online.load().iter() {
            if volume.shared().index.stray(key)?.flatten().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Counts comings and goings of disks.
    pub(crate) fn turns(&self) -> watch::Receiver<u64> {
        self.turns.subscribe()
    }

    /// The disks in use.
    pub(crate) fn online(&self) -> Arc<Vec<Arc<Volume>>> {
        self.online.load_full()
    }

    /// Tells `observer` of all changes of all disks from now on.
    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        let _change = self.lock();
        if self.observer.set(observer.clone()).is_err() {
            tracing::error!("a store has one observer only");
            return;
        }
        self.online.load().iter().for_each(|volume| volume.observe(observer.clone()));
    }

    /// The budget of each disk by its number; 0 of one that is not in use.
    pub(crate) fn budgets(&self) -> Vec<u64> {
        let mut budgets = vec![0; self.settings.len()];
        for volume in self.online.load().iter() {
            budgets[volume.number()] = volume.room().usage().budget;
        }
        budgets
    }

    pub(crate) fn bell(&self) -> &EvictorBell {
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
            return only.get(key);
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
            copies.extend(volume.get(key)?);
        }
        copies.sort_by_key(|r| r.sequence);
        Ok(copies)
    }

    /// Whether a disk other than `volume` has this key, or may have: it is not in use just now.
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

    /// The disks, the one where the object belongs first.
    pub(crate) fn by_score(&self, bucket_id: u64, name: &str) -> Vec<Arc<Volume>> {
        let mut volumes = Vec::clone(&self.online.load());
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
                if self.is_elsewhere(volume, &key)? || volume.shared().index.stray(&key)?.is_some()
                {
                    found.push((volume.clone(), key));
                }
            }
        }
        Ok(found)
    }
}
