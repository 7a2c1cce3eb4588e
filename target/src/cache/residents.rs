//! The cached copies of one disk in memory: the fields of each that eviction needs, without names.
//!
//! A resident takes 19 bytes here, 5 to 11 in the map from its id and 8 in the default policy: 10
//! million are about 330 MiB.

use std::cell::Cell;

use hashbrown::HashTable;

use super::policy::{Buckets, Policy, Slot, Verdict, mix};

/// Sizes are kept in units of this many bytes.
const UNIT: u64 = 64;
/// State of a slot that is empty.
const EMPTY: u8 = 0;
/// Occupied and ranked by the policy.
const RANKED: u8 = 1;
/// Occupied and never offered: its bucket is pinned.
const PINNED: u8 = 2;

/// One cached copy, with the fields for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    pub generation: u64,
    pub bucket_id: u64,
    /// Space on the disk.
    pub stored: u64,
    /// Last access, in seconds on the caller's clock.
    pub seen_s: u32,
}

/// The copies of one bucket on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageCounters {
    pub bucket_id: u64,
    pub objects: u64,
    pub stored: u64,
    pub pinned: bool,
    /// Limit for `stored`; 0 if none is set.
    pub limit: u64,
    /// Bytes that evictions for space leave the bucket while others have more than theirs.
    pub min: u64,
    /// Bytes of the bucket's partial copies, which are not among the residents but count for `min`.
    pub in_parts: u64,
}

impl UsageCounters {
    /// Bytes beyond the limit.
    pub fn over(&self) -> u64 {
        if self.limit == 0 { 0 } else { self.stored.saturating_sub(self.limit) }
    }

    /// Bytes beyond the guaranteed minimum.
    pub fn above_min(&self) -> u64 {
        self.stored.saturating_add(self.in_parts).saturating_sub(self.min)
    }
}

/// All evictable copies of one disk, and the policy that ranks them.
pub struct Residents {
    policy: Box<dyn Policy>,
    by_id: HashTable<Slot>,
    ids: Vec<u64>,
    units: Vec<u32>,
    seen_s: Vec<u32>,
    buckets: Vec<u16>,
    states: Vec<u8>,
    /// Empty slots.
    free: Vec<Slot>,
    tallies: Vec<UsageCounters>,
}

impl Residents {
    pub fn new(policy: Box<dyn Policy>) -> Self {
        Self {
            policy,
            by_id: HashTable::new(),
            ids: Vec::new(),
            units: Vec::new(),
            seen_s: Vec::new(),
            buckets: Vec::new(),
            states: Vec::new(),
            free: Vec::new(),
            tallies: Vec::new(),
        }
    }

    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The copies on the disk, by bucket.
    pub fn tallies(&self) -> &[UsageCounters] {
        &self.tallies
    }

    fn slot_of(&self, generation: u64) -> Option<Slot> {
        self.by_id.find(mix(generation), |s| self.ids[*s as usize] == generation).copied()
    }

    fn bucket_number(&mut self, bucket_id: u64) -> u16 {
        if let Some(number) = self.number_of(bucket_id) {
            return number;
        }
        let fresh = UsageCounters { bucket_id, ..UsageCounters::default() };
        // Beyond 65,536 buckets the number of an empty one is reused, or the last is shared.
        if self.tallies.len() <= usize::from(u16::MAX) {
            self.tallies.push(fresh);
            return (self.tallies.len() - 1) as u16;
        }
        let at = self.tallies.iter().position(|t| t.objects == 0);
        let at = at.unwrap_or(usize::from(u16::MAX));
        if self.tallies[at].objects == 0 {
            self.tallies[at] = fresh;
        }
        at as u16
    }

    fn number_of(&self, bucket_id: u64) -> Option<u16> {
        self.tallies.iter().position(|t| t.bucket_id == bucket_id).map(|at| at as u16)
    }

    /// Adds a copy. `key` is a digest of bucket and name. A copy that is present already is left
    /// unchanged. True if its bucket now exceeds its limit.
    pub fn insert(&mut self, new: Resident, key: u64) -> bool {
        if self.slot_of(new.generation).is_some() {
            return false;
        }
        let bucket = self.bucket_number(new.bucket_id);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.ids.push(0);
            self.units.push(0);
            self.seen_s.push(0);
            self.buckets.push(0);
            self.states.push(EMPTY);
            (self.ids.len() - 1) as Slot
        });
        let at = slot as usize;
        let units = u32::try_from(new.stored.div_ceil(UNIT)).unwrap_or(u32::MAX);
        self.ids[at] = new.generation;
        self.units[at] = units;
        self.seen_s[at] = new.seen_s;
        self.buckets[at] = bucket;
        let ids = &self.ids;
        self.by_id.insert_unique(mix(new.generation), slot, |s| mix(ids[*s as usize]));
        let usage_counters = &mut self.tallies[usize::from(bucket)];
        usage_counters.objects += 1;
        usage_counters.stored += u64::from(units) * UNIT;
        let is_over = usage_counters.over() > 0;
        if usage_counters.pinned {
            self.states[at] = PINNED;
        } else {
            self.states[at] = RANKED;
            self.policy.insert(slot, bucket, key);
        }
        is_over
    }

    /// Records that a copy was read.
    pub fn access(&mut self, generation: u64, now_s: u32) {
        let Some(slot) = self.slot_of(generation) else { return };
        let at = slot as usize;
        self.seen_s[at] = self.seen_s[at].max(now_s);
        if self.states[at] == RANKED {
            self.policy.access(slot);
        }
    }

    /// Removes a copy that was deleted, or is no longer evictable.
    pub fn remove(&mut self, generation: u64) {
        let Some(slot) = self.slot_of(generation) else { return };
        if self.states[slot as usize] == RANKED {
            self.policy.remove(slot);
        }
        self.vacate(slot);
    }

    fn vacate(&mut self, slot: Slot) {
        let (at, generation) = (slot as usize, self.ids[slot as usize]);
        let ids = &self.ids;
        let entry = self.by_id.find_entry(mix(generation), |s| ids[*s as usize] == generation);
        if let Ok(entry) = entry {
            entry.remove();
        }
        self.states[at] = EMPTY;
        let usage_counters = &mut self.tallies[usize::from(self.buckets[at])];
        usage_counters.objects -= 1;
        usage_counters.stored -= u64::from(self.units[at]) * UNIT;
        self.free.push(slot);
    }

    fn resident(&self, slot: Slot) -> Resident {
        let at = slot as usize;
        Resident {
            generation: self.ids[at],
            bucket_id: self.tallies[usize::from(self.buckets[at])].bucket_id,
            stored: u64::from(self.units[at]) * UNIT,
            seen_s: self.seen_s[at],
        }
    }

    /// Takes out victims that make up at least `bytes`, at most `limit` of them, of one bucket only
    /// if `of` names it. They no longer count here; one that is not evicted after all must be
    /// inserted again.
    ///
    /// Victims of any bucket leave each bucket its minimum. If no bucket can give a copy without
    /// falling below its minimum, each that has more gives one copy at most. Then there is no victim.
    pub fn victims(&mut self, of: Option<u64>, bytes: u64, limit: usize) -> Vec<Resident> {
        match of.map(|id| self.number_of(id)) {
            Some(None) => Vec::new(),
            Some(Some(number)) => self.taken(Buckets::One(number), bytes, limit),
            None if self.have_minimums() => {
                let whole = self.above_minimums(bytes, limit, false);
                if whole.is_empty() { self.above_minimums(bytes, limit, true) } else { whole }
            }
            None => self.taken(Buckets::All, bytes, limit),
        }
    }

    /// As [`Self::victims`] of any bucket, but without regard to minimums.
    pub fn victims_below_minimums(&mut self, bytes: u64, limit: usize) -> Vec<Resident> {
        self.taken(Buckets::All, bytes, limit)
    }

    /// Whether some bucket with copies has a guaranteed minimum.
    pub fn have_minimums(&self) -> bool {
        self.tallies.iter().any(|t| t.min > 0)
    }

    fn taken(&mut self, of: Buckets<'_>, bytes: u64, limit: usize) -> Vec<Resident> {
        let (mut slots, mut sum) = (Vec::new(), 0u64);
        let units = &self.units;
        self.policy.evict(of, &mut |slot| {
            if sum >= bytes || slots.len() >= limit {
                return Verdict::Enough;
            }
            slots.push(slot);
            sum += u64::from(units[slot as usize]) * UNIT;
            Verdict::Take
        });
        self.vacated(slots)
    }

    /// Takes out victims of buckets that have more than their minimum. With `past` a bucket's last
    /// victim may be larger than what it has beyond the minimum.
    fn above_minimums(&mut self, bytes: u64, limit: usize, past: bool) -> Vec<Resident> {
        let spare: Vec<Cell<u64>> = self.tallies.iter().map(|t| Cell::new(t.above_min())).collect();
        let spare_of = |bucket: u16| &spare[usize::from(bucket)];
        let may_give = |bucket| spare_of(bucket).get() > 0;
        let (mut slots, mut sum) = (Vec::new(), 0u64);
        let (units, buckets) = (&self.units, &self.buckets);
        self.policy.evict(Buckets::Where(&may_give), &mut |slot| {
            if sum >= bytes || slots.len() >= limit {
                return Verdict::Enough;
            }
            let stored = u64::from(units[slot as usize]) * UNIT;
            let spare = spare_of(buckets[slot as usize]);
            if spare.get() == 0 || (spare.get() < stored && !past) {
                // Nothing more of this bucket is offered in this pass.
                spare.set(0);
                return Verdict::Skip;
            }
            spare.set(spare.get().saturating_sub(stored));
            slots.push(slot);
            sum += stored;
            Verdict::Take
        });
        self.vacated(slots)
    }

    fn vacated(&mut self, slots: Vec<Slot>) -> Vec<Resident> {
        let out = slots.iter().map(|slot| self.resident(*slot)).collect();
        slots.into_iter().for_each(|slot| self.vacate(slot));
        out
    }

    /// Takes out copies of a bucket that were not read since `before_s`, pinned or not; at most
    /// `limit`, scanning slots from `from` on. Returns where to continue; `None` at the end.
    pub fn expired(
        &mut self,
        bucket_id: u64,
        before_s: u32,
        from: Slot,
        limit: usize,
    ) -> (Vec<Resident>, Option<Slot>) {
        /// Slots scanned under one lock.
        const STRETCH: usize = 1 << 16;
        let Some(bucket) = self.number_of(bucket_id) else { return (Vec::new(), None) };
        let first = from as usize;
        let end = self.ids.len().min(first + STRETCH);
        let mut out = Vec::new();
        let mut at = first;
        while at < end && out.len() < limit {
            if self.states[at] != EMPTY && self.buckets[at] == bucket && self.seen_s[at] < before_s
            {
                let slot = at as Slot;
                out.push(self.resident(slot));
                if self.states[at] == RANKED {
                    self.policy.remove(slot);
                }
                self.vacate(slot);
            }
            at += 1;
        }
        (out, (at < self.ids.len()).then_some(at as Slot))
    }

    /// Space that a bucket's copies take.
    pub fn stored_of(&self, bucket_id: u64) -> u64 {
        self.number_of(bucket_id).map_or(0, |n| self.tallies[usize::from(n)].stored)
    }

    /// Sets the limit of a bucket's copies.
    pub fn limit(&mut self, bucket_id: u64, limit: u64) {
        let number = self.bucket_number(bucket_id);
        self.tallies[usize::from(number)].limit = limit;
    }

    /// Sets the guaranteed minimum of a bucket's copies.
    pub fn set_min(&mut self, bucket_id: u64, min: u64) {
        if min == 0 && self.number_of(bucket_id).is_none() {
            return;
        }
        let number = self.bucket_number(bucket_id);
        self.tallies[usize::from(number)].min = min;
    }

    /// Notes the bytes of partial copies, by `parts_of`, of the buckets that have a minimum.
    pub fn note_parts(&mut self, parts_of: impl Fn(u64) -> u64) {
        for counters in self.tallies.iter_mut().filter(|t| t.min > 0) {
            counters.in_parts = parts_of(counters.bucket_id);
        }
    }

    /// Sets whether a bucket is pinned from now on: then none of it is a victim.
    pub fn pin(&mut self, bucket_id: u64, pinned: bool) {
        // A bucket without copies matters only once a copy is added.
        if !pinned && self.number_of(bucket_id).is_none() {
            return;
        }
        let number = self.bucket_number(bucket_id);
        let usage_counters = &mut self.tallies[usize::from(number)];
        if usage_counters.pinned == pinned {
            return;
        }
        usage_counters.pinned = pinned;
        if usage_counters.objects == 0 {
            return;
        }
        for at in 0..self.ids.len() {
            if self.buckets[at] != number {
                continue;
            }
            let slot = at as Slot;
            match (self.states[at], pinned) {
                (RANKED, true) => {
                    self.policy.remove(slot);
                    self.states[at] = PINNED;
                }
                (PINNED, false) => {
                    // The digest of its name is not kept; the generation serves until the object is
                    // added again.
                    self.policy.insert(slot, number, mix(self.ids[at]));
                    self.states[at] = RANKED;
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
#[path = "residents_tests.rs"]
mod tests;
