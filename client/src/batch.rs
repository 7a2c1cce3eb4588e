//! Batches: sends one request to each owning target (several if it owns many entries), merges the
//! answers, and requests failed entries again under a newer map.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{mem, vec};

use bytes::Bytes;
use futures::{Stream, StreamExt, ready};

use forebay_core::batch::{self, BatchRequest, MAX_ENTRIES};
use forebay_core::batch_stream::Rooms;
use forebay_core::intra::MapReply;
use forebay_core::{Error as CoreError, NodeId};

use crate::client::Client;
use crate::error::{Error, Result};
use crate::retry::Attempts;
use source::Source;

mod source;

/// Where targets answer batches.
pub(crate) const PATH: &str = "/api/v1/batch";
/// Maximum bytes that one target may send ahead of the reader.
const BATCH_PREFETCH_BYTES: usize = 8 << 20;
/// A target that owns more entries than this sends them over several streams.
const PER_STREAM: usize = 2048;
/// Maximum number of streams for one target.
const STREAMS: usize = 4;
/// Entries are dealt to the streams round robin, in runs of this length.
const TURN: usize = 256;
/// Maximum number of answers that are handed out together.
const RUN: usize = 1024;
/// Approximate maximum of their bytes.
const RUN_BYTES: usize = 1 << 20;

/// One entry of a batch, answered.
#[derive(Clone, Debug)]
pub struct BatchItem {
    /// Its position in the request.
    pub index: usize,
    /// The object's bytes, or why there are none.
    pub result: Result<Bytes, CoreError>,
}

/// The answers to a batch: exactly one item for each entry, in request order or as they come.
pub struct BatchStream {
    runs: Pin<Box<dyn Stream<Item = Vec<BatchItem>> + Send>>,
    /// Answers of the current run that were not handed out yet.
    run: vec::IntoIter<BatchItem>,
}

impl BatchStream {
    /// Returns the next answers, at least one, and those that have arrived already; `None` after
    /// the last.
    pub async fn next_run(&mut self) -> Option<Vec<BatchItem>> {
        let left: Vec<BatchItem> = mem::take(&mut self.run).collect();
        if left.is_empty() { self.runs.next().await } else { Some(left) }
    }
}

impl Stream for BatchStream {
    type Item = BatchItem;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BatchItem>> {
        loop {
            if let Some(item) = self.run.next() {
                return Poll::Ready(Some(item));
            }
            match ready!(self.runs.as_mut().poll_next(cx)) {
                Some(run) => self.run = run.into_iter(),
                None => return Poll::Ready(None),
            }
        }
    }
}

impl std::fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BatchStream")
    }
}

impl Client {
    /// Starts a batch. Memory stays bounded however large it is: targets wait for the reader.
    pub fn batch(&self, request: &BatchRequest) -> Result<BatchStream> {
        let batch = Batch::new(self, request.clone(), None)?;
        let runs = futures::stream::unfold(batch, |mut batch| async move {
            batch.next_run().await.map(|run| (run, batch))
        });
        Ok(BatchStream { runs: Box::pin(runs), run: Vec::new().into_iter() })
    }

    /// Reads a whole batch into memory; results are in the order of the request.
    ///
    /// Fails as a whole only if the cluster answered for no entry at all.
    pub async fn batch_all(&self, request: &BatchRequest) -> Result<Vec<Result<Bytes, CoreError>>> {
        let mut all: Vec<Option<Result<Bytes, CoreError>>> = vec![None; request.entries.len()];
        let take = |run: Vec<BatchItem>| {
            for item in run {
                all[item.index] = Some(item.result);
            }
        };
        self.batch_runs(request.clone(), None, take).await?;
        let missing = || Err(CoreError::internal("an entry of the batch was left out"));
        Ok(all.into_iter().map(|result| result.unwrap_or_else(missing)).collect())
    }

    /// Reads a whole batch; `take` gets the answers as they arrive, in any order, several at a
    /// time. Targets keep sending while `take` runs. `rooms` supplies the memory for large entries.
    ///
    /// Fails as [`Self::batch_all`] does.
    pub async fn batch_runs(
        &self,
        request: BatchRequest,
        rooms: Option<Rooms>,
        mut take: impl FnMut(Vec<BatchItem>),
    ) -> Result<()> {
        let mut batch = Batch::new(self, BatchRequest { ordered: false, ..request }, rooms)?;
        while let Some(run) = batch.next_run().await {
            take(run);
        }
        match (batch.gave_up, batch.answered) {
            (Some(error), 0) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// Not requested yet.
    Todo,
    /// Requested from this source.
    Asked(u32),
    /// Received, not handed out yet.
    Ready,
    Handed,
}

#[derive(Debug)]
struct Ready {
    result: Result<Bytes, CoreError>,
    /// The source whose allowance it uses up.
    source: Option<u32>,
}

/// A batch under way.
struct Batch {
    client: Client,
    request: BatchRequest,
    rooms: Option<Rooms>,
    tries: Attempts,
    slots: Vec<Slot>,
    handed: usize,
    /// Ordered batches: answers that have arrived, by entry.
    ready: HashMap<usize, Ready>,
    /// Unordered batches: answers in the order of arrival.
    arrived: VecDeque<(usize, Ready)>,
    sources: BTreeMap<u32, Source>,
    next_source: u32,
    /// Why entries had to be requested again.
    setback: Option<Error>,
    /// Entries that the cluster gave a definite answer for.
    answered: usize,
    gave_up: Option<Error>,
}

impl Batch {
    fn new(client: &Client, request: BatchRequest, rooms: Option<Rooms>) -> Result<Self> {
        let n = request.entries.len();
        if n > MAX_ENTRIES {
            let text = format!("a batch has at most {MAX_ENTRIES} entries, this one has {n}");
            return Err(Error::Api(CoreError::invalid(text)));
        }
        Ok(Self {
            client: client.clone(),
            tries: client.attempts(),
            slots: vec![Slot::Todo; n],
            request,
            rooms,
            handed: 0,
            ready: HashMap::new(),
            arrived: VecDeque::new(),
            sources: BTreeMap::new(),
            next_source: 0,
            setback: None,
            answered: 0,
            gave_up: None,
        })
    }

    async fn next(&mut self) -> Option<BatchItem> {
        loop {
            if let Some(item) = self.pop() {
                return Some(item);
            }
            if self.handed == self.slots.len() {
                return None;
            }
            match (self.request.ordered, self.slots[self.handed]) {
                (true, Slot::Asked(source)) => self.fill(Some((source, self.handed))).await,
                (false, _) if !self.sources.is_empty() => self.fill(None).await,
                _ => self.ask_for_missing().await,
            }
        }
    }

    /// Returns the next answer and those that have arrived already.
    async fn next_run(&mut self) -> Option<Vec<BatchItem>> {
        let size = |item: &BatchItem| item.result.as_ref().map_or(0, Bytes::len);
        let first = self.next().await?;
        let mut bytes = size(&first);
        let mut run = vec![first];
        while run.len() < RUN && bytes < RUN_BYTES {
            let Some(item) = self.pop() else { break };
            bytes += size(&item);
            run.push(item);
        }
        Some(run)
    }

    /// Returns the next answer if it has arrived.
    fn pop(&mut self) -> Option<BatchItem> {
        let (index, ready) = match self.request.ordered {
            true => (self.handed, self.ready.remove(&self.handed)?),
            false => self.arrived.pop_front()?,
        };
        Some(self.hand_out(index, ready))
    }

    fn hand_out(&mut self, index: usize, ready: Ready) -> BatchItem {
        self.slots[index] = Slot::Handed;
        self.handed += 1;
        let Ready { result, source } = ready;
        if let Some(source) = source.and_then(|id| self.sources.get_mut(&id)) {
            source.ahead -= result.as_ref().map_or(0, Bytes::len).min(source.ahead);
        }
        BatchItem { index, result }
    }

    fn finish_entry(
        &mut self,
        index: usize,
        result: Result<Bytes, CoreError>,
        source: Option<u32>,
    ) {
        self.slots[index] = Slot::Ready;
        let ready = Ready { result, source };
        if self.request.ordered {
            self.ready.insert(index, ready);
        } else {
            self.arrived.push_back((index, ready));
        }
    }

    /// Waits until there is something new: for one entry of one source, or for any.
    async fn fill(&mut self, wanted: Option<(u32, usize)>) {
        poll_fn(|cx| self.poll_fill(cx, wanted)).await;
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, wanted: Option<(u32, usize)>) -> Poll<()> {
        let ids: Vec<u32> = self.sources.keys().copied().collect();
        for id in ids {
            // All are kept busy, but only the one that is waited for may exceed its allowance.
            while let Some(source) = self.sources.get_mut(&id) {
                let hungry = match wanted {
                    Some((wanted, index)) if wanted == id => {
                        self.slots[index] == Slot::Asked(id) || source.ahead < source.allowance
                    }
                    // A large entry that is not whole yet must not keep its own rest away.
                    None if self.arrived.is_empty() => true,
                    _ => source.ahead < source.allowance,
                };
                if !hungry {
                    break;
                }
                match source.poll_answer(cx) {
                    Poll::Pending => break,
                    Poll::Ready(answer) => self.take_in(id, answer),
                }
            }
        }
        let done = match wanted {
            Some((source, index)) => self.slots[index] != Slot::Asked(source),
            None => !self.arrived.is_empty() || self.sources.is_empty(),
        };
        if done { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Processes one answer of a source, or its end.
    fn take_in(&mut self, id: u32, answer: Result<Option<source::Answer>>) {
        let end = match answer {
            Ok(Some(answer)) if self.slots.get(answer.index) == Some(&Slot::Asked(id)) => {
                match answer.result {
                    Err(e) if answer.is_transient => {
                        self.slots[answer.index] = Slot::Todo;
                        self.setback = Some(e.into());
                    }
                    result => {
                        self.answered += 1;
                        self.tries.progressed();
                        self.finish_entry(answer.index, result, Some(id));
                    }
                }
                return;
            }
            Ok(Some(_)) => {
                Err(Error::garbled(self.client.endpoint(), "an entry of the batch came twice"))
            }
            Ok(None) => Ok(()),
            Err(e) => Err(e),
        };
        let Some(source) = self.sources.remove(&id) else { return };
        let left: Vec<usize> = source
            .entries()
            .iter()
            .copied()
            .filter(|&i| self.slots[i] == Slot::Asked(id))
            .collect();
        match end {
            Err(e) if !e.is_transient() => {
                for index in left {
                    self.finish_entry(index, Err(e.clone().into()), None);
                }
            }
            end => {
                if !left.is_empty() {
                    let early = || Error::garbled(&source.url, "the batch left entries out");
                    self.setback = Some(end.err().unwrap_or_else(early));
                }
                for index in left {
                    self.slots[index] = Slot::Todo;
                }
            }
        }
    }

    /// Plans and requests all entries that no source is fetching, after a pause if a request failed
    /// before.
    async fn ask_for_missing(&mut self) {
        if let Some(error) = self.setback.take() {
            if let Err(last) = self.tries.again(error).await {
                return self.give_up(last);
            }
            // The map may be the cause of any of these failures.
            if let Ok(map) = self.client.maps().get().await
                && let Err(e) = self.client.maps().replace(Some(&map)).await
            {
                self.setback = Some(e);
                return;
            }
        }
        let mut todo = self.todo();
        let buckets: BTreeSet<usize> =
            todo.iter().map(|&i| self.request.entries[i].bucket as usize).collect();
        for number in buckets {
            // An index that is out of range is refused by the plan.
            let Some(bucket) = self.request.buckets.get(number) else { continue };
            if let Err(e) = self.client.map_with(bucket).await {
                if e.is_transient() {
                    self.setback = Some(e);
                    return;
                }
                let of_bucket = |i: &usize| self.request.entries[*i].bucket as usize == number;
                let (gone, rest): (Vec<_>, Vec<_>) = todo.into_iter().partition(of_bucket);
                todo = rest;
                self.answered += gone.len();
                for index in gone {
                    self.finish_entry(index, Err(e.clone().into()), None);
                }
            }
        }
        let map = match self.client.maps().get().await {
            Ok(map) => map,
            Err(e) => return self.setback = Some(e),
        };
        let plan = batch::plan(&map.state, &self.request, todo);
        for (index, mut e) in plan.failed {
            if e.code.is_transient() {
                // The map is asked again, not the dead node: no long pause.
                e.retry_after_s = None;
                self.setback = Some(e.into());
            } else {
                self.finish_entry(index, Err(e), None);
            }
        }
        for (owner, entries) in plan.by_owner {
            self.ask(&map, &owner, entries);
        }
    }

    fn ask(&mut self, map: &Arc<MapReply>, owner: &NodeId, entries: Vec<usize>) {
        let streams = dealt(entries);
        let allowance = BATCH_PREFETCH_BYTES / streams.len().max(1);
        for entries in streams {
            self.ask_one(map, owner, entries, allowance);
        }
    }

    fn ask_one(
        &mut self,
        map: &Arc<MapReply>,
        owner: &NodeId,
        entries: Vec<usize>,
        allowance: usize,
    ) {
        let id = self.next_source;
        self.next_source += 1;
        for &index in &entries {
            self.slots[index] = Slot::Asked(id);
        }
        let (regranted, rooms) = (self.tries.regranted.clone(), self.rooms.clone());
        let mut source =
            Source::new(&self.client, map.clone(), owner, &self.request, entries, regranted, rooms);
        source.allowance = allowance;
        self.sources.insert(id, source);
    }

    fn todo(&self) -> Vec<usize> {
        (0..self.slots.len()).filter(|&i| self.slots[i] == Slot::Todo).collect()
    }

    fn give_up(&mut self, error: Error) {
        for index in self.todo() {
            self.finish_entry(index, Err(error.clone().into()), None);
        }
        self.gave_up = Some(error);
    }
}

/// Deals the entries of one owner to streams, in turns: all streams then make progress while a
/// batch is read in order.
fn dealt(entries: Vec<usize>) -> Vec<Vec<usize>> {
    let count = (entries.len() / PER_STREAM).clamp(1, STREAMS);
    if count == 1 {
        return vec![entries];
    }
    let mut streams = vec![Vec::with_capacity(entries.len() / count + TURN); count];
    for (turn, run) in entries.chunks(TURN).enumerate() {
        streams[turn % count].extend_from_slice(run);
    }
    streams
}

#[cfg(test)]
mod tests;
