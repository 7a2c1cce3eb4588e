//! Least recently used.

use super::list::{Links, List, NONE};
use super::{Buckets, Policy, Slot, Verdict, reach};

/// Evicts the least recently used resident. Its hits on an epoch larger than the cache are few:
/// each object is evicted shortly before it is read again.
#[derive(Debug, Default)]
pub struct Lru {
    links: Links,
    list: List,
    buckets: Vec<u16>,
}

impl Policy for Lru {
    fn insert(&mut self, slot: Slot, bucket: u16, _key: u64) {
        reach(&mut self.buckets, slot, 0);
        self.buckets[slot as usize] = bucket;
        self.links.push(&mut self.list, slot);
    }

    fn access(&mut self, slot: Slot) {
        self.links.unlink(&mut self.list, slot);
        self.links.push(&mut self.list, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.links.unlink(&mut self.list, slot);
    }

    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        let mut at = self.list.oldest;
        while at != NONE {
            let newer = self.links.newer(at);
            if of.has(self.buckets[at as usize]) {
                match judge(at) {
                    Verdict::Take => self.links.unlink(&mut self.list, at),
                    Verdict::Skip => {}
                    Verdict::Enough => return,
                }
            }
            at = newer;
        }
    }
}
