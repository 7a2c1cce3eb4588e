//! Decisions when a node joins or reports: pure functions of the state and of the node's message.

use crate::bucket::{BucketInfo, Versioning};
use crate::error::{Error, ErrorCode, Result};
use crate::intra::{JoinRequest, LeaveRequest};
use crate::lease::{DEAD_AFTER_MS, REFUSED_AFTER_MS};
use crate::name::NodeId;
use crate::state::{ClusterState, Command, Node, Role, STATE_FORMAT, part_of_format};

/// The result of probing the URL of a process that a new process of the same node would replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// A process of this id replied.
    Instance(u64),
    /// The machine refuses connections: no process listens there.
    Refused,
    /// Nothing replied in time.
    Silent,
}

/// The process that a new process of the same node would replace; `None` if the new process is the
/// recorded one, or if an older version did not record any.
pub fn predecessor<'a>(state: &'a ClusterState, request: &JoinRequest) -> Option<&'a Node> {
    let differs = |node: &&Node| {
        request.instance != 0 && node.instance != 0 && node.instance != request.instance
    };
    state.node(&request.id).filter(differs)
}

/// Whether a new process may replace its `predecessor`, which sent its last heartbeat `silent_ms`
/// ago and was just probed. `Conflict`: the predecessor is alive. `Unavailable`: it may still act
/// by its lease; the new process asks again.
pub fn may_replace(
    predecessor: &Node,
    request: &JoinRequest,
    silent_ms: u64,
    probe: Probe,
) -> Result<()> {
    let (id, url) = (&predecessor.id, &predecessor.url);
    let needed_ms = match probe {
        Probe::Instance(found) if found == predecessor.instance => {
            let text = format!("{id} is alive at {url}: a second process cannot have the same id");
            return Err(Error::new(ErrorCode::Conflict, text)
                .hint(format!("give this one another node.id, or stop the process at {url}")));
        }
        // The new process uses the address of the old one, which therefore has ended.
        Probe::Instance(found) if found == request.instance => 0,
        Probe::Instance(_) | Probe::Refused => REFUSED_AFTER_MS,
        Probe::Silent => DEAD_AFTER_MS,
    };
    if silent_ms < needed_ms {
        let text = format!("the process of {id} at {url} stopped a moment ago or is cut off");
        return Err(Error::unavailable(text).retry_after(1));
    }
    Ok(())
}

/// Rejects a node whose disks hold the data of another cluster.
pub fn check_cluster(state: &ClusterState, request: &JoinRequest) -> Result<()> {
    let (theirs, ours) = (&request.cluster, &state.cluster_id);
    if theirs.is_empty() || ours.is_empty() || theirs == ours {
        return Ok(());
    }
    let id = &request.id;
    let text =
        format!("the disks of {id} hold data of cluster {theirs}, and this is cluster {ours}");
    Err(Error::new(ErrorCode::Conflict, text).hint(
        "set cluster.gateways and cluster.secret_file of its own cluster, or give it empty folders",
    ))
}

/// Rejects a target that returns with other disks, all of them empty, while its previous disks may
/// have the only copy of native objects: the target would report each of them as missing.
pub fn check_disks(state: &ClusterState, request: &JoinRequest) -> Result<()> {
    let id = &request.id;
    let held = state.node(id).filter(|node| node.role == Role::Target && !node.emptied);
    let came_back = held.is_some_and(|node| node.instance != request.instance);
    if !request.empty || !came_back {
        return Ok(());
    }
    // An older version of an object has a single copy for a while, whatever the number of copies.
    let keeps_versions = |info: &BucketInfo| info.s3.versioning != Versioning::Unset;
    let lost =
        |info: &BucketInfo| !info.has_backend() && (!info.has_copies() || keeps_versions(info));
    let Some(bucket) = state.buckets.values().find(|info| lost(info)) else { return Ok(()) };
    let text = format!(
        "the disks of {id} are empty, and this cluster knows {id} with others: objects that lie only \
         there, as those of {} may, would be reported as missing",
        bucket.bucket
    );
    Err(Error::new(ErrorCode::Conflict, text).hint(format!(
        "start it with its own disks; if they are lost, give up what was on them with `forebay node \
         remove {id} --lost`, then start it again"
    )))
}

/// Rejects the heartbeat of a process that another process of the same node has replaced.
pub fn check_instance(node: &Node, instance: u64) -> Result<()> {
    if instance == 0 || node.instance == 0 || instance == node.instance {
        return Ok(());
    }
    let (id, url) = (&node.id, &node.url);
    let text = format!("{id} is alive at {url}: that process replaced this one");
    Err(Error::new(ErrorCode::Conflict, text)
        .hint(format!("stop one of them, or give this one another node.id; {url} goes on")))
}

/// Rejects a node whose program cannot read the cluster's state: it would drop parts of it.
pub fn check_format(state: &ClusterState, id: &NodeId, format: u32) -> Result<()> {
    // The format of a state with many buckets takes a while to find.
    if format >= STATE_FORMAT || format >= state.format() {
        return Ok(());
    }
    let text = format!(
        "{id} runs a version of forebay that reads format {format} of the cluster's state; this cluster \
         has format {}",
        state.format()
    );
    Err(Error::new(ErrorCode::Unsupported, text)
        .hint("start it with the version of forebay that the other nodes have"))
}

/// Rejects the first command of a new format while a member of the cluster may not be able to read
/// it. `formats` returns what a member announced; `me` is the node that decides.
pub fn check_formats(
    state: &ClusterState,
    me: &NodeId,
    needed: u32,
    formats: impl Fn(&NodeId) -> Option<u32>,
) -> Result<()> {
    for id in state.nodes.keys().filter(|id| *id != me) {
        let (why, hint) = match formats(id) {
            Some(format) if format >= needed => continue,
            Some(_) => ("runs an earlier version of forebay", "upgrade all nodes first"),
            None => (
                "has not reported its version to the leading gateway",
                "start the node, or remove it with `forebay node remove`; then try again",
            ),
        };
        let what = part_of_format(needed);
        let text = format!("the cluster cannot have {what} yet: {id} {why}");
        return Err(Error::new(ErrorCode::Conflict, text).hint(hint));
    }
    Ok(())
}

/// The commands by which a process of a node becomes a member, in order; none if it is a member
/// already, with the same properties.
pub fn join(state: &ClusterState, request: &JoinRequest) -> Vec<Command> {
    let JoinRequest { id, role, url, zone, instance, https, external, .. } = request;
    let known = state.node(id);
    let drained = known.is_some_and(|n| n.role == Role::Target && n.maintenance);
    let unchanged = known.is_some_and(|n| {
        let place = n.role == *role && n.url == *url && n.zone == *zone && n.https == *https;
        let place = place && n.external == *external;
        n.alive && place && n.instance == *instance
    });
    let mut commands = Vec::new();
    if drained && request.returns {
        commands.push(Command::SetMaintenance { id: id.clone(), on: false });
    }
    if unchanged && !(state.has_copies() && *role == Role::Target) {
        return commands;
    }
    let missed = known.is_some_and(|n| n.alive && n.role == Role::Target) && state.has_copies();
    if missed {
        // Its last process died unnoticed. Updates that it had not replicated yet are on its disks,
        // and the new process does not know them: the node counts as one that was away. It does not
        // count as dead: this may be a repeated request of a process that has its lease.
        commands.push(Command::SetAlive { id: id.clone(), alive: true, yields: true });
    }
    let weight = known.map_or(1, |n| n.weight);
    let (id, role, url, zone) = (id.clone(), *role, url.clone(), zone.clone());
    let (instance, https, external) = (*instance, https.clone(), external.clone());
    commands.push(Command::Join { id, role, url, weight, zone, instance, https, external });
    commands
}

/// Whether a leave request is from the process that counts as alive. A delayed request may be from
/// the previous process, while the current one has a lease.
pub fn may_leave(state: &ClusterState, request: &LeaveRequest) -> bool {
    let alive = state.node(&request.id).filter(|node| node.alive);
    alive.is_some_and(|node| {
        let is_recent = request.since == 0 || request.since >= node.alive_since;
        is_recent && check_instance(node, request.instance).is_ok()
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::{Bucket, Provider};
    use crate::state::Leaving;

    fn request() -> JoinRequest {
        let (id, url) = (NodeId::new("target-01").unwrap(), "http://t1".to_owned());
        let (zone, cluster) = (String::new(), String::new());
        JoinRequest {
            id,
            role: Role::Target,
            url,
            zone,
            instance: 0,
            cluster,
            empty: false,
            https: String::new(),
            external: String::new(),
            state_format: 0,
            key: None,
            token: None,
            needs_s3_key: false,
            returns: false,
        }
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
        let leave =
            |since| LeaveRequest { id: before.id.clone(), yields: false, since, instance: 0 };
        assert!(!may_leave(&state, &leave(before.alive_since)), "its predecessor said so");
        assert!(may_leave(&state, &leave(now.alive_since)) && may_leave(&state, &leave(0)));
    }

    #[test]
    fn a_target_that_returns_after_a_scale_down_is_in_use_again_and_one_that_an_operator_drained_is_not()
     {
        let mut state = ClusterState::default();
        let other = JoinRequest { id: NodeId::new("target-02").unwrap(), ..request() };
        for request in [&request(), &other] {
            for command in join(&state, request) {
                state.apply(state.version + 1, command).unwrap();
            }
        }
        let id = request().id;
        let retire = Command::Retire { id: id.clone(), leaving: Leaving::Remove };
        state.apply(state.version + 1, retire).unwrap();
        joined(&mut state);
        assert!(state.node(&id).unwrap().maintenance, "the drain goes on after a restart");
        for command in join(&state, &JoinRequest { returns: true, ..request() }) {
            state.apply(state.version + 1, command).unwrap();
        }
        let node = state.node(&id).unwrap();
        assert!(!node.maintenance && node.leaving.is_none() && node.alive);
    }

    #[test]
    fn a_second_process_replaces_the_first_only_when_the_first_has_no_lease() {
        let mut state = ClusterState::default();
        let first = JoinRequest { instance: 1, ..request() };
        for command in join(&state, &first) {
            state.apply(state.version + 1, command).unwrap();
        }
        assert!(predecessor(&state, &first).is_none(), "the same process asks twice");
        assert!(predecessor(&state, &request()).is_none(), "an older version has no instance");
        let second = JoinRequest { instance: 2, url: "http://t2".into(), ..first.clone() };
        let known = predecessor(&state, &second).unwrap();
        let code =
            |silent_ms, probe| may_replace(known, &second, silent_ms, probe).map_err(|e| e.code);
        let (conflict, later) = (Err(ErrorCode::Conflict), Err(ErrorCode::Unavailable));
        assert_eq!(code(0, Probe::Instance(1)), conflict);
        assert_eq!(code(DEAD_AFTER_MS, Probe::Instance(1)), conflict, "it replies, so it is alive");
        assert_eq!(code(0, Probe::Instance(2)), Ok(()), "it has the address of the first");
        assert_eq!(code(REFUSED_AFTER_MS - 1, Probe::Refused), later);
        assert_eq!(code(REFUSED_AFTER_MS, Probe::Refused), Ok(()));
        assert_eq!(code(REFUSED_AFTER_MS, Probe::Silent), later);
        assert_eq!(code(DEAD_AFTER_MS, Probe::Silent), Ok(()));
        let e = may_replace(known, &second, 0, Probe::Instance(1)).unwrap_err();
        assert!(e.message.contains("target-01 is alive at http://t1"), "{e}");
        assert!(check_instance(known, 1).is_ok() && check_instance(known, 0).is_ok());
        assert_eq!(check_instance(known, 2).unwrap_err().code, ErrorCode::Conflict);
        let leave =
            LeaveRequest { id: first.id.clone(), yields: false, since: u64::MAX, instance: 2 };
        assert!(!may_leave(&state, &leave), "another process says goodbye");
    }

    #[test]
    fn disks_of_another_cluster_are_not_let_in() {
        let mut state = ClusterState::default();
        let init = Command::Init { cluster_id: "c1".into(), now_ns: 1 };
        state.apply(1, init).unwrap();
        let of = |cluster: &str| JoinRequest { cluster: cluster.into(), ..request() };
        assert!(check_cluster(&state, &of("")).is_ok() && check_cluster(&state, &of("c1")).is_ok());
        let e = check_cluster(&state, &of("c2")).unwrap_err();
        assert!(e.code == ErrorCode::Conflict && e.message.contains("cluster c2"), "{e}");
    }

    #[test]
    fn empty_disks_under_a_known_id_are_refused_while_something_may_lie_only_on_its_others() {
        let mut state = ClusterState::default();
        let first = JoinRequest { instance: 1, empty: true, ..request() };
        let again = JoinRequest { instance: 2, ..first.clone() };
        assert!(check_disks(&state, &first).is_ok(), "it was never here");
        for command in join(&state, &first) {
            state.apply(state.version + 1, command).unwrap();
        }
        assert!(check_disks(&state, &again).is_ok(), "there are no objects");
        let bucket = |name: &str| Bucket::new(Provider::Ais, name).unwrap();
        let twice = BucketInfo { copies: 2, ..BucketInfo::requested(bucket("twice"), None) };
        let make = Command::CreateBucket { info: twice.into(), now_ns: 1 };
        state.apply(state.version + 1, make).unwrap();
        assert!(check_disks(&state, &again).is_ok(), "others have copies");
        let mut versioned = state.clone();
        let info = versioned.buckets.values_mut().next().unwrap();
        std::sync::Arc::make_mut(info).s3.versioning = Versioning::Enabled;
        assert!(check_disks(&versioned, &again).is_err(), "older versions have none for a while");
        let once = BucketInfo::requested(bucket("once"), None);
        let make = Command::CreateBucket { info: once.into(), now_ns: 1 };
        state.apply(state.version + 1, make).unwrap();
        let e = check_disks(&state, &again).unwrap_err();
        assert!(e.code == ErrorCode::Conflict && e.message.contains("ais://once"), "{e}");
        assert!(e.hint.unwrap().contains("node remove target-01 --lost"));
        assert!(check_disks(&state, &first).is_ok(), "the same process asks twice");
        assert!(check_disks(&state, &JoinRequest { empty: false, ..again.clone() }).is_ok());
        state.nodes.values_mut().next().unwrap().emptied = true;
        assert!(check_disks(&state, &again).is_ok(), "it was drained");
    }

    #[test]
    fn a_node_that_would_ignore_an_account_keeps_buckets_from_having_one() {
        let mut state = ClusterState::default();
        joined(&mut state);
        let bucket = Bucket::new(Provider::Aws, "data").unwrap();
        let mut info = BucketInfo::requested(bucket, None);
        info.backend.as_mut().unwrap().account = Some("prod".into());
        let make = Command::CreateBucket { info: info.into(), now_ns: 1 };
        let me = NodeId::new("gateway-01").unwrap();
        let check = |format| check_formats(&state, &me, make.format(), |_| format);
        let e = check(Some(STATE_FORMAT - 1)).unwrap_err();
        assert_eq!(e.code, ErrorCode::Conflict);
        assert!(e.message.contains("an account") && e.message.contains("target-01"), "{e}");
        assert!(check(None).is_err(), "its version is not known");
        check(Some(STATE_FORMAT)).unwrap();
        state.apply(state.version + 1, make).unwrap();
        let e = check_format(&state, &request().id, STATE_FORMAT - 1).unwrap_err();
        assert_eq!(e.code, ErrorCode::Unsupported, "{e}");
        check_format(&state, &request().id, STATE_FORMAT).unwrap();
    }
}
