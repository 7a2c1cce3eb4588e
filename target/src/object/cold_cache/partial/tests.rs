//! Ranges of large objects of a folder, with the folder's reads counted.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_clouds::{BackendSettings, Backends};
use forebay_core::bucket::{BackendKind, BackendSpec};
use forebay_core::sign::{ClusterSecret, Signer};
use forebay_core::state::Command;
use forebay_core::{Bucket, NodeId, Provider};
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_store::{DiskSettings, RealDisk, Store};
use futures::{StreamExt, TryStreamExt};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::*;
use crate::cache::{CacheWatch, Evictor, Gate, Watermarks};
use crate::object::tests::one_target;
use crate::object::{ObjectService, Parts as ServiceParts, PutRequest};

const MIB: u64 = 1 << 20;

struct Rig {
    dir: tempfile::TempDir,
    service: ObjectService,
    maps: Maps,
    gets: Arc<AtomicU64>,
    stats: Arc<AtomicU64>,
    bytes: Arc<AtomicU64>,
    info: Arc<BucketInfo>,
    _evictor: DropGuard,
}

impl Rig {
    async fn new(budget: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        Self::start(dir, budget).await
    }

    /// Restarts the service on the same disk, with empty memory.
    async fn restart(self, budget: u64) -> Self {
        let Self { dir, service, _evictor: evictor, .. } = self;
        drop((service, evictor));
        Self::start(dir, budget).await
    }

    async fn start(dir: tempfile::TempDir, budget: u64) -> Self {
        let settings = DiskSettings::new(dir.path().join("disk"), Some(budget));
        let store = loop {
            // Tasks of the previous service may still hold the disk.
            match Store::open(vec![settings.clone()], Arc::new(RealDisk)).await {
                Ok(store) => break store,
                Err(e) if e.message.contains("in use") => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Err(e) => panic!("{e}"),
            }
        };
        let counter = || Arc::new(AtomicU64::new(0));
        let (gets, stats, bytes) = (counter(), counter(), counter());
        let (g, s, b) = (gets.clone(), stats.clone(), bytes.clone());
        let folder_roots = vec![dir.path().to_path_buf()];
        let backends = Backends::new(
            BackendSettings { folder_roots, ..Default::default() },
            Arc::new(move |_, op, _, _| {
                match op {
                    "get" => g.fetch_add(1, Ordering::SeqCst),
                    "stat" => s.fetch_add(1, Ordering::SeqCst),
                    _ => 0,
                };
            }),
        )
        .telling_bytes(Arc::new(move |_, n| {
            b.fetch_add(n, Ordering::SeqCst);
        }));
        let (maps, id) = (Maps::default(), NodeId::new("target-01").unwrap());
        let mut state = one_target(&id);
        let bucket = Bucket::new(Provider::Ais, "images").unwrap();
        let backend = BackendSpec {
            root: Some(dir.path().join("folder").display().to_string()),
            ..BackendSpec::new(BackendKind::Folder, "")
        };
        let mut info = BucketInfo::requested(bucket.clone(), Some(backend));
        info.freshness = Freshness::Never;
        state.apply(3, Command::CreateBucket { info: Box::new(info), now_ns: 1 }).unwrap();
        let info = state.bucket(&bucket).unwrap().clone();
        maps.lease_for_good();
        maps.offer(state);
        let evictor = CancellationToken::new();
        let marks = Watermarks { high: 90, low: 70 };
        let watch = Arc::new(CacheWatch::new(Default::default(), [budget]));
        let task = Evictor::new(store.clone(), watch.clone(), marks, || Some(Default::default()));
        tokio::spawn(task.run(evictor.clone()));
        let service = ObjectService::new(ServiceParts {
            id,
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
            gate: Gate::new(95),
            watch,
        });
        Self { dir, service, maps, gets, stats, bytes, info, _evictor: evictor.drop_guard() }
    }

    fn disk(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join("folder").join(name)
    }

    async fn found(&self, name: &str, range: ByteRange) -> Result<crate::object::reads::Found> {
        let spec = RangeSpec::From(range.start, Some(range.end - 1));
        self.service.reads().get_range(&self.info, name, Some(spec)).await
    }

    async fn read(&self, name: &str, range: ByteRange) -> Result<(Bytes, &'static str)> {
        let found = self.found(name, range).await?;
        let result = found.result();
        let parts: Vec<Bytes> = found.stream(range).try_collect().await?;
        Ok((parts.concat().into(), result))
    }

    async fn read_whole(&self, name: &str) -> (Bytes, &'static str) {
        let found = self.service.reads().get(&self.info, name).await.unwrap();
        let (result, size) = (found.result(), found.meta().size);
        let parts: Vec<Bytes> = found.stream(ByteRange::whole(size)).try_collect().await.unwrap();
        (parts.concat().into(), result)
    }

    /// Number of GETs and bytes fetched since the last call.
    fn taken(&self) -> (u64, u64) {
        (self.gets.swap(0, Ordering::SeqCst), self.bytes.swap(0, Ordering::SeqCst))
    }

    fn lying(&self) -> usize {
        std::fs::read_dir(self.disk().join("partial")).unwrap().count()
    }

    /// Waits for the fetches that continue after their readers.
    async fn wait_fetched(&self, name: &str) {
        for _ in 0..1000 {
            let key = Key::new(&self.info, name);
            let busy = self.service.cold_cache().0.lives.table().get(&key).cloned();
            if busy.is_none_or(|live| {
                live.runs().is_empty() && !live.assembling.load(Ordering::SeqCst)
            }) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("fetches go on for ever");
    }
}

/// The first byte of each 64 KiB depends on its position and the version; all others are 0.
fn byte_at(place: u64, version: u8) -> u8 {
    ((place >> 16) as u8 ^ (place >> 24) as u8).wrapping_add(version)
}

fn expected(range: ByteRange, version: u8) -> Vec<u8> {
    let mut bytes = vec![0; range.len() as usize];
    for place in (range.start.next_multiple_of(65_536)..range.end).step_by(65_536) {
        bytes[(place - range.start) as usize] = byte_at(place, version);
    }
    bytes
}

/// Writes a sparse file and renames it into place: its mtime and inode are its version.
fn write_object(path: &Path, size: u64, version: u8) {
    let new = path.with_extension("new");
    let file = std::fs::File::create(&new).unwrap();
    file.set_len(size).unwrap();
    for place in (0..size).step_by(65_536) {
        file.write_all_at(&[byte_at(place, version)], place).unwrap();
    }
    std::fs::rename(new, path).unwrap();
}

fn range(start: u64, len: u64) -> ByteRange {
    ByteRange { start, end: start + len }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_ranges_cost_little_more_than_they_ask_for() {
    let rig = Rig::new(4 << 30).await;
    write_object(&rig.file("o"), 1 << 30, 1);
    let mut asked = 0;
    for _ in 0..100 {
        let range = range(rand::random_range(0..(1 << 30) - MIB), MIB);
        let (got, _) = rig.read("o", range).await.unwrap();
        assert!(got == expected(range, 1), "{range:?}");
        asked += range.len();
    }
    rig.wait_fetched("o").await;
    let (gets, bytes) = rig.taken();
    assert!(bytes <= 3 * asked / 2, "{bytes} bytes for {asked}");
    assert!(gets <= 110, "{gets}");
    assert_eq!(rig.stats.load(Ordering::SeqCst), 0, "the first read tells all");
    assert!(!rig.service.reads().head(&rig.info, "o").await.unwrap().present);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_on_gets_large_reads_of_the_backend_and_the_whole_is_assembled() {
    let rig = Rig::new(1 << 30).await;
    let size = 128 * MIB + 12_345;
    write_object(&rig.file("o"), size, 1);
    for start in (0..size).step_by(MIB as usize) {
        let range = range(start, MIB.min(size - start));
        let (got, _) = rig.read("o", range).await.unwrap();
        assert!(got == expected(range, 1), "{range:?}");
    }
    rig.wait_fetched("o").await;
    let (gets, bytes) = rig.taken();
    assert_eq!(bytes, size);
    assert!(gets <= 25, "{gets} requests for {size} bytes");
    let (whole, result) = rig.read_whole("o").await;
    assert!(whole == expected(ByteRange::whole(size), 1));
    assert_eq!((result, rig.taken().0, rig.lying()), ("hit", 0, 0));
    let record = rig.service.store().get(rig.info.id, "o").await.unwrap().unwrap();
    let checksum = record.meta.checksum.unwrap();
    let mut hasher = checksum.kind.hasher();
    hasher.update(&whole);
    assert_eq!(hasher.finish(), Some(checksum));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_of_a_range_cost_one_read() {
    let rig = Rig::new(1 << 30).await;
    write_object(&rig.file("o"), 64 * MIB, 1);
    for start in [5 * MIB + 3, 30 * MIB] {
        let range = range(start, 3 * MIB);
        let all = futures::future::join_all((0..32).map(|_| rig.read("o", range))).await;
        assert!(all.iter().all(|r| r.as_ref().unwrap().0 == expected(range, 1)));
        let missed = all.iter().filter(|r| r.as_ref().unwrap().1 == "miss").count();
        assert_eq!((rig.taken().0, missed), (1, 1));
        assert_eq!(rig.read("o", range).await.unwrap().1, "hit");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_takes_what_is_here_and_fetches_the_rest() {
    let rig = Rig::new(1 << 30).await;
    let size = 40 * MIB + 77;
    write_object(&rig.file("o"), size, 1);
    for start in [4 * MIB, 20 * MIB, size - 77 - MIB] {
        rig.read("o", range(start, MIB)).await.unwrap();
    }
    rig.wait_fetched("o").await;
    let (_, before) = rig.taken();
    assert!(before <= 4 * MIB);
    let (whole, _) = rig.read_whole("o").await;
    assert!(whole == expected(ByteRange::whole(size), 1));
    assert_eq!(rig.taken().1, size - before);
    rig.service.cold_cache().prefetch(&rig.info, "o").await.unwrap();
    assert_eq!((rig.read_whole("o").await.1, rig.lying()), ("hit", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_survive_a_restart_and_are_compared_once() {
    let rig = Rig::new(1 << 30).await;
    write_object(&rig.file("o"), 64 * MIB, 1);
    let ranges = [range(MIB / 2, MIB), range(33 * MIB + 1, 2 * MIB)];
    for range in ranges {
        rig.read("o", range).await.unwrap();
    }
    rig.wait_fetched("o").await;
    let rig = rig.restart(1 << 30).await;
    for _ in 0..3 {
        for range in ranges {
            let (got, result) = rig.read("o", range).await.unwrap();
            assert!(got == expected(range, 1));
            assert_eq!(result, "hit");
        }
    }
    assert_eq!((rig.taken(), rig.stats.load(Ordering::SeqCst)), ((0, 0), 1));
    // Replaced while this target was down.
    let rig = rig.restart(1 << 30).await;
    write_object(&rig.file("o"), 65 * MIB, 2);
    assert!(rig.read("o", ranges[0]).await.unwrap().0 == expected(ranges[0], 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_are_never_mixed() {
    let rig = Rig::new(1 << 30).await;
    let size = 96 * MIB;
    write_object(&rig.file("o"), size, 1);
    let old = range(MIB, MIB);
    rig.read("o", old).await.unwrap();
    write_object(&rig.file("o"), size, 2);
    // The change is not noticed yet, and no comparison was requested.
    assert!(rig.read("o", old).await.unwrap().0 == expected(old, 1));
    // A range that needs the backend finds the new version, and starts again with it.
    let both = range(MIB, 4 * MIB);
    assert!(rig.read("o", both).await.unwrap().0 == expected(both, 2));
    assert!(rig.read("o", old).await.unwrap().0 == expected(old, 2));

    // Replaced between the response and the bytes: the old ones or an error, never both.
    let long = range(8 * MIB, 80 * MIB);
    let found = rig.found("o", long).await.unwrap();
    let mut stream = found.stream(long);
    let first = stream.next().await.unwrap().unwrap();
    write_object(&rig.file("o"), size, 3);
    let mut got = first.to_vec();
    let error = loop {
        match stream.next().await {
            Some(Ok(bytes)) => got.extend_from_slice(&bytes),
            Some(Err(e)) => break Some(e),
            None => break None,
        }
    };
    assert!(got == expected(range(long.start, got.len() as u64), 2));
    let error = error.expect("the rest of the old object is gone");
    assert_eq!(error.code.status(), 503, "{error}");
    assert!(rig.read("o", long).await.unwrap().0 == expected(long, 3));

    // Compared with the backend each time if the bucket requires it.
    write_object(&rig.file("o"), size, 4);
    let info = BucketInfo { freshness: Freshness::Always, ..BucketInfo::clone(&rig.info) };
    let spec = Some(RangeSpec::From(old.start, Some(old.end - 1)));
    let found = rig.service.reads().get_range(&info, "o", spec).await.unwrap();
    let parts: Vec<Bytes> = found.stream(old).try_collect().await.unwrap();
    assert!(parts.concat() == expected(old, 4));
    std::fs::remove_file(rig.file("o")).unwrap();
    let gone = rig.service.reads().get_range(&info, "o", spec).await.err().unwrap();
    assert_eq!((gone.code, rig.lying()), (ErrorCode::ObjectNotFound, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_an_absence_parts_are_compared_before_they_count_as_fresh() {
    let rig = Rig::new(1 << 30).await;
    write_object(&rig.file("o"), 32 * MIB, 1);
    let asked = range(MIB, MIB);
    rig.read("o", asked).await.unwrap();
    write_object(&rig.file("o"), 32 * MIB, 2);
    for alive in [false, true] {
        let mut state = (*rig.maps.load()).clone();
        let id = NodeId::new("target-01").unwrap();
        state.apply(state.version + 1, Command::SetAlive { id, alive, yields: false }).unwrap();
        rig.maps.offer(state);
    }
    assert!(rig.read("o", asked).await.unwrap().0 == expected(asked, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_is_healed_in_the_same_request() {
    let rig = Rig::new(1 << 30).await;
    write_object(&rig.file("o"), 32 * MIB, 1);
    let asked = range(2 * MIB + 100, 3 * MIB);
    rig.read("o", asked).await.unwrap();
    rig.wait_fetched("o").await;
    rig.taken();
    let files = std::fs::read_dir(rig.disk().join("partial")).unwrap();
    let payload = files.map(|f| f.unwrap().path()).find(|p| p.extension().is_none()).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(payload).unwrap();
    for place in [2 * MIB + 200, 4 * MIB] {
        file.write_all_at(b"damage", place).unwrap();
        assert!(rig.read("o", asked).await.unwrap().0 == expected(asked, 1));
        assert_eq!(rig.taken(), (1, GRANULE), "one granule is fetched again");
        assert_eq!(rig.read("o", asked).await.unwrap().1, "hit");
    }
    // And while the whole is assembled.
    file.write_all_at(b"damage", 3 * MIB).unwrap();
    assert!(rig.read_whole("o").await.0 == expected(range(0, 32 * MIB), 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_removals_and_evictions_end_what_is_here_in_part() {
    let rig = Rig::new(1 << 30).await;
    let asked = range(MIB, MIB);
    for way in 0..4 {
        write_object(&rig.file("o"), 32 * MIB, 1);
        rig.read("o", asked).await.unwrap();
        assert_eq!(rig.lying(), 2);
        match way {
            0 => {
                let body = futures::stream::iter([Ok(Bytes::from_static(b"new"))]).boxed();
                let put = PutRequest::new(body);
                rig.service.writes().put(&rig.info, "o", put).await.unwrap();
                assert_eq!(rig.read_whole("o").await.0, "new");
                rig.service.cold_cache().evict(&rig.info, "o").await.unwrap();
            }
            1 => {
                rig.service.writes().delete(&rig.info, "o").await.unwrap();
                let gone = rig.read("o", asked).await.unwrap_err();
                assert_eq!(gone.code, ErrorCode::ObjectNotFound);
            }
            2 => {
                // A reader has its bytes a moment before they are stored.
                rig.wait_fetched("o").await;
                assert!(
                    rig.service.cold_cache().evict(&rig.info, "o").await.unwrap().unwrap() >= MIB
                );
            }
            _ => rig.service.drop_bucket(rig.info.id).await.unwrap(),
        }
        rig.wait_fetched("o").await;
        let stored = rig.service.store().usage().stored;
        assert!(rig.lying() == 0 && stored < 65_536, "way {way}: {stored}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_make_room_and_without_room_ranges_are_still_served() {
    let rig = Rig::new(12 * MIB).await;
    for name in ["a", "b", "c"] {
        write_object(&rig.file(name), 64 * MIB, 1);
        for start in [0, 20, 40] {
            let asked = range(start * MIB + 9, 3 * MIB);
            assert!(rig.read(name, asked).await.unwrap().0 == expected(asked, 1));
            let usage = rig.service.store().usage();
            assert!(usage.stored <= usage.budget, "{usage:?}");
        }
    }
    assert!(rig.lying() <= 4);
    // More than the disk holds, in one request.
    let asked = range(MIB, 60 * MIB);
    assert!(rig.read("a", asked).await.unwrap().0 == expected(asked, 1));
    let usage = rig.service.store().usage();
    assert!(usage.stored <= usage.budget, "{usage:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn odd_ranges_are_answered() {
    let rig = Rig::new(1 << 30).await;
    let size = 20 * MIB + 5;
    write_object(&rig.file("o"), size, 1);
    for (spec, want) in [
        (RangeSpec::Suffix(10), Some(range(size - 10, 10))),
        (RangeSpec::From(size - 3, None), Some(range(size - 3, 3))),
        (RangeSpec::From(size - 3, Some(size + 100)), Some(range(size - 3, 3))),
        (RangeSpec::From(size, Some(size + 3)), None),
    ] {
        for fresh in [true, false] {
            let found = rig.service.reads().get_range(&rig.info, "o", Some(spec)).await.unwrap();
            let meta = found.meta().clone();
            assert_eq!(meta.size, size);
            let resolved = spec.resolve(meta.size).ok();
            assert_eq!(resolved, want);
            if let Some(range) = want {
                let parts: Vec<Bytes> = found.stream(range).try_collect().await.unwrap();
                assert!(parts.concat() == expected(range, 1), "{spec:?} {fresh}");
            }
        }
        rig.service.cold_cache().evict(&rig.info, "o").await.unwrap();
    }
    // Small objects are fetched as a whole.
    write_object(&rig.file("small"), 5 * MIB, 1);
    rig.taken();
    let asked = range(MIB, MIB);
    assert!(rig.read("small", asked).await.unwrap().0 == expected(asked, 1));
    rig.service.cold_cache().prefetch(&rig.info, "small").await.unwrap();
    assert_eq!(rig.read_whole("small").await.1, "hit");
    let missing = rig.read("missing", asked).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::ObjectNotFound);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heads_and_ranges_speak_of_one_version() {
    let mut rig = Rig::new(1 << 30).await;
    rig.info = Arc::new(BucketInfo { freshness: Freshness::Age(600), ..(*rig.info).clone() });
    let near = range(MIB, MIB);
    for restarted in [false, true] {
        write_object(&rig.file("o"), 32 * MIB, 1);
        assert!(rig.read("o", near).await.unwrap().0 == expected(near, 1));
        rig.wait_fetched("o").await;
        if restarted {
            let info = rig.info.clone();
            rig = rig.restart(1 << 30).await;
            rig.info = info;
        }
        write_object(&rig.file("o"), 40 * MIB, 2);
        assert_eq!(rig.service.reads().head(&rig.info, "o").await.unwrap().size, 40 * MIB);
        assert!(rig.read("o", near).await.unwrap().0 == expected(near, 2), "{restarted}");
        let far = range(40 * MIB - 8, 8);
        assert!(rig.read("o", far).await.unwrap().0 == expected(far, 2), "{restarted}");
        rig.wait_fetched("o").await;

        // A listing may have reported the new size.
        write_object(&rig.file("o"), 48 * MIB, 3);
        let far = range(48 * MIB - 8, 8);
        assert!(rig.read("o", far).await.unwrap().0 == expected(far, 3), "{restarted}");
        assert!(rig.read("o", near).await.unwrap().0 == expected(near, 3), "{restarted}");
        rig.wait_fetched("o").await;

        std::fs::remove_file(rig.file("o")).unwrap();
        let gone = rig.service.reads().head(&rig.info, "o").await.unwrap_err();
        assert_eq!(gone.code, ErrorCode::ObjectNotFound);
        let gone = rig.read("o", near).await.unwrap_err();
        assert_eq!((gone.code, rig.lying()), (ErrorCode::ObjectNotFound, 0));
    }
    // A metadata request that finds the same version counts as a comparison.
    write_object(&rig.file("o"), 32 * MIB, 1);
    rig.read("o", near).await.unwrap();
    rig.wait_fetched("o").await;
    let asked = rig.stats.load(Ordering::SeqCst);
    rig.service.reads().head(&rig.info, "o").await.unwrap();
    assert_eq!(rig.read("o", near).await.unwrap().1, "hit");
    assert_eq!(rig.stats.load(Ordering::SeqCst), asked + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_in_part_are_listed_checked_and_refreshed() {
    let rig = Rig::new(1 << 30).await;
    std::fs::create_dir(rig.file("b")).unwrap();
    for name in ["a", "b/c", "b/d"] {
        write_object(&rig.file(name), 32 * MIB, 1);
        rig.read(name, range(MIB, MIB)).await.unwrap();
        rig.wait_fetched(name).await;
    }
    let page = async |prefix: &str| {
        let (bucket_id, limit) = (rig.info.id, 9);
        let request = forebay_core::intra::ListRequest {
            bucket_id,
            limit,
            prefix: prefix.into(),
            ..<_>::default()
        };
        let page = rig.service.listing().page_of_copies(&request).await.unwrap();
        assert!(page.entries.iter().all(|e| !e.meta.present && e.meta.size == 32 * MIB));
        page.entries.into_iter().map(|e| e.name).collect::<Vec<_>>()
    };
    assert_eq!(page("").await, ["a", "b/c", "b/d"]);
    assert_eq!(page("b/").await, ["b/c", "b/d"]);

    let payload = std::fs::read_dir(rig.disk().join("partial")).unwrap();
    let payloads = payload.map(|f| f.unwrap().path()).filter(|p| p.extension().is_none());
    for payload in payloads {
        let file = std::fs::OpenOptions::new().write(true).open(payload).unwrap();
        file.write_all_at(b"damage", MIB + 70_000).unwrap();
    }
    let id = rig.info.id;
    let checked = |name| rig.service.cold_cache().check_parts(id, name, |_, _, _| Duration::ZERO);
    let found = checked("a").await.unwrap().unwrap();
    assert_eq!(found, super::CheckedParts { bytes: MIB - GRANULE, damaged: 1 });
    assert_eq!(checked("a").await.unwrap().unwrap().damaged, 0, "it was dropped");
    assert!(checked("none").await.unwrap().is_none());

    assert!(!rig.service.cold_cache().drop_stale(&rig.info, "a").await.unwrap());
    write_object(&rig.file("a"), 32 * MIB, 2);
    assert!(rig.service.cold_cache().drop_stale(&rig.info, "a").await.unwrap());
    std::fs::remove_file(rig.file("b/c")).unwrap();
    assert!(rig.service.cold_cache().drop_stale(&rig.info, "b/c").await.unwrap());
    assert_eq!(page("").await, ["b/d"]);
}
