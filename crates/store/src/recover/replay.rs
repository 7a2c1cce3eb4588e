//! Applies records of the log to the index.

use forebay_core::{Error, ErrorCode, Result};

use super::{BATCH, Site};
use crate::apply::Applier;
use crate::format;
use crate::index::Index;
use crate::log::{Entry, Found, Position};
use crate::record::Record;
use crate::usage_counters::UsageCounters;

#[derive(Default)]
pub(super) struct Replay {
    pub(super) records: u64,
    pub(super) damaged: u64,
}

impl Site<'_> {
    pub(super) fn replay(
        &self,
        index: &Index,
        usage_counters: &mut UsageCounters,
        from: Position,
        check_payload: bool,
        mut note: impl FnMut(Vec<u8>),
    ) -> Result<Replay> {
        let mut replay = Replay::default();
        let mut applier = Applier::new(index, usage_counters);
        let mut pending = 0;
        // A segment without frames ends at its header.
        let mut ends = self.log.open_segments(from.segment);
        ends.insert(from.segment, from.offset);
        for found in self.log.scan(from, check_payload) {
            let found = found?;
            let (Found::Damaged { at, len } | Found::Entry { at, len, .. }) = &found;
            ends.insert(at.segment, at.offset + len);
            match found {
                Found::Damaged { at, len } => {
                    applier.pass(at, len);
                    replay.damaged += 1;
                }
                // Never synced, and a crash took a part of it: counts as not written.
                Found::Entry { at, len, payload_sound: Some(false), .. } => {
                    self.log.wipe(at)?;
                    applier.pass(at, len);
                }
                Found::Entry { at, len, entry, .. } => {
                    if let Entry::Put(record) = &entry {
                        note(format::key(record.bucket_id, &record.name));
                    }
                    let applied = applier.apply(at, len, with_disk(entry, self.number))?;
                    // A batch has its position with it; only damage separates them.
                    let known = |new: &Record, old: &Record| {
                        (new.sequence, new.spot()) == (old.sequence, old.spot())
                    };
                    if let (Some(new), Some(old)) = (&applied.new, &applied.old)
                        && check_payload
                        && known(new, old)
                    {
                        let what = "the index is damaged: it is ahead of its own position";
                        return Err(Error::new(ErrorCode::Corrupt, what));
                    }
                    replay.records += 1;
                }
            }
            pending += 1;
            if pending == BATCH {
                let (batch, usage_counters) = applier.next_batch();
                batch?;
                applier = Applier::new(index, usage_counters);
                pending = 0;
            }
        }
        applier.commit()?;
        ends.into_iter().try_for_each(|(segment, end)| self.log.cut(segment, end))?;
        Ok(replay)
    }
}

fn with_disk(entry: Entry, disk: usize) -> Entry {
    match entry {
        Entry::Put(mut record) => {
            record.disk = disk;
            Entry::Put(record)
        }
        removal => removal,
    }
}
