//! Guarantees of objects in several files.
#![allow(clippy::unwrap_used)]

use bytes::Bytes;
use forebay_core::size::ByteRange;

use super::crash_tests::{FAULTS, NAME, at_every_step, old};
use super::tests::{contents, files, open, owned};
use super::*;

const PART: usize = 3 << 20;

fn bytes(len: usize, seed: u8) -> Bytes {
    (0..len).map(|i| (i as u8) ^ (i >> 9) as u8 ^ seed).collect()
}

async fn parts(store: &Store, payloads: &[Bytes]) -> Vec<WorkFile> {
    let mut parts: Vec<WorkFile> = Vec::new();
    for payload in payloads {
        let mut part = store.begin_part(1, "o", parts.first(), None).await.unwrap();
        part.write(payload.clone()).await.unwrap();
        parts.push(part);
    }
    parts
}

#[tokio::test]
async fn an_object_of_parts_reads_as_one_and_survives_the_loss_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let payloads = [bytes(PART, 1), bytes(PART + 7, 2), bytes(100, 3)];
    let record = store.assemble(parts(&store, &payloads).await, owned()).await.unwrap();
    let whole = payloads.concat();
    assert_eq!(record.size as usize, whole.len());
    assert_eq!(files(&dir.path().join("objects")).len(), 3);
    let range = ByteRange { start: PART as u64 - 10, end: 2 * PART as u64 + 50 };
    let part = store.read_part(&record, range).await.unwrap();
    assert_eq!(part, whole[range.start as usize..range.end as usize]);
    let usage = store.usage();
    drop(store);
    for rebuild_index in [false, true] {
        let settings =
            DiskSettings { rebuild_index, ..DiskSettings::new(dir.path(), Some(1 << 30)) };
        let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
        assert_eq!(contents(&store, 1, "o").await.unwrap(), whole);
        assert_eq!(store.usage(), usage);
    }
    let store = open(dir.path()).await.unwrap();
    store.remove(1, "o").await.unwrap();
    assert!(files(&dir.path().join("objects")).is_empty());
}

#[tokio::test]
async fn parts_that_are_dropped_leave_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    drop(parts(&store, &[bytes(PART, 1), bytes(PART, 2)]).await);
    assert!(files(&dir.path().join("work")).is_empty());
    assert_eq!(store.get(1, "o").await.unwrap(), None);
}

#[tokio::test]
async fn appending_keeps_the_files_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let mut record = store.put(1, "o", bytes(10, 0), owned()).await.unwrap();
    let mut whole = bytes(10, 0).to_vec();
    for (i, len) in [5, 100_000, 90_000, PART, 20, 30, PART].into_iter().enumerate() {
        let more = bytes(len, i as u8);
        let before = record.extents().to_vec();
        record = store.append(&record, more.clone(), owned()).await.unwrap();
        whole.extend_from_slice(&more);
        assert_eq!(record.size as usize, whole.len());
        assert_eq!(contents(&store, 1, "o").await.unwrap(), whole);
        let large = before.iter().filter(|e| e.size >= 1 << 20);
        assert!(large.into_iter().all(|e| record.extents().contains(e)), "append {i}");
    }
    assert_eq!(files(&dir.path().join("objects")).len(), record.extents().len());
    drop(store);
    let store = open(dir.path()).await.unwrap();
    assert_eq!(contents(&store, 1, "o").await.unwrap(), whole);
}

#[tokio::test]
async fn appending_to_what_is_gone_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let old = store.put(1, "o", bytes(10, 0), owned()).await.unwrap();
    store.put(1, "o", bytes(11, 0), owned()).await.unwrap();
    let e = store.append(&old, bytes(1, 1), owned()).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn a_crash_while_parts_become_an_object_leaves_the_old_or_the_new_one() {
    let payloads = [bytes(200_000, 1), bytes(300_000, 2)];
    let whole = Bytes::from(payloads.concat());
    for fault in FAULTS {
        at_every_step(Some(owned()), fault, Some(whole.clone()), async |store| {
            let mut first = store.begin_part(1, NAME, None, None).await?;
            first.write(payloads[0].clone()).await?;
            let mut second = store.begin_part(1, NAME, Some(&first), None).await?;
            second.write(payloads[1].clone()).await?;
            store.assemble(vec![first, second], owned()).await.map(drop)
        })
        .await;
    }
}

#[tokio::test]
async fn a_crash_while_appending_leaves_the_object_with_or_without_it() {
    for len in [100, 100_000] {
        let more = bytes(len, 9);
        let whole = Bytes::from([old(), more.clone()].concat());
        for fault in FAULTS {
            at_every_step(Some(owned()), fault, Some(whole.clone()), async |store| {
                let record = store.get(1, NAME).await?.unwrap();
                store.append(&record, more.clone(), owned()).await.map(drop)
            })
            .await;
        }
    }
}
