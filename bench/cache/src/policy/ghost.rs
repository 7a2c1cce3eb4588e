//! A history of recently evicted residents: digests, removed first in, first out.

/// Four bytes of digest and four of time in a table without chains: an entry in a taken cell
/// overwrites it, which loses a little of the oldest history.
#[derive(Debug, Default)]
pub(super) struct Ghost {
    cells: Vec<(u32, u32)>,
    now: u32,
    /// How many digests are remembered.
    reach: u32,
}

const SMALLEST: usize = 1 << 10;

impl Ghost {
    /// Adds a digest to the last `reach` ones.
    pub(super) fn put(&mut self, key: u32, reach: usize) {
        self.reach = reach.try_into().unwrap_or(u32::MAX);
        let want = (2 * reach).next_power_of_two().max(SMALLEST);
        if want > self.cells.len() {
            let old = std::mem::replace(&mut self.cells, vec![(0, 0); want]);
            for (key, time) in old.into_iter().filter(|c| c.1 != 0) {
                let at = self.place(key);
                self.cells[at] = (key, time);
            }
        }
        // 0 marks an empty cell.
        self.now = self.now.wrapping_add(1).max(1);
        let at = self.place(key);
        self.cells[at] = (key, self.now);
    }

    /// Whether the digest is in the history; removes it.
    pub(super) fn take(&mut self, key: u32) -> bool {
        if self.cells.is_empty() {
            return false;
        }
        let at = self.place(key);
        let (there, time) = self.cells[at];
        let known = there == key && time != 0 && self.now.wrapping_sub(time) < self.reach;
        if known {
            self.cells[at] = (0, 0);
        }
        known
    }

    fn place(&self, key: u32) -> usize {
        key.wrapping_mul(0x9e37_79b1) as usize >> 4 & (self.cells.len() - 1)
    }
}
