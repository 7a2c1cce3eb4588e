//! Attaches and detaches disks by command, while the store runs.
//!
//! A disk that leaves takes no new objects, and its objects move to the other disks; then it is
//! detached: [`Store::begin_leaving`], [`Store::empty`], [`Store::take_out`]. The disk stays as
//! long as an object on it cannot be moved.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use forebay_core::{Error, ErrorCode, Result};

use super::claim::Claim;
use super::disks::Terms;
use super::identity::failed;
use super::record::Record;
use super::resilver::ObjectLock;
use super::state::{DiskState, Slot};
use super::volume::Volume;
use super::{DiskSettings, Store, blocking, format};

/// Most disk numbers that a process assigns. A detached disk keeps its number until the process
/// ends.
pub const MAX_DISKS: usize = 256;
/// Records read in one step.
const PAGE: usize = 256;
/// Passes over a sealed disk until no object is left on it.
const PASSES: usize = 3;
/// Bytes moved in a second at most. It is high because an administrator waits for the command.
const BYTES_PER_SECOND: u64 = 256 << 20;
/// How long a command waits for a disk: until its last user released it, or until it is in use.
const DETACH_TIMEOUT: Duration = Duration::from_secs(15);
const TICK: Duration = Duration::from_millis(50);

impl Store {
    /// Takes a folder into use as one more disk. Objects that are on it already are refused unless
    /// they are to be `adopted`.
    pub async fn attach_disk(&self, settings: DiskSettings, adopted: bool) -> Result<()> {
        let path = settings.path.clone();
        let number = self.slot_for(&settings)?;
        // The disk may have been detached a moment ago while a reader still uses it.
        self.until(|| self.disks.lock().slots[number].ending.strong_count() == 0).await;
        let disks = self.disks.clone();
        let terms = if adopted { Terms::Adopted } else { Terms::Empty };
        blocking(move || {
            disks.io.list(&path).map_err(failed("list", &path))?;
            disks.admit(number, Claim::take(&settings, disks.io.clone())?, terms)
        })
        .await?;
        self.drop_strays().await?;
        self.drop_double_partials().await
    }

    /// The number of an attached disk: the one it had before, or a new one.
    fn slot_for(&self, settings: &DiskSettings) -> Result<usize> {
        let mut change = self.disks.lock();
        let path = &settings.path;
        for slot in change.slots.iter().filter(|slot| slot.state != DiskState::Detached) {
            let known = &slot.settings.path;
            if path.starts_with(known) || known.starts_with(path) {
                let text = format!("disk {} is attached already", known.display());
                return Err(Error::new(ErrorCode::Conflict, text)
                    .hint("give another folder, or enable it if it is disabled"));
            }
        }
        let before = change.slots.iter().position(|slot| slot.settings.path == *path);
        let number = before.unwrap_or(change.slots.len());
        if number >= MAX_DISKS {
            return Err(Error::new(ErrorCode::Conflict, "too many disks came and went")
                .hint("restart the target"));
        }
        let mut slot = Slot::new(settings.clone());
        slot.state = DiskState::Detached;
        match change.slots.get_mut(number) {
            Some(old) => {
                slot.ending = std::mem::take(&mut old.ending);
                *old = slot;
            }
            None => change.slots.push(slot),
        }
        Ok(number)
    }

    /// Takes a disabled disk into use again. The task that watches the disks does the work.
    pub async fn enable_disk(&self, path: &Path) -> Result<()> {
        let number = self.disk_number(path)?;
        {
            let mut change = self.disks.lock();
            match &change.slots[number].state {
                DiskState::Disabled { .. } => {}
                DiskState::InUse => return Ok(()),
                other => {
                    let text = format!("disk {} is not disabled: {other}", path.display());
                    return Err(Error::new(ErrorCode::Conflict, text));
                }
            }
            let state = DiskState::Away("it was just enabled".into());
            self.disks.stand(&mut change, number, state.clone());
        }
        let state = || self.disks.lock().slots[number].state.clone();
        self.until(|| state() == DiskState::InUse).await;
        match state() {
            DiskState::InUse => Ok(()),
            other => {
                let text = format!("disk {} is not in use yet: {other}", path.display());
                Err(Error::unavailable(text).hint("it is tried again until it is"))
            }
        }
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() && started.elapsed() < DETACH_TIMEOUT {
            tokio::time::sleep(TICK).await;
        }
    }

    fn disk_number(&self, path: &Path) -> Result<usize> {
        let change = self.disks.lock();
        let known = |slot: &Slot| slot.settings.path == path && slot.state != DiskState::Detached;
        change.slots.iter().position(known).ok_or_else(|| {
            let text = format!("{} is no disk of this target", path.display());
            Error::new(ErrorCode::NodeNotFound, text)
                .hint("`forebay disk ls` shows the disks as they are to be named")
        })
    }

    /// Returns the state of a disk.
    pub fn state(&self, path: &Path) -> Result<DiskState> {
        let number = self.disk_number(path)?;
        Ok(self.disks.lock().slots[number].state.clone())
    }

    /// Stops placing new objects on a disk, so that it can be emptied.
    pub fn begin_leaving(&self, path: &Path) -> Result<Arc<Volume>> {
        let number = self.disk_number(path)?;
        let mut change = self.disks.lock();
        let conflict = |text: String| Err(Error::new(ErrorCode::Conflict, text));
        for (n, slot) in change.slots.iter().enumerate() {
            let (at, state) = (slot.settings.path.display(), &slot.state);
            if n == number && *state != DiskState::InUse {
                return conflict(format!("the objects of {at} cannot be moved: {state}"));
            }
            // The leaving disk keeps notes about objects on the unavailable disk. They would be
            // lost with it.
            if n != number && state.hides_objects() {
                return conflict(format!("disk {at} is not in use either: {state}"));
            }
        }
        if !change
            .slots
            .iter()
            .enumerate()
            .any(|(n, slot)| n != number && slot.state == DiskState::InUse)
        {
            return conflict(format!("{} is the only disk in use", path.display()));
        }
        let volume = self.disks.number(number)?;
        volume.shared().condition.leave();
        change.slots[number].note.clear();
        self.disks.stand(&mut change, number, DiskState::Leaving);
        Ok(volume)
    }

    /// Moves all objects of a leaving disk to the other disks. Copies that a backend also has are
    /// dropped where there is no space for them.
    pub async fn empty(&self, from: &Arc<Volume>, lock: &ObjectLock) -> Result<()> {
        self.move_all(from, lock).await?;
        // From here on no new write starts on this disk. Writes that started before complete now or
        // on another disk.
        from.shared().condition.seal();
        from.drain().await?;
        for _ in 0..PASSES {
            if self.move_all(from, lock).await? == 0 {
                return self.check_no_uploads(from).await;
            }
        }
        let text = format!("objects of {} keep changing", from.path().display());
        Err(Error::unavailable(text))
    }

    /// Returns a leaving disk to service.
    pub fn stay(&self, volume: &Arc<Volume>, why: &Error) {
        let mut change = self.disks.lock();
        volume.shared().condition.stay();
        let number = volume.number();
        change.slots[number].note = why.to_string();
        if change.slots[number].state == DiskState::Leaving {
            self.disks.stand(&mut change, number, DiskState::InUse);
        }
    }

    /// Takes a disk out of use at once, with the objects on it.
    pub fn take_out(&self, path: &Path, state: DiskState) -> Result<()> {
        let number = self.disk_number(path)?;
        match self.disks.number(number) {
            Ok(volume) => self.disks.leave(&volume, state),
            Err(_) => self.disks.stand(&mut self.disks.lock(), number, state),
        }
        Ok(())
    }

    /// Has all disks checked again, and the placement of objects among them.
    pub fn look_again(&self) {
        for volume in self.disks.online().iter() {
            volume.shared().condition.suspect();
        }
        self.disks.turn();
    }

    /// One pass over a disk. Returns how many records it found.
    async fn move_all(&self, from: &Arc<Volume>, lock: &ObjectLock) -> Result<u64> {
        let (mut found, mut after) = (0, None);
        loop {
            let (source, from_key) = (from.clone(), after.take());
            let page = blocking(move || source.shared().index.page(from_key, PAGE)).await?;
            let Some(last) = page.last() else { return Ok(found) };
            after = Some(format::key(last.bucket_id, &last.name));
            found += page.len() as u64;
            for record in page {
                from.shared().check_alive()?;
                self.move_off(from, record, lock).await?;
            }
        }
    }

    /// Moves one object to the best disk that has space. One that changed meanwhile may stay: the
    /// next pass finds it.
    async fn move_off(&self, from: &Arc<Volume>, record: Record, lock: &ObjectLock) -> Result<()> {
        let newest = self.disks.find(&format::key(record.bucket_id, &record.name))?;
        if newest
            .is_some_and(|newest| newest.sequence > record.sequence && newest.disk != record.disk)
        {
            return from.remove(&record).await.map(drop);
        }
        let need = format::space_for(record.size, &record.name);
        let room = self.disks.by_score(record.bucket_id, &record.name).into_iter().find_map(|to| {
            let fits = to.shared().check_alive().is_ok() && to.shared().file_system_fits(need);
            let reservation = to.room().try_reserve(need).filter(|_| fits)?;
            Some((to, reservation))
        });
        let started = Instant::now();
        let failure = match room {
            Some((to, reservation)) => match self.relocate(&record, &to, reservation, lock).await {
                Ok(_) => {
                    let pace = need.saturating_mul(1_000_000_000) / BYTES_PER_SECOND;
                    let rest = Duration::from_nanos(pace).saturating_sub(started.elapsed());
                    tokio::time::sleep(rest).await;
                    return Ok(());
                }
                Err(e) => e,
            },
            None => {
                Error::new(ErrorCode::OutOfSpace, format!("no other disk has {need} bytes left"))
            }
        };
        if record.evictable() {
            return from.remove(&record).await.map(drop);
        }
        let text = format!("\"{}\" cannot be moved: {}", record.name, failure.message);
        Err(Error { message: text, ..failure }
            .hint("see to it, or take the disk out with all that is on it by force"))
    }

    async fn check_no_uploads(&self, from: &Arc<Volume>) -> Result<()> {
        let (shared, path) = (from.shared().clone(), from.path().join("uploads"));
        let uploads = blocking(move || match shared.io.list(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(0),
            other => other.map(|names| names.len()).map_err(failed("list", &path)),
        });
        match uploads.await? {
            0 => Ok(()),
            n => {
                let text =
                    format!("{n} uploads in parts are under way on {}", from.path().display());
                Err(Error::new(ErrorCode::Conflict, text)
                    .hint("complete or abort them, or give them up by force"))
            }
        }
    }
}
