//! Compares the changes of a request with the current records, and decides the steps for them.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::{Error, ErrorCode, Result};

use super::Engine;
use crate::change::{Change, MetaChange};
use crate::format;
use crate::log::{Entry, Item};
use crate::recency::Touch;
use crate::record::{Place, Record};
use crate::work::Filling;

/// A change after it was compared with the current record.
pub(super) enum Step {
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
pub(super) struct Plan {
    pub(super) items: Vec<Item>,
    pub(super) steps: Vec<Step>,
    /// A change in it must survive a power cut before the reply.
    pub(super) durable: bool,
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

impl Step {
    pub(super) fn files(&mut self) -> &mut [Filling] {
        match self {
            Self::Append { files, .. } => files,
            _ => &mut [],
        }
    }
}

impl Engine {
    /// Decides the step for each change of a request.
    pub(super) fn plan(&self, changes: &mut Vec<Change>) -> Result<Plan> {
        self.shared.check_alive()?;
        let sealed = self.shared.condition.is_sealed();
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
}

fn is_owned(record: &Record) -> bool {
    record.meta.class == Class::Owned
}
