//! Blocks of files that were compared with their checksums a moment ago.
//!
//! A read of less than a block has to read all of it to check it. While the block is still in the
//! page cache, and nobody changed the file since, a check that is at most [`TRUST`] old stands for
//! the next one: shuffled members of a shard then cost their own bytes alone.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::format::BLOCK;

/// For how long a check stands.
const TRUST: Duration = Duration::from_secs(10);
/// Time of a check is kept in steps of this.
const TICK: Duration = Duration::from_millis(100);
/// Blocks of all files of a disk whose times are kept at most: 256 GiB of data in 16 MiB.
const MAX_TRACKED_BLOCKS: usize = 4 << 20;
/// What a file takes beside them, in blocks.
const FILE: usize = 32;

/// What is known of the files of one disk.
#[derive(Default)]
pub(crate) struct Checked {
    files: Mutex<Files>,
}

#[derive(Default)]
struct Files {
    by_id: HashMap<u64, Arc<Marks>>,
    /// Of all files, each with what it takes beside them.
    blocks: usize,
    /// When all were looked at for what does not count any more: once in a tick is enough.
    dropped: u32,
}

/// When the blocks of one file were checked.
pub(crate) struct Marks {
    /// When the file was last changed, in ns since 1970: another time makes another file of it.
    changed_ns: i128,
    /// Ticks since the process began, and one: 0 is never.
    blocks: Box<[AtomicU32]>,
    /// The page cache lost something of the file: checks of this tick and before do not count.
    lost: AtomicU32,
}

impl Checked {
    /// The marks of file `id`, which has `size` bytes of payload and was changed at `changed_ns`.
    /// `None`: too much is known of other files already.
    pub(crate) fn marks(&self, id: u64, size: u64, changed_ns: i128) -> Option<Arc<Marks>> {
        let blocks = usize::try_from(size.div_ceil(BLOCK))
            .ok()
            .filter(|n| *n <= MAX_TRACKED_BLOCKS - FILE)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// Forgets files of which no check counts any more.
    fn drop_old(&mut self, now: u32) {
        self.dropped = now;
        self.by_id.retain(|_, marks| marks.is_any_fresh(now));
        self.blocks = self.by_id.values().map(|marks| marks.cost()).sum();
    }
}

impl Marks {
    /// Notes that these blocks were read and are sound.
    pub(crate) fn note(&self, blocks: Range<u64>) {
        let now = now();
        for block in self.of(blocks) {
            block.store(now, Ordering::Relaxed);
        }
    }

    /// Whether all of these blocks were checked a moment ago.
    pub(crate) fn cover(&self, blocks: Range<u64>) -> bool {
        let now = now();
        self.of(blocks).iter().all(|block| self.is_fresh(block, now))
    }

    /// How many of these blocks, from the first on, were checked a moment ago.
    pub(crate) fn covered(&self, blocks: Range<u64>) -> u64 {
        let now = now();
        self.of(blocks).iter().take_while(|block| self.is_fresh(block, now)).count() as u64
    }

    /// Has no check until now count.
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

/// Ticks of a time; the last one after 13 years, when checks stop to count.
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
