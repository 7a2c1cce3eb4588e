//! The requests of a batch: which entries are requested from which target, over how many streams,
//! and again after a failure.

use std::collections::BTreeSet;
use std::sync::Arc;

use forebay_core::NodeId;
use forebay_core::batch;
use forebay_core::intra::MapReply;

use super::merge::{Batch, Slot};
use super::source::{BATCH_PREFETCH_BYTES, Source};
use crate::error::Error;

/// A target that owns more entries than this sends them over several streams.
const PER_STREAM: usize = 2048;
/// Maximum number of streams for one target.
const STREAMS: usize = 4;
/// Entries are dealt to the streams round robin, in runs of this length.
const TURN: usize = 256;

impl Batch {
    /// Plans and requests all entries that no source is fetching, after a pause if a request failed
    /// before.
    pub(super) async fn ask_for_missing(&mut self) {
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
        let (renewal, rooms) = (self.tries.grant.clone(), self.rooms.clone());
        let mut source =
            Source::new(&self.client, map.clone(), owner, &self.request, entries, renewal, rooms);
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
