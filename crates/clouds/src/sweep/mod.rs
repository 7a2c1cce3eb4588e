//! Lists a whole bucket with many concurrent calls, in the order of names.
//!
//! The names behind the start are split into ranges, one after the other. An idle worker takes a
//! range without a worker, or splits one that another worker lists. The split point is learned from
//! the names seen so far. Ranges always cover all names, so a bad guess costs a call and never a
//! row. The number of calls lost to guesses is bounded by a share of the pages that arrived.

mod samples;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_core::error::{Error, Result};
use forebay_core::locks::MutexExt;
use futures::Stream;
use futures::future::try_join_all;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use self::samples::{Samples, common};
use super::{After, Backend, RemoteEntry, RemotePage};

/// Options of a parallel listing.
#[derive(Clone, Copy, Debug)]
pub struct SweepOptions {
    /// Calls in flight.
    pub workers: usize,
    /// Rows per call.
    pub page: usize,
    /// Rows that may wait for earlier ones. Above this the first range is listed before any other,
    /// above twice as many only the first range is listed.
    pub waiting: usize,
}

impl Default for SweepOptions {
    fn default() -> Self {
        Self { workers: 16, page: 1_000, waiting: 200_000 }
    }
}

/// Share of the arrived pages that guesses may cost, and pages that they may cost in any case.
const GUESSES: f64 = 0.15;
const FREE_GUESSES: f64 = 4.0;
/// For a backend that walks again for each start of a listing: pages that must arrive before the
/// first range is split off. Each following split needs this many times as many.
const BEFORE_A_WALK: f64 = 64.0;
const FURTHER: f64 = 2.0;
/// Cost of the end of a range: a page that its neighbour lists, too.
const END: f64 = 0.5;
/// Most pages of the first range that wait for a slow reader.
const READY: usize = 8;

/// All names of `prefix` behind `after`, each once and in order, in pages.
pub fn sweep(
    backend: Arc<dyn Backend>,
    prefix: &str,
    after: &str,
    options: SweepOptions,
) -> impl Stream<Item = Result<Vec<RemoteEntry>>> + Send + 'static {
    let sweep = Arc::new(Sweep {
        backend,
        prefix: prefix.to_owned(),
        options,
        state: Mutex::new(State::new(after)),
        changed: Notify::new(),
        came: Notify::new(),
    });
    // The workers end with the stream.
    let workers: Vec<_> = (0..options.workers.max(1))
        .map(|_| AbortOnDropHandle::new(tokio::spawn(sweep.clone().work())))
        .collect();
    futures::stream::try_unfold((sweep, Some(workers)), |(sweep, workers)| async move {
        match sweep.next().await? {
            Some(rows) => Ok(Some((rows, (sweep, workers)))),
            None => {
                if let Some(workers) = workers {
                    let ended = |_| Error::unavailable("a listing was given up");
                    try_join_all(workers).await.map_err(ended)?;
                }
                Ok(None)
            }
        }
    })
}

struct Sweep {
    backend: Arc<dyn Backend>,
    prefix: String,
    options: SweepOptions,
    state: Mutex<State>,
    /// Notified when there may be work for a worker.
    changed: Notify,
    /// Notified when there may be rows for the reader.
    came: Notify,
}

/// Names behind `at` and up to `until`.
struct Range {
    id: u64,
    at: String,
    until: Option<String>,
    /// Token of the page that ended at `at`.
    token: Option<String>,
    /// A call is in flight.
    busy: bool,
    /// No page of it has arrived yet: it is a guess.
    guess: bool,
    over: bool,
    /// The first name that arrived.
    first: Option<String>,
    rows: VecDeque<Vec<RemoteEntry>>,
}

impl Range {
    fn new(id: u64, at: String, until: Option<String>) -> Self {
        let (guess, rows) = (id > 0, VecDeque::new());
        let token = None;
        Self { id, at, until, token, busy: false, guess, over: false, first: None, rows }
    }
}

/// A page to request.
struct Call {
    /// Id of its range.
    range: u64,
    /// The name it follows, and the token of the previous page, if that was of the same range.
    after: String,
    token: Option<String>,
}

struct State {
    /// In the order of names.
    ranges: VecDeque<Range>,
    next_id: u64,
    /// Calls that ended, and rows that they returned beyond those of other ranges.
    calls: u64,
    rows: u64,
    /// Rows that the reader has not taken.
    waiting: usize,
    /// Ranges that were split off and continue behind their first page.
    parted: usize,
    /// The backend walks to the end for each of them.
    walks: bool,
    samples: Samples,
    failed: Option<Error>,
}

impl State {
    fn new(after: &str) -> Self {
        Self {
            ranges: VecDeque::from([Range::new(0, after.to_owned(), None)]),
            next_id: 1,
            calls: 0,
            rows: 0,
            waiting: 0,
            parted: 0,
            walks: false,
            samples: Samples::default(),
            failed: None,
        }
    }

    /// The next call.
    fn pick(&mut self, prefix: &str, options: &SweepOptions) -> Option<Call> {
        let (many, too_many) =
            (self.waiting >= options.waiting, self.waiting >= options.waiting * 2);
        let head = self.ranges.iter().position(|range| !range.over)?;
        if many {
            // The reader waits for the first range: it is listed, or split, before any other.
            let range = &self.ranges[head];
            if !range.busy && range.rows.len() < READY {
                return Some(self.take(head));
            }
            if too_many {
                return None;
            }
            if let Some(parted) = self.guess(head..head + 1, prefix, options) {
                return Some(parted);
            }
        }
        let idle =
            (head..self.ranges.len()).find(|n| !self.ranges[*n].over && !self.ranges[*n].busy);
        if let Some(n) = idle {
            return Some(self.take(n));
        }
        if many { None } else { self.guess(head..self.ranges.len(), prefix, options) }
    }

    fn take(&mut self, n: usize) -> Call {
        let range = &mut self.ranges[n];
        range.busy = true;
        Call { range: range.id, after: range.at.clone(), token: range.token.take() }
    }

    /// Splits the widest of these ranges that can be split.
    fn guess(
        &mut self,
        among: std::ops::Range<usize>,
        prefix: &str,
        options: &SweepOptions,
    ) -> Option<Call> {
        if !self.may_guess(options.page) {
            return None;
        }
        let parted = among.filter_map(|n| Some((self.part(n, prefix)?, n)));
        // The one with the most of the key space; of equals the first.
        let widest = parted.min_by(|((a, _), n), ((b, _), m)| a.total_cmp(b).then(n.cmp(m)));
        let ((_, middle), n) = widest?;
        let until = self.ranges[n].until.replace(middle.clone());
        self.ranges.insert(n + 1, Range::new(self.next_id, middle, until));
        self.next_id += 1;
        Some(self.take(n + 1))
    }

    /// Whether another range would exceed the cost limit of guesses.
    fn may_guess(&self, page: usize) -> bool {
        let pages = self.rows as f64 / page as f64;
        let open = self.ranges.iter().filter(|range| !range.over);
        let (mut ends, mut guesses) = (0.0, 0.0);
        for range in open {
            ends += END;
            guesses += if range.guess { 1.0 } else { 0.0 };
        }
        let cost = self.calls as f64 - pages + ends + guesses;
        let started = (self.parted as f64 + guesses) as i32;
        let may_walk = !self.walks || pages >= BEFORE_A_WALK * FURTHER.powi(started);
        may_walk && cost + END <= GUESSES * pages + FREE_GUESSES
    }

    /// Where to split a range that is listed now, and how wide it is.
    fn part(&self, n: usize, prefix: &str) -> Option<(f64, String)> {
        let range = &self.ranges[n];
        // A guess has no known names.
        if range.over || range.guess {
            return None;
        }
        let (first, until) = (range.first.as_deref()?, range.until.as_deref());
        let middle = self.samples.middle(first, &range.at, until, prefix)?;
        if middle <= range.at || until.is_some_and(|until| middle.as_str() >= until) {
            return None;
        }
        let known = until.map_or(0, |until| common(&range.at, until)).max(prefix.len());
        let width = self.samples.width(&range.at, until, known);
        Some((known as f64 * 2.0 - width, middle))
    }

    /// Adds a page of a range.
    fn take_in(&mut self, id: u64, page: RemotePage) -> Result<()> {
        self.calls += 1;
        let Some(range) = self.ranges.iter_mut().find(|range| range.id == id) else {
            return Err(Error::internal("a range of a listing is gone"));
        };
        range.busy = false;
        let RemotePage { mut entries, more, token, walked } = page;
        self.walks |= walked;
        let ascending = entries.is_sorted_by(|a, b| a.name < b.name);
        if !ascending || entries.first().is_some_and(|e| e.name <= range.at) {
            return Err(Error::internal("a backend lists its names out of order"));
        }
        let came = entries.len();
        for sample in [entries.first(), entries.last()].into_iter().flatten() {
            self.samples.add(&sample.name);
        }
        if let Some(until) = &range.until {
            entries.truncate(entries.partition_point(|e| e.name <= *until));
        }
        range.over = !more || entries.len() < came;
        let (Some(first), Some(last)) = (entries.first(), entries.last()) else {
            range.over = true;
            return Ok(());
        };
        self.parted += usize::from(range.guess && !range.over);
        range.guess = false;
        range.at.clone_from(&last.name);
        range.token = token;
        range.over |= range.until.as_ref().is_some_and(|until| range.at >= *until);
        self.rows += entries.len() as u64;
        self.waiting += entries.len();
        range.first.get_or_insert_with(|| first.name.clone());
        range.rows.push_back(entries);
        Ok(())
    }

    /// The next rows in order; `None` if they have not arrived. An empty page is the end.
    fn pop(&mut self) -> Option<Vec<RemoteEntry>> {
        loop {
            let Some(range) = self.ranges.front_mut() else { return Some(Vec::new()) };
            if let Some(rows) = range.rows.pop_front() {
                self.waiting -= rows.len();
                return Some(rows);
            }
            if !range.over {
                return None;
            }
            self.ranges.pop_front();
        }
    }

    fn is_over(&self) -> bool {
        self.failed.is_some() || self.ranges.iter().all(|range| range.over)
    }
}

impl Sweep {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    async fn work(self: Arc<Self>) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // From here on a notification of a change is not lost.
            changed.as_mut().enable();
            let picked = {
                let mut state = self.lock();
                if state.is_over() {
                    break;
                }
                state.pick(&self.prefix, &self.options)
            };
            let Some(Call { range, after, token }) = picked else {
                changed.await;
                continue;
            };
            let after = After { name: &after, token: token.as_deref() };
            let page = self.backend.list(&self.prefix, after, self.options.page).await;
            {
                let mut state = self.lock();
                let taken = page.and_then(|page| state.take_in(range, page));
                if let Err(e) = taken {
                    state.failed.get_or_insert(e);
                }
            }
            self.changed.notify_waiters();
            self.came.notify_one();
        }
        self.came.notify_one();
    }

    async fn next(&self) -> Result<Option<Vec<RemoteEntry>>> {
        loop {
            {
                let mut state = self.lock();
                if let Some(rows) = state.pop() {
                    drop(state);
                    self.changed.notify_waiters();
                    return Ok((!rows.is_empty()).then_some(rows));
                }
                if let Some(e) = &state.failed {
                    return Err(e.clone());
                }
            }
            self.came.notified().await;
        }
    }
}
