//! The two extremes of one list: evicts the least recently used resident, or never an old one.

use super::list::{Links, List, NONE};
use super::{Policy, Slot, Verdict, reach};

/// Slots in the order of a policy, with their buckets.
#[derive(Debug, Default)]
struct Queue {
    links: Links,
    list: List,
    buckets: Vec<u16>,
}

impl Queue {
    fn insert(&mut self, slot: Slot, bucket: u16) {
        reach(&mut self.buckets, slot, 0);
        self.buckets[slot as usize] = bucket;
        self.links.push(&mut self.list, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.links.unlink(&mut self.list, slot);
    }

    /// Offers the slots from `at` on, each followed by the result of `next`.
    fn evict(
        &mut self,
        mut at: Slot,
        next: fn(&Links, Slot) -> Slot,
        of: Option<u16>,
        judge: &mut dyn FnMut(Slot) -> Verdict,
    ) {
        while at != NONE {
            let following = next(&self.links, at);
            if of.is_none_or(|b| b == self.buckets[at as usize]) {
                match judge(at) {
                    Verdict::Take => self.links.unlink(&mut self.list, at),
                    Verdict::Skip => {}
                    Verdict::Enough => return,
                }
            }
            at = following;
        }
    }
}

/// Evicts the least recently used resident. Its hits on an epoch larger than the cache are few:
/// each object is evicted shortly before it is read again.
#[derive(Debug, Default)]
pub struct Lru(Queue);

impl Policy for Lru {
    fn insert(&mut self, slot: Slot, bucket: u16, _key: u64) {
        self.0.insert(slot, bucket);
    }

    fn access(&mut self, slot: Slot) {
        let Queue { links, list, .. } = &mut self.0;
        links.unlink(list, slot);
        links.push(list, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.0.remove(slot);
    }

    fn evict(&mut self, of: Option<u16>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        self.0.evict(self.0.list.oldest, Links::newer, of, judge);
    }
}

/// Keeps the first residents and evicts the newest. No policy has more hits on one data set read in
/// epochs, and none is worse once another one is read: here as the baseline for both.
#[derive(Debug, Default)]
pub struct NoReplacement(Queue);

impl Policy for NoReplacement {
    fn insert(&mut self, slot: Slot, bucket: u16, _key: u64) {
        self.0.insert(slot, bucket);
    }

    fn access(&mut self, _slot: Slot) {}

    fn remove(&mut self, slot: Slot) {
        self.0.remove(slot);
    }

    fn evict(&mut self, of: Option<u16>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        self.0.evict(self.0.list.newest, Links::older, of, judge);
    }
}
