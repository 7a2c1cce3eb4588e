//! Guarantees of sidecars: they belong to one commit, are complete and accounted for, and are
//! removed with it.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::tests::{cached, files, open, owned};
use super::*;

fn sidecars(disk: &Path) -> Vec<PathBuf> {
    files(&disk.join("companions"))
}

async fn put(store: &Store, name: &str, meta: RecordMeta) -> Record {
    store.put(1, name, Bytes::from_static(b"payload"), meta).await.unwrap()
}

async fn keep(store: &Store, record: &Record, bytes: &[u8]) -> bool {
    store.keep_sidecar(record, bytes.to_vec()).await.unwrap()
}

#[tokio::test]
async fn a_sidecar_is_kept_replaced_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let record = put(&store, "a", owned()).await;
    let without = store.usage();
    assert_eq!(store.sidecar(&record).await.unwrap(), None);
    for (size, pages) in [(10_000, 3), (5000, 2), (0, 1)] {
        let payload = vec![size as u8; size];
        assert!(keep(&store, &record, &payload).await);
        assert_eq!(store.sidecar(&record).await.unwrap(), Some(payload));
        let stored = without.stored + pages * 4096;
        assert_eq!(store.usage(), Usage { stored, ..without });
    }
    assert_eq!(sidecars(dir.path()).len(), 1);
    assert!(files(&dir.path().join("work")).is_empty());
}

#[tokio::test]
async fn a_sidecar_survives_restarts_with_and_without_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let record = put(&store, "a", owned()).await;
    assert!(keep(&store, &record, b"of a").await);
    let usage = store.usage();
    drop(store);
    for rebuild_index in [false, true] {
        let settings =
            DiskSettings { rebuild_index, ..DiskSettings::new(dir.path(), Some(1 << 30)) };
        let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
        assert_eq!(store.usage(), usage);
        assert_eq!(store.sidecar(&record).await.unwrap().unwrap(), b"of a");
    }
}

#[tokio::test]
async fn no_sidecar_outlives_its_commit() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let empty = store.usage();
    let (a, b) = (put(&store, "a", owned()).await, put(&store, "b", cached()).await);
    let c = put(&store, "c", owned()).await;
    let d = store.put(1, "d", vec![4; 150_000].into(), owned()).await.unwrap();
    for record in [&a, &b, &c, &d] {
        assert!(keep(&store, record, b"x").await);
    }
    let newer = put(&store, "a", owned()).await;
    assert_eq!(store.sidecar(&newer).await.unwrap(), None);
    store.discard(&b).await.unwrap();
    store.remove(1, "c").await.unwrap();
    // As if another process removed the file.
    fs::remove_file(files(&dir.path().join("objects")).pop().unwrap()).unwrap();
    assert!(store.open_object(1, "d").await.unwrap().is_none());
    assert!(sidecars(dir.path()).is_empty());
    for record in [&a, &b, &c, &d] {
        assert!(!keep(&store, record, b"too late").await);
        assert_eq!(store.sidecar(record).await.unwrap(), None);
    }
    assert!(keep(&store, &newer, b"x").await);
    store.remove_bucket(1).await.unwrap();
    assert!(sidecars(dir.path()).is_empty());
    assert!(files(&dir.path().join("work")).is_empty());
    assert_eq!(store.usage().stored, empty.stored);
}

#[tokio::test]
async fn a_damaged_sidecar_is_dropped_and_can_be_kept_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let record = put(&store, "a", owned()).await;
    assert!(keep(&store, &record, b"what is known").await);
    let path = sidecars(dir.path()).pop().unwrap();
    let sound = fs::read(&path).unwrap();
    for n in 0..sound.len() {
        assert!(keep(&store, &record, b"what is known").await);
        let mut damaged = sound.clone();
        damaged[n] ^= 1 << (n % 8);
        fs::write(&path, if n % 2 == 0 { &damaged } else { &sound[..n] }).unwrap();
        let found = store.sidecar(&record).await.unwrap();
        // Two bytes of the layout are unused.
        assert!(found.is_none() || (10..12).contains(&n), "byte {n}");
    }
    let usage = store.usage();
    fs::write(&path, b"").unwrap();
    drop(store);
    let store = open(dir.path()).await.unwrap();
    assert_eq!(store.sidecar(&record).await.unwrap(), None);
    assert!(sidecars(dir.path()).is_empty());
    assert_eq!(store.usage().objects, usage.objects);
}

#[tokio::test]
async fn a_full_disk_keeps_no_sidecar_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let settings = DiskSettings::new(dir.path(), Some(16 << 10));
    let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
    let record = put(&store, "a", owned()).await;
    let usage = store.usage();
    assert!(!keep(&store, &record, &[0; 20_000]).await);
    assert_eq!(store.usage(), usage);
    assert!(sidecars(dir.path()).is_empty());
}
