//! Decides when to evict and how much, from numbers alone.

use forebay_store::Demand;

/// Percents of a disk's budget: eviction starts above `high` and stops at `low`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    pub high: u8,
    pub low: u8,
}

impl Watermarks {
    /// Bytes to free now: down to `low` once above `high`, and in any case enough for the writers
    /// that wait for space.
    pub fn bytes_to_free(self, demand: &Demand) -> u64 {
        let at = |percent: u8| {
            u64::try_from(u128::from(demand.budget) * u128::from(percent) / 100).unwrap_or(u64::MAX)
        };
        let over = if demand.used > at(self.high) { demand.used - at(self.low) } else { 0 };
        let short = demand.used.saturating_add(demand.wanted).saturating_sub(demand.budget);
        over.max(short)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MARKS: Watermarks = Watermarks { high: 90, low: 80 };

    fn to_free(used: u64, wanted: u64) -> u64 {
        MARKS.bytes_to_free(&Demand { used, wanted, budget: 1000 })
    }

    #[test]
    fn nothing_happens_up_to_the_high_mark() {
        assert_eq!(to_free(0, 0), 0);
        assert_eq!(to_free(900, 0), 0);
        assert_eq!(to_free(900, 100), 0);
    }

    #[test]
    fn above_it_the_low_mark_is_the_aim() {
        assert_eq!(to_free(901, 0), 101);
        assert_eq!(to_free(1500, 0), 700);
    }

    #[test]
    fn who_waits_gets_room_even_below_the_high_mark() {
        assert_eq!(to_free(500, 600), 100);
        assert_eq!(to_free(950, 1000), 950);
    }

    proptest! {
        #[test]
        fn never_panics_and_leaves_no_one_waiting(
            used: u64, wanted: u64, budget: u64, high in 1u8..=100, low in 0u8..100,
        ) {
            let low = low.min(high - 1);
            let demand = Demand { used, wanted, budget };
            let free = Watermarks { high, low }.bytes_to_free(&demand);
            let left = used.saturating_sub(free);
            prop_assert!(left.saturating_add(wanted.min(budget)) <= budget || wanted > budget - left.min(budget));
            prop_assert!(free == 0 || free <= used.saturating_add(wanted));
        }
    }
}
