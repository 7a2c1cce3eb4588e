//! Notes of accesses that cost a reader no lock: some may get lost, but none is false.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Readers that write to different stripes do not touch the same cache lines.
const STRIPES: usize = 16;
/// Notes of one stripe; further notes between two drains overwrite the first.
const NOTES: usize = 128;

/// Generations that were read recently. 0 is no generation.
#[derive(Debug)]
pub(super) struct Notes {
    stripes: Vec<Stripe>,
}

#[derive(Debug)]
#[repr(align(128))]
struct Stripe {
    next: AtomicUsize,
    cells: [AtomicU64; NOTES],
}

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
}
static THREADS: AtomicUsize = AtomicUsize::new(0);

fn my_stripe() -> usize {
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(THREADS.fetch_add(1, Ordering::Relaxed) % STRIPES);
        }
        mine.get()
    })
}

impl Default for Notes {
    fn default() -> Self {
        let stripe =
            || Stripe { next: AtomicUsize::new(0), cells: [const { AtomicU64::new(0) }; NOTES] };
        Self { stripes: (0..STRIPES).map(|_| stripe()).collect() }
    }
}

impl Notes {
    /// Notes an access. Returns true when the thread's stripe is full and should be drained.
    pub(super) fn add(&self, generation: u64) -> bool {
        let stripe = &self.stripes[my_stripe()];
        let at = stripe.next.fetch_add(1, Ordering::Relaxed) % NOTES;
        stripe.cells[at].store(generation, Ordering::Relaxed);
        at == NOTES - 1
    }

    /// Takes all notes, in no order.
    pub(super) fn drain(&self, mut take: impl FnMut(u64)) {
        for cell in self.stripes.iter().flat_map(|s| &s.cells) {
            // Read first: most are empty, and a read takes the cache line from no other core.
            if cell.load(Ordering::Relaxed) != 0 {
                match cell.swap(0, Ordering::Relaxed) {
                    0 => {}
                    generation => take(generation),
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn what_is_noted_is_taken_once() {
        let notes = Notes::default();
        (1..=5).for_each(|g| assert!(!notes.add(g)));
        let mut taken = Vec::new();
        notes.drain(|g| taken.push(g));
        assert_eq!(taken, [1, 2, 3, 4, 5]);
        notes.drain(|g| panic!("{g} again"));
    }

    #[test]
    fn a_full_stripe_says_so_and_then_forgets_the_first() {
        let notes = Notes::default();
        let full = (1..=NOTES as u64 + 2).filter(|g| notes.add(*g)).count();
        assert_eq!(full, 1);
        let mut taken = Vec::new();
        notes.drain(|g| taken.push(g));
        assert_eq!(taken.len(), NOTES);
        assert!(!taken.contains(&1) && taken.contains(&3));
    }

    #[test]
    fn concurrent_readers_lose_no_note_while_there_is_space() {
        let notes = Notes::default();
        let taken = Mutex::new(Vec::new());
        std::thread::scope(|s| {
            for thread in 0..4u64 {
                let notes = &notes;
                // Enough space even if all shared one stripe.
                s.spawn(move || {
                    for i in 0..20 {
                        notes.add(1 + thread * 20 + i);
                    }
                });
            }
        });
        notes.drain(|g| taken.lock().unwrap().push(g));
        let mut taken = taken.into_inner().unwrap();
        taken.sort_unstable();
        assert_eq!(taken, (1..=80).collect::<Vec<_>>());
    }
}
