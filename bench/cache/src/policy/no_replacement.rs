//! The first residents stay for ever.

use forebay_target::cache::policy::list::{Links, List, NONE};
use forebay_target::cache::policy::{Buckets, Policy, Slot, Verdict, reach};

/// Keeps the first residents and evicts the newest. No policy has more hits on one data set read in
/// epochs, and none is worse once another one is read: here as the baseline for both.
#[derive(Debug, Default)]
pub(crate) struct NoReplacement {
    links: Links,
    list: List,
    buckets: Vec<u16>,
}

impl Policy for NoReplacement {
    fn insert(&mut self, slot: Slot, bucket: u16, _key: u64) {
        reach(&mut self.buckets, slot, 0);
        self.buckets[slot as usize] = bucket;
        self.links.push(&mut self.list, slot);
    }

    fn access(&mut self, _slot: Slot) {}

    fn remove(&mut self, slot: Slot) {
        self.links.unlink(&mut self.list, slot);
    }

    fn evict(&mut self, of: Buckets<'_>, judge: &mut dyn FnMut(Slot) -> Verdict) {
        let mut at = self.list.newest;
        while at != NONE {
            let older = self.links.older(at);
            if of.has(self.buckets[at as usize]) {
                match judge(at) {
                    Verdict::Take => self.links.unlink(&mut self.list, at),
                    Verdict::Skip => {}
                    Verdict::Enough => return,
                }
            }
            at = older;
        }
    }
}
