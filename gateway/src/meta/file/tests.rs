//! Tests that unusable files are refused with a clear error.

use forebay_core::state::ClusterState;
use openraft::testing::{blank_ent, log_id};

use super::*;
use crate::meta::{SnapshotMeta, Types};

fn entries(range: std::ops::Range<u64>) -> Vec<Entry> {
    range.map(|index| blank_ent::<Types>(1, 1, index)).collect()
}

fn snapshot(index: u64) -> SnapshotRecord {
    let mut state = ClusterState::default();
    state.version = index;
    let meta = SnapshotMeta { last_log_id: Some(log_id(1, 1, index)), ..Default::default() };
    SnapshotRecord { meta, state }
}

/// Changes the file directly.
fn tamper(path: &Path, change: impl FnOnce(&WriteTransaction)) {
    let db = Database::create(path).unwrap();
    let tx = db.begin_write().unwrap();
    change(&tx);
    tx.commit().unwrap();
}

fn refusal(path: &Path) -> Error {
    match MetaFile::open(path) {
        Ok(_) => panic!("the file was opened"),
        Err(e) => e,
    }
}

#[test]
fn other_formats_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    for format in [1, FORMAT_WITH_USERS + 1] {
        let path = dir.path().join(format!("{format}.redb"));
        drop(MetaFile::open(&path).unwrap());
        tamper(&path, |tx| {
            tx.open_table(ABOUT).unwrap().insert("format", format).unwrap();
        });
        let e = refusal(&path);
        assert_eq!(e.code, ErrorCode::Unsupported);
        assert!(e.message.contains(&format!("format {format}")) && e.hint.is_some(), "{e}");
    }
}

#[test]
fn a_gap_a_damaged_entry_and_a_damaged_snapshot_are_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let fresh = |name: &str| {
        let path = dir.path().join(name);
        let file = MetaFile::open(&path).unwrap();
        file.append(&entries(0..5)).unwrap();
        file.set_snapshot(&snapshot(1)).unwrap();
        file.purge(log_id(1, 1, 1)).unwrap();
        drop(file);
        drop(MetaFile::open(&path).unwrap());
        path
    };
    let gap = fresh("gap.redb");
    tamper(&gap, |tx| drop(tx.open_table(LOG).unwrap().remove(3).unwrap()));
    assert!(refusal(&gap).message.contains("entry 3 is missing"));

    let first = fresh("first.redb");
    tamper(&first, |tx| drop(tx.open_table(LOG).unwrap().remove(2).unwrap()));
    assert!(refusal(&first).message.contains("entry 2 is missing"));

    let bad = fresh("bad.redb");
    tamper(&bad, |tx| {
        tx.open_table(LOG).unwrap().insert(3, b"abcd{}".as_slice()).unwrap();
    });
    let e = refusal(&bad);
    assert!(e.message.contains("entry 3") && e.hint.is_some(), "{e}");

    let moved = fresh("moved.redb");
    tamper(&moved, |tx| {
        let record = encode(&entries(4..5)[0]).unwrap();
        tx.open_table(LOG).unwrap().insert(3, record.as_slice()).unwrap();
    });
    assert!(refusal(&moved).message.contains("entry 3 says that it is 4"));

    let snap = fresh("snapshot.redb");
    tamper(&snap, |tx| {
        let mut records = tx.open_table(RECORDS).unwrap();
        let mut record = records.get(SNAPSHOT).unwrap().unwrap().value().to_vec();
        *record.last_mut().unwrap() ^= 1;
        records.insert(SNAPSHOT, record.as_slice()).unwrap();
    });
    let e = refusal(&snap);
    assert!(e.message.contains("snapshot does not match its checksum"), "{e}");

    let garbage = dir.path().join("garbage.redb");
    std::fs::write(&garbage, vec![7u8; 8192]).unwrap();
    assert!(refusal(&garbage).message.contains("garbage.redb"));
}

#[test]
fn a_second_gateway_in_the_same_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("meta.redb");
    let _first = MetaFile::open(&path).unwrap();
    assert!(refusal(&path).hint.is_some());
}

#[test]
fn an_older_snapshot_never_replaces_a_newer_one() {
    let dir = tempfile::tempdir().unwrap();
    let file = MetaFile::open(&dir.path().join("meta.redb")).unwrap();
    for (kept, given) in [(7, 7), (7, 4), (9, 9)] {
        file.set_snapshot(&snapshot(given)).unwrap();
        assert_eq!(file.snapshot().unwrap().unwrap().state.version, kept);
    }
}
