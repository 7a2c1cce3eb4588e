//! Disks stay within their budgets, and only objects that a backend has are dropped.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::{ErrorCode, Result};

use std::sync::Mutex;

use forebay_core::cache_rules::CacheRules;
use forebay_core::config::CachePolicy;
use forebay_store::{DiskSettings, RealDisk, RecordMeta};

use super::*;

const BUDGET: u64 = 4 << 20;
const SIZE: usize = 100_000;

struct Rig {
    _dir: tempfile::TempDir,
    store: Store,
    watch: Arc<CacheWatch>,
    evictor: Evictor,
    /// The reason of each eviction.
    counted: Arc<Mutex<Vec<&'static str>>>,
    token: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

impl Rig {
    async fn start(protected: impl Fn(&Record) -> bool + Send + Sync + 'static) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, CachePolicy::Lru, || Some(Rules::new()), protected).await
    }

    async fn with_rules(policy: CachePolicy, bucket_id: u64, rules: CacheRules) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let rules = move || Some(Rules::from([(bucket_id, rules)]));
        Self::start_in(dir, policy, rules, |_| false).await
    }

    async fn start_in(
        dir: tempfile::TempDir,
        policy: CachePolicy,
        rules: impl Fn() -> Option<Rules> + Send + Sync + 'static,
        protected: impl Fn(&Record) -> bool + Send + Sync + 'static,
    ) -> Self {
        let disks = vec![DiskSettings::new(dir.path(), Some(BUDGET))];
        let store = Store::open(disks, Arc::new(RealDisk)).await.unwrap();
        let watch = Arc::new(CacheWatch::new(policy, [BUDGET]));
        let marks = Watermarks { high: 90, low: 70 };
        let counted = Arc::new(Mutex::new(Vec::new()));
        let reasons = counted.clone();
        let evictor = Evictor::new(store.clone(), watch.clone(), marks, rules)
            .protecting(protected)
            .counting(move |why, _| reasons.lock().unwrap().push(why));
        let token = CancellationToken::new();
        let task = tokio::spawn(evictor.clone().run(token.clone()));
        // Writers rely on the evictor only once it runs.
        tokio::task::yield_now().await;
        Self { _dir: dir, store, watch, evictor, counted, token, task }
    }

    async fn put_in(&self, bucket_id: u64, name: &str, meta: RecordMeta) -> Result<Record> {
        self.store.put(bucket_id, name, Bytes::from(vec![7; SIZE]), meta).await
    }

    async fn count(&self, bucket_id: u64) -> usize {
        self.store.list(bucket_id, "", None, None, 10_000).await.unwrap().0.len()
    }

    fn went_for(&self, why: &str) -> usize {
        self.counted.lock().unwrap().iter().filter(|w| **w == why).count()
    }

    /// Waits until the evictor has nothing to do.
    async fn wait_until(&self, is_done: impl AsyncFn() -> bool) {
        for _ in 0..500 {
            if is_done().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the evictor does not come to it");
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

fn pinned() -> CacheRules {
    CacheRules { pin: true, ..CacheRules::default() }
}

#[tokio::test]
async fn with_each_policy_the_budget_holds() {
    for policy in [CachePolicy::Density, CachePolicy::Lru] {
        let rig = Rig::with_rules(policy, 9, CacheRules::default()).await;
        for i in 0..120u64 {
            let record = rig.put(&format!("o{i:03}"), clean(i)).await.unwrap();
            rig.store.touch(&record, i);
            assert!(rig.store.usage().stored <= BUDGET);
        }
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_pinned_bucket_stays_whatever_comes() {
    let rig = Rig::with_rules(CachePolicy::Density, 5, pinned()).await;
    for i in 0..15 {
        rig.put_in(5, &format!("p{i}"), clean(0)).await.unwrap();
    }
    for i in 0..80u64 {
        rig.put(&format!("o{i:03}"), clean(1 + i)).await.unwrap();
    }
    assert_eq!(rig.count(5).await, 15);
    assert!(rig.went_for("room") > 0);
    rig.stop().await;
}

#[tokio::test]
async fn pinned_copies_fill_a_disk_like_native_objects() {
    let rig = Rig::with_rules(CachePolicy::Lru, 5, pinned()).await;
    let full = async {
        for i in 0.. {
            if let Err(e) = rig.put_in(5, &format!("p{i}"), clean(0)).await {
                return (i, e);
            }
        }
        unreachable!()
    };
    let (kept, error) = full.await;
    assert_eq!(error.code, ErrorCode::OutOfSpace);
    assert_eq!(rig.count(5).await, kept);
    rig.stop().await;
}

#[tokio::test]
async fn nothing_goes_before_it_is_known_what_is_pinned() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::start_in(dir, CachePolicy::Density, || None, |_| false).await;
    let mut kept = 0;
    while rig.put(&format!("o{kept}"), clean(0)).await.is_ok() {
        kept += 1;
    }
    assert_eq!(rig.count(1).await, kept);
    rig.stop().await;
}

#[tokio::test]
async fn a_bucket_never_takes_much_more_than_its_share_though_there_is_room() {
    let rules = CacheRules { share: 20, ..CacheRules::default() };
    let rig = Rig::with_rules(CachePolicy::Density, 5, rules).await;
    rig.put_in(6, "other", clean(0)).await.unwrap();
    for i in 0..20 {
        rig.put_in(5, &format!("s{i}"), clean(0)).await.unwrap();
    }
    let fits = (BUDGET / 5) as usize / SIZE;
    rig.wait_until(async || rig.count(5).await <= fits).await;
    assert!(rig.count(5).await >= fits / 2, "no more than needed goes");
    assert_eq!((rig.count(6).await, rig.went_for("room")), (1, 0));
    assert!(rig.went_for("share") > 0);
    rig.stop().await;
}

#[tokio::test]
async fn a_bucket_keeps_its_minimum_beside_a_scanner_and_no_more() {
    for policy in [CachePolicy::Density, CachePolicy::Lru] {
        let rules = CacheRules { min_share: 50, ..CacheRules::default() };
        let rig = Rig::with_rules(policy, 5, rules).await;
        for i in 0..35 {
            rig.put_in(5, &format!("k{i}"), clean(0)).await.unwrap();
        }
        for i in 0..200u64 {
            rig.put(&format!("o{i:03}"), clean(1 + i)).await.unwrap();
        }
        let minimum = (BUDGET / 2) as usize / SIZE;
        assert!(rig.count(5).await >= minimum, "{policy:?}");
        assert!(rig.count(1).await > 0, "{policy:?}");
        rig.stop().await;
    }
}

#[tokio::test]
async fn a_minimum_that_its_bucket_does_not_use_is_lent() {
    let rules = CacheRules { min_share: 100, ..CacheRules::default() };
    let rig = Rig::with_rules(CachePolicy::Density, 5, rules).await;
    for i in 0..100u64 {
        rig.put(&format!("o{i:03}"), clean(i)).await.unwrap();
    }
    assert!(rig.count(1).await * SIZE > BUDGET as usize / 2);
    // The bucket takes it back.
    for i in 0..35 {
        rig.put_in(5, &format!("k{i}"), clean(0)).await.unwrap();
    }
    assert_eq!(rig.count(5).await, 35);
    rig.stop().await;
}

#[tokio::test]
async fn native_objects_get_the_space_of_a_minimum() {
    let rules = CacheRules { min_share: 100, ..CacheRules::default() };
    let rig = Rig::with_rules(CachePolicy::Density, 5, rules).await;
    for i in 0..30 {
        rig.put_in(5, &format!("k{i}"), clean(0)).await.unwrap();
    }
    for i in 0..25 {
        rig.put(&format!("n{i}"), RecordMeta::default()).await.unwrap();
    }
    assert_eq!(rig.count(1).await, 25);
    rig.stop().await;
}

#[tokio::test]
async fn what_was_not_read_for_the_time_of_its_bucket_goes() {
    let rules = CacheRules { ttl: Some(3600), ..CacheRules::default() };
    let rig = Rig::with_rules(CachePolicy::Density, 5, rules).await;
    let now_s = unix_s();
    let long_ago = (now_s - 4000) * 1_000_000_000;
    rig.put_in(5, "old", clean(long_ago)).await.unwrap();
    let read = rig.put_in(5, "read", clean(long_ago)).await.unwrap();
    rig.put_in(5, "young", clean(now_s * 1_000_000_000)).await.unwrap();
    rig.put_in(6, "other", clean(long_ago)).await.unwrap();
    let dirty = RecordMeta { dirty: true, ..clean(long_ago) };
    rig.put_in(5, "dirty", dirty).await.unwrap();
    rig.store.touch(&read, now_s * 1_000_000_000);
    rig.evictor.expire(now_s).await;
    let (rows, _) = rig.store.list(5, "", None, None, 10).await.unwrap();
    let names: Vec<_> = rows.into_iter().map(|r| r.name).collect();
    assert_eq!(names, ["dirty", "read", "young"]);
    assert_eq!((rig.count(6).await, rig.went_for("ttl")), (1, 1));
    rig.stop().await;
}

#[tokio::test]
async fn a_copy_that_becomes_dirty_is_no_longer_a_victim() {
    let rig = Rig::start(|_| false).await;
    let record = rig.put("mine", clean(0)).await.unwrap();
    rig.store.update(&record, |meta| meta.dirty = true).await.unwrap();
    assert!(rig.watch.lock(0).is_empty());
    for i in 0..80u64 {
        rig.put(&format!("o{i:03}"), clean(1 + i)).await.unwrap();
    }
    let mine = rig.store.get(1, "mine").await.unwrap().unwrap();
    rig.store.update(&mine, |meta| meta.dirty = false).await.unwrap();
    for i in 0..80u64 {
        rig.put(&format!("p{i:03}"), clean(100 + i)).await.unwrap();
    }
    assert!(rig.store.get(1, "mine").await.unwrap().is_none());
    rig.stop().await;
}

#[tokio::test]
async fn what_was_there_before_a_start_is_known_after_it() {
    let rig = Rig::start(|_| false).await;
    for i in 0..20u64 {
        rig.put(&format!("before{i:02}"), clean(i)).await.unwrap();
    }
    rig.put("native", RecordMeta::default()).await.unwrap();
    let store = rig.store.clone();
    let dir = rig.stop_keeping_the_folder().await;
    drop(store);
    let rig = Rig::start_in(dir, CachePolicy::Lru, || Some(Rules::new()), |_| false).await;
    rig.wait_until(async || rig.watch.lock(0).len() == 20).await;
    for i in 0..60u64 {
        rig.put(&format!("after{i:02}"), clean(100 + i)).await.unwrap();
    }
    let names = rig.names().await;
    assert!(names.contains("native") && !names.contains("before00"), "{names:?}");
    rig.stop().await;
}

#[tokio::test]
async fn replaced_and_removed_copies_are_forgotten() {
    let rig = Rig::start(|_| false).await;
    rig.put("a", clean(0)).await.unwrap();
    rig.put("a", clean(1)).await.unwrap();
    rig.put("b", clean(2)).await.unwrap();
    rig.store.remove(1, "b").await.unwrap();
    assert_eq!(rig.watch.lock(0).len(), 1);
    rig.store.remove_bucket(1).await.unwrap();
    assert!(rig.watch.lock(0).is_empty());
    rig.stop().await;
}
