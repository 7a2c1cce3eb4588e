//! Looks up a group of entries: repeated ones, members of shards, small objects, and those that are
//! read individually.

use std::collections::BTreeMap;

use forebay_core::{ObjectName, placement};
use forebay_store::Located;

use super::{MEMBER_GUESS, Reading, Slot, State};
use crate::batch::{Loaded, PIECE};
use crate::object::DiskOrder;

/// Entries looked up in one group: few at first, so that the first bytes are sent soon,
pub(super) const FIRST_GROUP: usize = 128;
/// then more and more, so that neighbours are read together,
const GROWTH: usize = 4;
const GROUP: usize = 4 << 10;
/// of which this many members of shards count as one,
const PER_LOOK: usize = 4;
/// and bytes of the objects found in memory.
const GROUP_BYTES: usize = 4 << 20;
/// Most results that wait for earlier ones.
const SLOTS: usize = 16 << 10;

impl Reading {
    /// Looks up a group of entries. False: there is no more, or no memory for it.
    pub(super) fn look_ahead(&mut self) -> bool {
        if self.next == self.wanted.len() {
            return false;
        }
        let (ahead, whole) = self.reserve();
        let guess = self.guess(whole);
        let state = self.loader.service.state();
        let named = self.request.buckets.iter();
        let buckets: Vec<_> = named.map(|b| Some((state.bucket(b).ok()?, b.uname()))).collect();
        let request = self.request.clone();
        for index in self.wanted[self.next..].iter().take(self.group) {
            let entry = &request.entries[*index];
            if let Some(Some((info, _))) = buckets.get(entry.bucket as usize) {
                self.loader.service.reads().expect(info, entry.name.as_str());
            }
        }
        let mut small: Vec<(DiskOrder, usize, Located)> = Vec::new();
        let mut members: BTreeMap<(u32, &ObjectName), Vec<usize>> = BTreeMap::new();
        let (mut looked, mut bytes) = (0, 0);
        while self.next < self.wanted.len()
            && self.slots.len() < SLOTS
            && looked < self.group
            && bytes < GROUP_BYTES
            && (self.held + guess <= ahead || self.slots.is_empty())
        {
            let position = self.next;
            self.next += 1;
            let entry = &request.entries[self.wanted[position]];
            let first = self.repeats.of(&request, &self.wanted, position);
            let mut cost = guess;
            if let Some(first) = first
                && self.repeat(position, first)
            {
                looked += 1;
                continue;
            }
            if !entry.archpath.is_empty() {
                let of_shard = members.entry((entry.bucket, &entry.name)).or_default();
                // An open shard costs more than one further member of it.
                cost = if of_shard.is_empty() { PIECE } else { MEMBER_GUESS };
                of_shard.push(position);
                looked += usize::from(position.is_multiple_of(PER_LOOK));
            } else {
                looked += 1;
                let name = entry.name.as_str();
                let info = buckets.get(entry.bucket as usize).and_then(Option::as_ref);
                let info = info.filter(|(info, uname)| {
                    let digest = placement::object_digest(uname, name);
                    let owner = || placement::owner_by_digest(&state, info, digest, name);
                    info.has_backend() || owner().is_ok_and(|node| node.id == self.loader.me)
                });
                let most = whole as u64;
                match info.and_then(|(info, _)| self.loader.service.reads().small(info, name, most))
                {
                    Some(located) => {
                        cost = located.bytes() as usize;
                        bytes += cost;
                        small.push((DiskOrder::of(&located), position, located));
                    }
                    None => drop(self.alone.insert(position)),
                }
            }
            self.held += cost;
            self.slots.push_back(Slot { state: State::Waiting, cost, again: Vec::new() });
        }
        self.group = GROUP.min(self.group * GROWTH);
        small.sort_unstable_by_key(|(order, ..)| *order);
        self.found.extend(small);
        for ((_, name), positions) in members {
            self.read_members(name.clone(), positions, whole);
        }
        self.begin_alone();
        self.counted.set(self.held);
        looked > 0
    }

    /// Most bytes that this batch may hold now, and the largest entry that is read as a whole. The
    /// bytes count as held until the caller counts what it reads.
    pub(super) fn reserve(&mut self) -> (usize, usize) {
        self.counted.set(self.held);
        let ahead = self.counted.reserve(self.share.ahead());
        // A batch without memory still reads one entry, which takes no more than a stream would.
        (ahead, self.share.whole().min(ahead.max(PIECE)))
    }

    /// Reuses the result of an earlier entry. False if that is not available any more.
    fn repeat(&mut self, position: usize, first: usize) -> bool {
        let waiting = first.checked_sub(self.base).and_then(|at| self.slots.get_mut(at));
        let waiting = waiting.filter(|slot| matches!(slot.state, State::Waiting));
        let answer = match waiting {
            Some(slot) => {
                slot.again.push(position);
                None
            }
            None => match self.repeats.take(first) {
                Some(answer) => Some(answer),
                None => return false,
            },
        };
        self.slots.push_back(Slot { state: State::Waiting, cost: 0, again: Vec::new() });
        if let Some(answer) = answer {
            self.place(position, answer.map(Loaded::Whole));
        }
        true
    }
}
