//! Removals of the last minute, in memory. A quiescent cluster keeps no tombstones; but a copy that
//! was sent before the removal may still be under way, although its sender no longer waits for the
//! answer. Such a copy must not restore the object; nor one on a target that the removal did not
//! reach, because its owner died.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use super::pending::Key;
use super::steps::Steps;
use crate::copies::Stamp;
use crate::locks::MutexExt;

/// How long a request may be under way.
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// An owner remembers a removal longer than the receivers refuse older copies: a write of the object
/// is newer than the removal as long as that matters.
const ROTATED_AFTER: Duration = Duration::from_secs(90);

/// Number of removals after which a period ends early: memory is bounded, and so many removals in a
/// period leave no time for requests that are under way for long.
const MAX_IN_PERIOD: usize = 200_000;

/// The removals of objects with copies, and of older versions, that this process has made or received.
#[derive(Debug, Default)]
pub(super) struct RecentRemovals(Mutex<Generations>);

/// Entries are dropped between one and two periods after they were recorded; earlier if there are very
/// many.
#[derive(Debug, Default)]
struct Generations {
    started: Duration,
    current: HashMap<Key, Removed>,
    previous: HashMap<Key, Removed>,
}

#[derive(Clone, Copy, Debug)]
struct Removed {
    stamp: Stamp,
    at: Duration,
}

impl RecentRemovals {
    fn record(&self, key: Key, stamp: Stamp, at: Duration) {
        let mut generations = self.0.locked();
        generations.rotate(at);
        let last = generations.get(&key).map_or(stamp, |removed| removed.stamp.max(stamp));
        generations.current.insert(key, Removed { stamp: last, at });
    }

    fn get(&self, key: &Key) -> Option<Removed> {
        self.0.locked().get(key)
    }
}

impl Generations {
    fn rotate(&mut self, now: Duration) {
        let is_over = now.saturating_sub(self.started) >= ROTATED_AFTER;
        if !is_over && self.current.len() < MAX_IN_PERIOD {
            return;
        }
        self.previous = std::mem::take(&mut self.current);
        self.started = now;
    }

    fn get(&self, key: &Key) -> Option<Removed> {
        self.current.get(key).or_else(|| self.previous.get(key)).copied()
    }
}

impl Steps {
    /// Records a removal of the object, whose lock the caller holds.
    pub(super) fn record_removal(&self, stamp: Stamp) {
        if self.info().has_copies() || self.is_older_version() {
            self.engine.removals.record(self.key(), stamp, self.now());
        }
    }

    /// The stamp of the object's last removal, if this process remembers it.
    pub(super) fn recent_removal(&self) -> Option<Stamp> {
        self.engine.removals.get(&self.key()).map(|removed| removed.stamp)
    }

    /// Whether a copy with this stamp was sent before the object was removed, and arrives late.
    pub(super) fn is_late(&self, copy: Stamp) -> bool {
        let removed = self.engine.removals.get(&self.key());
        removed.is_some_and(|removed| {
            removed.stamp >= copy && self.now().saturating_sub(removed.at) < LONGEST_DELAY
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_remembered_for_at_least_one_period() {
        let removals = RecentRemovals::default();
        let [a, b]: [Key; 2] = [(1, "a".into()), (1, "b".into())];
        let stamp = Stamp { epoch: 4, version: 2 };
        removals.record(a.clone(), stamp, ROTATED_AFTER);
        removals.record(b.clone(), stamp, 2 * ROTATED_AFTER);
        assert!(removals.get(&a).is_some() && removals.get(&b).is_some());
        removals.record(b.clone(), stamp, 3 * ROTATED_AFTER);
        assert!(removals.get(&a).is_none() && removals.get(&b).is_some());
    }

    #[test]
    fn the_last_of_several_removals_counts() {
        let removals = RecentRemovals::default();
        let key: Key = (1, "a".into());
        let [first, last] = [1, 2].map(|version| Stamp { epoch: 4, version });
        removals.record(key.clone(), last, Duration::ZERO);
        removals.record(key.clone(), first, Duration::ZERO);
        assert_eq!(removals.get(&key).map(|removed| removed.stamp), Some(last));
    }
}
