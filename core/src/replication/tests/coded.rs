//! Objects of a bucket with erasure coding.

use super::*;
use crate::copies::SliceLook;
use crate::erasure::{Erasure, Slice};

/// The engines of an object of two data slices and one parity slice, in a quiescent cluster of five
/// targets. Objects of more than 10 bytes are coded.
struct Coded {
    view: Arc<FakeView>,
    object: Object,
    /// The holders by rank, and a target without any form.
    targets: Vec<NodeId>,
}

const SIZE: u64 = 100;

impl Coded {
    fn new() -> Self {
        let mut state = ClusterState::default();
        (0..5).for_each(|n| join(&mut state, n));
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let erasure = Some(Erasure { data: 2, parity: 1, limit: 10 });
        let info = BucketInfo { erasure, ..BucketInfo::requested(bucket.clone(), None) };
        apply(&mut state, state::Command::CreateBucket { info: info.into(), now_ns: 1 });
        let info = state.bucket(&bucket).unwrap().clone();
        let digest = placement::digest_in(&info.bucket, "o");
        let holders = placement::holders(&state, &info, digest);
        let mut targets: Vec<NodeId> = holders.iter().map(|node| node.id.clone()).collect();
        let other = state.targets().find(|node| !targets.contains(&node.id)).unwrap().id.clone();
        targets.push(other);
        let view = Arc::new(FakeView {
            state: Mutex::new(state.into()),
            now_s: AtomicU64::new(0),
            has_lost_objects: AtomicBool::new(false),
        });
        Self { view, object: Object::new(info, "o"), targets }
    }

    fn engine(&self, rank: usize) -> Replication {
        Replication::new(self.targets[rank].clone(), self.view.clone())
    }

    fn object(&self) -> Object {
        self.object.clone()
    }

    fn change(&self, command: state::Command) {
        let mut state = (*self.view.state()).clone();
        apply(&mut state, command);
        *self.view.state.locked() = state.into();
    }

    fn loses_objects(&self) {
        self.view.has_lost_objects.store(true, Ordering::SeqCst);
    }

    fn first_is_dead(&self) {
        let id = self.targets[0].clone();
        self.change(state::Command::SetAlive { id, alive: false, yields: false });
    }

    fn look(&self, rank: usize) -> Command {
        Command::Look { to: self.targets[rank].clone(), mode: LookMode::Final }
    }

    fn send(&self, rank: usize, copy: LocalCopy, written: bool) -> Command {
        let form = match rank {
            _ if copy.size <= 10 => Form::Whole,
            0 => Form::Whole,
            rank => Form::Slice(slice(rank as u8 - 1)),
        };
        Command::Send { to: self.targets[rank].clone(), copy, form, written }
    }

    fn drop_forms(&self, rank: usize, forms: ObsoleteForms, by: Option<usize>) -> Command {
        let by = by.map(|rank| self.targets[rank].clone());
        Command::DropForms { to: self.targets[rank].clone(), forms, by }
    }

    fn source(&self, rank: usize) -> SliceSource {
        SliceSource { target: self.targets[rank].clone(), slice: slice(rank as u8 - 1) }
    }

    /// A slice that the owner is writing.
    fn incoming(&self, number: u8, version: u64) -> IncomingCopy {
        let LocalCopy { stamp, size, .. } = whole(version);
        let (form, from) = (Form::Slice(slice(number)), Some(self.targets[0].clone()));
        IncomingCopy { stamp, form, size, from, written: true }
    }

    /// A write over version 1 by the target of this rank, up to its commit.
    fn committed_write(&self, rank: usize, size: u64) -> (Run<Result<LocalCopy>>, LocalCopy) {
        let stamp = whole(1).stamp.next(self.view.state().version);
        let written = LocalCopy { stamp, commit: 2, size, damaged: false };
        let engine = self.engine(rank);
        let write = Run::of(engine.write(self.object(), WriteOptions::default()))
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(Some(whole(1))))
            .on(Command::GetSlices, Answer::Slices(Vec::new()))
            .on(Command::GetTombstone, Answer::Tombstone(None))
            .on(Command::Prepare { replaced: Some(whole(1)), stamp }, Answer::Done)
            .on(Command::Commit { stamp }, Answer::Copy(Some(written)));
        (write, written)
    }

    /// A read at the owner that lost the whole, up to the looks at the other holders.
    fn read_after_loss(&self) -> Run<Result<Option<LocalCopy>>> {
        self.loses_objects();
        Run::of(self.engine(0).read(self.object()))
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetSlices, Answer::Slices(Vec::new()))
            .on(Command::GetTombstone, Answer::Tombstone(None))
    }

    /// [`Self::read_after_loss`] that finds and assembles two slices, up to the look at
    /// [`Self::witness`].
    fn read_that_assembles(&self) -> Run<Result<Option<LocalCopy>>> {
        let sources = vec![self.source(1), self.source(2)];
        self.read_after_loss()
            .on(self.look(1), slices(&[(0, 1)]))
            .on(self.look(2), slices(&[(1, 1)]))
            .on(self.look(3), silent())
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::Assemble { stamp: whole(1).stamp, sources }, Answer::Done)
            .on(Command::Lock, Answer::Done)
            .on(Command::GetCopy, Answer::Copy(None))
            .on(Command::GetTombstone, Answer::Tombstone(None))
    }

    /// The look at a holder of a slice by which a read sees that its object was not removed.
    fn witness(&self) -> Command {
        Command::Look { to: self.targets[1].clone(), mode: LookMode::Immediate }
    }
}

fn slice(number: u8) -> Slice {
    Slice { data: 2, parity: 1, number }
}

fn whole(version: u64) -> LocalCopy {
    LocalCopy { size: SIZE, ..copy(version) }
}

fn here(number: u8, version: u64) -> LocalSlice {
    LocalSlice { slice: slice(number), stamp: copy(version).stamp, commit: version, size: SIZE }
}

/// The look at a target with these slices, by number and version.
fn slices(of: &[(u8, u64)]) -> Answer {
    let look = |(number, version): &(u8, u64)| SliceLook {
        slice: slice(*number),
        stamp: copy(*version).stamp,
    };
    Answer::Look(CopyLook { slices: of.iter().map(look).collect(), ..CopyLook::default() })
}

/// Adds the answers of a target that looks at its own forms.
fn with_forms<T>(run: Run<T>, copy: Option<LocalCopy>, slices: Vec<LocalSlice>) -> Run<T> {
    run.on(Command::GetCopy, Answer::Copy(copy))
        .on(Command::GetSlices, Answer::Slices(slices))
        .on(Command::GetTombstone, Answer::Tombstone(None))
}

#[test]
fn a_write_is_acknowledged_when_all_holders_have_their_slices_and_no_older_forms() {
    let coded = Coded::new();
    let (mut write, written) = coded.committed_write(0, SIZE);
    for rank in 1..4 {
        write = write.on(coded.send(rank, written, true), Answer::Done);
    }
    let older = ObsoleteForms::Before(written.stamp);
    for rank in 1..4 {
        write = write.on(coded.drop_forms(rank, older, Some(0)), Answer::Done);
    }
    let write = write.on(Command::GetSlices, Answer::Slices(Vec::new()));
    assert_eq!(write.result(), Ok(written));
}

#[test]
fn no_older_form_is_dropped_before_all_holders_have_the_new_ones() {
    let coded = Coded::new();
    let (write, written) = coded.committed_write(0, SIZE);
    let write = write
        .on(coded.send(1, written, true), Answer::Done)
        .on(coded.send(2, written, true), Answer::Done);
    assert_eq!(write.open.len(), 1);
    assert_eq!(write.open[0].command, coded.send(3, written, true));
}

#[test]
fn a_small_object_is_copied_to_the_metadata_holders() {
    let coded = Coded::new();
    let (write, written) = coded.committed_write(0, 10);
    assert_eq!(write.open.len(), 1);
    let mut write = write.on(coded.send(1, written, true), Answer::Done);
    let older = ObsoleteForms::Before(written.stamp);
    for rank in 1..4 {
        write = write.on(coded.drop_forms(rank, older, Some(0)), Answer::Done);
    }
    let write = write.on(Command::GetSlices, Answer::Slices(Vec::new()));
    assert_eq!(write.result(), Ok(written));
}

#[test]
fn an_owner_that_stands_in_for_the_first_holder_keeps_its_own_slice() {
    let coded = Coded::new();
    coded.first_is_dead();
    let (write, written) = coded.committed_write(1, SIZE);
    let keep = Command::KeepSlice { copy: written, slice: slice(0) };
    assert!(write.open.iter().any(|open| open.command == keep));
}

#[test]
fn metadata_are_changed_of_a_whole_that_is_fetched_again_if_it_was_dropped_meanwhile() {
    let coded = Coded::new();
    coded.first_is_dead();
    let update = Run::of(coded.engine(1).update(coded.object()))
        .on(Command::GetCopy, Answer::Copy(Some(whole(1))))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetSlices, Answer::Slices(vec![here(0, 1)]))
        .on(Command::GetCopy, Answer::Copy(None))
        .on(Command::GetCopy, Answer::Copy(None))
        .on(Command::Lock, Answer::Done);
    let update = with_forms(update, None, vec![here(0, 1)]);
    assert!(update.open.iter().any(|open| open.command == coded.look(2)));
    assert_eq!(update.unlocks, 1);
}

#[test]
fn a_slice_is_committed_beside_that_of_the_older_version() {
    let coded = Coded::new();
    let (incoming, older) = (coded.incoming(0, 2), vec![here(0, 1)]);
    let receipt = Run::of(coded.engine(1).receive(coded.object(), incoming));
    let receipt = with_forms(receipt, None, older.clone())
        .on(Command::Receive, Answer::Done)
        .on(Command::Lock, Answer::Done);
    let LocalCopy { stamp, size, .. } = whole(2);
    let commit = Command::CommitSlice { slice: slice(0), stamp, size };
    let receipt = with_forms(receipt, None, older).on(commit, Answer::Done);
    assert_eq!(receipt.result(), Ok(ReceiveOutcome::CommittedSlice));
}

#[test]
fn a_slice_of_another_rank_is_not_accepted() {
    let coded = Coded::new();
    let receipt = Run::of(coded.engine(1).receive(coded.object(), coded.incoming(1, 2)));
    assert_eq!(receipt.result().unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn a_whole_object_is_not_accepted_by_a_target_that_cannot_own_it() {
    let coded = Coded::new();
    let incoming = IncomingCopy { form: Form::Whole, ..coded.incoming(0, 2) };
    let receipt = Run::of(coded.engine(3).receive(coded.object(), incoming));
    assert_eq!(receipt.result().unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn a_slice_that_the_target_has_already_is_not_committed() {
    let coded = Coded::new();
    let receipt = Run::of(coded.engine(1).receive(coded.object(), coded.incoming(0, 2)));
    let receipt = with_forms(receipt, None, vec![here(0, 2)]);
    assert_eq!(receipt.result(), Ok(ReceiveOutcome::Known));
}

#[test]
fn a_read_at_an_owner_without_the_whole_assembles_it_from_enough_slices() {
    let coded = Coded::new();
    let stamp = whole(1).stamp;
    let read = coded
        .read_that_assembles()
        .on(coded.witness(), slices(&[(0, 1)]))
        .on(Command::CommitAssembled { stamp }, Answer::Copy(Some(whole(1))))
        .on(Command::Open(whole(1)), Answer::Done);
    assert_eq!(read.result(), Ok(Some(whole(1))));
}

#[test]
fn an_object_that_is_removed_while_it_is_assembled_is_not_committed() {
    let coded = Coded::new();
    let read = coded.read_that_assembles().on(coded.witness(), slices(&[]));
    assert_eq!(read.result().unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn a_read_passes_over_a_write_that_was_never_acknowledged_and_drops_its_slices() {
    let coded = Coded::new();
    let unacknowledged = ObsoleteForms::Unacknowledged(whole(2).stamp);
    let read = coded
        .read_after_loss()
        .on(coded.look(1), slices(&[(0, 1), (0, 2)]))
        .on(coded.look(2), slices(&[(1, 1)]))
        .on(coded.look(3), slices(&[(2, 1)]))
        .on(Command::GetSlices, Answer::Slices(Vec::new()))
        .on(coded.drop_forms(1, unacknowledged, Some(0)), Answer::Done)
        .on(Command::GetCopy, Answer::Copy(None));
    let sources = vec![coded.source(1), coded.source(2), coded.source(3)];
    let assemble = Command::Assemble { stamp: whole(1).stamp, sources };
    assert_eq!(read.open[0].command, assemble);
}

#[test]
fn a_read_does_not_return_an_older_version_while_the_newer_one_may_be_acknowledged() {
    let coded = Coded::new();
    let read = coded
        .read_after_loss()
        .on(coded.look(1), slices(&[(0, 1), (0, 2)]))
        .on(coded.look(2), silent())
        .on(coded.look(3), silent());
    let failed = read.result().unwrap_err();
    assert_eq!(failed.code, ErrorCode::Unavailable);
    assert!(failed.message.contains("1 of 2 slices"), "{failed}");
}

#[test]
fn a_removal_removes_the_whole_and_the_slices() {
    let coded = Coded::new();
    let stamp = whole(1).stamp.next(coded.view.state().version);
    let owner = Some(coded.targets[0].clone());
    let mut removal = Run::of(coded.engine(0).remove(coded.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(whole(1))))
        .on(Command::GetSlices, Answer::Slices(vec![here(0, 1)]))
        .on(Command::GetTombstone, Answer::Tombstone(None))
        .on(Command::RemoveCopy, Answer::Copy(Some(whole(1))))
        .on(Command::GetSlices, Answer::Slices(vec![here(0, 1)]))
        .on(Command::RemoveSlices { slices: vec![here(0, 1)] }, Answer::Done);
    for rank in 1..4 {
        let removed = Removal { stamp, by: owner.clone(), written: false };
        let request = Command::RemoveOlder { to: coded.targets[rank].clone(), removal: removed };
        removal = removal.on(request, Answer::Done);
    }
    assert_eq!(removal.result(), Ok(true));
}

#[test]
fn the_forms_that_a_newer_version_superseded_are_dropped_without_a_tombstone() {
    let coded = Coded::new();
    let (forms, by) = (ObsoleteForms::Before(whole(2).stamp), Some(coded.targets[0].clone()));
    let dropping = Run::of(coded.engine(1).drop_forms(coded.object(), forms, by))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(whole(1))))
        .on(Command::RemoveCopy, Answer::Copy(Some(whole(1))))
        .on(Command::GetSlices, Answer::Slices(vec![here(0, 1), here(0, 2)]))
        .on(Command::RemoveSlices { slices: vec![here(0, 1)] }, Answer::Done);
    assert_eq!(dropping.result(), Ok(()));
}

#[test]
fn a_request_to_drop_forms_by_a_target_that_is_not_the_owner_is_rejected() {
    let coded = Coded::new();
    let (forms, by) = (ObsoleteForms::Before(whole(2).stamp), Some(coded.targets[1].clone()));
    let dropping = Run::of(coded.engine(2).drop_forms(coded.object(), forms, by))
        .on(Command::Lock, Answer::Done);
    assert!(dropping.result().is_err());
}

#[test]
fn a_misplaced_slice_is_dropped_when_all_forms_are_in_place() {
    for all in [true, false] {
        let coded = Coded::new();
        let stamp = whole(1).stamp;
        let ensured = Ensured { stamp: Some(stamp), all, removed: None };
        let moving = Run::of(coded.engine(4).relocate_slices(coded.object()))
            .on(Command::GetSlices, Answer::Slices(vec![here(0, 1)]))
            .on(Command::Pace { bytes: 16 << 10 }, Answer::Done)
            .on(Command::Ensure { to: coded.targets[0].clone(), stamp }, Answer::Ensured(ensured));
        if !all {
            let moving = moving.on(Command::GetSlices, Answer::Slices(vec![here(0, 1)]));
            assert_eq!(moving.result().unwrap_err().code, ErrorCode::Unavailable);
            continue;
        }
        let moving = moving
            .on(Command::Lock, Answer::Done)
            .on(Command::RemoveSlices { slices: vec![here(0, 1)] }, Answer::Done);
        assert_eq!(moving.result(), Ok(Some(SIZE / 2)));
    }
}

#[test]
fn the_owner_sends_a_holder_the_slice_that_it_lacks() {
    let coded = Coded::new();
    let copy = whole(1);
    let ensuring = Run::of(coded.engine(0).ensure(coded.object(), copy.stamp))
        .on(Command::GetCopy, Answer::Copy(Some(copy)))
        .on(coded.look(1), slices(&[(0, 1)]))
        .on(coded.look(2), slices(&[]))
        .on(coded.look(3), slices(&[(2, 1)]))
        .on(Command::Lock, Answer::Done);
    let ensuring = with_forms(ensuring, Some(copy), Vec::new())
        .on(Command::Pace { bytes: SIZE / 2 + (16 << 10) }, Answer::Done)
        .on(coded.send(2, copy, false), Answer::Done);
    let ensured = Ensured { stamp: Some(copy.stamp), all: true, removed: None };
    assert_eq!(ensuring.result(), Ok(ensured));
}

#[test]
fn a_misplaced_whole_is_dropped_after_the_holders_have_their_forms() {
    let coded = Coded::new();
    let copy = whole(1);
    let moving = Run::of(coded.engine(4).relocate(coded.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy)))
        .on(coded.look(0), found(None))
        .on(coded.look(1), slices(&[(0, 1)]))
        .on(coded.look(2), slices(&[(1, 1)]))
        .on(coded.look(3), slices(&[(2, 1)]))
        .on(Command::Pace { bytes: SIZE + (16 << 10) }, Answer::Done)
        .on(coded.send(0, copy, false), Answer::Done)
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(copy)))
        .on(Command::RemoveCopy, Answer::Copy(Some(copy)));
    assert_eq!(moving.result(), Ok(Some(SIZE)));
}

#[test]
fn a_whole_that_a_newer_version_superseded_is_dropped() {
    let coded = Coded::new();
    let (old, newer) = (whole(1), whole(2).stamp);
    let ensured = Ensured { stamp: Some(newer), all: true, removed: None };
    let moving = Run::of(coded.engine(4).relocate(coded.object()))
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(old)))
        .on(coded.look(0), found(Some(newer)))
        .on(coded.look(1), slices(&[(0, 2)]))
        .on(coded.look(2), slices(&[(1, 2)]))
        .on(coded.look(3), slices(&[(2, 2)]))
        .on(
            Command::Ensure { to: coded.targets[0].clone(), stamp: newer },
            Answer::Ensured(ensured),
        )
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(old)))
        .on(Command::RemoveCopy, Answer::Copy(Some(old)));
    assert_eq!(moving.result(), Ok(Some(SIZE)));
}

#[test]
fn a_slice_that_was_lost_with_a_disk_is_made_again_by_the_owner() {
    let coded = Coded::new();
    let (stamp, ensured) = (Stamp::default(), Ensured { all: true, ..Ensured::default() });
    let restoring = Run::of(coded.engine(2).restore(coded.object()))
        .on(Command::GetCopy, Answer::Copy(None))
        .on(Command::GetSlices, Answer::Slices(Vec::new()))
        .on(Command::Ensure { to: coded.targets[0].clone(), stamp }, Answer::Ensured(ensured))
        .on(Command::GetCopy, Answer::Copy(None));
    assert_eq!(restoring.result(), Ok(None));
}

#[test]
fn a_damaged_slice_is_dropped_only_while_the_owner_has_the_whole() {
    for there in [Some(whole(1).stamp), None] {
        let coded = Coded::new();
        let (owner, damaged) = (coded.targets[0].clone(), here(1, 1));
        let repair = Run::of(coded.engine(2).repair_slice(coded.object(), damaged))
            .on(coded.look(0), found(there));
        if there.is_none() {
            assert_eq!(repair.result(), Ok(false));
            continue;
        }
        let ensured = Ensured { stamp: there, all: true, removed: None };
        let ensure = Command::Ensure { to: owner, stamp: damaged.stamp };
        let repair = repair
            .on(Command::Lock, Answer::Done)
            .on(Command::RemoveSlices { slices: vec![damaged] }, Answer::Done)
            .on(ensure, Answer::Ensured(ensured));
        assert_eq!(repair.result(), Ok(true));
    }
}

#[test]
fn a_damaged_whole_is_assembled_from_slices_of_the_same_version() {
    let coded = Coded::new();
    let damaged = LocalCopy { damaged: true, ..whole(1) };
    let (stamp, repaired) = (damaged.stamp, LocalCopy { commit: 2, ..whole(1) });
    let looks = |run: Run<_>| {
        run.on(coded.look(1), slices(&[(0, 1)]))
            .on(coded.look(2), slices(&[(1, 1)]))
            .on(coded.look(3), slices(&[]))
    };
    let repair = Run::of(coded.engine(0).repair(coded.object(), damaged))
        .on(Command::GetCopy, Answer::Copy(Some(damaged)));
    let repair = with_forms(looks(repair), Some(damaged), Vec::new());
    let sources = vec![coded.source(1), coded.source(2)];
    let witness = Command::Look { to: coded.targets[1].clone(), mode: LookMode::Immediate };
    let repair = looks(repair)
        .on(Command::GetCopy, Answer::Copy(Some(damaged)))
        .on(Command::Assemble { stamp, sources }, Answer::Done)
        .on(Command::Lock, Answer::Done)
        .on(Command::GetCopy, Answer::Copy(Some(damaged)))
        .on(Command::GetTombstone, Answer::Tombstone(None))
        .on(witness, slices(&[(0, 1)]))
        .on(Command::CommitAssembled { stamp }, Answer::Copy(Some(repaired)));
    assert_eq!(repair.result(), Ok(true));
}
