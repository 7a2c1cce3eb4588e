//! Property of cached copies: a target that owns an object again does not trust a copy from before another
//! owner.

use proptest::prelude::*;

use super::tests::cached;
use super::*;
use crate::name::NodeId;
use crate::state::{Command, Role};

const TARGETS: usize = 4;

/// A change of a target.
#[derive(Clone, Copy, Debug)]
enum Event {
    Joins,
    Dies,
    Returns,
    Drains,
    IsUncordoned,
    IsRemoved,
}

fn id(n: usize) -> NodeId {
    NodeId::new(&format!("target0{n}")).unwrap()
}

fn command(event: Event, target: usize) -> Command {
    let id = id(target);
    match event {
        Event::Joins => Command::Join {
            id,
            role: Role::Target,
            url: String::new(),
            weight: 1,
            zone: String::new(),
            instance: 0,
            https: String::new(),
            external: String::new(),
        },
        Event::Dies => Command::SetAlive { id, alive: false, yields: false },
        Event::Returns => Command::SetAlive { id, alive: true, yields: false },
        Event::Drains => Command::SetMaintenance { id, on: true },
        Event::IsUncordoned => Command::SetMaintenance { id, on: false },
        Event::IsRemoved => Command::Remove { id },
    }
}

fn event() -> impl Strategy<Value = (Event, usize)> {
    let events = [
        Event::Joins,
        Event::Dies,
        Event::Returns,
        Event::Drains,
        Event::IsUncordoned,
        Event::IsRemoved,
    ];
    (prop::sample::select(events.to_vec()), 0..TARGETS)
}

/// A target's view of the states of a cluster.
struct View {
    state: ClusterState,
    owners_left: u64,
}

impl View {
    fn offer(&mut self, state: &ClusterState) {
        if owners_may_have_left(&self.state, state) {
            self.owners_left = state.version;
        }
        self.state = state.clone();
    }

    fn trusts(&self, me: &Node, validated: u64, object: u64) -> bool {
        !may_be_superseded(&self.state, me, self.owners_left, validated, || object)
    }
}

/// A cluster with one target, and its view.
fn start() -> (ClusterState, View) {
    let mut state = ClusterState::default();
    state.apply(1, command(Event::Joins, 0)).unwrap();
    let view = View { state: state.clone(), owners_left: 0 };
    (state, view)
}

proptest! {
    #[test]
    fn no_copy_from_before_another_owner_is_trusted(
        events in prop::collection::vec((event(), any::<bool>()), 1..40),
        object in any::<u64>(),
    ) {
        let info = cached("b");
        let (mut state, mut view) = start();
        // The owner at each version, and whether the target got the state of this version.
        let mut owners: Vec<(u64, Option<NodeId>, bool)> = Vec::new();
        for (at, ((event, target), is_seen)) in events.into_iter().enumerate() {
            let version = at as u64 + 2;
            // Commands that the state refuses change nothing.
            let _ = state.apply(version, command(event, target));
            let owner = owner_by_digest(&state, &info, object, "o").ok();
            owners.push((version, owner.map(|node| node.id.clone()), is_seen));
            if !is_seen {
                continue;
            }
            view.offer(&state);
            let Some(me) = owner else { continue };
            let mut was_interrupted = false;
            for (validated, owner, is_seen) in owners.iter().rev() {
                if owner.as_ref() != Some(&me.id) {
                    was_interrupted = true;
                } else if *is_seen && was_interrupted {
                    let is_trusted = view.trusts(me, *validated, object);
                    prop_assert!(!is_trusted, "{validated} of {owners:?}");
                }
            }
        }
    }

    #[test]
    fn copies_of_a_target_that_always_owned_the_object_are_trusted_while_none_leaves(
        events in prop::collection::vec(event(), 1..40),
        object in any::<u64>(),
    ) {
        let info = cached("b");
        let (mut state, mut view) = start();
        for (at, (event, target)) in events.into_iter().enumerate() {
            let leaves = matches!(event, Event::Drains | Event::IsUncordoned | Event::IsRemoved);
            if target != 0 && !leaves {
                let _ = state.apply(view.state.version + 1, command(event, target));
                view.offer(&state);
            }
            let owner = owner_by_digest(&state, &info, object, "o").unwrap();
            if owner.id != id(0) {
                break;
            }
            prop_assert!(view.trusts(owner, 1, object), "after event {at}");
        }
    }
}
