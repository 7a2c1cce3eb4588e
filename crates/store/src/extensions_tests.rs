//! Extensions that this version does not know stay with their object, and the payload of an object
//! with a required one is not served.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use forebay_core::size::ByteRange;

use super::attach_tests::no_lock;
use super::disks_tests::two;
use super::tests::{FILE_OBJECT_BYTES, cached, contents, open, owned, payload, rebuilt};
use super::*;

const REQUIRED: u64 = 1;
const OPTIONAL: u64 = 300;

/// Puts objects of both classes into the log and into files.
async fn fill(store: &Store, ids: &[u64]) -> Vec<Record> {
    let mut records = Vec::new();
    for (class, meta) in [("cached", cached()), ("owned", owned())] {
        for size in [1000, FILE_OBJECT_BYTES] {
            let meta = RecordMeta { extensions: Extensions::for_test(ids), ..meta.clone() };
            let name = format!("{class} {size}");
            records.push(store.put(1, &name, payload(size, 1), meta).await.unwrap());
        }
    }
    records
}

/// Checks that an object is there and its bytes are sound, but nothing reads or appends to it.
async fn check_refused(store: &Store, record: &Record) {
    let name = record.name.as_str();
    let range = ByteRange { start: 1, end: 9 };
    let refusals = [
        store.open_object(1, name).await.err(),
        store.read_small(1, name, 1 << 20).await.err(),
        store.reader(record).await.err(),
        store.read_part(record, range).await.err(),
        store.append(record, Bytes::from("more"), owned()).await.err(),
    ];
    for (call, e) in refusals.into_iter().enumerate() {
        let e = e.unwrap();
        assert_eq!(e.code, ErrorCode::Unsupported, "call {call}: {e}");
        assert!(e.message.contains(name) && e.message.contains("extension 1,"), "{e}");
        assert!(e.hint.is_some());
    }
    assert!(store.known_now(1, name).is_err());
    assert_eq!(store.read_now(record, None), None);
    let located = store.locate(1, name).unwrap().unwrap();
    assert_eq!(store.payloads_now(&[(&located, name)]), [None]);

    assert_eq!(store.get(1, name).await.unwrap().as_ref(), Some(record));
    let stored = store.stored_reader(record).await.unwrap();
    stored.check(ByteRange::whole(record.size)).await.unwrap();
}

#[tokio::test]
async fn an_object_with_an_unknown_required_extension_is_kept_and_not_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let records = fill(&store, &[REQUIRED, OPTIONAL]).await;
    for record in &records {
        check_refused(&store, record).await;
    }
    drop(store);
    for rebuild_index in [false, true] {
        let opened = match rebuild_index {
            true => rebuilt(dir.path()).await,
            false => open(dir.path()).await,
        };
        let store = opened.unwrap();
        assert_eq!(store.list(1, "", None, None, 10).await.unwrap(), (records.clone(), false));
        for record in &records {
            check_refused(&store, record).await;
        }
    }
}

#[tokio::test]
async fn an_unknown_optional_extension_is_kept_and_its_object_served() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    for record in fill(&store, &[OPTIONAL]).await {
        let (name, data) = (record.name.as_str(), payload(record.size as usize, 1));
        assert_eq!(contents(&store, 1, name).await.unwrap(), data);
        if let Ok((found, bytes)) = store.known_now(1, name) {
            assert_eq!((&found, bytes), (&record, data));
        }
        assert_eq!(store.get(1, name).await.unwrap(), Some(record));
    }
}

#[tokio::test]
async fn a_change_of_metadata_and_compaction_keep_extensions() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let records = fill(&store, &[REQUIRED, OPTIONAL]).await;
    let mut changed = Vec::new();
    for record in &records {
        let change = |m: &mut RecordMeta| drop(m.custom.insert("k".into(), "v".into()));
        changed.push(store.update(record, change).await.unwrap());
    }
    store.put(1, "removed", payload(1000, 2), owned()).await.unwrap();
    store.remove(1, "removed").await.unwrap();
    let volume = store.volumes()[0].clone();
    volume.shared().log.seal();
    blocking(move || volume.compact_all()).await.unwrap();
    drop(store);
    let store = rebuilt(dir.path()).await.unwrap();
    for before in &changed {
        let record = store.get(1, &before.name).await.unwrap().unwrap();
        assert_ne!(record.spot(), before.spot(), "it was not copied");
        assert_eq!(record.meta, before.meta);
        assert_eq!(record.meta.extensions, Extensions::for_test(&[REQUIRED, OPTIONAL]));
        check_refused(&store, &record).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_to_another_disk_keeps_extensions() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let store = Store::open(vec![disks[0].clone()], Arc::new(RealDisk)).await.unwrap();
    let records = fill(&store, &[REQUIRED, OPTIONAL]).await;
    drop(store);
    let store = Store::open(disks.to_vec(), Arc::new(RealDisk)).await.unwrap();
    let volume = store.begin_leaving(&disks[0].path).unwrap();
    store.empty(&volume, &no_lock()).await.unwrap();
    for before in &records {
        let record = store.get(1, &before.name).await.unwrap().unwrap();
        assert_eq!((record.disk, &record.meta), (1, &before.meta));
        check_refused(&store, &record).await;
    }
}
