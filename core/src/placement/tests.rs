//! Tests of ownership: golden vectors, copies, zones, weights.

use super::*;
use crate::bucket::BackendKind;
use crate::bucket::BackendSpec;
use crate::error::ErrorCode;
use crate::name::{Bucket, NodeId, Provider};
use crate::state::Role;
use proptest::prelude::*;

pub(super) fn state(nodes: &[(&str, bool, u32)]) -> ClusterState {
    let mut s = ClusterState::default();
    for (id, alive, weight) in nodes {
        let id = NodeId::new(id).unwrap();
        let node = Node {
            id: id.clone(),
            role: Role::Target,
            url: String::new(),
            alive: *alive,
            alive_since: 0,
            weight: *weight,
            zone: String::new(),
            maintenance: false,
            emptied: false,
            lagging: false,
            leaving: None,
            instance: 0,
            https: String::new(),
            external: String::new(),
        };
        s.nodes.insert(id, node);
    }
    s
}

pub(super) fn native(name: &str) -> BucketInfo {
    BucketInfo::requested(Bucket::new(Provider::Ais, name).unwrap(), None)
}

pub(super) fn cached(name: &str) -> BucketInfo {
    let backend = BackendSpec::new(BackendKind::Folder, "");
    BucketInfo::requested(Bucket::new(Provider::Ais, name).unwrap(), Some(backend))
}

const THREE: [(&str, bool, u32); 3] =
    [("TGTaaaa1", true, 1), ("TGTbbbb2", true, 1), ("TGTcccc3", true, 1)];

#[test]
fn golden_vectors_of_the_wire_reference() {
    assert_eq!(mix(0), 1905207664160064169);
    assert_eq!(mix(4573842), 5026071747115404967);
    assert_eq!(digest("hello"), 8439239763374124237);
    let (bucket, long) = ("ais/@#/b/", "x".repeat(500));
    for object in ["", "o", &long] {
        assert_eq!(object_digest(bucket, object), digest(&format!("{bucket}{object}")));
    }
    assert_eq!(digest("TGTaaaa1"), 12508783534370897408);
    assert_eq!(digest("TGTbbbb2"), 12256665944835498190);
    assert_eq!(digest("TGTcccc3"), 9305318365114316365);
    let object = digest("ais/@#/mybck/a/b.txt");
    assert_eq!(object, 525702419679005328);
    assert_eq!(object, object_digest("ais/@#/mybck/", "a/b.txt"));
    assert_eq!(mix(digest("TGTaaaa1") ^ object), 734648338719742081);
    assert_eq!(mix(digest("TGTbbbb2") ^ object), 9264493564694421011);
    assert_eq!(mix(digest("TGTcccc3") ^ object), 13297792409804251013);
    let s = state(&THREE);
    assert_eq!(owner(&s, &native("mybck"), "a/b.txt").unwrap().id.as_str(), "TGTcccc3");
}

#[test]
fn a_dead_owner_is_replaced_only_where_a_backend_has_the_object() {
    let s = state(&[("TGTaaaa1", true, 1), ("TGTbbbb2", true, 1), ("TGTcccc3", false, 1)]);
    assert_eq!(owner(&s, &cached("mybck"), "a/b.txt").unwrap().id.as_str(), "TGTbbbb2");
    let e = owner(&s, &native("mybck"), "a/b.txt").unwrap_err();
    assert_eq!((e.code, e.retry_after_s), (ErrorCode::Unavailable, Some(3)));
}

fn twice(state: &ClusterState, name: &str) -> (BucketInfo, [NodeId; 2]) {
    let info = BucketInfo { copies: 2, ..native("b") };
    let found = holders(state, &info, object_digest(&info.bucket.uname(), name));
    let ids = [found[0].id.clone(), found[1].id.clone()];
    (info, ids)
}

#[test]
fn the_second_copy_stands_by_while_nobody_missed_anything() {
    let mut s = state(&THREE);
    let (info, [first, second]) = twice(&s, "x");
    assert_eq!(hedge_target(&s, &info, "x").unwrap().id, second);
    assert!(hedge_target(&s, &native("b"), "x").is_none(), "there is one copy");
    let thrice = BucketInfo { copies: 3, ..info.clone() };
    assert!(hedge_target(&s, &thrice, "x").is_none(), "the third may not have what it shows");
    for id in [&first, &second] {
        s.nodes.get_mut(id).unwrap().lagging = true;
        assert!(hedge_target(&s, &info, "x").is_none(), "{id} missed something");
        s.nodes.get_mut(id).unwrap().lagging = false;
    }
}

#[test]
fn the_first_copy_that_is_there_and_missed_nothing_answers() {
    let mut s = state(&THREE);
    let (info, [first, second]) = twice(&s, "x");
    let answers = |s: &ClusterState| owner(s, &info, "x").map(|n| n.id.clone());
    let set = |s: &mut ClusterState, id: &NodeId, alive, lagging| {
        let node = s.nodes.get_mut(id).unwrap();
        (node.alive, node.lagging) = (alive, lagging);
    };
    assert_eq!(answers(&s).unwrap(), first, "the owner of a single copy is the first of two");
    assert_eq!(owner(&s, &native("b"), "x").unwrap().id, first);
    set(&mut s, &first, false, true);
    assert_eq!(answers(&s).unwrap(), second);
    set(&mut s, &first, true, true);
    assert_eq!(answers(&s).unwrap(), second, "the first missed something");
    set(&mut s, &second, false, true);
    let e = answers(&s).unwrap_err();
    assert_eq!((e.code, e.retry_after_s), (ErrorCode::Unavailable, Some(3)), "no owner");
    set(&mut s, &second, true, true);
    assert_eq!(answers(&s).unwrap(), first, "together they know");
}

#[test]
fn copies_lie_in_different_zones_as_far_as_there_are_so_many() {
    let mut s = state(&THREE);
    for (n, node) in s.nodes.values_mut().enumerate() {
        node.zone = if n < 2 { "a".into() } else { "b".into() };
    }
    let info = BucketInfo { copies: 2, ..native("b") };
    for n in 0..200 {
        let found = holders(&s, &info, digest(&format!("o{n}")));
        assert_eq!(found.len(), 2);
        assert_ne!(found[0].zone, found[1].zone);
    }
    let more = BucketInfo { copies: 5, ..native("b") };
    assert_eq!(holders(&s, &more, 7).len(), 3, "there are no more targets");
}

#[test]
fn of_slices_those_answer_that_know_of_small_objects_too() {
    let ids = ["TGTaaaa1", "TGTbbbb2", "TGTcccc3", "TGTdddd4", "TGTeeee5"];
    let mut s = state(&ids.map(|id| (id, true, 1)));
    let erasure = Some(crate::erasure::Erasure { data: 2, parity: 1, limit: 0 });
    let info = BucketInfo { erasure, ..native("b") };
    let held = holders(&s, &info, digest_in(&info.bucket, "x"));
    let ids: Vec<NodeId> = held.iter().map(|n| n.id.clone()).collect();
    assert_eq!(ids.len(), 4);
    for (dead, answers) in ids.iter().zip([ids.get(1), None]) {
        s.nodes.get_mut(dead).unwrap().alive = false;
        assert_eq!(owner(&s, &info, "x").ok().map(|n| &n.id), answers);
    }
    assert!(hedge_target(&state(&THREE), &info, "x").is_none());
}

#[test]
fn weights_share_in_proportion() {
    let s = state(&[("TGTaaaa1", true, 1), ("TGTbbbb2", true, 3)]);
    let bucket = native("b");
    let heavy =
        (0..20_000).filter(|i| owner(&s, &bucket, &format!("o{i}")).unwrap().weight == 3).count();
    assert!((14_500..15_500).contains(&heavy), "{heavy}");
}

/// The definition itself: hashes the ids for each object, computes each score for each
/// comparison.
fn by_the_book<'a>(nodes: &[&'a Node], object: u64) -> Option<&'a Node> {
    let score = |n: &Node| mix(digest(n.id.as_str()) ^ object);
    if nodes.iter().all(|n| n.weight == nodes[0].weight) {
        return nodes.iter().copied().max_by_key(|n| score(n));
    }
    let unit = |n: &Node| (score(n) as f64 + 0.5) / (u64::MAX as f64 + 1.0);
    let weighted = |n: &Node| -f64::from(n.weight) / unit(n).ln();
    nodes.iter().copied().max_by(|a, b| weighted(a).total_cmp(&weighted(b)))
}

fn holders_by_the_book(s: &ClusterState, copies: usize, object: u64) -> Vec<&Node> {
    let mut left: Vec<&Node> = s.owning_targets().collect();
    let mut chosen: Vec<&Node> = Vec::new();
    while chosen.len() < copies.min(s.owning_targets().count()) {
        let elsewhere = |n: &&&Node| n.zone.is_empty() || chosen.iter().all(|c| c.zone != n.zone);
        let others: Vec<&Node> = left.iter().filter(elsewhere).copied().collect();
        let next = by_the_book(if others.is_empty() { &left } else { &others }, object).unwrap();
        left.retain(|n| n.id != next.id);
        chosen.push(next);
    }
    chosen
}

proptest! {
    #[test]
    fn places_are_those_of_the_rule(
        targets in prop::collection::vec((1u32..4, 0usize..4, prop::bool::weighted(0.1)), 1..30),
        equal: bool,
        copies in 1u32..9,
        object: u64,
    ) {
        let ids: Vec<String> = (0..targets.len()).map(|n| format!("target-{n:02}")).collect();
        let weight = |w: u32| if equal { 1 } else { w };
        let nodes: Vec<_> =
            ids.iter().zip(&targets).map(|(id, t)| (id.as_str(), true, weight(t.0))).collect();
        let mut s = state(&nodes);
        for (node, (_, zone, drained)) in s.nodes.values_mut().zip(&targets) {
            node.zone = ["", "a", "b", "c"][*zone].into();
            node.maintenance = *drained;
        }
        let owning: Vec<&Node> = s.owning_targets().collect();
        let id = |n: &Node| n.id.to_string();
        if !owning.is_empty() {
            prop_assert_eq!(
                highest(owning.iter().copied(), object).map(id),
                by_the_book(&owning, object).map(id)
            );
        }
        let info = BucketInfo { copies, ..native("b") };
        let found: Vec<_> = holders(&s, &info, object).into_iter().map(id).collect();
        let right = holders_by_the_book(&s, copies as usize, object);
        prop_assert_eq!(found, right.into_iter().map(id).collect::<Vec<_>>());
    }

    #[test]
    fn losing_a_target_moves_only_its_objects(name in "[a-z/]{1,40}", dead in 0usize..3) {
        let before = state(&THREE);
        let mut nodes = THREE;
        nodes[dead].1 = false;
        let after = state(&nodes);
        let bucket = cached("b");
        let was = owner(&before, &bucket, &name).unwrap().id.clone();
        let is = owner(&after, &bucket, &name).unwrap().id.clone();
        prop_assert!(was == is || was.as_str() == nodes[dead].0);
    }
}
