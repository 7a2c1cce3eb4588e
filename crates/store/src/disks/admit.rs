//! Takes disks into use: when the store is opened, by command, and when a disk comes back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::{Error, ErrorCode, Result};

use super::Disks;
use crate::claim::{Claim, Setting};
use crate::identity::{Identity, failed};
use crate::observer::Arrival;
use crate::state::{DiskState, Seen};

/// The conditions under which a disk comes into use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// It was in use before, or is to be from the start.
    Known,
    /// The disk is new to this store. Objects on it may be outdated, so it must be empty.
    Empty,
    /// Taken into use with all objects on it.
    Adopted,
}

impl Disks {
    /// Takes a locked and identified disk into use.
    pub(crate) fn admit(&self, number: usize, claim: Claim, terms: Terms) -> Result<()> {
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
        self.drop_removed(&volume)?;
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
        drop(change);
        // A removal that was recorded since did not find the disk.
        if let Err(e) = self.drop_removed(&volume) {
            self.leave(&volume, DiskState::Away(e.to_string()));
            return Err(e);
        }
        let mut change = self.lock();
        if self.online.load().iter().any(|v| Arc::ptr_eq(v, &volume)) {
            self.stand(&mut change, number, DiskState::InUse);
        }
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
}
