//! Changes that reach the disk's thread together, or in another order than they were started.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use bytes::Bytes;

use super::change::Change;
use super::format;
use super::recency::Touch;
use super::tests::{cached, open, owned};
use super::volume::Volume;
use super::*;

fn volume(store: &Store) -> Arc<Volume> {
    store.disks.number(0).unwrap()
}

fn removal(name: &str) -> Change {
    Change::Remove { bucket_id: 1, name: name.to_owned(), generation: None }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_access_does_not_bring_back_what_was_removed_or_replaced_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let old = store.put(1, "a", Bytes::from("old"), cached()).await.unwrap();
    let touch =
        |atime_ns| Touch { key: format::key(1, "a").into(), generation: old.generation, atime_ns };
    let both = vec![Change::Times(vec![touch(u64::MAX - 1)])];
    volume(&store).committer.submit(both, Vec::new()).await.unwrap();
    let seen = store.find(1, "a").unwrap().unwrap();
    assert_eq!((seen.generation, seen.meta.atime_ns), (old.generation, u64::MAX - 1));
    let both = vec![removal("a"), Change::Times(vec![touch(u64::MAX)])];
    volume(&store).committer.submit(both, Vec::new()).await.unwrap();
    assert!(store.find(1, "a").unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removal_that_is_moved_leaves_what_was_written_after_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let volume = volume(&store);
    store.put(1, "a", Bytes::from("old"), owned()).await.unwrap();
    // A large object takes its number before its files are synced, and is logged when they are.
    let mut late = volume.record(1, "a".to_owned(), owned());
    (late.sequence, late.size) = (volume.shared().next_sequence(), 4);
    volume.committer.submit(vec![removal("a")], Vec::new()).await.unwrap();
    let removed = volume.shared().next_sequence() - 1;
    let payload = Bytes::from("late");
    let put = Change::Put { record: Box::new(late), payload, files: Vec::new(), misplaced: false };
    volume.committer.submit(vec![put], Vec::new()).await.unwrap();
    let name = "a".to_owned();
    let moved = Change::WriteTombstone { from: u64::MAX, bucket_id: 1, name, sequence: removed };
    volume.committer.submit(vec![moved], Vec::new()).await.unwrap();
    let reader = store.open_object(1, "a").await.unwrap().unwrap();
    assert_eq!(reader.read_all().await.unwrap(), "late");
}
