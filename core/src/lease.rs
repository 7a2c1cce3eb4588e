//! Who is alive: a pure record of heartbeats that says when a node's liveness must change.
//!
//! Times are milliseconds on some monotonic clock of the caller's.

use std::collections::BTreeMap;

use crate::name::NodeId;

/// A node counts as dead this long after its last heartbeat. Reads do not wait for that where there is
/// a second copy, so a short pause of a machine moves nothing.
pub const DEAD_AFTER_MS: u64 = 5_500;
/// So long after its report, or after a majority of the gateways last confirmed the leader that took
/// it if that is earlier, a node may be sure that nobody takes it for dead. Who is cut off from the
/// majority writes nothing 2 s later.
pub const LEASE_MS: u64 = 1_800;
/// How long a request waits for a lease that ran out: an election of gateways takes no longer on
/// most days.
pub const LEASE_BACK_WITHIN_MS: u64 = 1_000;
/// A silent node whose machine refuses connections counts as dead this long after its last heartbeat.
/// By then no lease of it lasts.
pub const REFUSED_AFTER_MS: u64 = 2_200;
/// A flapping node changes the map at most once in this time.
pub const FLAP_HOLD_MS: u64 = 10_000;
/// Pause between two heartbeats of a node.
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
    /// Notes a heartbeat. Returns whether a node marked dead may be marked alive now.
    pub fn record_heartbeat(&mut self, id: &NodeId, now_ms: u64) -> bool {
        let seen = self.seen.entry(id.clone()).or_insert(Seen { last_ms: now_ms, died_ms: None });
        seen.last_ms = now_ms;
        seen.died_ms.is_none_or(|died| now_ms.saturating_sub(died) >= FLAP_HOLD_MS)
    }

    /// Starts a node's clock without a heartbeat of its own (after a gateway's restart).
    pub fn assume(&mut self, id: &NodeId, now_ms: u64) {
        self.seen.entry(id.clone()).or_insert(Seen { last_ms: now_ms, died_ms: None });
    }

    /// A new process of the node joined: what its predecessor did is forgotten.
    pub fn joined(&mut self, id: &NodeId, now_ms: u64) {
        self.seen.insert(id.clone(), Seen { last_ms: now_ms, died_ms: None });
    }

    /// A node took its leave: it counts as dead now, without a wait.
    pub fn left(&mut self, id: &NodeId) {
        self.seen.remove(id);
    }

    /// How long ago a node was heard of; a node that left or was never heard of is silent for ever.
    pub fn silent_ms(&self, id: &NodeId, now_ms: u64) -> u64 {
        self.seen.get(id).map_or(u64::MAX, |seen| now_ms.saturating_sub(seen.last_ms))
    }

    /// Whether a node may have a lease. One that was taken for dead may not until it counts as alive
    /// again: its death may be on its way into the state while it reports.
    pub fn may_lease(&self, id: &NodeId) -> bool {
        let seen = self.seen.get(id);
        seen.is_none_or(|seen| {
            seen.died_ms.is_none_or(|died| seen.last_ms.saturating_sub(died) >= FLAP_HOLD_MS)
        })
    }

    /// Those among `alive` that said nothing for so long that a refused connection is their death.
    pub fn silent<'a>(&self, alive: impl Iterator<Item = &'a NodeId>, now_ms: u64) -> Vec<NodeId> {
        let silent = |id: &&NodeId| {
            let seen = self.seen.get(*id);
            seen.is_some_and(|seen| now_ms.saturating_sub(seen.last_ms) >= REFUSED_AFTER_MS)
        };
        alive.filter(silent).cloned().collect()
    }

    /// A silent node's process is not there any more. Returns whether that is news: it may have
    /// been heard of meanwhile.
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
    fn a_restarted_node_joins_at_once() {
        let id = NodeId::new("target-01").unwrap();
        let mut l = Leases::default();
        l.record_heartbeat(&id, 0);
        l.overdue([&id].into_iter(), DEAD_AFTER_MS);
        l.joined(&id, DEAD_AFTER_MS + 1_000);
        assert!(l.record_heartbeat(&id, DEAD_AFTER_MS + 1_700));
    }
}
