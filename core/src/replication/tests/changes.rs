//! Writes, removals, and their replication.

use super::*;

#[test]
fn a_write_is_acknowledged_when_the_other_holder_has_it() {
    let fixture = Fixture::new();
    let (write, copy) = fixture.committed_write();
    assert!(fixture.has_pending_change());
    let write = write.on(fixture.send(copy, true), Answer::Done);
    assert_eq!(write.result(), Ok(copy));
    assert!(fixture.engine.pending().is_empty());
}

#[test]
fn the_death_of_the_other_holder_ends_the_wait_of_a_write() {
    let fixture = Fixture::new();
    let (write, copy) = fixture.committed_write();
    let id = fixture.second.clone();
    fixture.change(|state| {
        apply(state, state::Command::SetAlive { id, alive: false, yields: false });
    });
    assert_eq!(write.on(fixture.send(copy, true), Answer::Died).result(), Ok(copy));
}

#[test]
fn a_change_stays_pending_after_six_seconds_without_an_answer() {
    let fixture = Fixture::new();
    let (write, copy) = fixture.committed_write();
    let write = write.on(fixture.send(copy, true), silent()).on(RETRY, Answer::Done);
    fixture.view.now_s.store(7, Ordering::SeqCst);
    let failed = write.on(fixture.send(copy, true), silent()).result().unwrap_err();
    assert_eq!(failed.code, ErrorCode::Unavailable);
    assert!(fixture.has_pending_change());
}

#[test]
fn a_write_whose_owner_changes_on_the_way_is_acknowledged_when_the_new_one_has_it() {
    let fixture = Fixture::new();
    let (write, copy) = fixture.committed_write();
    fixture.yield_to_second();
    let write = write
        .on(fixture.send(copy, true), silent())
        .on(RETRY, Answer::Done)
        .on(fixture.look(), found(None))
        .on(fixture.send(copy, false), Answer::Done)
        .on(fixture.remove_older(copy.stamp, Some(&fixture.second), true), Answer::Done)
        .on(fixture.look(), found(Some(copy.stamp)))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy)));
    assert_eq!(write.result(), Ok(copy));
    assert!(fixture.engine.pending().is_empty());
}

#[test]
fn a_write_that_its_new_owner_does_not_have_is_sent_again() {
    let fixture = Fixture::new();
    let (write, copy) = fixture.committed_write();
    fixture.yield_to_second();
    let overtaken = fixture.remove_older(copy.stamp, Some(&fixture.second), true);
    let write = write
        .on(fixture.send(copy, true), silent())
        .on(RETRY, Answer::Done)
        // It has a later change at first, which another holder never gets.
        .on(fixture.look(), found(Some(copy.stamp.next(9))))
        .on(overtaken.clone(), Answer::Done)
        .on(fixture.look(), found(None))
        .on(RETRY, Answer::Done)
        .on(fixture.look(), found(None))
        .on(fixture.send(copy, false), Answer::Done)
        .on(overtaken, Answer::Done)
        .on(fixture.look(), found(Some(copy.stamp)))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy)));
    assert_eq!(write.result(), Ok(copy));
}

#[test]
fn a_removal_that_a_later_write_overtook_at_the_new_owner_is_not_acknowledged() {
    for overtaken in [false, true] {
        let fixture = Fixture::new();
        let here = copy(1);
        let stamp = here.stamp.next(fixture.view.state().version);
        let removal = Run::of(fixture.engine.remove(fixture.object()))
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(Some(here)))
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(Command::RemoveCopy, Answer::Copy(Some(here)));
        fixture.yield_to_second();
        let later = overtaken.then(|| stamp.next(9));
        let removal = removal
            .on(fixture.remove_older(stamp, Some(&fixture.owner), false), silent())
            .on(RETRY, Answer::Done)
            .on(Command::Lock, Answer::Done)
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(Command::WriteTombstone { stamp }, Answer::Done)
            .on(fixture.remove_older(stamp, Some(&fixture.second), false), Answer::Done)
            .on(fixture.look(), found(later));
        if overtaken {
            assert_eq!(removal.result().unwrap_err().code, ErrorCode::Unavailable);
            continue;
        }
        let removal = removal
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::WriteTombstone { stamp }, Answer::Done);
        assert_eq!(removal.result(), Ok(true));
    }
}

#[test]
fn a_write_of_an_object_that_may_have_been_lost_is_newer_than_the_other_copies() {
    let fixture = Fixture::new();
    fixture.view.has_lost_objects.store(true, Ordering::SeqCst);
    let there = Stamp { epoch: 90, version: 7 };
    let look = Command::Look { to: fixture.second.clone(), mode: LookMode::FinalInPart };
    let stamp = Stamp { epoch: 90, version: 8 };
    fixture
        .write()
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(None))
        .on(Command::GetTombstone, Answer::Tombstone(None))
        .on(look, found(Some(there)))
        .on(Command::Prepare { replaced: None, stamp }, Answer::Done);
}

#[test]
fn a_caller_that_holds_the_lock_keeps_it_after_a_removal() {
    let fixture = Fixture::new();
    let stamp = copy(1).stamp.next(fixture.view.state().version);
    let removal = Run::of(fixture.engine.remove_under_lock(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::GetTombstone, Answer::Tombstone(None))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))))
        .on(fixture.remove_older(stamp, Some(&fixture.owner), false), Answer::Done);
    assert_eq!(removal.unlocks, 0);
    assert_eq!(removal.result(), Ok(true));
}

#[test]
fn changed_metadata_are_replicated_as_a_new_version() {
    let fixture = Fixture::new();
    let stamp = copy(1).stamp.next(fixture.view.state().version);
    let updated = LocalCopy { stamp, commit: 2, ..copy(1) };
    let update = Run::of(fixture.engine.update(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::CheckCondition, Answer::Done)
        .on(Command::UpdateMetadata { copy: copy(1), stamp }, Answer::Copy(Some(updated)))
        .on(fixture.send(updated, true), Answer::Done);
    assert_eq!(update.result(), Ok(Some(updated)));
}

#[test]
fn a_write_after_a_removal_is_newer_than_the_removed_object_also_without_a_tombstone() {
    let fixture = Fixture::new();
    let removed = copy(1).stamp.next(fixture.view.state().version);
    let existed = Run::of(fixture.engine.remove(fixture.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::GetTombstone, Answer::Tombstone(None))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy(1))))
        .on(fixture.remove_older(removed, Some(&fixture.owner), false), Answer::Done);
    assert_eq!(existed.result(), Ok(true));
    let stamp = removed.next(fixture.view.state().version);
    fixture
        .write()
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(None))
        .on(Command::GetTombstone, Answer::Tombstone(None))
        .on(Command::Prepare { replaced: None, stamp }, Answer::Done);
}

#[test]
fn a_removal_fails_if_the_only_copy_found_may_be_stale_and_a_target_does_not_answer() {
    let fixture = Fixture::once_and_away();
    let removal = Run::of(fixture.engine.remove(fixture.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))));
    let removal = fixture.looks(removal, |to| match to == fixture.third {
        true => silent(),
        false => found(None),
    });
    assert_eq!(removal.result().unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn an_object_that_is_lost_with_a_disk_during_a_change_of_its_metadata_is_not_reported_as_missing() {
    let fixture = Fixture::new();
    let update = Run::of(fixture.engine.update(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))));
    fixture.view.has_lost_objects.store(true, Ordering::SeqCst);
    let update = update.on(Command::Lock, Answer::Done).on(Command::GetCopy, Answer::Copy(None));
    assert_eq!(update.result().unwrap_err().code, ErrorCode::Unavailable);
}
