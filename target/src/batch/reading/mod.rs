//! Reads the entries of one batch ahead of their turn, within its share of memory.
//!
//! A group of entries is looked up together. Small objects in the page cache are read at once,
//! others in the order of the disk, several runs at a time; members of one shard by one opening of
//! it; everything that has to be waited for individually. Results are returned in the requested
//! order, or as they are ready.

mod lookup;
mod reads;
mod results;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use forebay_clouds::Announced;
use forebay_core::Result;
use forebay_core::batch::BatchRequest;
use forebay_core::timing::ReadStage;
use forebay_store::Located;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use self::lookup::FIRST_GROUP;
use super::budget::{HeldBytes, Share};
use super::repeats::Repeats;
use super::{Counters, Loaded, Loader};
use crate::object::DiskOrder;

/// With fewer results than this the next group is looked up.
const LOOK_AHEAD_ANSWERS: usize = 256;
/// Estimated size of a member before its shard is open.
const MEMBER_GUESS: usize = 16 << 10;

/// The result of work for one entry; `None`: it has to be read individually.
type Outcome = Option<Result<Loaded>>;

/// Results of work that ended, and what it waited for.
struct Done {
    outcomes: Vec<(usize, Outcome)>,
    stage: ReadStage,
}

pub(crate) struct Reading {
    loader: Loader,
    request: Arc<BatchRequest>,
    counters: Counters,
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
    work: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The source of the work that ended last.
    stage: ReadStage,
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
        let (ordered, counters) = (request.ordered, loader.counters(&request));
        let announced = loader.announce(&request, &wanted);
        let counted = share.held();
        Self {
            loader,
            request,
            counters,
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
            stage: ReadStage::Disk,
            fresh: false,
            held: 0,
            counted,
            largest: None,
            repeats: Repeats::default(),
        }
    }

    /// The source of the last result that was waited for.
    pub(crate) fn stage(&self) -> ReadStage {
        self.stage
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
}
