//! A disk that comes back does not bring with it what was removed meanwhile.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::erasure::Slice;
use forebay_core::history;

use crate::disks_tests::{data, fill, name, on, soon, tended, two};
use crate::faulty::{FaultyDisk, Lasting};
use crate::tests::{contents, owned};
use crate::{RecordMeta, Store};

/// Writes a tombstone of an object of bucket 1.
async fn write_tombstone(store: &Store, name: &str, version: u64) {
    let meta = RecordMeta { version: version.to_string(), ..owned() };
    store.put(history::tombstones(1), name, Bytes::new(), meta).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_comes_back_without_what_has_a_later_tombstone() {
    let dir = tempfile::tempdir().unwrap();
    let (io, disks) = (FaultyDisk::new(), two(dir.path()));
    let t = tended(&disks, Arc::new(io.clone())).await;
    fill(&t.store).await;
    let slice = Slice { data: 2, parity: 1, number: 1 }.id(1, 0);
    for n in 0..24 {
        t.store.put(slice, &name(n), data(n, 1), owned()).await.unwrap();
    }
    let lost = on(&t.store, 0).await;
    let (slices, _) = t.store.list(slice, "", None, None, 100).await.unwrap();
    let sliced = slices.into_iter().find(|slice| slice.disk == 0).unwrap().name;
    let [removed, newer] = [lost[0], lost[1]];
    let newer_meta = RecordMeta { version: "9".into(), ..owned() };
    t.store.put(1, &name(newer), data(newer, 3), newer_meta).await.unwrap();
    io.set(&disks[0].path, Some(Lasting::Fails(libc::EIO)));
    soon("noticed", || t.store.disks_away().len() == 1).await;
    for name in [&name(removed), &name(newer), &sliced] {
        write_tombstone(&t.store, name, 5).await;
    }
    io.set(&disks[0].path, None);
    soon("back in use", || t.store.disks_away().is_empty()).await;
    assert!(contents(&t.store, 1, &name(removed)).await.is_none());
    assert_eq!(contents(&t.store, 1, &name(newer)).await.unwrap(), data(newer, 3));
    assert!(contents(&t.store, slice, &sliced).await.is_none());
    let kept = (0..24).rev().find(|n| lost.contains(n) && name(*n) != sliced).unwrap();
    assert_eq!(contents(&t.store, 1, &name(kept)).await.unwrap(), data(kept, 1));
}

#[tokio::test]
async fn a_store_that_opens_drops_what_has_a_later_tombstone_on_any_disk() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let open = async || Store::open(disks.to_vec(), Arc::new(FaultyDisk::new())).await.unwrap();
    let store = open().await;
    fill(&store).await;
    for n in 0..12 {
        // Of older versions: about names in the history.
        let custom = BTreeMap::from([(history::OLDER.to_owned(), "1".to_owned())]);
        let meta = RecordMeta { version: "5".into(), custom, ..owned() };
        store.put(history::tombstones(1), &name(n), Bytes::new(), meta).await.unwrap();
        store.put(history::id(1), &name(n), data(n, 1), owned()).await.unwrap();
    }
    for n in 12..24 {
        write_tombstone(&store, &name(n), 5).await;
    }
    drop(store);
    let store = open().await;
    for n in 0..24 {
        assert_eq!(contents(&store, 1, &name(n)).await.is_some(), n < 12, "{n}");
        assert!(contents(&store, history::id(1), &name(n)).await.is_none(), "{n}");
    }
}
