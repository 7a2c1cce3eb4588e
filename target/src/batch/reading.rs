//! Reads the entries of one batch ahead of their turn, within its share of memory.
//!
//! A group of entries is looked up together. Small objects in the page cache are read at once,
//! others in the order of the disk, several runs at a time; members of one shard by one opening of
//! it; everything that has to be waited for individually. Results are returned in the requested
//! order, or as they are ready.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use forebay_core::batch::BatchRequest;
use forebay_core::{ObjectName, Result, placement};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::budget::{HeldBytes, Share};
use super::repeats::Repeats;
use super::{Bills, Loaded, Loader, PIECE};
use crate::backend::Announced;
use crate::object::DiskOrder;
use crate::store::{Located, Record};

/// Entries looked up in one group: few at first, so that the first bytes are sent soon,
const FIRST_GROUP: usize = 128;
/// then more and more, so that neighbours are read together,
const GROWTH: usize = 4;
const GROUP: usize = 4 << 10;
/// of which this many members of shards count as one,
const PER_LOOK: usize = 4;
/// and bytes of the objects found in memory.
const GROUP_BYTES: usize = 4 << 20;
/// With fewer results than this the next group is looked up.
const LOOK_AHEAD_ANSWERS: usize = 256;
/// Bytes, and objects, read at once, on a thread that other tasks need.
const TURN_BYTES: usize = 1 << 20;
const TURN: usize = 512;
/// Estimated size of a member before its shard is open.
const MEMBER_GUESS: usize = 16 << 10;
/// Least estimated size of an object before it is read individually.
const LEAST_GUESS: usize = 64 << 10;
/// Most results that wait for earlier ones.
const SLOTS: usize = 16 << 10;
/// Runs in which objects on one disk are read at the same time.
const RUNS: usize = 4;

/// The result of work for one entry; `None`: it has to be read individually.
type Outcome = Option<Result<Loaded>>;

pub(crate) struct Reading {
    loader: Loader,
    request: Arc<BatchRequest>,
    bills: Bills,
    /// By the request's buckets: announces reads that may be grouped.
    announced: Vec<Option<Announced>>,
    /// Entries to read, by their index in the request, in the order of their results. The fields
    /// below count positions in this list.
    wanted: Vec<usize>,
    ordered: bool,
    share: Arc<Share>,
    /// The first position that was not looked up yet.
    next: usize,
    /// Number of entries in the next group.
    group: usize,
    /// Small objects found and still to be read, in the order of the disks, and their positions.
    found: VecDeque<(DiskOrder, usize, Located)>,
    /// Positions from `base` on.
    slots: VecDeque<Slot>,
    base: usize,
    /// For results without order: the positions of ready results.
    ready: VecDeque<usize>,
    /// Entries that are read individually as soon as there is memory.
    alone: BTreeSet<usize>,
    work: FuturesUnordered<BoxFuture<'static, Vec<(usize, Outcome)>>>,
    /// Work was added that was not polled yet.
    fresh: bool,
    /// Bytes of all slots,
    held: usize,
    /// the same in the account of all batches.
    counted: HeldBytes,
    /// The largest result so far.
    largest: Option<usize>,
    repeats: Repeats,
}

/// An entry that was looked up.
struct Slot {
    state: State,
    /// Its bytes, or their estimate.
    cost: usize,
    /// Later positions of the same entry.
    again: Vec<usize>,
}

enum State {
    Waiting,
    Ready(Result<Loaded>),
    /// Returned out of order.
    Gone,
}

impl Reading {
    /// Reads the entries `wanted` of a request.
    pub(crate) fn new(
        loader: Loader,
        request: Arc<BatchRequest>,
        wanted: Vec<usize>,
        share: Arc<Share>,
    ) -> Self {
        let (ordered, bills) = (request.ordered, loader.bills(&request));
        let announced = loader.announce(&request, &wanted);
        let counted = share.held();
        Self {
            loader,
            request,
            bills,
            announced,
            wanted,
            ordered,
            share,
            next: 0,
            group: FIRST_GROUP,
            found: VecDeque::new(),
            slots: VecDeque::new(),
            base: 0,
            ready: VecDeque::new(),
            alone: BTreeSet::new(),
            work: FuturesUnordered::new(),
            fresh: false,
            held: 0,
            counted,
            largest: None,
            repeats: Repeats::default(),
        }
    }

    /// The next result, and its index in the request. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Loaded>)> {
        loop {
            if self.slots.len() < LOOK_AHEAD_ANSWERS && !self.read_found() {
                self.look_ahead();
            }
            while !self.has_ready() && (self.read_found() || self.look_ahead()) {
                if !self.found.is_empty() {
                    // Lets other tasks run in between.
                    tokio::task::yield_now().await;
                }
            }
            self.begin_alone();
            self.counted.set(self.held);
            if std::mem::take(&mut self.fresh) {
                while let Some(Some(done)) = self.work.next().now_or_never() {
                    self.place_all(done);
                }
            }
            if let Some(answer) = self.pop() {
                return Some(answer);
            }
            match self.work.next().await {
                Some(done) => self.place_all(done),
                None if self.next == self.wanted.len() && self.slots.is_empty() => return None,
                None => {}
            }
        }
    }

    fn has_ready(&self) -> bool {
        match self.ordered {
            true => matches!(self.slots.front(), Some(Slot { state: State::Ready(_), .. })),
            false => !self.ready.is_empty(),
        }
    }

    fn pop(&mut self) -> Option<(usize, Result<Loaded>)> {
        if !self.has_ready() {
            return None;
        }
        let position = if self.ordered { self.base } else { self.ready.pop_front()? };
        let slot = self.slots.get_mut(position - self.base)?;
        let state = std::mem::replace(&mut slot.state, State::Gone);
        self.held -= std::mem::take(&mut slot.cost);
        while let Some(Slot { state: State::Gone, .. }) = self.slots.front() {
            self.slots.pop_front();
            self.base += 1;
        }
        match state {
            State::Ready(answer) => Some((self.wanted[position], answer)),
            State::Waiting | State::Gone => None,
        }
    }

    /// Looks up a group of entries. False: there is no more, or no memory for it.
    fn look_ahead(&mut self) -> bool {
        if self.next == self.wanted.len() {
            return false;
        }
        let (ahead, whole) = (self.share.ahead(), self.share.whole());
        let state = self.loader.service.state();
        let named = self.request.buckets.iter();
        let buckets: Vec<_> = named.map(|b| Some((state.bucket(b).ok()?, b.uname()))).collect();
        let request = self.request.clone();
        for index in self.wanted[self.next..].iter().take(self.group) {
            let entry = &request.entries[*index];
            if let Some(Some((info, _))) = buckets.get(entry.bucket as usize) {
                self.loader.service.expect(info, entry.name.as_str());
            }
        }
        let mut small: Vec<(DiskOrder, usize, Located)> = Vec::new();
        let mut members: BTreeMap<(u32, &ObjectName), Vec<usize>> = BTreeMap::new();
        let (mut looked, mut bytes) = (0, 0);
        while self.next < self.wanted.len()
            && self.slots.len() < SLOTS
            && looked < self.group
            && bytes < GROUP_BYTES
            && (self.held < ahead || self.slots.is_empty())
        {
            let position = self.next;
            self.next += 1;
            let entry = &request.entries[self.wanted[position]];
            let first = self.repeats.of(&request, &self.wanted, position);
            let mut cost = self.guess(whole);
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
                match info.and_then(|(info, _)| self.loader.service.small(info, name, most)) {
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
            self.read_members(name.clone(), positions);
        }
        self.begin_alone();
        looked > 0
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

    /// Reads some of the found objects: those in the page cache at once, the others are started in
    /// the order of the disk. False: nothing is left to be read.
    fn read_found(&mut self) -> bool {
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
        let payloads = self.loader.service.payloads_now(&named);
        let mut far = Vec::new();
        for ((_, position, located), payload) in found.into_iter().zip(payloads) {
            let entry = &request.entries[self.wanted[position]];
            match payload {
                Some(bytes) => {
                    let answer = self.loader.part(&self.bills, entry, bytes);
                    self.place(position, answer.map(Loaded::Whole));
                }
                None => {
                    let record = self.loader.service.record_of(located, entry.name.as_str());
                    far.push((position, record));
                }
            }
        }
        for run in far.chunks(far.len().div_ceil(RUNS).max(1)) {
            let (positions, records): (Vec<usize>, Vec<Option<Record>>) =
                run.iter().cloned().unzip();
            let entries: Vec<usize> = positions.iter().map(|at| self.wanted[*at]).collect();
            let (loader, request) = (self.loader.clone(), self.request.clone());
            let bills = self.bills.clone();
            self.add(async move {
                let read = loader.service.payloads(records).await.unwrap_or_default();
                let answers = read.into_iter().chain(std::iter::repeat(None)).zip(entries);
                let answers = answers.map(|(bytes, index)| {
                    let entry = &request.entries[index];
                    Some(loader.part(&bills, entry, bytes?).map(Loaded::Whole))
                });
                positions.into_iter().zip(answers).collect()
            });
        }
        true
    }

    fn read_members(&mut self, name: ObjectName, positions: Vec<usize>) {
        let entries: Vec<usize> = positions.iter().map(|at| self.wanted[*at]).collect();
        let (loader, request) = (self.loader.clone(), self.request.clone());
        let (most, total) = (self.share.whole(), MEMBER_GUESS * positions.len());
        self.add(async move {
            let read = loader.members(&request, &name, &entries, most, total).await;
            positions.into_iter().zip(read).collect()
        });
    }

    /// The estimated size of an object that is read individually: that of the largest one before
    /// it, or of the largest that is read as a whole if there was none.
    fn guess(&self, whole: usize) -> usize {
        self.largest.map_or(whole, |largest| largest.clamp(LEAST_GUESS.min(whole), whole))
    }

    /// Starts reading entries individually, as far as there is memory; at least one.
    fn begin_alone(&mut self) {
        if self.alone.is_empty() {
            return;
        }
        let (ahead, whole) = (self.share.ahead(), self.share.whole());
        let guess = self.guess(whole);
        // Even if the estimate is wrong, the reads in flight do not exceed the share.
        let max_parallel = self.share.max_parallel();
        while let Some(position) = self.alone.first().copied() {
            let Some(slot) = self.slots.get_mut(position - self.base) else { return };
            // Its estimate of the look-up is counted already.
            let more = guess.saturating_sub(slot.cost);
            let is_full = more > 0 && self.held + more > ahead || self.work.len() >= max_parallel;
            if is_full && !self.work.is_empty() {
                return;
            }
            self.held += more;
            slot.cost += more;
            self.alone.remove(&position);
            let (loader, request) = (self.loader.clone(), self.request.clone());
            let index = self.wanted[position];
            self.add(async move {
                let loaded = loader.load(&request, &request.entries[index], whole).await;
                vec![(position, Some(loaded))]
            });
        }
    }

    fn add(&mut self, work: impl Future<Output = Vec<(usize, Outcome)>> + Send + 'static) {
        self.work.push(work.boxed());
        self.fresh = true;
    }

    fn place_all(&mut self, done: Vec<(usize, Outcome)>) {
        for (position, outcome) in done {
            match outcome {
                Some(answer) => self.place(position, answer),
                None => drop(self.alone.insert(position)),
            }
        }
    }

    fn place(&mut self, position: usize, answer: Result<Loaded>) {
        self.loader.count(&answer);
        let entry = &self.request.entries[self.wanted[position]];
        if let Some(Some(announced)) = self.announced.get_mut(entry.bucket as usize)
            && entry.archpath.is_empty()
        {
            announced.one_is_done();
        }
        let Some(slot) = self.slots.get_mut(position - self.base) else { return };
        let (cost, size) = match &answer {
            Ok(Loaded::Whole(bytes)) => (bytes.len(), Some(bytes.len())),
            Ok(Loaded::Stream { .. }) => (PIECE, Some(self.share.whole())),
            Err(_) => (0, None),
        };
        self.largest = self.largest.max(size);
        self.held = self.held - slot.cost + cost;
        slot.cost = cost;
        if slot.again.is_empty() && !self.repeats.comes_again(position) {
            slot.state = State::Ready(answer);
            if !self.ordered {
                self.ready.push_back(position);
            }
            return;
        }
        let again = std::mem::take(&mut slot.again);
        let short = match &answer {
            Ok(Loaded::Whole(bytes)) => Some(Ok(bytes.clone())),
            Ok(Loaded::Stream { .. }) => None,
            Err(e) => Some(Err(e.clone())),
        };
        slot.state = State::Ready(answer);
        if !self.ordered {
            self.ready.push_back(position);
        }
        for position in again.iter().copied() {
            match &short {
                Some(short) => {
                    let answer = short.clone().map(Loaded::Whole);
                    self.place(position, answer);
                }
                None => drop(self.alone.insert(position)),
            }
        }
        if let Some(short) = short {
            again.iter().for_each(|_| self.repeats.answered(position));
            self.repeats.keep(position, &short, self.share.ahead() / 2);
        }
    }
}
