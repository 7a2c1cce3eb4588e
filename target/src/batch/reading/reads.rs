//! Reads the entries that were looked up: together where that is faster, else individually.

use forebay_core::ObjectName;
use forebay_core::timing::ReadStage;
use forebay_store::{Located, Record};
use futures::FutureExt;

use super::{Done, MEMBER_GUESS, Reading};
use crate::batch::{Loaded, PIECE};
use crate::object::DiskOrder;

/// Bytes, and objects, read at once, on a thread that other tasks need.
const TURN_BYTES: usize = 1 << 20;
const TURN: usize = 512;
/// Least estimated size of an object before it is read individually.
const LEAST_GUESS: usize = 64 << 10;
/// Runs in which objects on one disk are read at the same time.
const RUNS: usize = 4;

impl Reading {
    /// Reads some of the found objects: those in the page cache at once, the others are started in
    /// the order of the disk. False: nothing is left to be read.
    pub(super) fn read_found(&mut self) -> bool {
        let Some((first, ..)) = self.found.front() else { return false };
        let (disk, mut bytes) = (first.disk, 0);
        let mut in_turn = |(order, _, located): &(DiskOrder, usize, Located)| {
            let fits = bytes < TURN_BYTES && order.disk == disk;
            bytes += located.bytes() as usize;
            fits
        };
        let count = self.found.iter().take(TURN).take_while(|one| in_turn(one)).count();
        let found: Vec<_> = self.found.drain(..count).collect();
        let request = self.request.clone();
        let name_of = |position: usize| request.entries[self.wanted[position]].name.as_str();
        let named: Vec<(&Located, &str)> =
            found.iter().map(|(_, position, located)| (located, name_of(*position))).collect();
        let payloads = self.loader.service.reads().payloads_now(&named);
        let mut far = Vec::new();
        for ((_, position, located), payload) in found.into_iter().zip(payloads) {
            let entry = &request.entries[self.wanted[position]];
            match payload {
                Some(bytes) => {
                    let answer = self.loader.part(&self.counters, entry, bytes);
                    self.place(position, answer.map(Loaded::Whole));
                }
                None => {
                    let record =
                        self.loader.service.reads().record_of(located, entry.name.as_str());
                    far.push((position, record));
                }
            }
        }
        for run in far.chunks(far.len().div_ceil(RUNS).max(1)) {
            let (positions, records): (Vec<usize>, Vec<Option<Record>>) =
                run.iter().cloned().unzip();
            let entries: Vec<usize> = positions.iter().map(|at| self.wanted[*at]).collect();
            let (loader, request) = (self.loader.clone(), self.request.clone());
            let counters = self.counters.clone();
            self.add(async move {
                let read = loader.service.reads().payloads(records).await.unwrap_or_default();
                let answers = read.into_iter().chain(std::iter::repeat(None)).zip(entries);
                let answers = answers.map(|(bytes, index)| {
                    let entry = &request.entries[index];
                    Some(loader.part(&counters, entry, bytes?).map(Loaded::Whole))
                });
                let outcomes = positions.into_iter().zip(answers).collect();
                Done { outcomes, stage: ReadStage::Disk }
            });
        }
        true
    }

    /// Reads members of one shard; those up to `most` bytes as a whole.
    pub(super) fn read_members(&mut self, name: ObjectName, positions: Vec<usize>, most: usize) {
        let entries: Vec<usize> = positions.iter().map(|at| self.wanted[*at]).collect();
        let (loader, request) = (self.loader.clone(), self.request.clone());
        let total = MEMBER_GUESS * positions.len();
        self.add(async move {
            let (read, stage) = loader.members(&request, &name, &entries, most, total).await;
            Done { outcomes: positions.into_iter().zip(read).collect(), stage }
        });
    }

    /// The estimated bytes in memory of an object that is read individually: those of the largest
    /// one before it, or the most that any takes, as a whole or as a stream, if there was none.
    pub(super) fn guess(&self, whole: usize) -> usize {
        let most = whole.max(PIECE);
        self.largest.map_or(most, |largest| largest.clamp(LEAST_GUESS, most))
    }

    /// Starts reading entries individually, as far as there is memory; at least one.
    pub(super) fn begin_alone(&mut self) {
        if self.alone.is_empty() {
            return;
        }
        let (ahead, whole) = self.reserve();
        let guess = self.guess(whole);
        // Even if the estimate is wrong, the reads in flight do not exceed the share.
        let max_parallel = self.share.max_parallel();
        while let Some(position) = self.alone.first().copied() {
            // The batch would not proceed without its next result, whatever the memory.
            let must_start = self.work.is_empty() && !self.has_ready();
            let Some(slot) = self.slots.get_mut(position - self.base) else { break };
            // Its estimate of the look-up is counted already.
            let more = guess.saturating_sub(slot.cost);
            let is_full = more > 0 && self.held + more > ahead || self.work.len() >= max_parallel;
            if is_full && !must_start {
                break;
            }
            self.held += more;
            slot.cost += more;
            self.alone.remove(&position);
            let (loader, request) = (self.loader.clone(), self.request.clone());
            let index = self.wanted[position];
            self.add(async move {
                let entry = &request.entries[index];
                let (loaded, stage) = loader.load(&request, entry, whole).await;
                Done { outcomes: vec![(position, Some(loaded))], stage }
            });
        }
        self.counted.set(self.held);
    }

    fn add(&mut self, work: impl Future<Output = Done> + Send + 'static) {
        self.work.push(work.boxed());
        self.fresh = true;
    }
}
