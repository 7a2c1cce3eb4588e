//! Tests versions with gaps, refusals, and snapshots that move from one machine to another.

use forebay_core::bucket::BucketInfo;
use forebay_core::state::Command;
use forebay_core::{Bucket, ErrorCode, Provider};
use openraft::testing::{blank_ent, log_id, membership_ent};

use super::*;

fn machine(dir: &tempfile::TempDir, name: &str) -> StateMachine {
    let file = MetaFile::open(&dir.path().join(name)).unwrap();
    StateMachine::open(file, Maps::default()).unwrap()
}

fn command(index: u64, command: Command) -> Entry {
    Entry { log_id: log_id(1, 1, index), payload: EntryPayload::Normal(command) }
}

fn create(index: u64, name: &str) -> Entry {
    let bucket = Bucket::new(Provider::Ais, name).unwrap();
    let info = Box::new(BucketInfo::requested(bucket, None));
    command(index, Command::CreateBucket { info, now_ns: 9 })
}

fn init(index: u64) -> Entry {
    command(index, Command::Init { cluster_id: "c".into(), now_ns: 1 })
}

fn log() -> Vec<Entry> {
    vec![
        membership_ent::<Types>(0, 0, 0, vec![[1, 2, 3].into()]),
        blank_ent::<Types>(1, 1, 1),
        init(2),
        create(3, "a"),
        create(4, "a"),
        blank_ent::<Types>(2, 2, 5),
    ]
}

#[tokio::test]
async fn the_version_is_the_index_of_the_last_command() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = machine(&dir, "a.redb");
    machine.apply(log().drain(..2)).await.unwrap();
    assert_eq!((machine.maps.version(), machine.state.version), (0, 0));
    let verdicts = machine.apply(log().drain(2..)).await.unwrap();
    let codes: Vec<_> = verdicts.into_iter().map(|v| v.0.map_err(|e| e.code)).collect();
    assert_eq!(codes, [Ok(()), Ok(()), Err(ErrorCode::BucketExists), Ok(())]);
    // `maps` shows the applied state; the leader's blank entry made no new version.
    assert_eq!(machine.maps.version(), 4);
    assert_eq!(*machine.maps.load(), machine.state);
    machine.apply([create(8, "b")]).await.unwrap();
    assert_eq!(machine.maps.version(), 8);
    let (applied, members) = machine.applied_state().await.unwrap();
    assert_eq!(applied, Some(log_id(1, 1, 8)));
    assert_eq!(members.voter_ids().collect::<Vec<_>>(), [1, 2, 3]);
}

#[tokio::test]
async fn a_snapshot_makes_another_machine_the_same_and_survives_a_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let mut from = machine(&dir, "from.redb");
    from.apply(log()).await.unwrap();
    let built = from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    let kept = from.get_current_snapshot().await.unwrap().unwrap();
    assert_eq!(
        (kept.meta, kept.snapshot.get_ref()),
        (built.meta.clone(), built.snapshot.get_ref())
    );

    let mut to = machine(&dir, "to.redb");
    to.install_snapshot(&built.meta, built.snapshot).await.unwrap();
    assert_eq!((&to.state, to.applied), (&from.state, from.applied));
    assert_eq!((to.maps.version(), &to.membership), (4, &from.membership));
    // Both assign the same id to the next bucket.
    for machine in [&mut from, &mut to] {
        machine.apply([create(6, "b")]).await.unwrap();
    }
    assert_eq!(to.state, from.state);

    drop(to);
    let again = machine(&dir, "to.redb");
    assert_eq!((again.state.version, again.maps.version()), (4, 4));
    assert_eq!(again.applied, Some(log_id(2, 2, 5)));
}

#[tokio::test]
async fn a_damaged_snapshot_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let mut from = machine(&dir, "from.redb");
    from.apply(log()).await.unwrap();
    let mut built = from.get_snapshot_builder().await.build_snapshot().await.unwrap();
    built.snapshot.get_mut()[20] ^= 1;
    let mut to = machine(&dir, "to.redb");
    let e = to.install_snapshot(&built.meta, built.snapshot).await.unwrap_err();
    assert!(e.to_string().contains("checksum"), "{e}");
    assert_eq!((to.state.version, to.applied), (0, None));
    assert!(to.get_current_snapshot().await.unwrap().is_none());
}
