//! Objects over a real store and a real folder backend.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_clouds::{BackendSettings, Backends};
use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo, Freshness};
use forebay_core::cache_rules::{Admission, CacheRules};
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::size::ByteRange;
use forebay_core::state::{ClusterState, Command, Role};
use forebay_core::{Bucket, Error, ErrorCode, NodeId, Provider, Result};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_store::{DiskSettings, RealDisk, Store};
use futures::{StreamExt, TryStreamExt};

use super::{ObjectService, Parts, PutRequest};

pub(crate) struct Bench {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) service: ObjectService,
    pub(crate) maps: Maps,
    /// GETs that reached the folder.
    backend_gets: Arc<AtomicU64>,
    budget: u64,
}

fn id() -> NodeId {
    NodeId::new("target-01").unwrap()
}

/// A service over the disk of this name.
async fn service(
    dir: &Path,
    disk: &str,
    budget: u64,
    maps: &Maps,
    backend_gets: &Arc<AtomicU64>,
) -> ObjectService {
    let settings = DiskSettings::new(dir.join(disk), Some(budget));
    let store = loop {
        // The previous store may not be closed yet.
        match Store::open(vec![settings.clone()], Arc::new(RealDisk)).await {
            Ok(store) => break store,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(5)).await,
        }
    };
    let counted = backend_gets.clone();
    let backends = Backends::new(
        BackendSettings { folder_roots: vec![dir.to_path_buf()], ..Default::default() },
        Arc::new(move |_, op, _, _| {
            if op == "get" {
                counted.fetch_add(1, Ordering::SeqCst);
            }
        }),
    );
    ObjectService::new(Parts {
        id: id(),
        store,
        backends: Arc::new(backends),
        maps: maps.clone(),
        peer: PeerClient::new(Signer::new(
            ClusterSecret::new("0123456789abcdef").unwrap(),
            NodeId::new("target-1").unwrap(),
            1,
        )),
        metrics: Metrics::default(),
        lifecycle: Lifecycle::new(),
        cold_gets: 4,
        prefetch_percent: 50,
        gate: crate::cache::Gate::new(95),
        watch: Arc::new(crate::cache::CacheWatch::new(Default::default(), [1 << 40])),
    })
}

/// A cluster whose only node is this target.
pub(crate) fn one_target(id: &NodeId) -> ClusterState {
    let mut state = ClusterState::default();
    state.apply(1, Command::Init { cluster_id: "test".into(), now_ns: 1 }).unwrap();
    let join = Command::Join {
        id: id.clone(),
        role: Role::Target,
        url: "http://127.0.0.1:1".into(),
        weight: 1,
        zone: String::new(),
        instance: 0,
        https: String::new(),
        external: String::new(),
    };
    state.apply(2, join).unwrap();
    state
}

impl Bench {
    pub(crate) async fn new(budget: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("folder");
        std::fs::create_dir(&root).unwrap();
        let backend_gets = Arc::<AtomicU64>::default();
        let maps = Maps::default();
        let state = one_target(&id());
        maps.lease_for_good();
        maps.offer(state);
        let service = service(dir.path(), "disk", budget, &maps, &backend_gets).await;
        Self { dir, service, maps, backend_gets, budget }
    }

    /// Stops the service and starts it again on the same disk.
    pub(crate) async fn restart(&mut self) {
        for disk in ["other", "disk"] {
            let (dir, gets) = (self.dir.path(), &self.backend_gets);
            self.service = service(dir, disk, self.budget, &self.maps, gets).await;
        }
    }

    pub(crate) fn folder(&self) -> std::path::PathBuf {
        self.dir.path().join("folder")
    }

    pub(crate) fn change(&self, command: Command) -> Arc<ClusterState> {
        let mut state = (*self.maps.load()).clone();
        state.apply(state.version + 1, command).unwrap();
        self.maps.offer(state);
        self.maps.load()
    }

    pub(crate) fn bucket(&self, name: &str, folder: bool, freshness: Freshness) -> BucketInfo {
        let backend = folder.then(|| BackendSpec {
            root: Some(self.folder().display().to_string()),
            ..BackendSpec::new(BackendKind::Folder, "")
        });
        let bucket = Bucket::new(Provider::Ais, name).unwrap();
        let mut info = BucketInfo::requested(bucket.clone(), backend);
        info.freshness = freshness;
        let state = self.change(Command::CreateBucket { info: Box::new(info), now_ns: 1 });
        BucketInfo::clone(state.bucket(&bucket).unwrap())
    }

    pub(crate) async fn read(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<(Bytes, &'static str)> {
        let found = self.service.reads().get(info, name).await?;
        let (result, size) = (found.result(), found.meta().size);
        let parts: Vec<Bytes> = found.stream(ByteRange::whole(size)).try_collect().await?;
        Ok((parts.concat().into(), result))
    }

    pub(crate) fn gets(&self) -> u64 {
        self.backend_gets.load(Ordering::SeqCst)
    }
}

pub(crate) fn put(parts: Vec<Result<Bytes>>) -> PutRequest {
    let body = futures::stream::iter(parts).boxed();
    PutRequest::new(body)
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 % 251) as u8).collect()
}

fn files_below(dir: &Path) -> usize {
    std::fs::read_dir(dir).map_or(0, |entries| {
        entries
            .map(|e| e.unwrap())
            .map(|e| if e.path().is_dir() { files_below(&e.path()) } else { 1 })
            .sum()
    })
}

#[tokio::test]
async fn a_cold_get_fetches_once_for_many_readers() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::default());
    for (name, len) in [("large", 5 << 20), ("small", 700), ("empty", 0)] {
        let data = pattern(len);
        std::fs::write(bench.folder().join(name), &data).unwrap();
        let before = bench.gets();
        let reads = (0..32).map(|_| bench.read(&info, name));
        let all = futures::future::join_all(reads).await;
        let first = all.iter().filter(|r| r.as_ref().unwrap().1 == "miss").count();
        assert_eq!((bench.gets() - before, first), (1, 1), "{name}");
        assert!(all.iter().all(|r| r.as_ref().unwrap().0 == data), "{name}");
        // The readers of an empty object need not wait for its commit.
        bench.service.cold_cache().prefetch(&info, name).await.unwrap();
        assert_eq!(bench.read(&info, name).await.unwrap().1, "hit", "{name}");
        assert_eq!(bench.gets() - before, 1, "{name}");
    }
}

#[tokio::test]
async fn a_range_of_a_cold_object_is_that_range() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::default());
    let data = pattern(3 << 20);
    std::fs::write(bench.folder().join("o"), &data).unwrap();
    let range = ByteRange { start: 1_000_001, end: 2_500_003 };
    for expected in ["miss", "hit"] {
        let found = bench.service.reads().get(&info, "o").await.unwrap();
        assert_eq!(found.result(), expected);
        let parts: Vec<Bytes> = found.stream(range).try_collect().await.unwrap();
        assert!(parts.concat() == data[1_000_001..2_500_003]);
        bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
    }
}

#[tokio::test]
async fn a_change_at_the_backend_is_seen_when_the_copy_is_due() {
    let bench = Bench::new(64 << 20).await;
    let always = bench.bucket("always", true, Freshness::Always);
    let pinned = BucketInfo { freshness: Freshness::Never, ..always.clone() };
    let file = bench.folder().join("o");
    std::fs::write(&file, "old").unwrap();
    assert_eq!(bench.read(&always, "o").await.unwrap().0, "old");
    std::fs::write(&file, "newer").unwrap();
    assert_eq!(bench.read(&pinned, "o").await.unwrap().0, "old");
    assert_eq!(bench.read(&always, "o").await.unwrap().0, "newer");
    std::fs::remove_file(&file).unwrap();
    assert_eq!(bench.read(&pinned, "o").await.unwrap().0, "newer");
    let gone = bench.read(&always, "o").await.unwrap_err();
    assert_eq!(gone.code, ErrorCode::ObjectNotFound);
    assert_eq!(bench.read(&pinned, "o").await.unwrap_err().code, ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn after_an_absence_a_copy_is_compared_before_it_counts_as_fresh() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::Never);
    let file = bench.folder().join("o");
    std::fs::write(&file, "before").unwrap();
    assert_eq!(bench.read(&info, "o").await.unwrap().0, "before");
    std::fs::write(&file, "written by a stand-in").unwrap();
    bench.change(Command::SetAlive { id: id(), alive: false, yields: false });
    bench.change(Command::SetAlive { id: id(), alive: true, yields: false });
    assert_eq!(bench.read(&info, "o").await.unwrap().0, "written by a stand-in");
}

#[tokio::test]
async fn a_put_writes_through_and_a_delete_removes_both() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::default());
    let data = Bytes::from(pattern(2_000_000));
    bench.service.writes().put(&info, "d/o", put(vec![Ok(data.clone())])).await.unwrap();
    assert!(std::fs::read(bench.folder().join("d/o")).unwrap() == data);
    let (read, result) = bench.read(&info, "d/o").await.unwrap();
    assert!(read == data);
    assert_eq!((result, bench.gets()), ("hit", 0));
    bench.service.writes().delete(&info, "d/o").await.unwrap();
    assert!(!bench.folder().join("d/o").exists());
    assert_eq!(bench.read(&info, "d/o").await.unwrap_err().code, ErrorCode::ObjectNotFound);
    let again = bench.service.writes().delete(&info, "d/o").await.unwrap_err();
    assert_eq!(again.code, ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn a_put_that_fails_leaves_the_old_object_and_no_files() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("native", false, Freshness::default());
    bench.service.writes().put(&info, "o", put(vec![Ok("old".into())])).await.unwrap();
    let files = files_below(&bench.dir.path().join("disk"));

    let cut = put(vec![Ok("half".into()), Err(Error::invalid("client gone"))]);
    bench.service.writes().put(&info, "o", cut).await.unwrap_err();
    let mut wrong = put(vec![Ok("bytes".into())]);
    wrong.announced = Some(Checksum { kind: ChecksumKind::Md5, value: "00".into() });
    let e = bench.service.writes().put(&info, "o", wrong).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::ChecksumMismatch);
    let mut short = put(vec![Ok("four".into())]);
    short.len = Some(5);
    bench.service.writes().put(&info, "o", short).await.unwrap_err();

    assert_eq!(bench.read(&info, "o").await.unwrap().0, "old");
    assert_eq!(files_below(&bench.dir.path().join("disk")), files);
}

#[tokio::test]
async fn versions_count_up_and_an_identical_announced_checksum_changes_nothing() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("native", false, Freshness::default());
    let custom = BTreeMap::from([("k".to_owned(), "v".to_owned())]);
    let first = PutRequest { custom: Some(custom.clone()), ..put(vec![Ok("a".into())]) };
    let meta = bench.service.writes().put(&info, "o", first).await.unwrap().unwrap();
    assert_eq!(meta.version, "1");
    let meta =
        bench.service.writes().put(&info, "o", put(vec![Ok("a".into())])).await.unwrap().unwrap();
    assert_eq!((meta.version.as_str(), &meta.custom), ("2", &custom));
    let same = PutRequest { announced: meta.checksum, ..put(vec![Ok("a".into())]) };
    assert_eq!(bench.service.writes().put(&info, "o", same).await.unwrap(), None);
    assert_eq!(bench.service.reads().head(&info, "o").await.unwrap().version, "2");
}

#[tokio::test]
async fn a_backends_object_is_served_although_there_is_no_room_for_it() {
    let bench = Bench::new(1 << 20).await;
    let info = bench.bucket("images", true, Freshness::default());
    let data = pattern(4 << 20);
    std::fs::write(bench.folder().join("o"), &data).unwrap();
    let (read, result) = bench.read(&info, "o").await.unwrap();
    assert!(read == data);
    assert_eq!(result, "miss");
    let native = bench.bucket("native", false, Freshness::default());
    let e = bench.service.writes().put(&native, "o", put(vec![Ok(data.into())])).await.unwrap_err();
    assert_eq!(e.code, ErrorCode::OutOfSpace);
}

#[tokio::test]
async fn a_write_during_a_fetch_is_not_undone_by_it() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::Never);
    std::fs::write(bench.folder().join("o"), pattern(8 << 20)).unwrap();
    let in_flight = bench.service.reads().get(&info, "o").await.unwrap();
    bench.service.writes().put(&info, "o", put(vec![Ok("new".into())])).await.unwrap();
    let size = in_flight.meta().size;
    let _: Vec<Bytes> = in_flight.stream(ByteRange::whole(size)).try_collect().await.unwrap();
    assert_eq!(bench.read(&info, "o").await.unwrap().0, "new");
    assert_eq!(std::fs::read(bench.folder().join("o")).unwrap(), b"new");
}

fn with_rules(info: &BucketInfo, cache: CacheRules) -> BucketInfo {
    BucketInfo { cache, ..info.clone() }
}

#[tokio::test]
async fn what_is_admitted_at_the_second_miss_is_kept_then() {
    let bench = Bench::new(64 << 20).await;
    let rules = CacheRules { admission: Admission::SecondMiss, ..CacheRules::default() };
    let info = with_rules(&bench.bucket("once", true, Freshness::Never), rules);
    let data = pattern(5000);
    for name in ["a", "b"] {
        std::fs::write(bench.folder().join(name), &data).unwrap();
    }
    assert_eq!(bench.read(&info, "a").await.unwrap(), (data.clone().into(), "miss"));
    assert_eq!(bench.service.store().usage().objects, 0, "nothing is kept of the first");
    assert_eq!(bench.read(&info, "a").await.unwrap(), (data.clone().into(), "miss"));
    bench.service.cold_cache().prefetch(&info, "a").await.unwrap();
    assert_eq!(bench.read(&info, "a").await.unwrap(), (data.clone().into(), "hit"));
    bench.service.cold_cache().prefetch(&info, "b").await.unwrap();
    assert_eq!(bench.read(&info, "b").await.unwrap().1, "hit", "prefetch is a wish to keep");
}

#[tokio::test]
async fn where_nothing_is_admitted_reads_and_writes_leave_no_copy() {
    let bench = Bench::new(64 << 20).await;
    let rules = CacheRules { admission: Admission::Never, ..CacheRules::default() };
    let info = with_rules(&bench.bucket("through", true, Freshness::Never), rules);
    bench.service.writes().put(&info, "o", put(vec![Ok("written".into())])).await.unwrap();
    assert_eq!(std::fs::read(bench.folder().join("o")).unwrap(), b"written");
    for _ in 0..2 {
        let (bytes, result) = bench.read(&info, "o").await.unwrap();
        assert_eq!((&*bytes, result), (&b"written"[..], "miss"));
    }
    let e = bench.service.cold_cache().prefetch(&info, "o").await.unwrap_err();
    assert_eq!(e.code, ErrorCode::InvalidArgument);
    assert_eq!(bench.service.store().usage().objects, 0);
}

#[tokio::test]
async fn above_the_last_mark_reads_go_through_and_keep_nothing() {
    let bench = Bench::new(1 << 20).await;
    let native = bench.bucket("native", false, Freshness::Never);
    let info = bench.bucket("cloud", true, Freshness::Never);
    bench
        .service
        .writes()
        .put(&native, "n", put(vec![Ok(pattern(1_010_000).into())]))
        .await
        .unwrap();
    std::fs::write(bench.folder().join("o"), pattern(2000)).unwrap();
    for _ in 0..2 {
        assert_eq!(bench.read(&info, "o").await.unwrap(), (pattern(2000).into(), "miss"));
    }
    bench.service.writes().delete(&native, "n").await.unwrap();
    assert_eq!(bench.read(&info, "o").await.unwrap().1, "miss");
    bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
    assert_eq!(bench.read(&info, "o").await.unwrap().1, "hit", "there is space again");
}

#[tokio::test]
async fn a_backends_object_has_one_etag_cold_cached_listed_and_after_an_eviction() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::default());
    std::fs::write(bench.folder().join("o"), pattern(70_000)).unwrap();
    let head = async || bench.service.reads().head(&info, "o").await.unwrap().s3_etag();
    let cold = head().await;
    let in_flight = bench.service.reads().get(&info, "o").await.unwrap().meta().s3_etag();
    bench.service.cold_cache().prefetch(&info, "o").await.unwrap();
    let cached = bench.service.reads().get(&info, "o").await.unwrap();
    assert!(cached.meta().present);
    let listed = bench.service.listing().page_backend(&info, "", "", 9).await.unwrap();
    let etags =
        [in_flight, head().await, cached.meta().s3_etag(), listed.entries[0].meta.s3_etag()];
    assert_eq!(etags, [cold.as_str(); 4]);
    bench.service.cold_cache().evict(&info, "o").await.unwrap();
    assert_eq!(head().await, cold);
    std::fs::write(bench.folder().join("o"), pattern(70_001)).unwrap();
    assert_ne!(head().await, cold);
    // Written through the cluster: the copy keeps the version of that moment.
    let written =
        bench.service.writes().put(&info, "p", put(vec![Ok(Bytes::from("new"))])).await.unwrap();
    bench.service.cold_cache().evict(&info, "p").await.unwrap();
    assert_eq!(
        bench.service.reads().head(&info, "p").await.unwrap().s3_etag(),
        written.unwrap().s3_etag()
    );
}

#[tokio::test]
async fn an_eviction_keeps_what_is_on_its_way_out() {
    let bench = Bench::new(64 << 20).await;
    let info = bench.bucket("images", true, Freshness::Never);
    for prefix in [false, true] {
        std::fs::write(bench.folder().join("o"), pattern(3 << 20)).unwrap();
        // The copy is committed when its lock is released, not before.
        let commit = bench.service.lock_key(info.id, "o").await;
        let found = bench.service.reads().get(&info, "o").await.unwrap();
        assert_eq!(found.result(), "miss");
        let evict = bench.service.cold_cache().evict(&info, "o");
        if prefix {
            bench.service.cold_cache().keep_nothing_under_way(&info, "", false);
            drop((commit, evict));
        } else {
            let evict = std::pin::pin!(evict);
            // The fetch waits for the lock before or after the eviction: either way nothing stays.
            let (_, evicted) = futures::join!(async { drop(commit) }, evict);
            evicted.unwrap();
        }
        std::fs::write(bench.folder().join("o"), "newer").unwrap();
        drop(found);
        for _ in 0..1000 {
            if !bench.service.is_being_written(&info, "o") {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(bench.read(&info, "o").await.unwrap().0, "newer", "{prefix}");
        bench.service.cold_cache().evict(&info, "o").await.unwrap();
    }
}

#[tokio::test]
async fn a_fetch_whose_last_reader_left_stops_where_much_is_missing() {
    let bench = Bench::new(1 << 30).await;
    let info = bench.bucket("images", true, Freshness::Never);
    let file = std::fs::File::create(bench.folder().join("huge")).unwrap();
    file.set_len(160 << 20).unwrap();
    let found = bench.service.reads().get(&info, "huge").await.unwrap();
    let mut stream = found.stream(ByteRange::whole(160 << 20));
    stream.next().await.unwrap().unwrap();
    drop(stream);
    for _ in 0..2000 {
        if !bench.service.is_being_written(&info, "huge") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    assert!(
        bench.service.reads().head_local(&info, "huge").await.is_err(),
        "it was not fetched to its end"
    );
    // A later reader gets all of it.
    assert_eq!(bench.read(&info, "huge").await.unwrap().0.len(), 160 << 20);
}
