//! Reads and lookups.

use super::*;

#[test]
fn an_owner_serves_its_copy_without_a_lookup() {
    let fixture = Fixture::new();
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::Open(copy(1)), Answer::Done);
    assert_eq!(read.result(), Ok(Some(copy(1))));
}

#[test]
fn a_read_at_a_stale_target_fetches_the_newer_copy_of_a_peer() {
    let fixture = Fixture::new();
    fixture.yield_to_second();
    let fetch = Command::Fetch { from: fixture.second.clone(), anew: false };
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(fixture.look(), found(Some(copy(2).stamp)))
        .on(fetch, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy(2))))
        .on(Command::Open(copy(2)), Answer::Done);
    assert_eq!(read.result(), Ok(Some(copy(2))));
}

#[test]
fn a_read_at_a_stale_target_fails_while_a_peer_does_not_answer() {
    let fixture = Fixture::new();
    fixture.yield_to_second();
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(fixture.look(), silent());
    assert_eq!(read.result().unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn a_read_does_not_show_a_pending_change() {
    let fixture = Fixture::new();
    let (_write, written) = fixture.committed_write();
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(written)))
        .on(Command::Sleep(Duration::from_secs(7)), Answer::Done);
    let failed = read.result().unwrap_err();
    assert!(failed.message.contains("is being written"), "{failed}");
}

#[test]
fn a_read_completes_the_replication_of_a_change_whose_writer_gave_up() {
    let fixture = Fixture::new();
    let (write, written) = fixture.committed_write();
    drop(write);
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(written)))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(written)))
        .on(fixture.send(written, true), Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(written)))
        .on(Command::Open(written), Answer::Done);
    assert_eq!(read.result(), Ok(Some(written)));
    assert!(fixture.engine.pending().is_empty());
}

#[test]
fn a_copy_that_is_replaced_before_it_is_opened_is_looked_up_again() {
    let fixture = Fixture::new();
    let gone = Answer::Failed(Error::new(ErrorCode::ObjectNotFound, "gone"));
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))))
        .on(Command::Open(copy(1)), gone)
        .on(Command::GetCopy, Answer::Copy(Some(copy(2))))
        .on(Command::Open(copy(2)), Answer::Done);
    assert_eq!(read.result(), Ok(Some(copy(2))));
}

#[test]
fn an_object_that_moves_between_look_and_fetch_is_looked_up_five_times() {
    let fixture = Fixture::new();
    fixture.change(|state| join(state, 3));
    let others = [&fixture.second, &fixture.third, &NodeId::new("target-03").unwrap()];
    let mut fetching = Run::of(fixture.engine.fetch_newest(fixture.object()));
    for _ in 0..5 {
        fetching = fetching.on(Command::GetTombstone, Answer::Tombstone(None));
        for to in others.map(NodeId::clone) {
            let there = (to == fixture.third).then(|| copy(1).stamp);
            let look = Command::Look { to, mode: LookMode::Final };
            fetching = fetching.on(look, found(there));
        }
        let fetch = Command::Fetch { from: fixture.third.clone(), anew: false };
        fetching = fetching.on(fetch, Answer::Done).on(Command::GetCopy, Answer::Copy(None));
    }
    let failed = fetching.result().unwrap_err();
    assert!(failed.message.contains("is being moved"), "{failed}");
}

#[test]
fn a_target_without_the_bucket_does_not_hide_that_another_one_does_not_answer() {
    let fixture = Fixture::new();
    fixture.change(|state| join(state, 3));
    let looks = |first: Answer| {
        let mut answers = vec![silent(), first, found(None)];
        let others = [&fixture.second, &fixture.third, &NodeId::new("target-03").unwrap()];
        let mut fetching = Run::of(fixture.engine.fetch_newest(fixture.object()))
            .on(Command::GetTombstone, Answer::Tombstone(None));
        for to in others.map(NodeId::clone) {
            let look = Command::Look { to, mode: LookMode::Final };
            fetching = fetching.on(look, answers.pop().unwrap());
        }
        fetching.result()
    };
    let no_bucket = Answer::Failed(Error::new(ErrorCode::BucketNotFound, "no such bucket"));
    assert_eq!(looks(no_bucket).unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn an_owner_that_was_away_while_objects_moved_looks_for_a_newer_version_of_its_only_copy() {
    let fixture = Fixture::once_and_away();
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(copy(1))));
    let newer = copy(2);
    let read = fixture.looks(read, |to| found((to == fixture.third).then_some(newer.stamp)));
    let fetch = Command::Fetch { from: fixture.third.clone(), anew: false };
    let read = read
        .on(fetch, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(newer)))
        .on(Command::Open(newer), Answer::Done);
    assert_eq!(read.result(), Ok(Some(newer)));
}

#[test]
fn an_owner_that_was_away_serves_what_it_wrote_since_objects_moved_last() {
    let fixture = Fixture::once_and_away();
    let epoch = fixture.view.state().targets_changed;
    let own = LocalCopy { stamp: Stamp { epoch, version: 3 }, ..copy(3) };
    let read = Run::of(fixture.engine.read(fixture.object()))
        .on(Command::GetCopy, Answer::Copy(Some(own)))
        .on(Command::Open(own), Answer::Done);
    assert_eq!(read.result(), Ok(Some(own)));
}
