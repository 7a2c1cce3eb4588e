//! Disks stay within their budgets, and only what a backend has is dropped.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::bucket::Class;

use super::super::Lru;
use super::*;
use crate::store::{DiskSettings, RealDisk, RecordMeta};

const BUDGET: u64 = 4 << 20;
const SIZE: usize = 100_000;

struct Rig {
    _dir: tempfile::TempDir,
    store: Store,
    token: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Rig {
    async fn start(protected: impl Fn(&Record) -> bool + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let disks = vec![DiskSettings::new(dir.path(), Some(BUDGET))];
        let store = Store::open(disks, Arc::new(RealDisk)).await.unwrap();
        let marks = Watermarks { high: 90, low: 70 };
        let evictor = Evictor::new(store.clone(), Arc::new(Lru), marks, protected);
        let token = CancellationToken::new();
        let task = tokio::spawn(evictor.run(token.clone()));
        // Writers rely on the evictor only once it runs.
        tokio::task::yield_now().await;
        Self { _dir: dir, store, token, task }
    }

    async fn put(&self, name: &str, meta: RecordMeta) -> Result<Record> {
        self.store.put(1, name, Bytes::from(vec![7; SIZE]), meta).await
    }

    async fn names(&self) -> BTreeSet<String> {
        let (rows, _) = self.store.list(1, "", None, None, 10_000).await.unwrap();
        rows.into_iter().map(|r| r.name).collect()
    }

    async fn stop(self) {
        self.token.cancel();
        self.task.await.unwrap();
    }
}

fn clean(atime_ns: u64) -> RecordMeta {
    RecordMeta { class: Class::Cache, backed: true, atime_ns, ..RecordMeta::default() }
}

#[tokio::test]
async fn more_than_fits_can_be_cached_and_the_budget_holds() {
    let rig = Rig::start(|_| false).await;
    for i in 0..200u64 {
        rig.put(&format!("o{i:03}"), clean(i)).await.unwrap();
        let usage = rig.store.usage();
        assert!(usage.stored <= BUDGET, "{usage:?}");
    }
    let names = rig.names().await;
    assert!(names.contains("o199") && !names.contains("o000"), "{names:?}");
    rig.stop().await;
}

#[tokio::test]
async fn what_was_read_lately_stays() {
    let rig = Rig::start(|_| false).await;
    let first = rig.put("first", clean(1)).await.unwrap();
    for i in 0..100u64 {
        rig.store.touch(&first, 1000 + i);
        rig.put(&format!("o{i:03}"), clean(2 + i)).await.unwrap();
    }
    assert!(rig.names().await.contains("first"));
    rig.stop().await;
}

#[tokio::test]
async fn native_and_dirty_objects_are_never_dropped_and_a_full_disk_says_so() {
    let rig = Rig::start(|_| false).await;
    let native = RecordMeta { class: Class::Cache, ..RecordMeta::default() };
    let dirty = RecordMeta { dirty: true, ..clean(0) };
    for i in 0..19 {
        rig.put(&format!("native{i}"), native.clone()).await.unwrap();
        rig.put(&format!("dirty{i}"), dirty.clone()).await.unwrap();
    }
    let kept = rig.names().await;
    let start = Instant::now();
    let error = loop {
        match rig.put(&format!("more{}", rig.names().await.len()), native.clone()).await {
            Ok(_) => {}
            Err(e) => break e,
        }
    };
    assert_eq!(error.code, ErrorCode::OutOfSpace);
    assert!(start.elapsed() < Duration::from_secs(10));
    assert!(rig.names().await.is_superset(&kept));
    rig.stop().await;
}

#[tokio::test]
async fn protected_objects_stay() {
    let rig = Rig::start(|r| r.name.starts_with("held")).await;
    for i in 0..10 {
        rig.put(&format!("held{i}"), clean(0)).await.unwrap();
    }
    for i in 0..60u64 {
        rig.put(&format!("o{i:03}"), clean(1 + i)).await.unwrap();
    }
    assert_eq!(rig.names().await.iter().filter(|n| n.starts_with("held")).count(), 10);
    rig.stop().await;
}

#[tokio::test]
async fn one_object_may_push_out_nearly_all_others() {
    let rig = Rig::start(|_| false).await;
    for i in 0..30u64 {
        rig.put(&format!("o{i:03}"), clean(i)).await.unwrap();
    }
    let large = Bytes::from(vec![1; 3_900_000]);
    rig.store.put(1, "large", large, clean(100)).await.unwrap();
    assert!(rig.store.usage().stored <= BUDGET);
    rig.stop().await;
}

#[tokio::test]
async fn accesses_are_written_down_at_the_end() {
    let rig = Rig::start(|_| false).await;
    let record = rig.put("o", clean(1)).await.unwrap();
    rig.store.touch(&record, 77);
    let store = rig.store.clone();
    let dir = rig.stop_keeping_the_folder().await;
    drop(store);
    let disks = vec![DiskSettings::new(dir.path(), Some(BUDGET))];
    let store = Store::open(disks, Arc::new(RealDisk)).await.unwrap();
    assert_eq!(store.get(1, "o").await.unwrap().unwrap().meta.atime_ns, 77);
}

impl Rig {
    async fn stop_keeping_the_folder(self) -> tempfile::TempDir {
        self.token.cancel();
        self.task.await.unwrap();
        self._dir
    }
}
