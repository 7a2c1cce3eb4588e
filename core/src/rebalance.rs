//! The moves of native objects when placement changes: a pure function of two states.

use std::collections::BTreeMap;

use crate::bucket::BucketInfo;
use crate::erasure::Form;
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::placement;
use crate::state::{ClusterState, Command, Node};

/// One object that moves from one target to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    pub from: NodeId,
    pub to: NodeId,
}

/// The duty of a target for a copy that it has.
#[derive(Clone, Debug)]
pub struct Duty<'a> {
    /// Whether the copy belongs there.
    pub stays: bool,
    /// The other targets where the object belongs, which must have it too.
    pub others: Vec<&'a Node>,
}

/// The duty of target `me` for a copy that it has. A copy that does not stay is removed when all
/// others have the object.
pub fn duty<'a>(state: &'a ClusterState, info: &BucketInfo, name: &str, me: &NodeId) -> Duty<'a> {
    let digest = placement::digest_in(&info.bucket, name);
    let mut others = match info.places() {
        // The usual case, without a list of all targets.
        1 => Vec::from_iter(placement::highest(state.owning_targets(), digest)),
        _ => placement::holders(state, info, digest),
    };
    let all = others.len();
    others.retain(|node| node.id != *me);
    // If no target should have it, it is left alone.
    Duty { stays: others.len() < all || all == 0, others }
}

/// Those of [`Duty::others`] that have a part of every object, so that together they know all
/// objects.
pub fn metadata_holders<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    me: &NodeId,
) -> Vec<&'a Node> {
    if info.erasure.is_none() {
        return duty(state, info, name, me).others;
    }
    let holders = placement::holders(state, info, placement::digest_in(&info.bucket, name));
    let metadata_holders = placement::metadata_holders(info, &holders).iter().copied();
    metadata_holders.filter(|node| node.id != *me).collect()
}

/// The form of an object of this size that each target should have, by rank.
pub fn forms<'a>(
    state: &'a ClusterState,
    info: &BucketInfo,
    name: &str,
    size: u64,
) -> Vec<(&'a Node, Form)> {
    let holders = placement::holders(state, info, placement::digest_in(&info.bucket, name));
    let form = |rank| match &info.erasure {
        Some(erasure) => erasure.form(rank, size),
        None => Some(Form::Whole),
    };
    holders.into_iter().enumerate().filter_map(|(rank, node)| Some((node, form(rank)?))).collect()
}

/// The targets and since when they are alive: a target that restarts in between may have missed an
/// update.
pub type Lives = BTreeMap<NodeId, (bool, u64)>;

pub fn lives(state: &ClusterState) -> Lives {
    state.targets().map(|n| (n.id.clone(), (n.alive, n.alive_since))).collect()
}

/// The command to log when all targets found nothing left to send for the placement of `placed`.
/// `before`: the live targets when they were asked. An error if objects may still be out of place.
pub fn completion(now: &ClusterState, placed: u64, before: &Lives) -> Result<Command> {
    if now.targets_changed != placed {
        return Err(Error::unavailable("the places of objects changed again meanwhile"));
    }
    if let Some(dead) = now.holding_targets().find(|n| !n.alive) {
        let text = format!("target {} is down: what it has stays there for now", dead.id);
        return Err(Error::unavailable(text));
    }
    if lives(now) != *before {
        return Err(Error::unavailable("a target restarted meanwhile"));
    }
    let repaired = now.targets().map(|n| (n.id.clone(), n.alive_since)).collect();
    Ok(Command::RebalanceComplete { placed, repaired })
}

/// The transfers that move an object from its place in `old` to its place in `new`.
pub fn plan(old: &ClusterState, new: &ClusterState, info: &BucketInfo, name: &str) -> Vec<Move> {
    let digest = placement::digest_in(&info.bucket, name);
    let had = placement::holders(old, info, digest);
    let has = placement::holders(new, info, digest);
    let comes: Vec<_> = has.iter().filter(|n| had.iter().all(|h| h.id != n.id)).collect();
    let mut goes = had.iter().filter(|h| has.iter().all(|n| n.id != h.id));
    let moves = comes.into_iter().filter_map(|to| {
        // From targets that lose the object; an additional copy comes from the first holder.
        let from = goes.next().or(had.first())?;
        Some(Move { from: from.id.clone(), to: to.id.clone() })
    });
    moves.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::name::{Bucket, Provider};
    use crate::state::Role;

    fn info() -> BucketInfo {
        BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None)
    }

    fn id(n: usize) -> NodeId {
        NodeId::new(&format!("target-{n:02}")).unwrap()
    }

    fn cluster(weights: &[u32]) -> ClusterState {
        let mut state = ClusterState::default();
        for (n, weight) in weights.iter().enumerate() {
            join(&mut state, n, *weight);
        }
        state
    }

    fn join(state: &mut ClusterState, n: usize, weight: u32) {
        let (id, url, zone) = (id(n), format!("http://t{n}"), String::new());
        let join = Command::Join {
            id,
            role: Role::Target,
            url,
            weight,
            zone,
            instance: 0,
            https: String::new(),
            external: String::new(),
        };
        state.apply(state.version + 1, join).unwrap();
    }

    /// How many of `names` move to each target.
    fn arrivals(old: &ClusterState, new: &ClusterState, names: usize) -> BTreeMap<NodeId, usize> {
        let info = info();
        let mut arrivals = BTreeMap::new();
        for n in 0..names {
            for m in plan(old, new, &info, &format!("train/{n:07}.jpg")) {
                *arrivals.entry(m.to).or_default() += 1;
            }
        }
        arrivals
    }

    #[test]
    fn a_fifth_target_gets_a_fifth_of_what_four_had_and_nothing_else_moves() {
        let old = cluster(&[1; 4]);
        let mut new = old.clone();
        join(&mut new, 4, 1);
        let arrivals = arrivals(&old, &new, 100_000);
        assert_eq!(arrivals.keys().collect::<Vec<_>>(), [&id(4)]);
        assert!((19_000..=21_000).contains(&arrivals[&id(4)]), "{arrivals:?}");
    }

    #[test]
    fn a_second_copy_is_made_of_the_first_and_a_copy_less_moves_nothing() {
        let state = cluster(&[1; 4]);
        let (once, twice) = (info(), BucketInfo { copies: 2, ..info() });
        for n in 0..1_000 {
            let name = format!("o{n}");
            let digest = placement::object_digest(&once.bucket.uname(), &name);
            let owner = placement::highest(state.owning_targets(), digest).unwrap();
            let had = duty(&state, &twice, &name, &owner.id);
            assert!(had.stays && had.others.len() == 1);
            let second = duty(&state, &once, &name, &had.others[0].id);
            assert!(!second.stays && second.others[0].id == owner.id);
        }
    }

    #[test]
    fn what_a_leaving_target_had_is_spread_evenly_over_the_others() {
        let old = cluster(&[1; 5]);
        let mut new = old.clone();
        new.apply(9, Command::SetMaintenance { id: id(2), on: true }).unwrap();
        let arrivals = arrivals(&old, &new, 100_000);
        assert_eq!(arrivals.len(), 4);
        assert!(arrivals.values().all(|n| (4_500..=5_500).contains(n)), "{arrivals:?}");
    }

    #[test]
    fn a_target_of_twice_the_weight_gets_twice_the_share() {
        let old = cluster(&[1, 1, 1]);
        let mut new = old.clone();
        join(&mut new, 3, 2);
        let arrivals = arrivals(&old, &new, 50_000);
        assert_eq!(arrivals.len(), 1);
        assert!((19_000..=21_000).contains(&arrivals[&id(3)]), "two fifths: {arrivals:?}");
    }

    #[test]
    fn who_is_dead_or_alive_moves_nothing() {
        let old = cluster(&[1; 4]);
        let mut new = old.clone();
        new.apply(9, Command::SetAlive { id: id(1), alive: false, yields: false }).unwrap();
        assert!(arrivals(&old, &new, 10_000).is_empty());
    }

    #[test]
    fn a_rebalance_completes_only_if_the_same_targets_were_alive_throughout() {
        let state = cluster(&[1; 3]);
        let (placed, before) = (state.targets_changed, lives(&state));
        assert!(completion(&state, placed, &before).is_ok());
        assert!(completion(&state, placed - 1, &before).is_err());
        let mut dead = state.clone();
        dead.apply(9, Command::SetAlive { id: id(1), alive: false, yields: false }).unwrap();
        assert!(completion(&dead, placed, &lives(&dead)).is_err(), "what it has nobody looked at");
        let mut back = dead;
        back.apply(10, Command::SetAlive { id: id(1), alive: true, yields: false }).unwrap();
        assert!(completion(&back, placed, &before).is_err());
        let Command::RebalanceComplete { repaired, .. } =
            completion(&back, placed, &lives(&back)).unwrap()
        else {
            panic!("another command")
        };
        assert!(repaired.contains(&(id(1), 10)));
    }

    proptest! {
        #[test]
        fn objects_move_only_to_who_comes_and_from_who_goes(
            weights in prop::collection::vec(1u32..5, 2..12),
            goes in 0usize..12,
            copies in 1u32..4,
            name in "[a-z0-9/._-]{1,60}",
        ) {
            let (goes, comes) = (goes % weights.len(), weights.len());
            let old = cluster(&weights);
            let mut more = old.clone();
            join(&mut more, comes, 3);
            let info = BucketInfo { copies, ..info() };
            let moves = plan(&old, &more, &info, &name);
            prop_assert!(moves.len() <= 1);
            for m in moves {
                prop_assert_eq!(m.to, id(comes));
            }
            let mut fewer = old.clone();
            fewer.apply(99, Command::SetMaintenance { id: id(goes), on: true }).unwrap();
            for m in plan(&old, &fewer, &info, &name) {
                prop_assert_eq!(m.from, id(goes));
                prop_assert_ne!(m.to, id(goes));
            }
            // A change and its reversal restore the original placement.
            let mut back = fewer;
            back.apply(100, Command::SetMaintenance { id: id(goes), on: false }).unwrap();
            prop_assert_eq!(plan(&old, &back, &info, &name), vec![]);
        }
    }
}
