//! Makes a group of changes on a disk: log, sync, index, files, in this order.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::{Error, ErrorCode, Result};

use super::apply::{Applied, Applier};
use super::change::{Change, MetaChange, Outcome};
use super::committer::{Answer, Answers, Request};
use super::format;
use super::log::{Entry, Item, Position};
use super::observer::{Arrival, Observer};
use super::recency::Touch;
use super::reclaim::Reclaimer;
use super::record::{Place, Record, Spot};
use super::shared::Shared;
use super::work::Filling;

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

/// A change after it was compared with the current record.
enum Step {
    Nothing,
    /// The next item of the plan.
    Append {
        files: Vec<Filling>,
        misplaced: bool,
    },
    Refresh {
        records: Vec<Record>,
        tell: bool,
    },
    /// Times of access, of commits that are still there then.
    Times(Vec<Touch>),
    Release(u64),
    ClearMisplaced(Vec<u8>),
}

/// A request after its changes were compared with the current records.
#[derive(Default)]
struct Plan {
    items: Vec<Item>,
    steps: Vec<Step>,
    /// A change in it must survive a power cut before the reply.
    durable: bool,
}

impl Plan {
    fn append(
        &mut self,
        entry: Entry,
        payload: Bytes,
        files: Vec<Filling>,
        misplaced: bool,
    ) -> Step {
        self.items.push(Item { entry, payload });
        Step::Append { files, misplaced }
    }
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

    /// Decides the step for each change of a request.
    fn plan(&self, changes: &mut Vec<Change>) -> Result<Plan> {
        self.shared.check_alive()?;
        let sealed = self.shared.sealed.load(Ordering::SeqCst);
        if sealed && changes.iter().any(|c| matches!(c, Change::Put { .. })) {
            let text = format!("disk {} was just detached", self.shared.root.display());
            return Err(Error::unavailable(text).hint("send it again"));
        }
        if self.tight && changes.iter().any(Change::needs_room) {
            let bytes: usize = changes.iter().map(Change::payload).sum();
            self.shared.room.note_full(bytes as u64);
            let text = format!("the file system of {} is full", self.shared.root.display());
            return Err(Error::new(ErrorCode::OutOfSpace, text).hint("free space on it"));
        }
        let mut plan = Plan::default();
        for change in changes.drain(..) {
            let step = self.plan_one(change, &mut plan)?;
            plan.steps.push(step);
        }
        Ok(plan)
    }

    fn plan_one(&self, change: Change, plan: &mut Plan) -> Result<Step> {
        let shared = &self.shared;
        Ok(match change {
            Change::Put { mut record, payload, files, misplaced } => {
                if record.sequence == 0 {
                    record.sequence = shared.next_sequence();
                }
                if record.generation == 0 {
                    record.generation = record.sequence;
                }
                plan.durable |= is_owned(&record);
                let entry = Entry::Put(record);
                format::check_entry(&entry)?;
                plan.append(entry, payload, files, misplaced || shared.is_degraded())
            }
            Change::Remove { bucket_id, name, generation } => {
                let current = shared.index.get(&format::key(bucket_id, &name))?;
                match current.filter(|r| generation.is_none_or(|g| g == r.generation)) {
                    None => Step::Nothing,
                    Some(current) => {
                        plan.durable |= is_owned(&current);
                        let sequence = shared.next_sequence();
                        let entry = Entry::Remove { bucket_id, name, sequence };
                        plan.append(entry, Bytes::new(), Vec::new(), shared.is_degraded())
                    }
                }
            }
            Change::Update { record, change } => self.plan_update(&record, change, plan)?,
            Change::Times(touches) => Step::Times(touches),
            Change::Move { record, payload } => match shared.current(&record)? {
                Some(now) if now.sequence == record.sequence && now.spot() == record.spot() => {
                    // The index may be on the disk before the log is. It would then name only the
                    // copy.
                    plan.durable |= is_owned(&now);
                    plan.append(Entry::Put(Box::new(now)), payload, Vec::new(), false)
                }
                _ => Step::Nothing,
            },
            Change::WriteTombstone { from, bucket_id, name, sequence } => {
                // A record that follows the removal in the log but has a lower sequence was not
                // removed by it. That record replaces the older ones itself; behind a copy of the
                // removal it would count as removed.
                let current = shared.index.get(&format::key(bucket_id, &name))?;
                let outlived = current.is_some_and(|now| now.sequence < sequence);
                // While a removed file or segment is still on the disk, a rebuild would find its
                // objects again.
                let left = shared.stale_index.load(Ordering::Relaxed);
                let left = left || !self.unremoved.is_empty();
                if !outlived && (left || shared.usage_counters().hides(from, sequence)) {
                    let entry = Entry::Remove { bucket_id, name, sequence };
                    plan.append(entry, Bytes::new(), Vec::new(), false)
                } else {
                    Step::Nothing
                }
            }
            Change::Release { segment } => {
                plan.durable = true;
                let live = shared.usage_counters().segments.get(&segment).map_or(0, |s| s.live);
                if live == 0 { Step::Release(segment) } else { Step::Nothing }
            }
            Change::ClearMisplaced { key } => Step::ClearMisplaced(key),
        })
    }

    /// Metadata that must survive the loss of the index is logged when the class is `Owned`.
    fn plan_update(&self, record: &Record, change: MetaChange, plan: &mut Plan) -> Result<Step> {
        let Some(mut now) = self.shared.current(record)? else { return Ok(Step::Nothing) };
        let (before, was_evictable) = (now.meta.clone(), now.evictable());
        change(&mut now.meta);
        if !is_owned(&now) || now.meta.same_lasting(&before) {
            let tell = now.evictable() != was_evictable;
            return Ok(Step::Refresh { records: vec![now], tell });
        }
        let payload = match &now.place {
            Place::Files(..) => Bytes::new(),
            Place::Log(spot) => match self.shared.log.read(spot, now.size)? {
                Some((_, payload)) => payload,
                None => return Ok(Step::Nothing),
            },
        };
        now.sequence = self.shared.next_sequence();
        let entry = Entry::Put(Box::new(now));
        format::check_entry(&entry)?;
        plan.durable = true;
        Ok(plan.append(entry, payload, Vec::new(), false))
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

    /// Work that follows a batch of the index. After a crash in here, opening the disk completes
    /// it.
    fn finish(&mut self, after: After) {
        let shared = &self.shared;
        after.drain.into_iter().for_each(|file| shared.drain_file(file));
        for gone in &after.gone {
            shared.companions.drop_of(shared, *gone);
            shared.recency.forget(*gone);
        }
        for record in &after.accessed {
            shared.location_cache.accessed(record.digest(), record.meta.atime_ns);
        }
        if let Some(observer) = shared.observer.get() {
            after.notices.iter().for_each(|notice| notice.send(&**observer, shared.number));
        }
        // If space is not short, the reclaimer thread frees the blocks. Else they are freed here,
        // before the reply.
        let hold = !self.tight;
        for file in after.doomed {
            let held = if hold { shared.held_file(file) } else { None };
            if shared.unlink_file(file) {
                self.unlinked.push(file);
            }
            self.reclaimer.close(held);
        }
        self.unremoved.extend(after.released);
        if !self.unremoved.is_empty()
            && let Err(e) = self.remove_segments(hold)
        {
            tracing::warn!(segments = self.unremoved.len(), "released segments stay: {e}");
            if self.shared.log.check_sound().is_err() {
                self.shared.give_up(&e);
            }
        }
        self.shared.show_accounts();
        if self.shared.room.is_pressed() {
            self.shared.give_up_spares();
        }
    }

    /// Removes released segments, the oldest first. The remaining ones are tried again later.
    fn remove_segments(&mut self, hold: bool) -> Result<()> {
        let shared = &self.shared;
        // After a power cut an index from before the release would refer to the missing segments.
        shared.index.persist()?;
        let keep = hold && shared.has_room_for_spares();
        while let Some(segment) = self.unremoved.first() {
            let removed = shared.log.remove(*segment, keep)?;
            self.unremoved.remove(0);
            if hold {
                self.reclaimer.close(removed);
            }
        }
        Ok(())
    }
}

impl Step {
    fn files(&mut self) -> &mut [Filling] {
        match self {
            Self::Append { files, .. } => files,
            _ => &mut [],
        }
    }
}

/// Work on files that follows a batch.
#[derive(Default)]
struct After {
    drain: Vec<u64>,
    doomed: Vec<u64>,
    /// Generations that were replaced or removed.
    gone: Vec<u64>,
    released: Vec<u64>,
    accessed: Vec<Record>,
    notices: Vec<Notice>,
}

/// The changes of one commit that the cache is notified of.
struct Notice {
    /// Generation of a copy that was removed.
    gone: Option<u64>,
    /// A copy that was added, or whose evictability changed.
    came: Option<Arrival>,
}

impl Notice {
    fn came(record: &Record) -> Self {
        Self { gone: None, came: Some(Arrival::of(record)) }
    }

    /// `None` if nothing changed that matters for eviction.
    fn of(old: Option<&Record>, new: Option<&Record>) -> Option<Self> {
        let same =
            |a: &Record, b: &Record| a.generation == b.generation && a.evictable() == b.evictable();
        if old.zip(new).is_some_and(|(a, b)| same(a, b)) {
            return None;
        }
        let gone = old.filter(|r| r.evictable()).map(|r| r.generation);
        let came = new.filter(|r| r.evictable()).map(Arrival::of);
        (gone.is_some() || came.is_some()).then_some(Self { gone, came })
    }

    fn send(&self, observer: &dyn Observer, disk: usize) {
        if let Some(generation) = self.gone {
            observer.removed(disk, generation);
        }
        if let Some(arrival) = &self.came {
            observer.inserted(disk, arrival);
        }
    }
}

impl After {
    fn note(&mut self, applied: Applied) -> Outcome {
        let Applied { new, old, doomed } = applied;
        self.doomed.extend(doomed);
        self.notices.extend(Notice::of(old.as_ref(), new.as_ref()));
        if let Some(old) = &old
            && new.as_ref().is_none_or(|n| n.generation != old.generation)
        {
            self.gone.push(old.generation);
        }
        Outcome { new, old }
    }
}

fn is_owned(record: &Record) -> bool {
    record.meta.class == Class::Owned
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
