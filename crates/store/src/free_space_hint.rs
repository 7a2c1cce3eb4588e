//! Remembers that a file system has so much free space that a small write need not check it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Free bytes that are enough: writers cannot fill them within [`HINT_TTL`].
const AMPLE_FREE_BYTES: u64 = 2 << 30;
/// How long one check of the free space is valid.
const HINT_TTL: Duration = Duration::from_millis(20);
/// Largest write that relies on the hint.
const SMALL_WRITE_BYTES: u64 = 1 << 20;

/// The last check of the free space that found enough.
pub(crate) struct FreeSpaceHint {
    started: Instant,
    /// End of its validity, in nanoseconds since `started`.
    until: AtomicU64,
}

impl Default for FreeSpaceHint {
    fn default() -> Self {
        Self { started: Instant::now(), until: AtomicU64::new(0) }
    }
}

impl FreeSpaceHint {
    /// Whether there is surely space for `bytes`.
    pub(crate) fn is_for(&self, bytes: u64) -> bool {
        bytes <= SMALL_WRITE_BYTES
            && self.since(Instant::now()) < self.until.load(Ordering::Relaxed)
    }

    /// Notes a check just made: `free` bytes beside those that must stay free.
    pub(crate) fn seen(&self, free: u64) {
        let stands = if free >= AMPLE_FREE_BYTES { HINT_TTL } else { Duration::ZERO };
        self.until.store(self.since(Instant::now() + stands), Ordering::Relaxed);
    }

    fn since(&self, then: Instant) -> u64 {
        u64::try_from((then - self.started).as_nanos()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_with_ample_free_space_covers_small_writes_until_one_finds_less() {
        let free_space_hint = FreeSpaceHint::default();
        assert!(!free_space_hint.is_for(1), "nobody looked");
        free_space_hint.seen(AMPLE_FREE_BYTES);
        assert!(!free_space_hint.is_for(SMALL_WRITE_BYTES + 1), "a large write asks");
        free_space_hint.seen(AMPLE_FREE_BYTES - 1);
        assert!(!free_space_hint.is_for(1), "little is left");
    }
}
