//! S3-FIFO: a small queue for new residents, a main queue for those that were read again, and a
//! history of evicted ones.
//!
//! Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use super::ghost::Ghost;
use forebay_target::cache::policy::list::{Links, List};
use forebay_target::cache::policy::{Buckets, Policy, Slot, Verdict, reach};

/// One in this many residents is in the small queue.
const SMALL_SHARE: usize = 10;
/// Most reads that are counted.
const MAX_COUNTED_READS: u8 = 3;

/// Evicts residents that were not read while they were new, and otherwise those with the fewest
/// reads.
#[derive(Debug, Default)]
pub(crate) struct S3Fifo {
    links: Links,
    small: List,
    main: List,
    ghost: Ghost,
    cells: Vec<Cell>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    key: u32,
    bucket: u16,
    reads: u8,
    is_main: bool,
}

impl S3Fifo {
    fn take(&mut self, slot: Slot) {
        let cell = self.cells[slot as usize];
        let list = if cell.is_main { &mut self.main } else { &mut self.small };
        self.links.unlink(list, slot);
    }

    fn put(&mut self, slot: Slot, is_main: bool) {
        self.cells[slot as usize].is_main = is_main;
        let list = if is_main { &mut self.main } else { &mut self.small };
        self.links.push(list, slot);
    }
}

impl Policy for S3Fifo {
    fn insert(&mut self, slot: Slot, bucket: u16, key: u64) {
        let key = (key >> 32) as u32;
        reach(&mut self.cells, slot, Cell::default());
        self.cells[slot as usize] = Cell { key, bucket, reads: 0, is_main: false };
        let known = self.ghost.take(key);
        self.put(slot, known);
    }

    fn access(&mut self, slot: Slot) {
        let cell = &mut self.cells[slot as usize];
        cell.reads = (cell.reads + 1).min(MAX_COUNTED_READS);
    }

    fn remove(&mut self, slot: Slot) {
        self.take(slot);
    }

    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        // Each step moves one resident; one of the main queue is visited once per read and once
        // more.
        let steps = (usize::from(MAX_COUNTED_READS) + 2) * (self.small.len + self.main.len);
        // For one bucket: once through the small queue, then through the main one.
        let small = self.small.len;
        for step in 0..steps {
            let total = self.small.len + self.main.len;
            let from_small = match of {
                Buckets::One(_) | Buckets::Where(_) => step < small,
                Buckets::All => self.small.len * SMALL_SHARE > total,
            } || self.main.len == 0;
            let slot = if from_small { self.small.oldest } else { self.main.oldest };
            if total == 0 {
                return;
            }
            let cell = &mut self.cells[slot as usize];
            let wanted = of.has(cell.bucket);
            // The original requires two reads in the small queue; with one read per epoch no
            // resident would ever qualify.
            if cell.reads > 0 && wanted {
                cell.reads = if from_small { 0 } else { cell.reads - 1 };
                self.take(slot);
                self.put(slot, true);
                continue;
            }
            let verdict = if wanted { judge(slot) } else { Verdict::Skip };
            match verdict {
                Verdict::Take => {
                    let key = cell.key;
                    self.take(slot);
                    if from_small {
                        self.ghost.put(key, self.main.len.max(self.small.len));
                    }
                }
                Verdict::Skip => {
                    self.take(slot);
                    self.put(slot, !from_small);
                }
                Verdict::Enough => return,
            }
        }
    }
}
