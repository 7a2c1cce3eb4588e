//! The work that follows a batch of the index: files in their places, the observer notified, space of
//! removed objects and released segments freed.

use forebay_core::Result;

use super::Engine;
use crate::apply::Applied;
use crate::change::Outcome;
use crate::observer::{Arrival, Observer};
use crate::record::Record;

/// Work on files that follows a batch.
#[derive(Default)]
pub(super) struct After {
    pub(super) drain: Vec<u64>,
    doomed: Vec<u64>,
    /// Generations that were replaced or removed.
    gone: Vec<u64>,
    pub(super) released: Vec<u64>,
    pub(super) accessed: Vec<Record>,
    pub(super) notices: Vec<Notice>,
}

/// The changes of one commit that the cache is notified of.
pub(super) struct Notice {
    /// Generation of a copy that was removed.
    gone: Option<u64>,
    /// A copy that was added, or whose evictability changed.
    came: Option<Arrival>,
}

impl Notice {
    pub(super) fn came(record: &Record) -> Self {
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
    pub(super) fn note(&mut self, applied: Applied) -> Outcome {
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

impl Engine {
    /// Work that follows a batch of the index. After a crash in here, opening the disk completes
    /// it.
    pub(super) fn finish(&mut self, after: After) {
        let shared = &self.shared;
        after.drain.into_iter().for_each(|file| shared.drain_file(file));
        for gone in &after.gone {
            shared.sidecars.drop_of(shared, *gone);
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
