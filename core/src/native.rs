//! Rules for objects of native buckets: what a target may do, which targets it asks, and which it
//! replicates to. Decided only by the map and by stamps.
//!
//! During a rebalance, an object that belongs on one target may still be on a former owner; and a
//! target that was away may have missed writes of objects with copies.

use crate::bucket::BucketInfo;
use crate::copies::Stamp;
use crate::error::{Error, Result};
use crate::history;
use crate::name::NodeId;
use crate::placement;
use crate::rebalance;
use crate::state::{ClusterState, Node};

/// Whether `me` is the target that writes an object now; an error if no target may write it.
pub fn writes(state: &ClusterState, info: &BucketInfo, name: &str, me: &NodeId) -> Result<bool> {
    if info.has_copies() {
        return Ok(placement::owner(state, info, name)?.id == *me);
    }
    Ok(rebalance::duty(state, info, name, me).stays)
}

/// Returns an error if `writer`, which claims to write an object at this moment, is not its writer.
pub fn check_writer(
    state: &ClusterState,
    info: &BucketInfo,
    name: &str,
    writer: &NodeId,
) -> Result<()> {
    let owner = placement::owner(state, info, name)?;
    if owner.id == *writer { Ok(()) } else { Err(belongs_elsewhere(info, name)) }
}

/// The error for an object that another target owns by now.
pub fn belongs_elsewhere(info: &BucketInfo, name: &str) -> Error {
    let uri = info.bucket.object_uri(name);
    Error::unavailable(format!("{uri} belongs to another target by now")).retry_after(1)
}

/// Whether target `me` may have missed updates of objects with copies.
pub fn lags(state: &ClusterState, me: &NodeId) -> bool {
    state.node(me).is_none_or(|node| node.lagging)
}

/// The other targets that may have newer information on an object than `me`.
pub fn lookup_peers<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
) -> Vec<&'a Node> {
    if !state.is_in_place(info) {
        return state.holding_targets().filter(|node| node.id != *me).collect();
    }
    if info.has_copies() && lags(state, me) {
        return rebalance::metadata_holders(state, info, name, me);
    }
    Vec::new()
}

/// The other targets that certainly have the data that `me` lost of an object with copies.
pub fn who_has_copies<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
) -> Vec<&'a Node> {
    let mut others = rebalance::metadata_holders(state, info, name, me);
    others.retain(|node| node.alive && !node.lagging);
    others
}

/// The other targets that may have older versions of an object which its owner `me` lacks. A
/// version is on the target that owned its object when it was replaced; the other holders of an
/// object with copies get the version when the rebalance completes.
pub fn who_may_have_versions<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
) -> Vec<&'a Node> {
    if !state.is_in_place(info) {
        return state.holding_targets().filter(|node| node.id != *me).collect();
    }
    if !info.has_copies() {
        return Vec::new();
    }
    let mut holders = placement::holders(state, info, placement::digest_in(&info.bucket, name));
    // The first holder has been the owner since the last completed rebalance, unless it was away.
    if holders.first().is_some_and(|first| first.id == *me) && !lags(state, me) {
        return Vec::new();
    }
    holders.retain(|node| node.id != *me);
    holders
}

/// The targets that must get a change of an object before it is acknowledged.
#[derive(Clone, Debug)]
pub struct ReplicaSet<'a> {
    /// The targets among `all` that get the new copy.
    pub holders: Vec<&'a Node>,
    /// Without dead targets: their copies turn out to be older when they return.
    pub all: Vec<&'a Node>,
}

/// The targets to which `me` must replicate a change of an object.
pub fn replica_set<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
) -> ReplicaSet<'a> {
    let holders = match info.has_copies() {
        true => rebalance::duty(state, info, name, me).others,
        false => Vec::new(),
    };
    let mut all = match state.is_in_place(info) {
        true => holders.clone(),
        false => state.holding_targets().filter(|node| node.id != *me).collect(),
    };
    all.retain(|node| node.alive);
    ReplicaSet { holders, all }
}

/// Known stamps of an object that is about to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteHistory {
    /// Stamp of the copy that is replaced.
    pub here: Option<Stamp>,
    /// Stamp of a removal made here that may not be replicated yet.
    pub unreplicated: Option<Stamp>,
    /// Stamp of a tombstone here.
    pub tombstone: Option<Stamp>,
    /// Stamp on other targets, if the copy here may have been lost.
    pub elsewhere: Option<Stamp>,
}

impl WriteHistory {
    /// The stamp of a write that is newer than all of them.
    pub fn next(self, state: &ClusterState) -> Stamp {
        // Also in a quiescent cluster, where a tombstone may remain that was written while a disk
        // was away.
        let last = self.here.max(self.unreplicated).max(self.elsewhere).max(self.tombstone);
        last.unwrap_or_default().next(state.version)
    }
}

/// Whether an object exists for its removal: `here` is the stamp of its copy at the remover,
/// `there` that of the newest copy elsewhere, `gone` that of the last known removal.
pub fn is_there(here: Option<Stamp>, there: Option<Stamp>, gone: Option<Stamp>) -> bool {
    here.max(there) > gone
}

/// Whether a removal with this stamp, recorded at target `me`, is the latest change of an object.
/// If placement changed since then, another target may have written the object; if `me` was away,
/// its other holders may have.
pub fn is_last_word(state: &ClusterState, info: &BucketInfo, gone: Stamp, me: &NodeId) -> bool {
    gone.epoch >= state.targets_changed && !(info.has_copies() && lags(state, me))
}

/// Whether the newest copy that was found, at `holder`, may be older than a copy on a target that
/// did not answer.
pub fn may_be_older(info: &BucketInfo, holder: &Node) -> bool {
    info.has_copies() && holder.lagging
}

/// The decision on a new copy that arrives at its place.
#[derive(Clone, Debug)]
pub enum Arrival<'a> {
    Take,
    /// Rejected: the object may have been removed after the copy was sent, without a tombstone.
    Refuse,
    /// Accepted if this target, which sent it, still has it: a removal also removes the sender's
    /// copy.
    IfStillAt(&'a Node),
    /// Accepted if all of these targets answer and none has anything newer: the sender may have
    /// missed an update, and the receiver would serve the copy as the newest one.
    IfNewest(Vec<&'a Node>),
}

/// Whether target `me` may accept a copy from another target, or one that is being written
/// (`written`).
pub fn arrival<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
    from: Option<&NodeId>,
    written: bool,
) -> Arrival<'a> {
    if written {
        return Arrival::Take;
    }
    let sender = from.filter(|_| info.has_copies()).and_then(|from| state.node(from));
    // During a rebalance, or while a target is away, tombstones are kept.
    let tombstone = !state.is_in_place(info) || info.has_copies() && !state.is_quiescent();
    match sender {
        Some(node) if tombstone && node.lagging && !lags(state, me) => {
            let others = state.holding_targets().filter(|n| n.id != *me && n.id != node.id);
            Arrival::IfNewest(others.collect())
        }
        _ if tombstone => Arrival::Take,
        Some(node) if rebalance::duty(state, info, name, &node.id).stays => {
            Arrival::IfStillAt(node)
        }
        _ => Arrival::Refuse,
    }
}

/// Whether target `me`, which receives a removal, has to record a tombstone: an older copy may
/// arrive later.
pub fn notes_removal(state: &ClusterState, info: &BucketInfo, name: &str, me: &NodeId) -> bool {
    !state.is_quiescent() && rebalance::duty(state, info, name, me).stays
}

/// Whether a tombstone is no longer needed, in a quiescent cluster of this version.
pub fn may_forget(tombstone: Stamp, version: u64) -> bool {
    tombstone.epoch <= version
}

/// The targets that together know all objects of a native bucket, or all their older versions. If
/// objects have copies, so many targets may be missing that one holder of each object remains.
/// `None`: all members are needed.
pub fn who_can_list<'a>(state: &'a ClusterState, info: &BucketInfo) -> Option<Vec<&'a Node>> {
    // An older version has a single copy until the rebalance completes.
    if !info.has_copies() || !state.is_in_place(info) || history::is_history(info.id) {
        return None;
    }
    let whole = |node: &&Node| node.alive && !node.lagging;
    let (here, missing): (Vec<_>, Vec<_>) = state.holding_targets().partition(whole);
    let copies = info.metadata_holders().min(state.owning_targets().count());
    (!here.is_empty() && missing.len() < copies).then_some(here)
}

/// Returns an error if a listing could be incomplete without notice: a node that chose the targets
/// to ask by the state `chosen_by` may not know a target that joined since, or an absence of `me`.
pub fn check_choice(state: &ClusterState, chosen_by: u64, me: &NodeId) -> Result<()> {
    let came = state.node(me).map_or(0, |node| node.alive_since);
    if chosen_by >= state.targets_changed.max(came) {
        return Ok(());
    }
    let text = format!("version {chosen_by} of the cluster's state is too old for a listing");
    Err(Error::unavailable(text).retry_after(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::{Bucket, Provider};
    use crate::state::{Command, Role};

    fn id(n: usize) -> NodeId {
        NodeId::new(&format!("target-{n:02}")).unwrap()
    }

    fn join(state: &mut ClusterState, n: usize) {
        let (role, url, zone) = (Role::Target, format!("http://t{n}"), String::new());
        apply(state, Command::Join { id: id(n), role, url, weight: 1, zone, instance: 0 });
    }

    fn apply(state: &mut ClusterState, command: Command) {
        state.apply(state.version + 1, command).unwrap();
    }

    /// Three targets and a bucket of two copies, rebalance complete.
    fn quiescent() -> (ClusterState, BucketInfo) {
        let mut state = ClusterState::default();
        (0..3).for_each(|n| join(&mut state, n));
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let info = BucketInfo { copies: 2, ..BucketInfo::requested(bucket.clone(), None) };
        apply(&mut state, Command::CreateBucket { info: info.into(), now_ns: 1 });
        let info = (**state.bucket(&bucket).unwrap()).clone();
        assert!(state.is_quiescent());
        (state, info)
    }

    fn holders(state: &ClusterState, info: &BucketInfo) -> (NodeId, NodeId) {
        let digest = placement::digest_in(&info.bucket, "o");
        let found = placement::holders(state, info, digest);
        (found[0].id.clone(), found[1].id.clone())
    }

    fn ids(nodes: Vec<&Node>) -> Vec<NodeId> {
        nodes.into_iter().map(|node| node.id.clone()).collect()
    }

    #[test]
    fn the_first_holder_writes_and_tells_the_second_and_asks_nobody() {
        let (state, info) = quiescent();
        let (first, second) = holders(&state, &info);
        assert!(writes(&state, &info, "o", &first).unwrap());
        assert!(!writes(&state, &info, "o", &second).unwrap());
        assert!(check_writer(&state, &info, "o", &second).is_err());
        assert!(lookup_peers(&state, &info, "o", &first).is_empty());
        let set = replica_set(&state, &info, "o", &first);
        assert_eq!((ids(set.holders), ids(set.all)), (vec![second.clone()], vec![second]));
    }

    #[test]
    fn during_a_rebalance_all_targets_are_looked_up_and_only_live_ones_replicated_to() {
        let (mut state, info) = quiescent();
        join(&mut state, 3);
        let (first, second) = holders(&state, &info);
        apply(&mut state, Command::SetAlive { id: second.clone(), alive: false, yields: false });
        assert_eq!(lookup_peers(&state, &info, "o", &first).len(), 3);
        let set = replica_set(&state, &info, "o", &first);
        assert_eq!((ids(set.holders), set.all.len()), (vec![second], 2));
    }

    #[test]
    fn who_lags_asks_those_that_have_copies_and_is_not_asked_by_who_lost_some() {
        let (mut state, info) = quiescent();
        let (first, second) = holders(&state, &info);
        apply(&mut state, Command::SetAlive { id: first.clone(), alive: true, yields: true });
        assert_eq!(ids(lookup_peers(&state, &info, "o", &first)), vec![second.clone()]);
        assert!(who_has_copies(&state, &info, "o", &second).is_empty());
        assert!(writes(&state, &info, "o", &second).unwrap());
    }

    #[test]
    fn versions_are_looked_for_wherever_an_owner_may_have_left_them() {
        let (mut state, info) = quiescent();
        let (first, second) = holders(&state, &info);
        let others = |state: &ClusterState, info: &BucketInfo, me: &NodeId| {
            ids(who_may_have_versions(state, info, "o", me))
        };
        assert!(others(&state, &info, &first).is_empty(), "it was the owner all the time");
        apply(&mut state, Command::SetAlive { id: first.clone(), alive: false, yields: false });
        assert_eq!(
            others(&state, &info, &second),
            std::slice::from_ref(&first),
            "though it is dead"
        );
        apply(&mut state, Command::SetAlive { id: first.clone(), alive: true, yields: true });
        assert_eq!(others(&state, &info, &first), std::slice::from_ref(&second), "it was away");
        let once = BucketInfo { copies: 1, ..info.clone() };
        assert!(others(&state, &once, &first).is_empty(), "what it has nobody else writes");
        join(&mut state, 3);
        assert_eq!(others(&state, &once, &first).len(), 3);
        assert_eq!(others(&state, &info, &first).len(), 3);
    }

    #[test]
    fn versions_are_listed_only_where_all_targets_answer() {
        let (mut state, info) = quiescent();
        let older = BucketInfo { id: history::id(info.id), ..info.clone() };
        apply(&mut state, Command::SetAlive { id: id(0), alive: false, yields: false });
        assert!(who_can_list(&state, &info).is_some());
        assert!(who_can_list(&state, &older).is_none(), "a version has one place for a while");
    }

    #[test]
    fn a_write_is_newer_than_every_known_stamp_also_in_a_quiescent_cluster() {
        let (state, _) = quiescent();
        let here = Some(Stamp { epoch: 2, version: 3 });
        assert_eq!(WriteHistory { here, ..WriteHistory::default() }.next(&state).version, 4);
        let tombstone = Some(Stamp { epoch: 99, version: 7 });
        let past = WriteHistory { here, tombstone, ..WriteHistory::default() };
        assert_eq!(past.next(&state), Stamp { epoch: 99, version: 8 });
    }

    #[test]
    fn a_copy_that_may_have_been_removed_meanwhile_is_taken_only_with_a_witness() {
        let (mut state, info) = quiescent();
        let (first, second) = holders(&state, &info);
        let stranger = (0..3).map(id).find(|id| *id != first && *id != second);
        let from = |state: &ClusterState, from: Option<&NodeId>, written| match arrival(
            state, &info, "o", &second, from, written,
        ) {
            Arrival::Take => "take",
            Arrival::Refuse => "refuse",
            Arrival::IfStillAt(_) => "ask",
            Arrival::IfNewest(others) => {
                assert!(!others.iter().any(|n| n.id == second || Some(&n.id) == from));
                "ask all"
            }
        };
        assert_eq!(from(&state, Some(&first), true), "take");
        assert_eq!(from(&state, Some(&first), false), "ask");
        assert_eq!(from(&state, stranger.as_ref(), false), "refuse");
        assert_eq!(from(&state, None, false), "refuse");
        assert!(!notes_removal(&state, &info, "o", &second));
        join(&mut state, 3);
        assert_eq!(from(&state, stranger.as_ref(), false), "take");
        let (here, _) = holders(&state, &info);
        assert!(notes_removal(&state, &info, "o", &here));
        apply(&mut state, Command::SetAlive { id: first.clone(), alive: true, yields: true });
        assert_eq!(from(&state, Some(&first), false), "ask all", "it may have missed something");
        apply(&mut state, Command::SetAlive { id: second.clone(), alive: true, yields: true });
        assert_eq!(from(&state, Some(&first), false), "take", "it asks before it shows anything");
    }

    #[test]
    fn a_removal_is_the_last_word_until_places_change_or_who_noted_it_was_away() {
        let (mut state, info) = quiescent();
        let (first, _) = holders(&state, &info);
        let gone = Stamp { epoch: state.version, version: 2 };
        assert!(is_last_word(&state, &info, gone, &first));
        let mut moved = state.clone();
        join(&mut moved, 3);
        assert!(!is_last_word(&moved, &info, gone, &first), "another may have written since");
        apply(&mut state, Command::SetAlive { id: first.clone(), alive: true, yields: true });
        assert!(!is_last_word(&state, &info, gone, &first));
        assert!(may_be_older(&info, state.node(&first).unwrap()));
        let once = BucketInfo { copies: 1, ..info };
        assert!(is_last_word(&state, &once, gone, &first), "nobody else writes it");
    }

    #[test]
    fn what_was_removed_after_all_copies_of_it_is_not_there_to_be_removed() {
        let stamp = |epoch| Some(Stamp { epoch, version: 1 });
        assert!(is_there(stamp(3), None, None) && is_there(None, stamp(3), stamp(2)));
        assert!(!is_there(stamp(3), None, stamp(4)) && !is_there(None, None, None));
    }

    #[test]
    fn a_listing_by_a_state_that_lacks_a_target_or_an_absence_is_refused() {
        let (mut state, _) = quiescent();
        let before = state.version;
        assert!(check_choice(&state, before, &id(0)).is_ok());
        apply(&mut state, Command::SetAlive { id: id(0), alive: false, yields: false });
        apply(&mut state, Command::SetAlive { id: id(0), alive: true, yields: false });
        assert!(check_choice(&state, before, &id(0)).is_err());
        assert!(check_choice(&state, before, &id(1)).is_ok(), "it was there all the time");
        join(&mut state, 3);
        assert!(check_choice(&state, state.version - 1, &id(1)).is_err());
    }

    #[test]
    fn a_listing_does_without_as_many_targets_as_leave_one_copy_of_each_object() {
        let (mut state, info) = quiescent();
        assert_eq!(who_can_list(&state, &info).unwrap().len(), 3);
        apply(&mut state, Command::SetAlive { id: id(0), alive: false, yields: false });
        assert_eq!(who_can_list(&state, &info).unwrap().len(), 2);
        apply(&mut state, Command::SetAlive { id: id(1), alive: true, yields: true });
        assert!(who_can_list(&state, &info).is_none(), "one of two copies may be missing");
        let once = BucketInfo { copies: 1, ..info };
        assert!(who_can_list(&quiescent().0, &once).is_none());
    }
}
