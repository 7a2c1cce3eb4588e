//! Whether a file system has so much room that a small write need not ask.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Free bytes that are plenty: no writers fill them while a look stands.
const PLENTY: u64 = 2 << 30;
/// For how long it does.
const STANDS: Duration = Duration::from_millis(20);
/// A small write.
const SMALL: u64 = 1 << 20;

/// The last look that found plenty.
pub(crate) struct Plenty {
    begun: Instant,
    /// Until when it stands, in nanoseconds since `begun`.
    until: AtomicU64,
}

impl Default for Plenty {
    fn default() -> Self {
        Self { begun: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl Plenty {
    /// Whether there is surely room for `bytes`.
    pub(crate) fn is_for(&self, bytes: u64) -> bool {
        bytes <= SMALL && self.since(Instant::now()) < self.until.load(Ordering::Relaxed)
    }

    /// Notes a look just taken: `free` bytes beside what must stay free.
    pub(crate) fn seen(&self, free: u64) {
        let stands = if free >= PLENTY { STANDS } else { Duration::ZERO };
        self.until.store(self.since(Instant::now() + stands), Ordering::Relaxed);
    }

    fn since(&self, then: Instant) -> u64 {
        u64::try_from((then - self.begun).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_that_found_plenty_stands_for_small_writes_until_one_finds_less() {
        let plenty = Plenty::default();
        assert!(!plenty.is_for(1), "nobody looked");
        plenty.seen(PLENTY);
        assert!(!plenty.is_for(SMALL + 1), "a large write asks");
        plenty.seen(PLENTY - 1);
        assert!(!plenty.is_for(1), "little is left");
    }
}
