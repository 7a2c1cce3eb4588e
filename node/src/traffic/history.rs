//! The counts of this node by slot of wall-clock time, for the last minutes.

use std::collections::VecDeque;
use std::time::Duration;

use forebay_core::overview::{MAX_HISTORY_SLOTS, NodeHistory, NodeSlot, slot_of};
use forebay_core::traffic::{LatencyCounts, TrafficCounts};

/// Slots that are kept: the complete ones, the one that is being filled, and one more for a gateway
/// whose clock is behind.
const KEPT_SLOTS: usize = MAX_HISTORY_SLOTS + 2;

/// The counts of the last slots, the oldest first; some 20 KB.
#[derive(Debug, Default)]
pub(super) struct History {
    slots: VecDeque<NodeSlot>,
}

impl History {
    /// Adds what was counted during `time` until `until_ns` (unix). It belongs to the slot that has its
    /// middle.
    pub(super) fn add(
        &mut self,
        until_ns: u64,
        time: Duration,
        total: &TrafficCounts,
        latency: &LatencyCounts,
    ) {
        let half_ns = u64::try_from(time.as_nanos() / 2).unwrap_or(u64::MAX);
        let slot = slot_of(until_ns.saturating_sub(half_ns));
        // The clock was set back: what was counted by the later time has no slot any more.
        while self.slots.back().is_some_and(|last| last.slot > slot) {
            self.slots.pop_back();
        }
        match self.slots.back_mut().filter(|last| last.slot == slot) {
            Some(last) => {
                last.seconds += time.as_secs_f64();
                last.total.add(total);
                last.latency.add(latency);
            }
            None => self.slots.push_back(NodeSlot {
                slot,
                seconds: time.as_secs_f64(),
                total: *total,
                latency: latency.clone(),
            }),
        }
        while self.slots.len() > KEPT_SLOTS {
            self.slots.pop_front();
        }
    }

    /// The slots so far.
    pub(super) fn report(&self) -> NodeHistory {
        NodeHistory { slots: self.slots.iter().cloned().collect() }
    }
}

#[cfg(test)]
mod tests {
    use forebay_core::overview::HISTORY_SLOT_S;

    use super::*;

    const START_S: u64 = 1_000 * HISTORY_SLOT_S;

    /// Adds a second that ends at `until_s`, with one request.
    fn add(history: &mut History, until_s: u64) {
        let total = TrafficCounts { requests: 1, ..TrafficCounts::default() };
        let latency = LatencyCounts(vec![0, 1]);
        history.add(until_s * 1_000_000_000, Duration::from_secs(1), &total, &latency);
    }

    fn shown(history: &History) -> Vec<(u64, f64, u64, u64)> {
        let slots = history.report().slots;
        let row = |one: &NodeSlot| (one.slot, one.seconds, one.total.requests, one.latency.total());
        slots.iter().map(row).collect()
    }

    #[test]
    fn a_slot_has_the_seconds_that_lie_in_it() {
        let mut history = History::default();
        for second in 1..=7 {
            add(&mut history, START_S + second);
        }
        assert_eq!(shown(&history), [(1_000, 5.0, 5, 5), (1_001, 2.0, 2, 2)]);
    }

    #[test]
    fn old_slots_are_dropped() {
        let mut history = History::default();
        for second in 1..=3_600 {
            add(&mut history, START_S + second);
        }
        let shown = shown(&history);
        assert_eq!(shown.len(), KEPT_SLOTS);
        assert_eq!(shown.last().map(|last| last.0), Some(1_719));
    }

    #[test]
    fn a_clock_that_is_set_back_leaves_no_slots_of_the_future() {
        let mut history = History::default();
        for second in 1..=20 {
            add(&mut history, START_S + second);
        }
        add(&mut history, START_S + 6);
        assert_eq!(shown(&history), [(1_000, 5.0, 5, 5), (1_001, 6.0, 6, 6)]);
    }
}
