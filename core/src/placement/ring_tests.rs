//! Placement compared with another implementation of consistent hashing: a ring with virtual nodes,
//! by the crate `consistent_hash`.

use std::collections::BTreeMap;

use consistent_hash::{DefaultHash, Node as RingNode, StaticHashRing};

use super::tests::{native, state};
use super::*;

const OBJECTS: usize = 50_000;
/// Virtual nodes of each target on the ring; more of them balance it better.
const VIRTUAL: usize = 400;

fn names(targets: usize) -> Vec<String> {
    (0..targets).map(|n| format!("target-{n:03}")).collect()
}

fn objects() -> Vec<String> {
    (0..OBJECTS).map(|n| format!("shards/train-{n:06}.tar")).collect()
}

/// The owner of each object by Forebay's placement.
fn owners(targets: usize) -> Vec<String> {
    let ids = names(targets);
    let nodes: Vec<_> = ids.iter().map(|id| (id.as_str(), true, 1)).collect();
    let (state, info) = (state(&nodes), native("b"));
    objects().iter().map(|name| owner(&state, &info, name).unwrap().id.to_string()).collect()
}

/// The same by the ring.
fn ring_owners(targets: usize) -> Vec<String> {
    let nodes = names(targets).into_iter().map(|id| RingNode::new(id).quantity(VIRTUAL));
    let ring = StaticHashRing::new(DefaultHash, nodes);
    let first = |name: &String| ring.calc_candidates(name).next().unwrap().key.clone();
    objects().iter().map(first).collect()
}

/// Objects of the fullest target, as a multiple of the mean.
fn fullest(owners: &[String], targets: usize) -> f64 {
    let mut counts: BTreeMap<&String, usize> = BTreeMap::new();
    owners.iter().for_each(|owner| *counts.entry(owner).or_default() += 1);
    *counts.values().max().unwrap() as f64 * targets as f64 / owners.len() as f64
}

/// Moved objects when a target joins, as a multiple of the new target's fair share.
fn moved(before: &[String], after: &[String], targets: usize) -> f64 {
    let moved = before.iter().zip(after).filter(|(before, after)| before != after).count();
    moved as f64 * targets as f64 / before.len() as f64
}

#[test]
fn objects_are_balanced_better_than_on_a_ring_and_no_more_of_them_move() {
    for (before, after) in [(4, 5), (64, 65)] {
        let (was, is) = (owners(before), owners(after));
        let (ring_was, ring_is) = (ring_owners(before), ring_owners(after));
        let (full, ring_full) = (fullest(&is, after), fullest(&ring_is, after));
        let (share, ring_share) = (moved(&was, &is, after), moved(&ring_was, &ring_is, after));
        println!(
            "{before} to {after} targets: fullest {full:.3} (ring {ring_full:.3}), \
             moved {share:.3} of a fair share (ring {ring_share:.3})"
        );
        assert!(full < ring_full, "{after} targets: {full} against {ring_full}");
        // Only to the new target, and no more than it has then.
        let new = format!("target-{:03}", after - 1);
        let gained = |(was, is): (&String, &String)| was == is || *is == new;
        assert!(was.iter().zip(&is).all(gained), "an object moved between old targets");
        assert!((share - 1.0).abs() < 0.1, "{share} of a fair share moves");
    }
}
