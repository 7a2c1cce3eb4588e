//! Older versions of objects.

use super::*;
use crate::bucket::Versioning;
use crate::history;

/// A fixture whose bucket keeps versions, and the name of a version of its object.
fn versioned() -> (Fixture, String) {
    let mut fixture = Fixture::with_copies(1);
    let mut info = (*fixture.object.info).clone();
    info.s3.versioning = Versioning::Enabled;
    fixture.object = Object::new(info.into(), "o");
    (fixture, history::name("o", &history::version_at(1_000), 0))
}

/// Objects move: a target joins, and is drained again.
fn moving(fixture: &Fixture) {
    let id = NodeId::new("target-03").unwrap();
    fixture.change(|state| {
        join(state, 3);
        apply(state, state::Command::SetMaintenance { id, on: true });
    });
    let state = fixture.view.state();
    let owner = placement::owner(&state, &fixture.object.info, "o").unwrap();
    assert_eq!(owner.id, fixture.owner, "the new target owns nothing");
}

fn others(fixture: &Fixture) -> [NodeId; 3] {
    [fixture.second.clone(), fixture.third.clone(), NodeId::new("target-03").unwrap()]
}

fn version(fixture: &Fixture, name: &str) -> Object {
    Object::older_version(fixture.object.info.clone(), name)
}

#[test]
fn a_version_is_stored_in_the_history_and_belongs_where_its_object_does() {
    let (fixture, name) = versioned();
    let version = version(&fixture, &name);
    assert_eq!((&*version.name, version.stored_name()), ("o", &*name));
    assert_eq!(version.stored_id(), history::id(fixture.object.info.id));
    assert!(version.is_older_version() && !fixture.object.is_older_version());
}

#[test]
fn versions_are_gathered_from_all_targets_while_objects_move_and_from_none_in_place() {
    let (fixture, _) = versioned();
    let gather = || Run::of(fixture.engine.gather_versions(fixture.object()));
    assert_eq!(gather().result(), Ok(()));
    moving(&fixture);
    for answer in [Answer::Done, silent()] {
        let mut run = gather();
        for from in others(&fixture) {
            let is_second = from == fixture.second;
            let answer = if is_second { answer.clone() } else { Answer::Done };
            run = run.on(Command::FetchVersions { from }, answer);
        }
        let code = run.result().err().map(|e| e.code);
        assert_eq!(code, (answer != Answer::Done).then_some(ErrorCode::Unavailable));
    }
}

#[test]
fn a_target_sends_its_versions_to_the_owner_alone() {
    let (fixture, name) = versioned();
    let former = Replication::new(fixture.third.clone(), fixture.view.clone());
    let to = fixture.owner.clone();
    let sending = Run::of(former.hand_over_versions(fixture.object(), to.clone()))
        .on(Command::ListVersions, Answer::Versions(vec![name.clone()]))
        .on(Command::SendVersion { version: name.clone(), to }, Answer::Done);
    assert_eq!(sending.result(), Ok(()));
    let elsewhere = former.hand_over_versions(fixture.object(), fixture.second.clone());
    assert!(Run::of(elsewhere).result().is_err());

    let look = Command::Look { to: fixture.owner.clone(), mode: LookMode::Final };
    let send = Command::Send {
        to: fixture.owner.clone(),
        copy: copy(1),
        form: Form::Whole,
        written: false,
    };
    let object = version(&fixture, &name);
    let sending = Run::of(former.send_on_request(object, fixture.owner.clone(), false))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(look, found(None))
        .on(send, Answer::Done)
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))));
    assert_eq!(sending.result(), Ok(()));
}

#[test]
fn a_version_that_is_here_or_was_removed_is_not_received_again() {
    let (fixture, name) = versioned();
    moving(&fixture);
    let newer = copy(9);
    for (here, removed) in [(Some(copy(1)), None), (None, Some(copy(1).stamp))] {
        let incoming = fixture.incoming(newer);
        let mut receipt = Run::of(fixture.engine.receive(version(&fixture, &name), incoming))
            .on(Command::GetCopy, Answer::Copy(here));
        if here.is_none() {
            receipt = receipt.on(Command::GetTombstone, Answer::Tombstone(removed));
        }
        assert_eq!(receipt.result(), Ok(ReceiveOutcome::Known));
    }
}

#[test]
fn a_version_is_removed_by_all_living_targets_and_recorded_while_objects_move() {
    let (fixture, name) = versioned();
    moving(&fixture);
    let stamp = copy(1).stamp.next(fixture.view.state().version);
    let removal = Removal { by: Some(fixture.owner.clone()), ..Removal::of(stamp) };
    for answer in [Answer::Died, silent()] {
        let object = version(&fixture, &name);
        let mut run = Run::of(fixture.engine.remove_version(object, copy(1).stamp))
            .on(Command::Lock, Answer::Done)
            .on(Command::WriteTombstone { stamp }, Answer::Done);
        let [second, third, last] = others(&fixture);
        let request = |to| Command::RemoveOlder { to, removal: removal.clone() };
        run = run.on(request(second), Answer::Done).on(request(third), answer.clone());
        if answer != Answer::Died {
            assert_eq!(run.result().unwrap_err().code, ErrorCode::Unavailable);
            continue;
        }
        let run = run
            .on(request(last), Answer::Done)
            .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))));
        assert_eq!(run.result(), Ok(()));
    }
}

#[test]
fn a_write_fetches_what_it_replaces_while_objects_move() {
    let (fixture, _) = versioned();
    fixture.write().on(Command::Lock, Answer::Done);
    moving(&fixture);
    fixture.write().on(Command::GetCopy, Answer::Copy(None));
}

#[test]
fn versions_are_gathered_again_if_targets_changed_before_the_lock() {
    let (fixture, _) = versioned();
    moving(&fixture);
    let fetched = |run: Run<_>, from: &[NodeId]| {
        from.iter().fold(run, |run, from| {
            run.on(Command::FetchVersions { from: from.clone() }, Answer::Done)
        })
    };
    let newest = Answer::Copy(Some(copy(1)));
    let first = others(&fixture);
    let run = fetched(Run::of(fixture.engine.lock_with_versions(fixture.object())), &first)
        .on(Command::GetCopy, newest.clone());
    let fourth = NodeId::new("target-04").unwrap();
    fixture.change(|state| {
        join(state, 4);
        apply(state, state::Command::SetMaintenance { id: fourth.clone(), on: true });
    });
    let run = run
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, newest.clone())
        .on(Command::Lock, Answer::Done);
    assert_eq!(run.unlocks, 2);
    let run = fetched(run, &[&first[..], &[fourth]].concat())
        .on(Command::GetCopy, newest)
        .on(Command::Lock, Answer::Done);
    assert_eq!(run.unlocks, 2, "the driver keeps the lock");
    assert_eq!(run.result(), Ok(None));
}
