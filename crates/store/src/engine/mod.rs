//! Makes a group of changes on a disk: log, sync, index, files, in this order.

mod finish;
mod plan;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::{Error, ErrorCode, Result};

use self::finish::{After, Notice};
use self::plan::{Plan, Step};
use super::apply::Applier;
use super::change::Outcome;
use super::committer::{Answer, Answers, Request};
use super::format;
use super::log::{Entry, Item, Position};
use super::reclaim::Reclaimer;
use super::record::{Record, Spot};
use super::shared::Shared;

/// The log, the index and the files of one disk, owned by the one thread that changes them.
pub(crate) struct Engine {
    shared: Arc<Shared>,
    /// The file system is nearly full, as of the current group.
    tight: bool,
    /// Doomed files that were removed: the next batch may delete their entries.
    unlinked: Vec<u64>,
    /// Segments that were released and could not be removed yet.
    unremoved: Vec<u64>,
    reclaimer: Reclaimer,
    answers: Answers,
}

impl Engine {
    pub(crate) fn new(shared: Arc<Shared>, answers: Answers) -> Self {
        let reclaimer = Reclaimer::start(shared.number);
        let (unlinked, unremoved) = (Vec::new(), Vec::new());
        Self { shared, tight: false, unlinked, unremoved, reclaimer, answers }
    }

    /// Ends the log when no more changes can arrive.
    pub(crate) fn end(&self) {
        self.shared.log.close();
    }

    /// Makes the changes of a group: first those that need no sync, so that none of these waits for
    /// one.
    pub(crate) fn commit(&mut self, requests: Vec<Request>) {
        let (mut quick, mut durable, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        self.tight = self.shared.is_tight();
        if self.tight && self.shared.give_up_spares() > 0 {
            self.tight = self.shared.is_tight();
        }
        if self.tight && requests.iter().flat_map(|r| &r.changes).any(|c| !c.needs_room()) {
            self.shared.give_up_reserve();
        }
        for mut request in requests {
            match self.plan(&mut request.changes) {
                Ok(plan) if plan.durable => durable.push((request, plan)),
                Ok(plan) => quick.push((request, plan)),
                Err(e) => refused.push(Answer(request, Err(e))),
            }
        }
        self.answers.give(refused.into_iter());
        for (planned, durable) in [(quick, false), (durable, true)] {
            if planned.is_empty() {
                continue;
            }
            let (requests, plans): (Vec<_>, Vec<_>) = planned.into_iter().unzip();
            let outcomes: Vec<_> = match self.write(plans, durable) {
                Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
                Err(e) => requests.iter().map(|_| Err(e.clone())).collect(),
            };
            let answers = requests.into_iter().zip(outcomes);
            self.answers.give(answers.map(|(request, outcomes)| Answer(request, outcomes)));
        }
    }

    /// Log, sync, index, files: in this order. Returns one list of outcomes for each plan.
    fn write(&mut self, plans: Vec<Plan>, durable: bool) -> Result<Vec<Vec<Outcome>>> {
        let (items, mut steps): (Vec<_>, Vec<_>) =
            plans.into_iter().map(|plan| (plan.items, plan.steps)).unzip();
        let items: Vec<Item> = items.into_iter().flatten().collect();
        let positions = self.append(&items, durable)?;
        // From here on the log may name these files, even if a later step fails.
        for file in steps.iter_mut().flatten().flat_map(Step::files) {
            file.handed_over = true;
        }
        if durable && let Err(e) = self.shared.log.sync() {
            self.shared.give_up(&e);
            return Err(e);
        }
        let appended = items.into_iter().zip(positions);
        let (outcomes, after) = match self.index(steps, appended) {
            Ok(done) => done,
            Err(e) => {
                // The log is ahead of the index now. Only reopening the disk can repair that.
                self.shared.give_up(&e);
                return Err(e);
            }
        };
        self.finish(after);
        self.shared.progress.fetch_add(1, Ordering::Relaxed);
        Ok(outcomes)
    }

    fn append(&self, items: &[Item], durable: bool) -> Result<Vec<Spot>> {
        let shared = &self.shared;
        let appended = match durable && !self.tight {
            true => shared.log.append_to_sync(items),
            false => shared.log.append(items),
        };
        match appended {
            Err(e) if e.code == ErrorCode::OutOfSpace => {
                if shared.give_up_spares() > 0 {
                    return self.append(items, durable);
                }
                let bytes: usize = items.iter().map(|i| i.payload.len()).sum();
                shared.room.note_full(bytes as u64);
                // New objects are rejected from the next group on.
                if shared.give_up_reserve() { shared.log.append(items) } else { Err(e) }
            }
            other => other.inspect_err(|e| shared.suspect_if(e)),
        }
    }

    fn index(
        &mut self,
        plans: Vec<Vec<Step>>,
        mut appended: impl Iterator<Item = (Item, Spot)>,
    ) -> Result<(Vec<Vec<Outcome>>, After)> {
        let mut usage_counters = self.shared.usage_counters();
        let mut applier = Applier::new(&self.shared.index, &mut usage_counters);
        let mut after = After::default();
        self.unlinked.drain(..).for_each(|file| applier.batch.unmark_for_delete(file));
        let (mut changed, mut written) = (Vec::new(), Vec::new());
        let mut all = Vec::with_capacity(plans.len());
        for steps in plans {
            let mut outcomes = Vec::with_capacity(steps.len());
            for step in steps {
                outcomes.push(match step {
                    Step::Nothing => Outcome::default(),
                    Step::Times(touches) => {
                        for touch in touches {
                            if let Some(record) = applier.accessed(&touch)? {
                                after.accessed.push(record);
                            }
                        }
                        Outcome::default()
                    }
                    Step::Refresh { mut records, tell } => {
                        records.iter().try_for_each(|record| applier.refresh(record))?;
                        changed.extend(records.iter().map(Record::digest));
                        if tell {
                            after.notices.extend(records.iter().map(Notice::came));
                        }
                        Outcome { new: records.pop(), old: None }
                    }
                    Step::Release(segment) => {
                        applier.forget_segment(segment);
                        after.released.push(segment);
                        Outcome::default()
                    }
                    Step::ClearMisplaced(key) => {
                        applier.batch.remove_misplaced(&key);
                        Outcome::default()
                    }
                    Step::Append { files, misplaced } => {
                        let (item, spot) = appended
                            .next()
                            .ok_or_else(|| Error::internal("the log did not place every record"))?;
                        let (at, len, entry) = placed(item, spot);
                        let applied = applier.apply(at, len, entry)?;
                        if let Some(record) = applied.any() {
                            let digest = record.digest();
                            changed.push(digest);
                            written.extend(applied.fresh().map(|known| (digest, known)));
                        }
                        // Of a removed record its own sequence counts, not the removal's: a copy
                        // that was replaced on another disk must not remove the newer one.
                        let note = match (&applied.new, &applied.old) {
                            (Some(new), _) => Some((new, None)),
                            (None, Some(old)) => Some((old, Some(old.sequence))),
                            (None, None) => None,
                        };
                        if let Some((record, removed)) = note.filter(|_| misplaced) {
                            let key = format::key(record.bucket_id, &record.name);
                            applier.batch.put_misplaced(&key, removed);
                        }
                        after.drain.extend(files.iter().map(|f| f.id));
                        after.note(applied)
                    }
                });
            }
            all.push(outcomes);
        }
        let closed = self.shared.location_cache.close(changed);
        applier.commit()?;
        closed.written(written);
        Ok((all, after))
    }
}

/// The entry with its place in the log, and its frame.
fn placed(item: Item, spot: Spot) -> (Position, u64, Entry) {
    let at = Position { segment: spot.segment, offset: u64::from(spot.offset) };
    match item.entry {
        Entry::Put(mut record) => {
            record.set_spot(spot);
            (at, record.frame_bytes(), Entry::Put(record))
        }
        removal => (at, u64::from(spot.head).next_multiple_of(format::ALIGN), removal),
    }
}
