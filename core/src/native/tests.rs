//! Tests of the rules for objects of native buckets.

use super::*;
use crate::name::{Bucket, Provider};
use crate::state::{Command, Role};

fn id(n: usize) -> NodeId {
    NodeId::new(&format!("target-{n:02}")).unwrap()
}

fn join(state: &mut ClusterState, n: usize) {
    let (role, url, zone) = (Role::Target, format!("http://t{n}"), String::new());
    apply(
        state,
        Command::Join {
            id: id(n),
            role,
            url,
            weight: 1,
            zone,
            instance: 0,
            https: String::new(),
            external: String::new(),
        },
    );
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
    assert_eq!(others(&state, &info, &second), std::slice::from_ref(&first), "though it is dead");
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
        state, &info, "o", &second, from, written, 0,
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
    assert!(!notes_removal(&state, &info, "o", &second, true));
    assert!(notes_removal(&state, &info, "o", &second, false), "it may come back with a disk");
    join(&mut state, 3);
    assert_eq!(from(&state, stranger.as_ref(), false), "take");
    let (here, _) = holders(&state, &info);
    assert!(notes_removal(&state, &info, "o", &here, true));
    apply(&mut state, Command::SetAlive { id: first.clone(), alive: true, yields: true });
    assert_eq!(from(&state, Some(&first), false), "ask all", "it may have missed something");
    apply(&mut state, Command::SetAlive { id: second.clone(), alive: true, yields: true });
    assert_eq!(from(&state, Some(&first), false), "take", "it asks before it shows anything");
}

/// The quiescent cluster with a bucket of one copy, and two changes of placement since: target 3
/// was added and is drained.
fn moved_twice() -> (ClusterState, BucketInfo) {
    let (mut state, info) = quiescent();
    join(&mut state, 3);
    apply(&mut state, Command::SetMaintenance { id: id(3), on: true });
    (state, BucketInfo { copies: 1, ..info })
}

#[test]
fn a_copy_without_others_may_be_stale_if_its_target_was_away_while_objects_moved() {
    let (mut state, once) = moved_twice();
    let (before, old) = (state.version, Stamp { epoch: 1, version: 1 });
    assert!(!may_be_stale(&state, &once, &id(0), old, 0), "it was there all the time");
    apply(&mut state, Command::SetAlive { id: id(0), alive: false, yields: false });
    apply(&mut state, Command::SetAlive { id: id(0), alive: true, yields: false });
    assert!(may_be_stale(&state, &once, &id(0), old, 0));
    assert!(may_be_stale(&state, &once, &id(0), old, before));
    let own = Stamp { epoch: state.targets_changed, version: 2 };
    assert!(!may_be_stale(&state, &once, &id(0), own, 0), "no other target has owned it since");
    assert!(!may_be_stale(&state, &once, &id(0), old, state.version), "all was in place since");
    let placed = state.targets_changed;
    apply(&mut state, Command::RebalanceComplete { placed, repaired: Vec::new() });
    assert!(!may_be_stale(&state, &once, &id(0), old, 0), "all is in place");
}

#[test]
fn a_new_target_has_missed_nothing() {
    let (mut state, info) = quiescent();
    let once = BucketInfo { copies: 1, ..info };
    join(&mut state, 3);
    assert!(!may_have_missed_changes(&state, &once, &id(3), 0));
    join(&mut state, 4);
    assert!(may_have_missed_changes(&state, &once, &id(3), 0), "it may have owned objects since");
}

#[test]
fn a_copy_without_others_from_a_target_that_was_away_is_taken_if_it_is_the_newest() {
    let (mut state, once) = moved_twice();
    let digest = placement::digest_in(&once.bucket, "o");
    let me = placement::highest(state.owning_targets(), digest).unwrap().id.clone();
    let sender = (0..3).map(id).find(|id| *id != me).unwrap();
    let decision = |state: &ClusterState| {
        matches!(arrival(state, &once, "o", &me, Some(&sender), false, 0), Arrival::IfNewest(_))
    };
    assert!(!decision(&state));
    apply(&mut state, Command::SetAlive { id: sender.clone(), alive: false, yields: false });
    apply(&mut state, Command::SetAlive { id: sender.clone(), alive: true, yields: false });
    assert!(decision(&state));
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
fn a_listing_of_a_target_that_lost_objects_needs_all_others() {
    let (mut state, info) = quiescent();
    assert!(check_losses(&state, &info, state.version, &id(0)).is_ok());
    assert!(check_losses(&state, &info, state.version - 1, &id(0)).is_err(), "who was asked?");
    apply(&mut state, Command::SetAlive { id: id(1), alive: false, yields: false });
    assert!(check_losses(&state, &info, state.version, &id(0)).is_err());
    let once = BucketInfo { copies: 1, ..info };
    assert!(check_losses(&state, &once, state.version, &id(0)).is_ok(), "nobody else has them");
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
