//! Disks that fail, hang, fill up, leave and come back, while the store runs.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::faulty::{FaultyDisk, Lasting};
use super::tests::{cached, contents, owned};
use super::*;
use crate::skip;

/// Time within which a dead disk must be noticed, and a full or replaced one be usable again.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A store with the task that watches its disks; the task ends with it.
pub(super) struct Tended {
    pub(super) store: Store,
    _end: tokio_util::sync::DropGuard,
}

pub(super) async fn tended(disks: &[DiskSettings], io: Arc<dyn Disk>) -> Tended {
    let store = Store::open(disks.to_vec(), io).await.unwrap();
    let (token, mine) = (CancellationToken::new(), store.clone());
    let _end = token.clone().drop_guard();
    tokio::spawn(async move { mine.watch_disks(&token).await });
    Tended { store, _end }
}

pub(super) fn two(dir: &Path) -> [DiskSettings; 2] {
    ["a", "b"].map(|name| DiskSettings::new(dir.join(name), Some(1 << 30)))
}

pub(super) async fn soon(what: &str, mut is_so: impl FnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < TIMEOUT, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    started.elapsed()
}

pub(super) fn name(n: usize) -> String {
    format!("object {n}")
}

pub(super) fn data(n: usize, version: u8) -> Bytes {
    // Some for the log and some for files.
    Bytes::from(vec![version; 1000 + n % 4 * 60_000])
}

pub(super) async fn fill(store: &Store) {
    for n in 0..24 {
        store.put(1, &name(n), data(n, 1), owned()).await.unwrap();
    }
}

/// The objects that are on disk `number`.
pub(super) async fn on(store: &Store, number: usize) -> Vec<usize> {
    let (rows, _) = store.list(1, "", None, None, 100).await.unwrap();
    let here = rows.iter().filter(|r| r.disk == number);
    here.map(|r| r.name.strip_prefix("object ").unwrap().parse().unwrap()).collect()
}

/// Changes a store while disk 0 is away, runs `back`, and checks that disk 0 is used again.
async fn away_and_back(store: &Store, lost: &[usize], back: impl FnOnce()) {
    assert!(lost.len() > 4, "{lost:?}");
    for n in 0..24 {
        let found = contents(store, 1, &name(n)).await;
        assert_eq!(found.is_none(), lost.contains(&n));
        let e = store.check_absent(1, &name(n)).unwrap_err();
        assert_eq!((e.code, e.retry_after_s), (ErrorCode::Unavailable, Some(3)));
    }
    // Three objects are written again, and one of them is removed: its old copy on the lost disk is
    // void.
    let [kept, small, removed] = [lost[0], lost[1], lost[2]];
    for n in [kept, small, removed] {
        store.put(1, &name(n), data(n, 2), owned()).await.unwrap();
    }
    store.remove(1, &name(removed)).await.unwrap().unwrap();
    assert!(contents(store, 1, &name(removed)).await.is_none());
    store.check_absent(1, &name(removed)).unwrap();
    back();
    soon("back in use", || store.disks_away().is_empty()).await;
    soon("notes are worked off", || {
        store.volumes().iter().all(|v| v.shared().index.strays().unwrap().is_empty())
    })
    .await;
    for n in (0..24).filter(|n| *n != removed) {
        let version = if [kept, small].contains(&n) { 2 } else { 1 };
        assert_eq!(contents(store, 1, &name(n)).await.unwrap(), data(n, version));
    }
    assert!(contents(store, 1, &name(removed)).await.is_none());
    assert_eq!(store.usage().objects, 23);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_disk_is_taken_out_of_use_and_comes_back_when_it_works() {
    let dir = tempfile::tempdir().unwrap();
    let (io, disks) = (FaultyDisk::new(), two(dir.path()));
    let t = tended(&disks, Arc::new(io.clone())).await;
    fill(&t.store).await;
    let lost = on(&t.store, 0).await;
    io.set(&disks[0].path, Some(Lasting::Fails(libc::EIO)));
    soon("noticed", || t.store.disks_away().len() == 1).await;
    away_and_back(&t.store, &lost, || io.set(&disks[0].path, None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_disk_blocks_nobody_for_long() {
    let dir = tempfile::tempdir().unwrap();
    let (io, disks) = (FaultyDisk::new(), two(dir.path()));
    let t = tended(&disks, Arc::new(io.clone())).await;
    fill(&t.store).await;
    let lost = on(&t.store, 0).await;
    io.set(&disks[0].path, Some(Lasting::Hangs));
    let started = Instant::now();
    let stuck = t.store.put(1, &name(lost[3]), data(lost[3], 1), owned()).await;
    assert_eq!(stuck.unwrap_err().code, ErrorCode::Unavailable);
    assert!(started.elapsed() < TIMEOUT, "{:?}", started.elapsed());
    soon("noticed", || t.store.disks_away().len() == 1).await;
    away_and_back(&t.store, &lost, || io.set(&disks[0].path, None)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_disk_is_read_and_others_take_the_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (io, disks) = (FaultyDisk::new(), two(dir.path()));
    let t = tended(&disks, Arc::new(io.clone())).await;
    fill(&t.store).await;
    let volume = t.store.volumes()[0].clone();
    io.set(&disks[0].path, Some(Lasting::Fails(libc::EROFS)));
    soon("noticed", || volume.shared().check_alive().is_err()).await;
    for n in 0..24 {
        assert_eq!(contents(&t.store, 1, &name(n)).await.unwrap(), data(n, 1));
        let record = t.store.put(1, &name(100 + n), data(n, 2), owned()).await.unwrap();
        assert_eq!(record.disk, 1);
    }
    io.set(&disks[0].path, None);
    soon("written again", || volume.shared().check_alive().is_ok()).await;
    assert!(t.store.disks_away().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_failed_to_sync_is_opened_again_in_place() {
    let dir = tempfile::tempdir().unwrap();
    let disks = [DiskSettings::new(dir.path(), Some(1 << 30))];
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    t.store.volumes()[0].shared().give_up(&"planned");
    let e = t.store.put(1, "new", data(0, 1), owned()).await.unwrap_err();
    assert_eq!((e.code, e.retry_after_s), (ErrorCode::OutOfSpace, Some(3)));
    let alive = || t.store.volumes().iter().any(|v| v.shared().check_alive().is_ok());
    soon("opened again", alive).await;
    for n in 0..24 {
        assert_eq!(contents(&t.store, 1, &name(n)).await.unwrap(), data(n, 1));
    }
    t.store.put(1, "new", data(0, 1), owned()).await.unwrap();
}

#[tokio::test]
async fn the_folder_under_a_missing_mount_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let [a, b] = two(dir.path());
    let b = DiskSettings { mount: true, ..b };
    std::fs::create_dir_all(&b.path).unwrap();
    let store = Store::open(vec![a, b.clone()], Arc::new(RealDisk)).await.unwrap();
    let [(path, why)] = store.disks_away().try_into().unwrap();
    assert_eq!(path, b.path);
    assert!(why.contains("mounted"), "{why}");
    assert_eq!(std::fs::read_dir(&b.path).unwrap().count(), 0);
}

#[tokio::test]
async fn objects_move_to_a_new_disk_where_they_belong() {
    let dir = tempfile::tempdir().unwrap();
    let disks = two(dir.path());
    let store = Store::open(disks[..1].to_vec(), Arc::new(RealDisk)).await.unwrap();
    fill(&store).await;
    store.put(2, "copy", data(3, 1), cached()).await.unwrap();
    drop(store);
    let store = Store::open(disks.to_vec(), Arc::new(RealDisk)).await.unwrap();
    let lock: ObjectLock = Box::new(|_, _| Box::pin(async { Box::new(()) as Box<dyn Send> }));
    let moved = store.resilver_once(&lock).await.unwrap();
    assert!(moved > 4, "{moved}");
    assert_eq!(store.resilver_once(&lock).await.unwrap(), 0);
    for n in 0..24 {
        let record = store.get(1, &name(n)).await.unwrap().unwrap();
        assert_eq!(record.disk, store.disks.by_score(1, &name(n))[0].number());
        assert_eq!(contents(&store, 1, &name(n)).await.unwrap(), data(n, 1));
    }
    assert_eq!(store.usage().objects, 25);
    assert!(store.volumes().iter().all(|v| v.shared().index.strays().unwrap().is_empty()));
}

/// A small file system in a file, mounted. `None` where that is not allowed.
struct Mounted {
    dir: tempfile::TempDir,
}

impl Mounted {
    fn new(megabytes: u64) -> Option<Self> {
        let me = Self { dir: tempfile::tempdir().unwrap() };
        std::fs::create_dir(me.path()).unwrap();
        std::fs::File::create(me.image()).unwrap().set_len(megabytes << 20).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F", "-m", "0"]).arg(me.image()).status();
        if !made.is_ok_and(|s| s.success()) || !me.mount() {
            let why = "needs root, mkfs.ext4 and a loop device";
            skip::skipped_unless("FOREBAY_REQUIRE_LOOP", why);
            return None;
        }
        Some(me)
    }

    fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("disk")
    }

    fn mount(&self) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(self.image()).arg(self.path());
        mount.stderr(std::process::Stdio::null()).status().is_ok_and(|s| s.success())
    }

    fn unmount(&self) -> bool {
        let mut unmount = Command::new("umount");
        unmount.arg(self.path()).stderr(std::process::Stdio::null());
        unmount.status().is_ok_and(|s| s.success())
    }

    /// Writes until the file system is full.
    fn fill(&self) -> PathBuf {
        use std::io::Write;
        let path = self.path().join("ballast");
        let mut file = std::fs::File::create(&path).unwrap();
        for size in [1 << 20, 4096, 1] {
            while file.write_all(&vec![7; size]).is_ok() {}
        }
        path
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for _ in 0..50 {
            if self.unmount() {
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_dies_is_taken_out_and_is_back_after_it_was_mounted_again() {
    let Some(mounted) = Mounted::new(256) else { return };
    let dir = tempfile::tempdir().unwrap();
    let disks = [mounted.path(), dir.path().to_owned()]
        .map(|path| DiskSettings::new(path, Some(200 << 20)));
    let t = tended(&disks, Arc::new(RealDisk)).await;
    fill(&t.store).await;
    let lost = on(&t.store, 0).await;
    disk::shut_down(&mounted.path()).unwrap();
    let took = soon("noticed", || t.store.disks_away().len() == 1).await;
    eprintln!("a dead disk was noticed after {took:?}");
    // Nothing is open there any more.
    soon("free to unmount", || mounted.unmount()).await;
    // Without the mount the folder is there, and empty: it must not be used as the disk.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(t.store.disks_away().len(), 1);
    assert_eq!(std::fs::read_dir(mounted.path()).unwrap().count(), 0);
    away_and_back(&t.store, &lost, || assert!(mounted.mount())).await;
    drop(t);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_system_takes_reads_and_removals_and_writes_again_when_there_is_room() {
    let Some(mounted) = Mounted::new(128) else { return };
    let disks = [DiskSettings::new(mounted.path(), Some(100 << 20))];
    let t = tended(&disks, Arc::new(RealDisk)).await;
    let store = &t.store;
    // An evictor is attached, so writers wait.
    store.bell().attach(Some(90));
    fill(store).await;
    let reserve = mounted.path().join(".forebay/reserve");
    soon("the reserve is made", || reserve.exists()).await;
    let ballast = mounted.fill();
    for (size, meta) in [(1, owned()), (100_000, owned()), (1 << 20, cached())] {
        let started = Instant::now();
        let refused = store.put(1, "new", vec![1; size].into(), meta).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::OutOfSpace);
        assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    }
    for n in 0..24 {
        assert_eq!(contents(store, 1, &name(n)).await.unwrap(), data(n, 1));
    }
    for n in 0..12 {
        store.remove(1, &name(n)).await.unwrap().unwrap();
    }
    assert!(!reserve.exists());
    for n in 0..24 {
        assert_eq!(contents(store, 1, &name(n)).await.is_some(), n >= 12);
    }
    std::fs::remove_file(ballast).unwrap();
    let started = Instant::now();
    while store.put(1, "new", data(3, 1), owned()).await.is_err() {
        assert!(started.elapsed() < TIMEOUT);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    eprintln!("written again after {:?}", started.elapsed());
    soon("the reserve is made again", || reserve.exists()).await;
    assert!(store.disks_away().is_empty());
    drop(t);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_started_on_a_disk_that_leaves_service_is_void_and_does_not_keep_it_away() {
    let dir = tempfile::tempdir().unwrap();
    let disks = [DiskSettings::new(dir.path(), Some(1 << 30))];
    let t = tended(&disks, Arc::new(RealDisk)).await;
    let store = &t.store;
    fill(store).await;
    let upload = store.begin_upload(1, "o", "upload", b"{}\n").await.unwrap();
    let mut started = vec![
        store.begin(1, "untouched", None).await.unwrap(),
        store.begin(1, "small", None).await.unwrap(),
        store.begin(1, "large", None).await.unwrap(),
        store.begin_upload_part(&upload, 1, "o", None).await.unwrap(),
    ];
    for (work, len) in started.iter_mut().zip([0, 100, 300_000, 300_000]) {
        work.write(vec![1; len].into()).await.unwrap();
    }
    let head =
        PartialHead { bucket_id: 1, name: "parts".into(), size: 3 * GRANULE, ..<_>::default() };
    let partial = store.begin_partial(head, Validation { epoch: 1, ns: 1 }).await.unwrap();
    let mut writer = store.fill_partial(&partial, 3).await.unwrap();
    let granule = Bytes::from(vec![5; GRANULE as usize]);
    writer.keep(0, granule.clone()).await.unwrap();

    store.volumes()[0].shared().give_up(&"planned");
    let alive = || t.store.volumes().iter().any(|v| v.shared().check_alive().is_ok());
    let took = soon("opened again", alive).await;
    eprintln!("in use again after {took:?}");

    let last = started.pop().unwrap();
    let refused = store.keep_part(&upload, last, true).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");
    for mut work in started {
        assert!(work.in_use()().is_err());
        let refused = work.write(Bytes::from("more")).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::Unavailable, "{refused}");
        assert!(refused.retry_after_s.is_some() && refused.hint.is_some(), "{refused}");
        assert!(store.commit(work, owned()).await.is_err());
    }
    assert!(partial.is_over());
    assert!(writer.keep(1, granule.clone()).await.is_err());
    for name in ["untouched", "small", "large"] {
        assert!(contents(store, 1, name).await.is_none(), "{name}");
    }
    for n in 0..24 {
        assert_eq!(contents(store, 1, &name(n)).await.unwrap(), data(n, 1));
    }
    // The partial object that was on the disk is still there.
    let again = store.partial(1, "parts").await.unwrap().unwrap();
    let first = forebay_core::size::ByteRange { start: 0, end: GRANULE };
    assert_eq!(again.read(first).await.unwrap(), granule);
    assert_eq!(again.validation(), Validation::default(), "to be compared with its backend");
    let mut part = store.begin_upload_part(&upload, 1, "o", None).await.unwrap();
    part.write(vec![2; 300_000].into()).await.unwrap();
    store.keep_part(&upload, part, true).await.unwrap();
    store.put(1, "large", vec![3; 300_000].into(), owned()).await.unwrap();
}
