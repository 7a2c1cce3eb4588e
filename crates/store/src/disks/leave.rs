//! Takes disks out of use: those that fail, that are damaged, and that leave by command.

use std::sync::Arc;
use std::time::Duration;

use super::Disks;
use crate::state::DiskState;
use crate::volume::Volume;

/// How often a disk that was taken out of use is checked, until its last user released it.
const RETIRING: Duration = Duration::from_millis(20);

impl Disks {
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
}
