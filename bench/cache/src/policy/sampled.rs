//! Random victims, and the older of two random ones.

use forebay_target::cache::policy::{Buckets, Dice, Policy, Slot, Verdict, draw, reach};

/// Evicts the least recently used of `size` residents drawn at random.
#[derive(Debug)]
pub(crate) struct Sampled {
    size: usize,
    clock: u32,
    /// Time of the last access, and bucket; 0: the cell is empty.
    cells: Vec<(u32, u16)>,
    len: usize,
    dice: Dice,
}

impl Sampled {
    pub(crate) fn new(size: usize) -> Self {
        Self { size, clock: 0, cells: Vec::new(), len: 0, dice: Dice::default() }
    }

    fn tick(&mut self) -> u32 {
        self.clock = self.clock.wrapping_add(1).max(1);
        self.clock
    }
}

impl Policy for Sampled {
    fn insert(&mut self, slot: Slot, bucket: u16, _key: u64) {
        reach(&mut self.cells, slot, (0, 0));
        self.cells[slot as usize] = (self.tick(), bucket);
        self.len += 1;
    }

    fn access(&mut self, slot: Slot) {
        self.cells[slot as usize].0 = self.tick();
    }

    fn remove(&mut self, slot: Slot) {
        self.cells[slot as usize].0 = 0;
        self.len -= 1;
    }

    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        for _ in 0..2 * self.len {
            let (cells, dice) = (&self.cells, &mut self.dice);
            let is_there = |at: usize| cells[at].0 != 0 && of.has(cells[at].1);
            let drawn = (0..self.size).filter_map(|_| draw(dice, cells.len(), is_there));
            let oldest = drawn.max_by_key(|at| self.clock.wrapping_sub(cells[*at].0));
            let Some(at) = oldest else { return };
            match judge(at as Slot) {
                Verdict::Take => {
                    self.cells[at].0 = 0;
                    self.len -= 1;
                }
                Verdict::Skip => {}
                Verdict::Enough => return,
            }
        }
    }
}
