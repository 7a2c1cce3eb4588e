//! Liveness of nodes: a pure record of heartbeats that decides when a node's liveness must change.
//!
//! Times are milliseconds on a monotonic clock of the caller.

use std::collections::BTreeMap;

use crate::name::NodeId;

/// A node counts as dead this long after its last heartbeat. Reads with a second copy do not wait
/// for that, so a short pause of a machine causes no data movement.
pub const DEAD_AFTER_MS: u64 = 5_500;
/// Duration of a node's lease. It starts at the node's report, or at the last confirmation by a
/// majority of the leader that took the report if that is earlier. During its lease, no other node
/// treats the node as dead. A node that is cut off from the majority writes nothing 2 s later.
pub const LEASE_MS: u64 = 1_800;
/// How long a request waits for an expired lease to be renewed: an election of gateways rarely
/// takes longer.
pub const LEASE_BACK_WITHIN_MS: u64 = 1_000;
/// A silent node whose machine refuses connections counts as dead this long after its last
/// heartbeat. By then its lease has expired.
pub const REFUSED_AFTER_MS: u64 = 2_200;
/// A flapping node changes the map at most once in this time.
pub const FLAP_HOLD_MS: u64 = 10_000;
/// Interval between two heartbeats of a node.
pub const HEARTBEAT_MS: u64 = 500;

const _: () = assert!(LEASE_MS < REFUSED_AFTER_MS && REFUSED_AFTER_MS < DEAD_AFTER_MS);

#[derive(Clone, Copy, Debug)]
struct Seen {
    last_ms: u64,
    /// When this node's liveness last changed for the worse.
    died_ms: Option<u64>,
}

/// The heartbeats of all nodes.
#[derive(Debug, Default)]
pub struct Leases {
    seen: BTreeMap<NodeId, Seen>,
}

impl Leases {
    /// Records a heartbeat. Returns whether a node marked dead may be marked alive now.
    pub fn record_heartbeat(&mut self, id: &NodeId, now_ms: u64) -> bool {
        let seen = self.seen.entry(id.clone()).or_insert(Seen { last_ms: now_ms, died_ms: None });
        seen.last_ms = now_ms;
        seen.died_ms.is_none_or(|died| now_ms.saturating_sub(died) >= FLAP_HOLD_MS)
    }

    /// Starts a node's clock without a heartbeat (after a gateway's restart).
    pub fn assume(&mut self, id: &NodeId, now_ms: u64) {
        self.seen.entry(id.clone()).or_insert(Seen { last_ms: now_ms, died_ms: None });
    }

    /// A new process of the node joined: the record of the previous process is dropped.
    pub fn joined(&mut self, id: &NodeId, now_ms: u64) {
        self.seen.insert(id.clone(), Seen { last_ms: now_ms, died_ms: None });
    }

    /// A node left: it counts as dead immediately.
    pub fn left(&mut self, id: &NodeId) {
        self.seen.remove(id);
    }

    /// How long ago a node last reported; a node that left or never reported is silent forever.
    pub fn silent_ms(&self, id: &NodeId, now_ms: u64) -> u64 {
        self.seen.get(id).map_or(u64::MAX, |seen| now_ms.saturating_sub(seen.last_ms))
    }

    /// Whether a node may have a lease. A node that was declared dead may not until it counts as
    /// alive again: its death may be in the log, but not yet in the state, while it reports.
    pub fn may_lease(&self, id: &NodeId) -> bool {
        let seen = self.seen.get(id);
        seen.is_none_or(|seen| {
            seen.died_ms.is_none_or(|died| seen.last_ms.saturating_sub(died) >= FLAP_HOLD_MS)
        })
    }

    /// The nodes among `alive` that were silent for so long that a refused connection means they
    /// are dead.
    pub fn silent<'a>(&self, alive: impl Iterator<Item = &'a NodeId>, now_ms: u64) -> Vec<NodeId> {
        let silent = |id: &&NodeId| {
            let seen = self.seen.get(*id);
            seen.is_some_and(|seen| now_ms.saturating_sub(seen.last_ms) >= REFUSED_AFTER_MS)
        };
        alive.filter(silent).cloned().collect()
    }

    /// Records that a silent node's process no longer exists. Returns whether that is new: the node
    /// may have reported meanwhile.
    pub fn refused(&mut self, id: &NodeId, now_ms: u64) -> bool {
        let silent = !self.silent([id].into_iter(), now_ms).is_empty();
        if let Some(seen) = self.seen.get_mut(id).filter(|_| silent) {
            seen.died_ms = Some(now_ms);
        }
        silent
    }

    /// The nodes among `alive` whose heartbeat is overdue; each is reported once.
    pub fn overdue<'a>(
        &mut self,
        alive: impl Iterator<Item = &'a NodeId>,
        now_ms: u64,
    ) -> Vec<NodeId> {
        let mut dead = Vec::new();
        for id in alive {
            let seen =
                self.seen.entry(id.clone()).or_insert(Seen { last_ms: now_ms, died_ms: None });
            if now_ms.saturating_sub(seen.last_ms) >= DEAD_AFTER_MS {
                seen.died_ms = Some(now_ms);
                dead.push(id.clone());
            }
        }
        dead
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_dies_in_its_time_and_not_before() {
        let id = NodeId::new("target-01").unwrap();
        let mut l = Leases::default();
        assert!(l.record_heartbeat(&id, 0));
        assert!(l.overdue([&id].into_iter(), DEAD_AFTER_MS - 1).is_empty());
        assert_eq!(l.overdue([&id].into_iter(), DEAD_AFTER_MS), vec![id]);
    }

    #[test]
    fn a_flapping_node_waits_before_it_counts_again() {
        let id = NodeId::new("target-01").unwrap();
        let mut l = Leases::default();
        l.record_heartbeat(&id, 0);
        assert_eq!(l.overdue([&id].into_iter(), DEAD_AFTER_MS).len(), 1);
        assert!(!l.record_heartbeat(&id, DEAD_AFTER_MS + 1_000));
        assert!(!l.record_heartbeat(&id, DEAD_AFTER_MS + FLAP_HOLD_MS - 1));
        assert!(l.record_heartbeat(&id, DEAD_AFTER_MS + FLAP_HOLD_MS));
    }

    #[test]
    fn a_refused_connection_is_death_only_after_a_silence_longer_than_any_lease() {
        let id = NodeId::new("target-01").unwrap();
        let mut l = Leases::default();
        l.record_heartbeat(&id, 0);
        assert!(l.silent([&id].into_iter(), REFUSED_AFTER_MS - 1).is_empty());
        assert_eq!(l.silent([&id].into_iter(), REFUSED_AFTER_MS), vec![id.clone()]);
        l.record_heartbeat(&id, REFUSED_AFTER_MS);
        assert!(!l.refused(&id, REFUSED_AFTER_MS + 1), "it reported while it was knocked at");
        assert!(l.refused(&id, 2 * REFUSED_AFTER_MS));
        assert!(!l.record_heartbeat(&id, 2 * REFUSED_AFTER_MS + 1), "dead as any other");
    }

    #[test]
    fn who_reports_while_it_is_taken_for_dead_gets_no_lease() {
        let id = NodeId::new("target-01").unwrap();
        let mut l = Leases::default();
        l.record_heartbeat(&id, 0);
        assert!(l.may_lease(&id));
        assert_eq!(l.overdue([&id].into_iter(), DEAD_AFTER_MS).len(), 1);
        l.record_heartbeat(&id, DEAD_AFTER_MS + 1);
        assert!(!l.may_lease(&id), "the change of the state may come after this report");
        l.record_heartbeat(&id, DEAD_AFTER_MS + FLAP_HOLD_MS);
        assert!(l.may_lease(&id));
    }

    #[test]
    fn a_rejoined_node_is_not_held_back_as_flapping() {
        let id = NodeId::new("target-01").unwrap();
        let mut l = Leases::default();
        l.record_heartbeat(&id, 0);
        l.overdue([&id].into_iter(), DEAD_AFTER_MS);
        l.joined(&id, DEAD_AFTER_MS + 1_000);
        assert!(l.record_heartbeat(&id, DEAD_AFTER_MS + 1_700));
    }
}
