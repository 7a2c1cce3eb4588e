//! What to evict: a policy ranks records, the lowest ranks that make up the bytes go.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::store::Record;

/// Victims of one pass at most: bounds its memory; more passes follow if it was not enough.
const MAX_VICTIMS: usize = 50_000;

/// Order in which objects are dropped.
pub trait EvictionPolicy: Send + Sync {
    /// Lower ranks go first.
    fn rank(&self, record: &Record) -> u64;
}

/// Drops what was not used for the longest time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lru;

impl EvictionPolicy for Lru {
    fn rank(&self, record: &Record) -> u64 {
        // Never read since it was stored: it was wanted when it was stored.
        let meta = &record.meta;
        meta.atime_ns.max(meta.validated_ns)
    }
}

struct Ranked {
    rank: u64,
    record: Record,
}

impl Ranked {
    fn order(&self) -> (u64, u64) {
        (self.rank, self.record.generation)
    }
}

impl PartialEq for Ranked {
    fn eq(&self, other: &Self) -> bool {
        self.order() == other.order()
    }
}

impl Eq for Ranked {}

impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        self.order().cmp(&other.order())
    }
}

/// Collects the victims of a pass while records go by.
pub(crate) struct Victims<'a> {
    policy: &'a dyn EvictionPolicy,
    target: u64,
    /// The highest rank on top: the first to be let off.
    heap: BinaryHeap<Ranked>,
    bytes: u64,
}

impl<'a> Victims<'a> {
    /// Looks for at least `target` bytes.
    pub(crate) fn new(policy: &'a dyn EvictionPolicy, target: u64) -> Self {
        Self { policy, target, heap: BinaryHeap::new(), bytes: 0 }
    }

    pub(crate) fn offer(&mut self, record: Record) {
        let rank = self.policy.rank(&record);
        if self.bytes >= self.target && self.heap.peek().is_some_and(|top| rank > top.rank) {
            return;
        }
        self.bytes += record.stored_bytes();
        self.heap.push(Ranked { rank, record });
        while let Some(top) = self.heap.peek() {
            let weight = top.record.stored_bytes();
            if self.bytes - weight < self.target && self.heap.len() <= MAX_VICTIMS {
                break;
            }
            self.bytes -= weight;
            self.heap.pop();
        }
    }

    /// The victims, those to go first in front.
    pub(crate) fn into_sorted(self) -> impl Iterator<Item = Record> {
        self.heap.into_sorted_vec().into_iter().map(|r| r.record)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::store::RecordMeta;

    fn record(atime_ns: u64, size: u64) -> Record {
        let meta = RecordMeta { atime_ns, ..RecordMeta::default() };
        Record::for_test("x", size, atime_ns, meta)
    }

    fn chosen(ages: &[u64], target: u64) -> Vec<u64> {
        let mut victims = Victims::new(&Lru, target);
        ages.iter().for_each(|a| victims.offer(record(*a, 1)));
        victims.into_sorted().map(|r| r.meta.atime_ns).collect()
    }

    #[test]
    fn the_oldest_go_first_and_no_more_than_needed() {
        let one = record(0, 1).stored_bytes();
        assert_eq!(chosen(&[5, 1, 4, 2, 3], 2 * one), [1, 2]);
        assert_eq!(chosen(&[5, 1, 4, 2, 3], 2 * one + 1), [1, 2, 3]);
        assert_eq!(chosen(&[1, 2], 100 * one), [1, 2]);
        assert_eq!(chosen(&[1, 2], 0), [0u64; 0]);
    }

    proptest! {
        #[test]
        fn victims_are_enough_minimal_and_oldest(
            objects in proptest::collection::vec((0u64..50, 1u64..100_000), 0..60),
            target in 0u64..2_000_000,
        ) {
            let mut victims = Victims::new(&Lru, target);
            objects.iter().for_each(|(a, s)| victims.offer(record(*a, *s)));
            let out: Vec<_> = victims.into_sorted().collect();
            let total: u64 = objects.iter().map(|(a, s)| record(*a, *s).stored_bytes()).sum();
            let sum: u64 = out.iter().map(Record::stored_bytes).sum();
            prop_assert!(sum >= target.min(total));
            if let Some(last) = out.last() {
                prop_assert!(sum - last.stored_bytes() < target);
                let kept_older = objects.iter().filter(|(a, _)| *a < last.meta.atime_ns).count();
                let gone_older =
                    out.iter().filter(|r| r.meta.atime_ns < last.meta.atime_ns).count();
                prop_assert_eq!(kept_older, gone_older);
            }
        }
    }
}
