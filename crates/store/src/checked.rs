//! Tracks blocks of files that were compared with their checksums recently.
//!
//! A read of less than a block has to read the whole block to check it. If the block is still in
//! the page cache, the file is unchanged and the last check is at most [`TRUST`] old, that check is
//! used again. Shuffled members of a shard then cost their own bytes alone.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;

use super::format::BLOCK;

/// How long a check is valid.
const TRUST: Duration = Duration::from_secs(10);
/// Resolution of the time of a check.
const TICK: Duration = Duration::from_millis(100);
/// Most blocks of all files of a disk whose check times are kept: 256 GiB of data in 16 MiB.
const MAX_TRACKED_BLOCKS: usize = 4 << 20;
/// Fixed memory per file, counted in blocks.
const FILE: usize = 32;

/// Check times of the files of one disk.
#[derive(Default)]
pub(crate) struct Checked {
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    by_id: HashMap<u64, Arc<Marks>>,
    /// Sum over all files, each with its fixed cost.
    blocks: usize,
    /// Tick of the last removal of expired files: once in a tick is enough.
    dropped: u32,
}

/// When the blocks of one file were checked.
pub(crate) struct Marks {
    /// Time of the last change of the file, in ns since 1970. A file with another time counts as
    /// another file.
    changed_ns: i128,
    /// Ticks since the process began, plus one; 0 means never.
    blocks: Box<[AtomicU32]>,
    /// The page cache dropped a part of the file: checks of this tick and before are not valid.
    lost: AtomicU32,
}

impl Checked {
    /// The marks of file `id`, which has `size` bytes of payload and was changed at `changed_ns`.
    /// `None` if the marks of other files take all the memory.
    pub(crate) fn marks(&self, id: u64, size: u64, changed_ns: i128) -> Option<Arc<Marks>> {
        let blocks = usize::try_from(size.div_ceil(BLOCK))
            .ok()
            .filter(|n| *n <= MAX_TRACKED_BLOCKS - FILE)?;
        let mut files = self.files.locked();
        if let Some(marks) = files.by_id.get(&id)
            && marks.changed_ns == changed_ns
            && marks.blocks.len() == blocks
        {
            return Some(marks.clone());
        }
        files.remove(id);
        if files.blocks + blocks + FILE > MAX_TRACKED_BLOCKS && now() != files.dropped {
            files.drop_old(now());
        }
        if files.blocks + blocks + FILE > MAX_TRACKED_BLOCKS {
            return None;
        }
        let blocks = std::iter::repeat_with(AtomicU32::default).take(blocks).collect();
        let marks = Arc::new(Marks { changed_ns, blocks, lost: AtomicU32::new(0) });
        files.blocks += marks.cost();
        files.by_id.insert(id, marks.clone());
        Some(marks)
    }
}

impl Files {
    fn remove(&mut self, id: u64) {
        if let Some(marks) = self.by_id.remove(&id) {
            self.blocks -= marks.cost();
        }
    }

    /// Removes files without a valid check.
    fn drop_old(&mut self, now: u32) {
        self.dropped = now;
        self.by_id.retain(|_, marks| marks.is_any_fresh(now));
        self.blocks = self.by_id.values().map(|marks| marks.cost()).sum();
    }
}

impl Marks {
    /// Notes that these blocks were read and matched their checksums.
    pub(crate) fn note(&self, blocks: Range<u64>) {
        let now = now();
        for block in self.of(blocks) {
            block.store(now, Ordering::Relaxed);
        }
    }

    /// Whether all of these blocks have a valid check.
    pub(crate) fn cover(&self, blocks: Range<u64>) -> bool {
        let now = now();
        self.of(blocks).iter().all(|block| self.is_fresh(block, now))
    }

    /// How many of these blocks, from the first on, have a valid check.
    pub(crate) fn covered(&self, blocks: Range<u64>) -> u64 {
        let now = now();
        self.of(blocks).iter().take_while(|block| self.is_fresh(block, now)).count() as u64
    }

    /// Makes all checks until now invalid.
    pub(crate) fn lose(&self) {
        self.lost.store(now(), Ordering::Relaxed);
    }

    fn cost(&self) -> usize {
        self.blocks.len() + FILE
    }

    fn of(&self, blocks: Range<u64>) -> &[AtomicU32] {
        self.blocks.get(blocks.start as usize..blocks.end as usize).unwrap_or_default()
    }

    fn is_fresh(&self, block: &AtomicU32, now: u32) -> bool {
        let noted = block.load(Ordering::Relaxed);
        noted > self.lost.load(Ordering::Relaxed) && now - noted.min(now) < ticks(TRUST)
    }

    fn is_any_fresh(&self, now: u32) -> bool {
        self.blocks.iter().any(|block| self.is_fresh(block, now))
    }
}

fn now() -> u32 {
    static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ticks(BEGIN.elapsed()).saturating_add(1)
}

/// Ticks of a time. They saturate after 13 years; checks are then never valid.
fn ticks(time: Duration) -> u32 {
    u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_covered_when_all_of_them_were_noted() {
        let checked = Checked::default();
        let marks = checked.marks(1, 5 * BLOCK + 1, 7).unwrap();
        assert!(!marks.cover(0..1));
        marks.note(1..4);
        assert!(marks.cover(1..4) && marks.cover(2..3));
        assert!(!marks.cover(0..2) && !marks.cover(3..5));
        assert_eq!((marks.covered(1..3), marks.covered(2..6), marks.covered(0..4)), (2, 2, 0));
        assert!(checked.marks(1, 5 * BLOCK + 1, 7).unwrap().cover(1..4), "known to all readers");
    }

    #[test]
    fn a_file_that_changed_is_another_one() {
        let checked = Checked::default();
        checked.marks(1, BLOCK, 7).unwrap().note(0..1);
        assert!(!checked.marks(1, BLOCK, 8).unwrap().cover(0..1));
        assert!(!checked.marks(1, BLOCK, 7).unwrap().cover(0..1));
        assert!(!checked.marks(2, BLOCK, 7).unwrap().cover(0..1));
    }

    #[test]
    fn checks_before_a_loss_and_older_ones_do_not_count() {
        let marks = Checked::default().marks(1, 2 * BLOCK, 7).unwrap();
        marks.note(0..2);
        marks.lose();
        assert!(!marks.cover(0..1));
        let later = now() + 1;
        marks.blocks[0].store(later, Ordering::Relaxed);
        assert!(marks.is_fresh(&marks.blocks[0], later));
        assert!(marks.is_fresh(&marks.blocks[0], later + ticks(TRUST) - 1));
        assert!(!marks.is_fresh(&marks.blocks[0], later + ticks(TRUST)));
    }

    #[test]
    fn what_is_kept_is_bounded_and_old_files_make_room() {
        let checked = Checked::default();
        let size = (MAX_TRACKED_BLOCKS / 2 - FILE) as u64 * BLOCK;
        let first = checked.marks(1, size, 7).unwrap();
        checked.marks(2, size, 7).unwrap().note(0..1);
        first.note(0..1);
        assert!(checked.marks(3, BLOCK, 7).is_none(), "both are in use");
        first.lose();
        assert!(checked.marks(3, BLOCK, 7).is_none(), "it was looked for room a moment ago");
        std::thread::sleep(2 * TICK);
        checked.marks(3, BLOCK, 7).unwrap().note(0..1);
        assert!(checked.marks(4, size, 7).is_none(), "2 is in use");
        assert!(checked.marks(5, (MAX_TRACKED_BLOCKS as u64 + 1) * BLOCK, 7).is_none());
    }
}
