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

proptest! {
    #[test]
    fn no_copy_from_before_another_owner_is_trusted(
        events in prop::collection::vec(event(), 1..40),
        object in any::<u64>(),
    ) {
        let info = cached("b");
        let mut state = ClusterState::default();
        state.apply(1, command(Event::Joins, 0)).unwrap();
        // The owner at each version.
        let mut owners: Vec<(u64, Option<NodeId>)> = Vec::new();
        for (at, (event, target)) in events.into_iter().enumerate() {
            let version = at as u64 + 2;
            // Commands that the state refuses change nothing.
            let _ = state.apply(version, command(event, target));
            let owner = owner_by_digest(&state, &info, object, "o").ok();
            owners.push((version, owner.map(|node| node.id.clone())));
            let Some(me) = owner else { continue };
            let mut was_interrupted = false;
            for (validated, owner) in owners.iter().rev() {
                // A target compares copies of its own objects only.
                if owner.as_ref() != Some(&me.id) {
                    was_interrupted = true;
                    continue;
                }
                let is_doubted = may_be_superseded(&state, me, *validated, || object);
                prop_assert!(is_doubted || !was_interrupted, "{validated} of {owners:?}");
            }
        }
    }

    #[test]
    fn copies_of_a_target_that_always_owned_the_object_are_trusted(
        events in prop::collection::vec(event(), 1..40),
        object in any::<u64>(),
    ) {
        let info = cached("b");
        let mut state = ClusterState::default();
        state.apply(1, command(Event::Joins, 0)).unwrap();
        let first = id(0);
        for (at, (event, target)) in events.into_iter().enumerate() {
            if target == 0 || matches!(event, Event::Drains | Event::IsUncordoned | Event::IsRemoved) {
                continue;
            }
            let _ = state.apply(at as u64 + 2, command(event, target));
            let owner = owner_by_digest(&state, &info, object, "o").unwrap();
            if owner.id != first {
                break;
            }
            prop_assert!(!may_be_superseded(&state, owner, 1, || object));
        }
    }
}
