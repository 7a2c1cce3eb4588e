//! The disks of a store: which are in use, and which of them has, or should have, an object.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use arc_swap::ArcSwap;
use forebay_core::{Error, Result, placement};

use super::DiskSettings;
use super::disk::Disk;
use super::format;
use super::identity::Identity;
use super::observer::Observer;
use super::record::Record;
use super::recover::Replayed;
use super::space::EvictorBell;
use super::volume::{Claim, Volume};

/// All disks that the store was given.
pub(crate) struct Disks {
    io: Arc<dyn Disk>,
    settings: Vec<DiskSettings>,
    online: ArcSwap<Vec<Arc<Volume>>>,
    bell: Arc<EvictorBell>,
    /// Order of records over all disks, so that of two copies the newer one is known.
    sequence: Arc<AtomicU64>,
    observer: OnceLock<Arc<dyn Observer>>,
    /// Held while a disk comes or goes.
    change: Mutex<Change>,
}

#[derive(Default)]
struct Change {
    /// How often the store was opened.
    opens: u64,
    /// What the disks opened last learned from their logs.
    replayed: Vec<(usize, Replayed)>,
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
            change: Mutex::new(Change { opens, replayed: Vec::new() }),
        };
        let mut first_error = None;
        for (number, claim) in claims.into_iter().enumerate() {
            if let Err(e) = claim.and_then(|claim| disks.admit(&mut disks.lock(), number, claim)) {
                tracing::error!(disk = %disks.settings[number].path.display(), "not in use: {e}");
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
    fn admit(&self, change: &mut Change, number: usize, claim: Claim) -> Result<()> {
        if claim.identity.opens >= change.opens {
            // It was in another store for longer: every disk must know, or sequences would repeat.
            change.opens = claim.identity.opens + 1;
            self.sequence.fetch_max(Identity::first_sequence(change.opens), Ordering::SeqCst);
            self.online.load().iter().try_for_each(|v| v.raise(change.opens))?;
        }
        let (sequence, bell) = (self.sequence.clone(), self.bell.clone());
        let (volume, replayed) = claim.open(number, change.opens, sequence, bell)?;
        change.replayed.push((number, replayed));
        let volume = Arc::new(volume);
        if let Some(observer) = self.observer.get() {
            volume.observe(observer.clone());
        }
        self.online.rcu(|online| {
            let mut online = Vec::clone(online);
            online.push(volume.clone());
            online.sort_by_key(|v| v.number());
            online
        });
        Ok(())
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

    /// Whether a disk other than `volume` has this key.
    pub(crate) fn is_elsewhere(&self, volume: &Volume, key: &[u8]) -> Result<bool> {
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
        let mut strays = Vec::new();
        for volume in online.iter() {
            let mut keys = volume.shared().index.strays()?;
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
                if self.is_elsewhere(volume, &key)? || volume.shared().index.is_stray(&key)? {
                    strays.push((volume.clone(), key));
                }
            }
        }
        Ok(strays)
    }
}
