//! Guarantees of partial objects: bytes are right or missing, whatever happened.
#![allow(clippy::unwrap_used)]

use std::fs;

use bytes::Bytes;
use forebay_core::ErrorCode;
use forebay_core::size::ByteRange;

use super::*;
use crate::faulty::{Fault, FaultyDisk};
use crate::tests::{cached, contents, files, open, owned};
use crate::{DiskSettings, RealDisk, Store};

const NAME: &str = "large";
/// Two granules and a bit of a third one.
const SIZE: u64 = 2 * GRANULE + 70_001;

fn content() -> Bytes {
    Bytes::from((0..SIZE).map(|i| (i * 31 % 251) as u8).collect::<Vec<_>>())
}

fn head() -> PartialHead {
    let version = "v1".to_owned();
    let (name, mtime_ns) = (NAME.to_owned(), 5);
    PartialHead {
        bucket_id: 1,
        name,
        size: SIZE,
        version,
        mtime_ns,
        made_ns: 7,
        ..PartialHead::default()
    }
}

async fn begin(store: &Store) -> Result<Arc<Partial>> {
    store.begin_partial(head(), Validation { epoch: 3, ns: 4 }).await
}

async fn keep(store: &Store, partial: &Arc<Partial>, granules: &[u32]) -> Result<()> {
    let mut writer = store.fill_partial(partial, granules.len() as u32).await?;
    for granule in granules {
        let start = u64::from(*granule) * GRANULE;
        let end = start + partial.head().granule_len(*granule);
        writer.keep(*granule, content().slice(start as usize..end as usize)).await?;
    }
    Ok(())
}

fn range_of(granule: u32) -> ByteRange {
    let start = u64::from(granule) * GRANULE;
    ByteRange { start, end: (start + GRANULE).min(SIZE) }
}

/// Reads all stored granules and compares them. Returns how many there were.
async fn check(partial: &Arc<Partial>) -> usize {
    let mut right = 0;
    for granule in 0..partial.head().granules() {
        let range = range_of(granule);
        match partial.read(range).await {
            Ok(bytes) => {
                assert!(bytes == content()[range.start as usize..range.end as usize]);
                right += 1;
            }
            Err(e) => assert_eq!(e.code, ErrorCode::Corrupt),
        }
    }
    right
}

async fn found(store: &Store) -> Option<Arc<Partial>> {
    store.partial(1, NAME).await.unwrap()
}

fn lying(dir: &Path) -> Vec<PathBuf> {
    files(&dir.join("partial"))
}

#[tokio::test]
async fn granules_are_kept_read_at_any_range_and_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let empty = store.usage();
    let partial = begin(&store).await.unwrap();
    assert!(!partial.has(0) && !partial.is_complete());
    keep(&store, &partial, &[2, 0]).await.unwrap();
    assert_eq!(partial.stretch(0, 3), (true, 1));
    assert_eq!(partial.stretch(1, 3), (false, 2));
    let stored = empty.stored + FILES + 2 * SPACE;
    assert_eq!(store.usage(), crate::Usage { stored, ..empty });
    for (start, end) in [(0, 1), (100_000, 262_000), (2 * GRANULE + 65_530, SIZE), (5, GRANULE)] {
        let got = partial.read(ByteRange { start, end }).await.unwrap();
        assert!(got == content()[start as usize..end as usize]);
    }
    let missing = partial.read(ByteRange { start: 5, end: GRANULE + 1 }).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::Corrupt);
    assert!(partial.has(0) && partial.has(2), "what was missing is no damage of the others");
    assert_eq!(partial.validation(), Validation { epoch: 3, ns: 4 });
    assert!(store.discard_partial(&partial).await.unwrap());
    assert_eq!(store.usage(), empty);
    assert!(lying(dir.path()).is_empty());
    assert_eq!(keep(&store, &partial, &[1]).await.unwrap_err().code, ErrorCode::ObjectNotFound);
    assert_eq!(store.usage(), empty);
}

#[tokio::test]
async fn granules_survive_a_restart_and_are_to_be_compared_with_the_backend_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let partial = begin(&store).await.unwrap();
    keep(&store, &partial, &[1]).await.unwrap();
    keep(&store, &partial, &[2]).await.unwrap();
    let usage = store.usage();
    drop((store, partial));
    for rebuild_index in [false, true] {
        let settings =
            DiskSettings { rebuild_index, ..DiskSettings::new(dir.path(), Some(1 << 30)) };
        let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
        assert_eq!(store.usage(), usage);
        assert_eq!(store.buckets().await.unwrap(), [1]);
        let partial = found(&store).await.unwrap();
        assert_eq!((partial.head(), check(&partial).await), (&head(), 2));
        assert_eq!(partial.validation(), Validation::default());
        assert_eq!(store.usage(), usage);
    }
}

#[tokio::test]
async fn a_complete_one_becomes_an_object_without_a_copy() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let partial = begin(&store).await.unwrap();
    keep(&store, &partial, &[0, 2]).await.unwrap();
    assert!(store.complete_partial(&partial, cached()).await.unwrap().is_none());
    keep(&store, &partial, &[1]).await.unwrap();
    assert!(partial.is_complete());
    let record = store.complete_partial(&partial, cached()).await.unwrap().unwrap();
    assert_eq!(record.size, SIZE);
    assert_eq!(contents(&store, 1, NAME).await.unwrap(), content());
    assert!(lying(dir.path()).is_empty() && found(&store).await.is_none());
    // An open reader continues.
    assert_eq!(check(&partial).await, 3);
    let usage = store.usage();
    assert_eq!((usage.objects, usage.bytes), (1, SIZE));
    drop((store, partial));
    let store = open(dir.path()).await.unwrap();
    assert_eq!(contents(&store, 1, NAME).await.unwrap(), content());
    assert_eq!(store.usage(), usage);
}

#[tokio::test]
async fn nothing_in_part_outlives_a_write_a_removal_or_its_bucket() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let empty = store.usage();
    for way in 0..4 {
        let partial = begin(&store).await.unwrap();
        keep(&store, &partial, &[0]).await.unwrap();
        match way {
            0 => drop(store.put(1, NAME, Bytes::from_static(b"new"), owned()).await.unwrap()),
            1 => drop(store.remove(1, NAME).await.unwrap()),
            2 => drop(store.remove_bucket(1).await.unwrap()),
            _ => assert!(store.drop_partial(1, NAME).await.unwrap().is_some()),
        }
        assert!(partial.is_over() && lying(dir.path()).is_empty(), "way {way}");
        assert!(found(&store).await.is_none());
        store.remove(1, NAME).await.unwrap();
        // The log may still say that it was there.
        assert!(store.usage().stored < empty.stored + 4096, "way {way}");
    }
}

#[tokio::test]
async fn the_one_unused_for_longest_goes_first() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let mut all = Vec::new();
    for (n, atime) in [30, 10, 20].into_iter().enumerate() {
        let head = PartialHead { name: format!("o{n}"), ..head() };
        let partial = store.begin_partial(head, Validation::default()).await.unwrap();
        keep(&store, &partial, &[0]).await.unwrap();
        partial.touch(atime);
        all.push(partial);
    }
    let volume = store.volumes()[0].shared().clone();
    let evict = |need, horizon, bucket| volume.evict_partials(need, horizon, |id| id == bucket);
    assert_eq!(evict(u64::MAX, 10, 1), [0; 0], "nothing is older");
    assert_eq!(evict(u64::MAX, u64::MAX, 2), [0; 0], "nothing is of that bucket");
    assert_eq!(evict(1, u64::MAX, 1), [FILES + SPACE]);
    assert_eq!(all.iter().map(|p| p.is_over()).collect::<Vec<_>>(), [false, true, false]);
    assert_eq!(evict(u64::MAX, 30, 1), [FILES + SPACE]);
    assert_eq!(all.iter().map(|p| p.is_over()).collect::<Vec<_>>(), [false, true, true]);
}

#[tokio::test]
async fn a_full_disk_takes_no_granules_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let settings = DiskSettings::new(dir.path(), Some(SPACE + FILES));
    let store = Store::open(vec![settings], Arc::new(RealDisk)).await.unwrap();
    let partial = begin(&store).await.unwrap();
    keep(&store, &partial, &[0]).await.unwrap();
    assert_eq!(keep(&store, &partial, &[1]).await.unwrap_err().code, ErrorCode::OutOfSpace);
    assert_eq!(check(&partial).await, 1);
}

#[tokio::test]
async fn no_flipped_bit_and_no_cut_gives_a_wrong_byte() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let partial = begin(&store).await.unwrap();
    keep(&store, &partial, &[0, 1, 2]).await.unwrap();
    drop((store, partial));
    let paths = lying(dir.path());
    let sound: Vec<_> = paths.iter().map(|p| fs::read(p).unwrap()).collect();
    for (file, path) in paths.iter().enumerate() {
        let step = if sound[file].len() as u64 == SIZE { 39_979 } else { 3 };
        for n in (0..sound[file].len()).step_by(step) {
            for (other, bytes) in paths.iter().zip(&sound) {
                fs::write(other, bytes).unwrap();
            }
            let mut bad = sound[file].clone();
            bad[n] ^= 1 << (n % 8);
            fs::write(path, if n % 2 == 0 { &bad } else { &sound[file][..n] }).unwrap();
            let store = open(dir.path()).await.unwrap();
            if let Some(partial) = found(&store).await {
                let right = check(&partial).await;
                // The damaged granules are dropped and can be stored again.
                keep(&store, &partial, &[0, 1, 2]).await.unwrap();
                assert_eq!(check(&partial).await, 3, "{} byte {n}: {right}", path.display());
                let stored = FILES + 3 * SPACE;
                assert_eq!(store.usage().stored, stored);
            }
        }
    }
}

#[tokio::test]
async fn a_crash_at_any_step_leaves_sound_parts_or_the_object() {
    for fault in [Fault::Crash, Fault::Torn, Fault::Fail(std::io::ErrorKind::Other)] {
        for step in 0.. {
            let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
            let io = FaultyDisk::new();
            let settings = || vec![DiskSettings::new(dir.path(), Some(1 << 30))];
            let store = Store::open(settings(), Arc::new(io.clone())).await.unwrap();
            io.plan(step, fault);
            let acknowledged = async {
                let partial = begin(&store).await?;
                keep(&store, &partial, &[1]).await?;
                keep(&store, &partial, &[0, 2]).await?;
                store.complete_partial(&partial, cached()).await
            };
            let acknowledged = acknowledged.await.is_ok();
            drop(store);
            let store = open(dir.path()).await.unwrap();
            let place = format!("{fault:?} at step {step}");
            match (contents(&store, 1, NAME).await, found(&store).await) {
                (Some(object), None) => {
                    assert!(object == content(), "{place}");
                    assert!(lying(dir.path()).is_empty(), "{place}");
                }
                (None, Some(partial)) => {
                    assert!(!acknowledged, "{place}");
                    assert_eq!(lying(dir.path()).len(), 2, "{place}");
                    check(&partial).await;
                    keep(&store, &partial, &[0, 1, 2]).await.unwrap();
                    store.complete_partial(&partial, cached()).await.unwrap().unwrap();
                    assert!(contents(&store, 1, NAME).await.unwrap() == content());
                }
                (None, None) => assert!(!acknowledged && lying(dir.path()).is_empty(), "{place}"),
                (Some(_), Some(_)) => panic!("{place}: both"),
            }
            store.remove(1, NAME).await.unwrap();
            let usage = store.usage();
            assert!(usage.objects == 0 && usage.stored < 4096, "{place}: {usage:?}");
            assert!(files(&dir.path().join("objects")).is_empty(), "{place}");
            if !io.struck() {
                assert!(acknowledged);
                break;
            }
        }
    }
}

#[tokio::test]
async fn of_two_disks_only_one_has_an_object_in_part() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    for disk in [&a, &b] {
        let store = open(disk).await.unwrap();
        let partial = begin(&store).await.unwrap();
        keep(&store, &partial, &[0]).await.unwrap();
    }
    let both = vec![DiskSettings::new(&a, Some(1 << 30)), DiskSettings::new(&b, Some(1 << 30))];
    let store = Store::open(both.clone(), Arc::new(RealDisk)).await.unwrap();
    assert_eq!(lying(&a).len() + lying(&b).len(), 2);
    assert_eq!(check(&found(&store).await.unwrap()).await, 1);
    begin(&store).await.unwrap();
    assert_eq!(lying(&a).len() + lying(&b).len(), 2);
    // The whole on the other disk counts more.
    store.put(1, NAME, content(), cached()).await.unwrap();
    assert_eq!(lying(&a).len() + lying(&b).len(), 0);
    drop(store);
    let holder =
        if open(&a).await.unwrap().get(1, NAME).await.unwrap().is_some() { &b } else { &a };
    let store = open(holder).await.unwrap();
    begin(&store).await.unwrap();
    drop(store);
    let store = Store::open(both, Arc::new(RealDisk)).await.unwrap();
    assert!(found(&store).await.is_none());
    assert_eq!(contents(&store, 1, NAME).await.unwrap(), content());
}
