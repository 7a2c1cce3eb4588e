//! SIEVE: one queue, and a hand that spares residents that were read since its last visit.
//!
//! Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024.

use forebay_target::cache::policy::list::{Links, List, NONE};
use forebay_target::cache::policy::{Buckets, Policy, Slot, Verdict, reach};

/// Evicts, in order of arrival, residents that were not read since the hand's last round.
#[derive(Debug)]
pub(crate) struct Sieve {
    links: Links,
    list: List,
    hand: Slot,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    bucket: u16,
    visited: bool,
}

impl Default for Sieve {
    fn default() -> Self {
        Self { links: Links::default(), list: List::default(), hand: NONE, cells: Vec::new() }
    }
}

impl Sieve {
    fn unlink(&mut self, slot: Slot) {
        if self.hand == slot {
            self.hand = self.links.newer(slot);
        }
        self.links.unlink(&mut self.list, slot);
    }
}

impl Policy for Sieve {
    fn insert(&mut self, slot: Slot, bucket: u16, _key: u64) {
        reach(&mut self.cells, slot, Cell::default());
        self.cells[slot as usize] = Cell { bucket, visited: false };
        self.links.push(&mut self.list, slot);
    }

    fn access(&mut self, slot: Slot) {
        self.cells[slot as usize].visited = true;
    }

    fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
    }

    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        // The first round clears the marks, the second finds residents without one.
        for _ in 0..2 * self.list.len {
            if self.hand == NONE {
                self.hand = self.list.oldest;
            }
            let at = self.hand;
            if at == NONE {
                return;
            }
            let cell = &mut self.cells[at as usize];
            if of.has(cell.bucket) {
                if cell.visited {
                    cell.visited = false;
                } else {
                    match judge(at) {
                        Verdict::Take => {
                            self.unlink(at);
                            continue;
                        }
                        Verdict::Skip => {}
                        Verdict::Enough => return,
                    }
                }
            }
            self.hand = self.links.newer(at);
        }
    }
}
