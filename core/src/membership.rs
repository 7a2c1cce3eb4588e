//! What has to be decided when a node joins or reports: a pure function of the state and of what the
//! node says.

use crate::intra::{JoinRequest, LeaveRequest};
use crate::state::{ClusterState, Command, Role};

/// The commands by which a process of a node becomes a member, in their order; none where it is one
/// already, as it says.
pub fn join(state: &ClusterState, request: &JoinRequest) -> Vec<Command> {
    let JoinRequest { id, role, url, zone } = request;
    let known = state.node(id);
    let unchanged =
        known.is_some_and(|n| n.alive && n.role == *role && n.url == *url && n.zone == *zone);
    if unchanged && !(state.has_copies() && *role == Role::Target) {
        return Vec::new();
    }
    let mut commands = Vec::new();
    let missed = known.is_some_and(|n| n.alive && n.role == Role::Target) && state.has_copies();
    if missed {
        // Its last process died and nobody noticed. What that one was about to tell others lies on its disks,
        // and it does not know that any more: it counts as one that was away. It does not count as
        // dead: this may be a question asked twice, by a process that has its lease.
        commands.push(Command::SetAlive { id: id.clone(), alive: true, yields: true });
    }
    let weight = known.map_or(1, |n| n.weight);
    let (id, role, url, zone) = (id.clone(), *role, url.clone(), zone.clone());
    commands.push(Command::Join { id, role, url, weight, zone });
    commands
}

/// Whether a goodbye is of the process that counts as alive. One that was long on its way may be of the
/// process before, and the one that lives now has a lease.
pub fn may_leave(state: &ClusterState, request: &LeaveRequest) -> bool {
    let alive = state.node(&request.id).filter(|node| node.alive);
    alive.is_some_and(|node| request.since == 0 || request.since >= node.alive_since)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::bucket::BucketInfo;
    use crate::name::{Bucket, NodeId, Provider};

    fn request() -> JoinRequest {
        let (id, url) = (NodeId::new("target-01").unwrap(), "http://t1".to_owned());
        JoinRequest { id, role: Role::Target, url, zone: String::new() }
    }

    fn joined(state: &mut ClusterState) {
        for command in join(state, &request()) {
            state.apply(state.version + 1, command).unwrap();
        }
    }

    #[test]
    fn a_target_that_starts_anew_before_it_was_missed_counts_as_one_that_was_away() {
        let mut state = ClusterState::default();
        joined(&mut state);
        assert!(join(&state, &request()).is_empty(), "nobody else has copies");
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let info = BucketInfo { copies: 2, ..BucketInfo::requested(bucket, None) };
        let make = Command::CreateBucket { info: info.into(), now_ns: 1 };
        state.apply(state.version + 1, make).unwrap();
        let before = state.node(&request().id).unwrap().clone();
        joined(&mut state);
        let now = state.node(&request().id).unwrap();
        assert!(now.alive && now.lagging && now.alive_since > before.alive_since);
        let leave = |since| LeaveRequest { id: before.id.clone(), yields: false, since };
        assert!(!may_leave(&state, &leave(before.alive_since)), "its predecessor said so");
        assert!(may_leave(&state, &leave(now.alive_since)) && may_leave(&state, &leave(0)));
    }
}
