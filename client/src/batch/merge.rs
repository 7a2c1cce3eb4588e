//! A batch under way: merges the answers of its sources and hands them out, in request order or as
//! they come.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::poll_fn;
use std::task::{Context, Poll};

use bytes::Bytes;

use forebay_core::Error as CoreError;
use forebay_core::batch::{BatchRequest, MAX_ENTRIES};
use forebay_core::batch_stream::Rooms;

use super::BatchItem;
use super::source::{self, Source};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::retry::Attempts;

/// Maximum number of answers that are handed out together.
const RUN: usize = 1024;
/// Approximate maximum of their bytes.
const RUN_BYTES: usize = 1 << 20;

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slot {
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
pub(super) struct Batch {
    pub(super) client: Client,
    pub(super) request: BatchRequest,
    pub(super) rooms: Option<Rooms>,
    pub(super) tries: Attempts,
    pub(super) slots: Vec<Slot>,
    handed: usize,
    /// Ordered batches: answers that have arrived, by entry.
    ready: HashMap<usize, Ready>,
    /// Unordered batches: answers in the order of arrival.
    arrived: VecDeque<(usize, Ready)>,
    pub(super) sources: BTreeMap<u32, Source>,
    pub(super) next_source: u32,
    /// Why entries had to be requested again.
    pub(super) setback: Option<Error>,
    /// Entries that the cluster gave a definite answer for.
    pub(super) answered: usize,
    pub(super) gave_up: Option<Error>,
}

impl Batch {
    pub(super) fn new(
        client: &Client,
        request: BatchRequest,
        rooms: Option<Rooms>,
    ) -> Result<Self> {
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
    pub(super) async fn next_run(&mut self) -> Option<Vec<BatchItem>> {
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

    pub(super) fn finish_entry(
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
}
