//! Tests of the log: durability, replay, compaction, refusals, damage.

use forebay_core::bucket::BucketInfo;
use forebay_core::state::Role;
use forebay_core::{Bucket, ErrorCode, NodeId, Provider};
use proptest::prelude::*;
use redb::ReadableDatabase;

use super::*;

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn create(name: &str) -> Command {
    let bucket = Bucket::new(Provider::Ais, name).unwrap();
    Command::CreateBucket { info: Box::new(BucketInfo::requested(bucket, None)), now_ns: 9 }
}

fn id(n: u8) -> NodeId {
    NodeId::new(&format!("target-{n:02}")).unwrap()
}

fn command() -> impl Strategy<Value = Command> {
    let bucket = |n: u8| Bucket::new(Provider::Ais, &format!("b{n}")).unwrap();
    prop_oneof![
        (0u8..4).prop_map(|n| create(&format!("b{n}"))),
        (0u8..4).prop_map(move |n| Command::DestroyBucket { bucket: bucket(n) }),
        (0u8..3, 0u16..3).prop_map(|(n, port)| Command::Join {
            id: id(n),
            role: Role::Target,
            url: format!("http://127.0.0.1:{port}"),
            weight: 1,
            zone: String::new(),
        }),
        (0u8..3, any::<bool>()).prop_map(|(n, alive)| Command::SetAlive { id: id(n), alive }),
        (0u8..3).prop_map(|n| Command::Remove { id: id(n) }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn replay_makes_the_state_that_was_live(
        commands in prop::collection::vec(command(), 0..40),
        every in 1u64..12,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meta.redb");
        let live = {
            let meta = RedbMeta::open_with(&path, Maps::default(), every).unwrap();
            for command in commands {
                let before = meta.state();
                match block_on(meta.propose(command)) {
                    Ok(version) => prop_assert_eq!(version, before.version + 1),
                    Err(_) => prop_assert_eq!(meta.state(), before),
                }
            }
            meta.state()
        };
        let replayed = RedbMeta::open_with(&path, Maps::default(), every).unwrap();
        prop_assert_eq!(replayed.state(), live);
    }
}

#[test]
fn commands_proposed_at_once_all_get_their_own_version() {
    let dir = tempfile::tempdir().unwrap();
    let meta = RedbMeta::open(&dir.path().join("meta.redb"), Maps::default()).unwrap();
    let names: Vec<String> = (0..300).map(|i| format!("b{i}")).collect();
    let mut versions = block_on(futures::future::try_join_all(
        names.iter().map(|name| meta.propose(create(name))),
    ))
    .unwrap();
    versions.sort_unstable();
    assert_eq!(versions, (2..302).collect::<Vec<u64>>());
    assert_eq!(meta.state().buckets.len(), 300);
}

#[test]
fn a_refused_command_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let meta = RedbMeta::open(&path, Maps::default()).unwrap();
    assert_eq!(block_on(meta.propose(create("b"))).unwrap(), 2);
    let e = block_on(meta.propose(create("b"))).unwrap_err();
    assert_eq!(e.code, ErrorCode::BucketExists);
    assert_eq!(meta.state().version, 2);
    drop(meta);
    assert_eq!(RedbMeta::open(&path, Maps::default()).unwrap().state().version, 2);
}

#[test]
fn the_cluster_keeps_its_id_and_a_new_one_gets_another() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| {
        let meta = RedbMeta::open(&dir.path().join(name), Maps::default()).unwrap();
        meta.state().cluster_id.clone()
    };
    let first = open("a.redb");
    assert!(first.len() >= 9);
    assert_eq!(open("a.redb"), first);
    assert_ne!(open("b.redb"), first);
}

/// Changes the file behind the log's back.
fn tamper(path: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let db = Database::create(path).unwrap();
    let tx = db.begin_write().unwrap();
    change(&tx);
    tx.commit().unwrap();
}

fn refusal(path: &Path) -> Error {
    match RedbMeta::open(path, Maps::default()) {
        Ok(_) => panic!("the log was opened"),
        Err(e) => e,
    }
}

#[test]
fn a_newer_format_a_gap_and_a_damaged_entry_are_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = |name: &str| {
        let path = dir.path().join(name);
        let meta = RedbMeta::open(&path, Maps::default()).unwrap();
        for name in ["a", "b", "c"] {
            block_on(meta.propose(create(name))).unwrap();
        }
        path
    };
    let newer = fresh("newer.redb");
    tamper(&newer, |tx| {
        tx.open_table(ABOUT).unwrap().insert("format", FORMAT + 1).unwrap();
    });
    assert!(refusal(&newer).message.contains("format 2"));

    let gap = fresh("gap.redb");
    tamper(&gap, |tx| {
        tx.open_table(LOG).unwrap().remove(2).unwrap();
    });
    assert!(refusal(&gap).message.contains("entry 2 is missing"));

    let bad = fresh("bad.redb");
    tamper(&bad, |tx| {
        tx.open_table(LOG).unwrap().insert(3, b"abcd{}".as_slice()).unwrap();
    });
    let e = refusal(&bad);
    assert!(e.message.contains("entry 3") && e.hint.is_some(), "{e}");

    let garbage = dir.path().join("garbage.redb");
    std::fs::write(&garbage, vec![7u8; 8192]).unwrap();
    assert!(refusal(&garbage).message.contains("garbage.redb"));
}

#[test]
fn a_second_gateway_in_the_same_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let _first = RedbMeta::open(&path, Maps::default()).unwrap();
    assert!(refusal(&path).hint.is_some());
}

#[test]
fn compaction_keeps_the_log_short() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let meta = RedbMeta::open_with(&path, Maps::default(), 10).unwrap();
    for i in 0..35 {
        block_on(meta.propose(create(&format!("b{i}")))).unwrap();
    }
    drop(meta);
    let db = Database::create(&path).unwrap();
    let tx = db.begin_read().unwrap();
    let entries = tx.open_table(LOG).unwrap().iter().unwrap().count();
    assert!(entries < 10, "{entries}");
    assert!(load(&db).unwrap().0.buckets.len() == 35);
}
