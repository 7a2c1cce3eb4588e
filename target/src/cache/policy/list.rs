//! Doubly linked lists of slots, several over one pair of columns.

use super::{Slot, reach};

/// No slot.
pub const NONE: Slot = Slot::MAX;

/// The links of all slots of a disk; a slot is in one list at most.
#[derive(Debug, Default)]
pub struct Links {
    older: Vec<Slot>,
    newer: Vec<Slot>,
}

/// One list.
#[derive(Debug)]
pub struct List {
    pub newest: Slot,
    pub oldest: Slot,
    pub len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { newest: NONE, oldest: NONE, len: 0 }
    }
}

impl Links {
    /// The next newer slot of the same list, or [`NONE`].
    pub fn newer(&self, slot: Slot) -> Slot {
        self.newer[slot as usize]
    }

    /// The next older slot of the same list, or [`NONE`].
    pub fn older(&self, slot: Slot) -> Slot {
        self.older[slot as usize]
    }

    /// Adds a slot that is in no list, as the newest.
    pub fn push(&mut self, list: &mut List, slot: Slot) {
        reach(&mut self.older, slot, NONE);
        reach(&mut self.newer, slot, NONE);
        self.older[slot as usize] = list.newest;
        self.newer[slot as usize] = NONE;
        match list.newest {
            NONE => list.oldest = slot,
            newest => self.newer[newest as usize] = slot,
        }
        list.newest = slot;
        list.len += 1;
    }

    /// Removes a slot from the list that it is in.
    pub fn unlink(&mut self, list: &mut List, slot: Slot) {
        let (older, newer) = (self.older(slot), self.newer(slot));
        match older {
            NONE => list.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        match newer {
            NONE => list.newest = older,
            newer => self.older[newer as usize] = older,
        }
        list.len -= 1;
    }
}
