//! Decides whether a copy of an object that is read from a backend is kept.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::cache_rules::{Admission, CacheRules};
use forebay_store::{Demand, key_digest};

/// A second miss counts when it comes within this many seconds,
const WINDOW_S: u32 = 24 * 3600;
/// and within about this many misses: 8 bytes each.
const CELLS: usize = 1 << 21;

/// Remembers misses, for buckets that keep an object only at its second miss.
pub struct Gate {
    /// Percent of a disk's budget above which nothing is kept.
    out_of_space: u8,
    /// Digest and time of a miss; misses in the same cell overwrite each other.
    misses: OnceLock<Vec<AtomicU64>>,
}

impl Gate {
    pub fn new(out_of_space: u8) -> Self {
        Self { out_of_space, misses: OnceLock::new() }
    }

    /// Whether any disk is below the mark above which nothing is kept.
    pub fn has_space(&self, disks: impl IntoIterator<Item = Demand>) -> bool {
        disks.into_iter().any(|d| {
            u128::from(d.used) * 100 <= u128::from(d.budget) * u128::from(self.out_of_space)
        })
    }

    /// Whether the object that was just missed is to be kept, by its bucket's rules alone.
    pub fn admits(&self, rules: &CacheRules, bucket_id: u64, name: &str, now_s: u32) -> bool {
        match rules.admission {
            Admission::Always => true,
            Admission::Never => false,
            Admission::SecondMiss => self.is_second(key_digest(bucket_id, name), now_s),
        }
    }

    fn is_second(&self, key: u64, now_s: u32) -> bool {
        let misses = self.misses.get_or_init(|| (0..CELLS).map(|_| AtomicU64::new(0)).collect());
        let cell = &misses[key as usize & (CELLS - 1)];
        let print = key & (u64::MAX << 32);
        let before = cell.swap(print | u64::from(now_s), Ordering::Relaxed);
        before & (u64::MAX << 32) == print && now_s.saturating_sub(before as u32) <= WINDOW_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(admission: Admission) -> CacheRules {
        CacheRules { admission, ..CacheRules::default() }
    }

    #[test]
    fn the_second_miss_within_a_day_is_kept() {
        let (gate, rules) = (Gate::new(95), rules(Admission::SecondMiss));
        assert!(!gate.admits(&rules, 1, "a", 1000));
        assert!(!gate.admits(&rules, 1, "b", 1000), "another object");
        assert!(!gate.admits(&rules, 2, "a", 1000), "another bucket");
        assert!(gate.admits(&rules, 1, "a", 1000 + WINDOW_S));
        assert!(!gate.admits(&rules, 1, "b", 1001 + WINDOW_S), "too long ago");
    }

    #[test]
    fn the_other_rules_remember_nothing() {
        let gate = Gate::new(95);
        for now in 1..3 {
            assert!(gate.admits(&rules(Admission::Always), 1, "a", now));
            assert!(!gate.admits(&rules(Admission::Never), 1, "a", now));
        }
        assert!(gate.misses.get().is_none());
    }

    #[test]
    fn above_the_mark_of_all_disks_nothing_is_kept() {
        let gate = Gate::new(95);
        let disk = |used| Demand { used, wanted: 0, budget: 100 };
        assert!(gate.has_space([disk(95)]));
        assert!(!gate.has_space([disk(96)]));
        assert!(gate.has_space([disk(96), disk(10)]));
    }
}
