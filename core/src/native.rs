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

/// Whether a target may have missed changes of the bucket's objects while it was away. `complete`:
/// the version of a state in which all objects were in place.
///
/// An object with one copy gets another owner only by a change of placement. So a target has missed
/// nothing if all objects are in place, if it was alive all the time since they were, or if it is
/// new.
pub fn may_have_missed_changes(
    state: &ClusterState,
    info: &BucketInfo,
    id: &NodeId,
    complete: u64,
) -> bool {
    if info.has_copies() {
        return lags(state, id);
    }
    let complete = complete.max(state.rebalanced_version);
    let was_away =
        |node: &Node| node.alive_since > complete && node.alive_since != state.targets_changed;
    !state.is_in_place(info) && state.node(id).is_none_or(was_away)
}

/// Whether a copy with this stamp at target `me` may be older than what another target has.
pub fn may_be_stale(
    state: &ClusterState,
    info: &BucketInfo,
    me: &NodeId,
    copy: Stamp,
    complete: u64,
) -> bool {
    // Only its present owner has changed an object with one copy since the placement changed.
    let is_of_owner = !info.has_copies() && copy.epoch >= state.targets_changed;
    !is_of_owner && may_have_missed_changes(state, info, me, complete)
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
/// (`written`). `complete`: as for [`may_have_missed_changes`].
pub fn arrival<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
    from: Option<&NodeId>,
    written: bool,
    complete: u64,
) -> Arrival<'a> {
    if written {
        return Arrival::Take;
    }
    let sender = from.and_then(|from| state.node(from));
    let missed = |id: &NodeId| may_have_missed_changes(state, info, id, complete);
    // During a rebalance, or while a target is away, tombstones are kept.
    let tombstone = !state.is_in_place(info) || info.has_copies() && !state.is_quiescent();
    match sender {
        Some(node) if tombstone && missed(&node.id) && !missed(me) => {
            let others = state.holding_targets().filter(|n| n.id != *me && n.id != node.id);
            Arrival::IfNewest(others.collect())
        }
        _ if tombstone => Arrival::Take,
        Some(node) if info.has_copies() && rebalance::duty(state, info, name, &node.id).stays => {
            Arrival::IfStillAt(node)
        }
        _ => Arrival::Refuse,
    }
}

/// Whether target `me`, which receives a removal, has to record a tombstone: an older copy may
/// arrive later, or come back with a disk. `is_whole`: all disks of `me` are in use.
pub fn notes_removal(
    state: &ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
    is_whole: bool,
) -> bool {
    let may_come = !state.is_quiescent() || !is_whole;
    may_come && rebalance::duty(state, info, name, me).stays
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

/// Returns an error if a listing could lack, without notice, objects that `me` lost with a disk. The
/// other targets have them all, if the lister asks each of these: it does so if it chose them by the
/// present state, and none is away.
pub fn check_losses(
    state: &ClusterState,
    info: &BucketInfo,
    chosen_by: u64,
    me: &NodeId,
) -> Result<()> {
    let others_are_whole =
        state.holding_targets().filter(|n| n.id != *me).all(|n| n.alive && !n.lagging);
    if !info.has_copies() || chosen_by == state.version && others_are_whole {
        return Ok(());
    }
    let text =
        format!("{me} restores objects that it lost with a disk, and another target is away");
    Err(Error::unavailable(text).retry_after(1))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
