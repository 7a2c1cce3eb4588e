//! The last minutes of a cluster: each node keeps the counts of its traffic by slot of wall-clock time,
//! and a gateway sums the slots of all nodes.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Rates;
use crate::date::format_rfc3339;
use crate::state::Role;
use crate::traffic::{LatencyCounts, TRAFFIC_WINDOW_S, TrafficCounts};

/// Length of a slot in seconds: that of the window of an overview, so that both show the same rates.
pub const HISTORY_SLOT_S: u64 = TRAFFIC_WINDOW_S;
/// Complete slots of a history: five minutes.
pub const MAX_HISTORY_SLOTS: usize = 60;

/// The counts of a node in one slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeSlot {
    /// Unix seconds of the slot's begin, divided by [`HISTORY_SLOT_S`].
    pub slot: u64,
    /// The time that was counted, in seconds: shorter than a slot after a restart.
    pub seconds: f64,
    pub total: TrafficCounts,
    pub latency: LatencyCounts,
}

/// `GET /internal/v1/traffic/history`: the counts of a node by slot, the oldest first. The last slot may
/// be incomplete.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeHistory {
    pub slots: Vec<NodeSlot>,
}

/// `GET /api/v1/overview/history`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OverviewHistory {
    /// When it was collected, RFC 3339.
    pub at: String,
    /// Length of the window that the rates of a point are of, in seconds.
    pub interval_s: u64,
    /// The oldest first. A time in which no node counted has no point.
    pub points: Vec<HistoryPoint>,
    /// The nodes without an answer in time: their traffic is missing in all points.
    pub silent_nodes: Vec<String>,
}

/// The rates of the cluster in one slot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HistoryPoint {
    /// The end of the slot, RFC 3339.
    pub at: String,
    /// Number of nodes that counted in this slot. A node that started later did not.
    pub nodes: usize,
    #[serde(flatten)]
    pub rates: Rates,
}

/// Returns the rates of the cluster in the complete slots of the last minutes at `now_ns`. Bytes, hits
/// and misses are those of targets, as in an overview.
pub fn summed_history<'a>(
    parts: impl IntoIterator<Item = (Role, &'a NodeHistory)>,
    now_ns: u64,
) -> Vec<HistoryPoint> {
    let now = slot_of(now_ns);
    let shown = now.saturating_sub(MAX_HISTORY_SLOTS as u64)..now;
    let mut sums: BTreeMap<u64, (usize, Rates, LatencyCounts)> = BTreeMap::new();
    for (role, part) in parts {
        let counted =
            part.slots.iter().filter(|one| shown.contains(&one.slot) && one.seconds > 0.0);
        for one in counted {
            let (nodes, rates, latency) = sums.entry(one.slot).or_default();
            *nodes += 1;
            rates.add(&Rates::of(&one.total, one.seconds).of_cluster(role));
            latency.add(&one.latency);
        }
    }
    let points = sums.into_iter().map(|(slot, (nodes, rates, latency))| HistoryPoint {
        at: format_rfc3339((slot + 1) * HISTORY_SLOT_S * 1_000_000_000),
        nodes,
        rates: rates.with_latency(&latency),
    });
    points.collect()
}

/// The slot of a time in unix nanoseconds.
pub fn slot_of(unix_ns: u64) -> u64 {
    unix_ns / 1_000_000_000 / HISTORY_SLOT_S
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_SLOT: u64 = 1_000;
    const NOW_NS: u64 = (NOW_SLOT * HISTORY_SLOT_S + 2) * 1_000_000_000;

    fn slot(slot: u64, requests: u64, class: usize) -> NodeSlot {
        let mut latency = LatencyCounts(vec![0; 24]);
        latency.0[class] = requests;
        let total = TrafficCounts {
            requests,
            read_bytes: 1_000,
            hits: 3,
            misses: 1,
            ..TrafficCounts::default()
        };
        NodeSlot { slot, seconds: 5.0, total, latency }
    }

    #[test]
    fn slots_of_all_nodes_add_up_and_quantiles_are_those_of_all_requests() {
        let quick = NodeHistory { slots: vec![slot(997, 98, 3), slot(998, 10, 3)] };
        let slow = NodeHistory { slots: vec![slot(997, 2, 9)] };
        let gateway = NodeHistory { slots: vec![slot(997, 5, 3)] };
        let parts = [(Role::Target, &quick), (Role::Target, &slow), (Role::Gateway, &gateway)];
        let points = summed_history(parts, NOW_NS);
        assert_eq!(points.len(), 2);
        let first = &points[0];
        assert_eq!((first.nodes, points[1].nodes), (3, 1));
        assert_eq!(first.rates.requests_per_s, 21.0);
        // Bytes of the gateway count at the targets.
        assert_eq!(first.rates.read_bytes_per_s, 400.0);
        assert_eq!(first.rates.hit_rate, Some(0.75));
        assert!(first.rates.p50_s.is_some_and(|p50| (50e-6..=100e-6).contains(&p50)));
        assert!(first.rates.p99_s.is_some_and(|p99| (5e-3..=10e-3).contains(&p99)));
        assert_eq!(first.at, format_rfc3339(998 * HISTORY_SLOT_S * 1_000_000_000));
    }

    #[test]
    fn only_complete_slots_of_the_last_minutes_are_shown() {
        let ages = [NOW_SLOT - 61, NOW_SLOT - 60, NOW_SLOT - 1, NOW_SLOT, NOW_SLOT + 1];
        let mut part = NodeHistory { slots: ages.iter().map(|at| slot(*at, 1, 0)).collect() };
        assert_eq!(summed_history([(Role::Target, &part)], NOW_NS).len(), 2);
        part.slots[2].seconds = 0.0;
        assert_eq!(summed_history([(Role::Target, &part)], NOW_NS).len(), 1);
    }
}
