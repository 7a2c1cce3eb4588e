//! Copies between targets.

use super::*;
use crate::erasure::Form;

#[test]
fn an_incoming_copy_that_is_no_newer_is_not_committed() {
    let fixture = Fixture::new();
    let incoming = fixture.incoming(copy(1));
    let receipt = Run::of(fixture.engine.receive(fixture.object(), incoming))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::GetTombstone, Answer::Tombstone(None));
    assert_eq!(receipt.result(), Ok(ReceiveOutcome::Known));
}

#[test]
fn a_copy_of_a_quiescent_cluster_is_accepted_while_its_sender_still_has_it() {
    for there in [Some(copy(1).stamp), None] {
        let fixture = Fixture::new();
        let incoming = fixture.incoming(copy(1));
        let look = Command::Look { to: fixture.second.clone(), mode: LookMode::Immediate };
        let receipt = Run::of(fixture.engine.receive(fixture.object(), incoming))
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(Command::Receive, Answer::Done)
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(look, found(there));
        if there.is_none() {
            assert_eq!(receipt.result().unwrap_err().code, ErrorCode::Conflict);
            continue;
        }
        let commit = Command::Commit { stamp: copy(1).stamp };
        let receipt = receipt.on(commit, Answer::Copy(Some(copy(1))));
        assert_eq!(receipt.result(), Ok(ReceiveOutcome::Committed(copy(1))));
    }
}

#[test]
fn a_misplaced_copy_is_dropped_when_the_receiver_has_it() {
    let fixture = Fixture::new();
    let engine = Replication::new(fixture.third.clone(), fixture.view.clone());
    let mut moving = Run::of(engine.relocate(fixture.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))));
    for to in [fixture.owner.clone(), fixture.second.clone()] {
        let look = Command::Look { to, mode: LookMode::Final };
        moving = moving.on(look, found(None));
    }
    moving = moving.on(Command::GetCopy, Answer::Copy(Some(copy(1))));
    for to in [fixture.owner.clone(), fixture.second.clone()] {
        let send = Command::Send { to, copy: copy(1), form: Form::Whole, written: false };
        moving =
            moving.on(Command::Pace { bytes: 1 + (16 << 10) }, Answer::Done).on(send, Answer::Done);
    }
    let moving = moving
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))));
    assert_eq!(moving.result(), Ok(Some(2)));
}

#[test]
fn a_copy_whose_removal_another_holder_knows_is_sent_to_nobody() {
    let fixture = Fixture::new();
    let engine = Replication::new(fixture.third.clone(), fixture.view.clone());
    let look = |to: &NodeId| Command::Look { to: to.clone(), mode: LookMode::Final };
    let removed = CopyLook { removed: Some(copy(2).stamp), ..CopyLook::default() };
    let moving = Run::of(engine.relocate(fixture.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(look(&fixture.owner), found(None))
        .on(look(&fixture.second), Answer::Look(removed))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))))
        .on(Command::GetCopy, Answer::Copy(None));
    assert_eq!(moving.result(), Ok(None));
}

#[test]
fn a_recorded_command_can_be_read_again() {
    let issued = IssuedCommand { id: 3, command: Command::Open(copy(2)) };
    let text = serde_json::to_string(&issued).unwrap();
    assert_eq!(serde_json::from_str::<IssuedCommand>(&text).unwrap(), issued);
}

#[test]
fn a_damaged_copy_is_fetched_anew_from_a_holder_that_is_as_new() {
    let fixture = Fixture::new();
    let damaged = LocalCopy { damaged: true, ..copy(1) };
    let repaired = LocalCopy { commit: 2, ..copy(1) };
    let fetch = Command::Fetch { from: fixture.second.clone(), anew: true };
    let repair = Run::of(fixture.engine.repair(fixture.object(), damaged))
        .on(Command::GetCopy, Answer::Copy(Some(damaged)))
        .on(fixture.look(), found(Some(copy(1).stamp)))
        .on(fetch, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(repaired)))
        .on(Command::GetCopy, Answer::Copy(Some(repaired)));
    assert_eq!(repair.result(), Ok(true));
}

/// The second holder of an object, which the owner has removed.
fn second_after_a_removal(fixture: &Fixture) -> Replication {
    let engine = Replication::new(fixture.second.clone(), fixture.view.clone());
    let removal = Removal { by: Some(fixture.owner.clone()), ..Removal::of(copy(2).stamp) };
    Run::of(engine.remove_older(fixture.object(), removal))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))))
        .result()
        .unwrap();
    engine
}

#[test]
fn a_copy_that_arrives_after_the_removal_of_its_object_is_refused() {
    let fixture = Fixture::new();
    let engine = second_after_a_removal(&fixture);
    let receive = |stamp, seconds| {
        fixture.view.now_s.store(seconds, Ordering::SeqCst);
        let from = Some(fixture.owner.clone());
        let incoming = IncomingCopy { stamp, form: Form::Whole, size: 1, from, written: true };
        Run::of(engine.receive(fixture.object(), incoming))
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(Command::Receive, Answer::Done)
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetTombstone, Answer::Tombstone(None))
    };
    let late = receive(copy(1).stamp, 20).result().unwrap_err();
    assert_eq!(late.code, ErrorCode::Conflict);
    let (stamp, written) = (copy(3).stamp, copy(3));
    let newer = receive(stamp, 20).on(Command::Commit { stamp }, Answer::Copy(Some(written)));
    assert_eq!(newer.result(), Ok(ReceiveOutcome::Committed(written)));
}

#[test]
fn a_removal_in_a_quiescent_cluster_is_known_to_targets_that_look_later() {
    let fixture = Fixture::new();
    let engine = second_after_a_removal(&fixture);
    let look = |here: Option<LocalCopy>| {
        let look = Run::of(engine.look(fixture.object(), LookMode::Immediate))
            .on(Command::GetCopy, Answer::Copy(here))
            .on(Command::GetTombstone, Answer::Tombstone(None));
        look.result().unwrap()
    };
    assert_eq!(look(None).removed, Some(copy(2).stamp));
    assert_eq!(look(Some(copy(3))).removed, None, "it was written again");
}
