//! The entries of one batch, read ahead of their turn within its share of memory.
//!
//! A group of entries is looked at together: small objects in the page cache are read at once,
//! others in the order of the disk, several runs at a time; members of one shard by one opening of
//! it; whatever has to be waited for by itself. Answers come in the order asked for, or as they are
//! ready.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use forebay_core::batch::BatchRequest;
use forebay_core::{ObjectName, Result, placement};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::budget::Share;
use super::repeats::Repeats;
use super::{Loaded, Loader, PIECE};
use crate::object::DiskOrder;
use crate::store::Record;

/// Entries looked at in one go: few at first, so that something goes out soon,
const FIRST_GROUP: usize = 128;
/// then more, so that neighbours are read together,
const GROUP: usize = 512;
/// of which so many members of shards count as one,
const PER_LOOK: usize = 4;
/// and bytes read in one go, on a thread that others wait for.
const GROUP_BYTES: usize = 1 << 20;
/// What a member is taken for before its shard is open.
const MEMBER_GUESS: usize = 16 << 10;
/// Answers that wait for those before them.
const SLOTS: usize = 16 << 10;
/// Runs in which what lies on one disk is read at the same time.
const RUNS: usize = 4;

/// What a piece of work came to for one entry; `None`: it has to be read by itself.
type Outcome = Option<Result<Loaded>>;

pub(crate) struct Reading {
    loader: Loader,
    request: Arc<BatchRequest>,
    /// Entries to read, by their place in the request, in the order of their answers. What follows
    /// counts positions in this list.
    wanted: Vec<usize>,
    ordered: bool,
    share: Arc<Share>,
    /// The first position that was not looked at yet.
    next: usize,
    /// Entries to look at in the next go.
    group: usize,
    /// Positions from `base` on.
    slots: VecDeque<Slot>,
    base: usize,
    /// Without order: whose answers are ready.
    ready: VecDeque<usize>,
    /// What is read by itself as soon as there is room.
    alone: BTreeSet<usize>,
    work: FuturesUnordered<BoxFuture<'static, Vec<(usize, Outcome)>>>,
    /// Work was added that nobody has looked at.
    fresh: bool,
    /// Bytes of all slots.
    held: usize,
    repeats: Repeats,
}

/// An entry that was looked at.
struct Slot {
    state: State,
    /// Bytes that it takes, or is taken for.
    cost: usize,
    /// Later positions that ask for the same.
    again: Vec<usize>,
}

enum State {
    Waiting,
    Ready(Result<Loaded>),
    /// Handed out, out of turn.
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
        let ordered = request.ordered;
        Self {
            loader,
            request,
            wanted,
            ordered,
            share,
            next: 0,
            group: FIRST_GROUP,
            slots: VecDeque::new(),
            base: 0,
            ready: VecDeque::new(),
            alone: BTreeSet::new(),
            work: FuturesUnordered::new(),
            fresh: false,
            held: 0,
            repeats: Repeats::default(),
        }
    }

    /// The next answer, and to which entry of the request. May be dropped while it waits.
    pub(crate) async fn next(&mut self) -> Option<(usize, Result<Loaded>)> {
        loop {
            if self.slots.len() < GROUP / 2 {
                self.look_ahead();
            }
            while !self.has_ready() && self.look_ahead() {}
            self.begin_alone();
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

    /// Looks at a group of entries. False: there is no more, or no room for it.
    fn look_ahead(&mut self) -> bool {
        if self.next == self.wanted.len() {
            return false;
        }
        let (ahead, whole) = (self.share.ahead(), self.share.whole());
        let state = self.loader.service.state();
        let named = self.request.buckets.iter();
        let buckets: Vec<_> = named.map(|b| Some((state.bucket(b).ok()?, b.uname()))).collect();
        let request = self.request.clone();
        let mut small: Vec<(DiskOrder, usize, Record)> = Vec::new();
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
            let mut cost = whole;
            if let Some(first) = first
                && self.repeat(position, first)
            {
                looked += 1;
                continue;
            }
            if !entry.archpath.is_empty() {
                let of_shard = members.entry((entry.bucket, &entry.name)).or_default();
                // A shard that is open takes more than one member of it more.
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
                    Some(record) => {
                        cost = record.size as usize;
                        bytes += cost;
                        small.push((DiskOrder::of(&record), position, record));
                    }
                    None => drop(self.alone.insert(position)),
                }
            }
            self.held += cost;
            self.slots.push_back(Slot { state: State::Waiting, cost, again: Vec::new() });
        }
        self.group = GROUP.min(self.group * 2);
        self.read_small(small);
        for ((_, name), positions) in members {
            self.read_members(name.clone(), positions);
        }
        self.begin_alone();
        looked > 0
    }

    /// Answers an entry with what an earlier one gets. False: that is not at hand any more.
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

    /// Reads what lies in the page cache, and has the rest read in the order of the disk.
    fn read_small(&mut self, mut small: Vec<(DiskOrder, usize, Record)>) {
        small.sort_unstable_by_key(|(order, ..)| *order);
        let mut far = Vec::new();
        let mut payloads = Vec::with_capacity(small.len());
        for of_disk in small.chunk_by(|a, b| a.0.disk == b.0.disk) {
            let records: Vec<&Record> = of_disk.iter().map(|(.., record)| record).collect();
            payloads.extend(self.loader.service.payloads_now(&records));
        }
        for ((order, position, record), payload) in small.into_iter().zip(payloads) {
            match payload {
                Some(bytes) => {
                    let answer =
                        self.loader.part(&self.request.entries[self.wanted[position]], bytes);
                    self.place(position, answer.map(Loaded::Whole));
                }
                None => far.push((order.disk, position, record)),
            }
        }
        for of_disk in far.chunk_by(|a, b| a.0 == b.0) {
            for run in of_disk.chunks(of_disk.len().div_ceil(RUNS)) {
                let (positions, records): (Vec<usize>, Vec<Record>) =
                    run.iter().map(|(_, position, record)| (*position, record.clone())).unzip();
                let entries: Vec<usize> = positions.iter().map(|at| self.wanted[*at]).collect();
                let (loader, request) = (self.loader.clone(), self.request.clone());
                self.add(async move {
                    let read = loader.service.payloads(records).await.unwrap_or_default();
                    let answers = read.into_iter().chain(std::iter::repeat(None)).zip(entries);
                    let answers = answers.map(|(bytes, index)| {
                        Some(loader.part(&request.entries[index], bytes?).map(Loaded::Whole))
                    });
                    positions.into_iter().zip(answers).collect()
                });
            }
        }
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

    /// Starts reading entries that are read by themselves, as far as there is room; one at least.
    fn begin_alone(&mut self) {
        if self.alone.is_empty() {
            return;
        }
        let (ahead, whole) = (self.share.ahead(), self.share.whole());
        while let Some(position) = self.alone.first().copied() {
            let Some(slot) = self.slots.get_mut(position - self.base) else { return };
            // Those that were only looked at have their cost counted; it counts once.
            if self.held - slot.cost + whole > ahead && !self.work.is_empty() {
                return;
            }
            self.held = self.held - slot.cost + whole;
            slot.cost = whole;
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
        let Some(slot) = self.slots.get_mut(position - self.base) else { return };
        let cost = match &answer {
            Ok(Loaded::Whole(bytes)) => bytes.len(),
            Ok(Loaded::Stream { .. }) => PIECE,
            Err(_) => 0,
        };
        self.held = self.held - slot.cost + cost;
        slot.cost = cost;
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
