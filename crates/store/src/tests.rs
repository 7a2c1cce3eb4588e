//! Guarantees of the store on healthy disks, full disks and damaged files.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use forebay_core::bucket::Class;
use forebay_core::size::ByteRange;
use futures::TryStreamExt;
use proptest::prelude::*;

use super::faulty::{Fault, FaultyDisk};
use super::format::{BLOCK, INLINE_MAX_BYTES};
use super::*;

pub(super) const BIG: u64 = 1 << 30;
pub(super) const MIB: usize = 1 << 20;
/// Too large for the log.
pub(super) const FILE_OBJECT_BYTES: usize = 150_000;

pub(super) async fn open(path: &Path) -> Result<Store> {
    Store::open(vec![DiskSettings::new(path, Some(BIG))], Arc::new(RealDisk)).await
}

pub(super) async fn rebuilt(path: &Path) -> Result<Store> {
    let settings = DiskSettings { rebuild_index: true, ..DiskSettings::new(path, Some(BIG)) };
    Store::open(vec![settings], Arc::new(RealDisk)).await
}

pub(super) fn owned() -> RecordMeta {
    RecordMeta { mtime_ns: 7, version: "1".into(), ..RecordMeta::default() }
}

pub(super) fn cached() -> RecordMeta {
    RecordMeta { class: Class::Cache, backed: true, ..RecordMeta::default() }
}

/// Bytes that differ in every block and between seeds.
pub(super) fn payload(len: usize, seed: u8) -> Bytes {
    (0..len).map(|i| (i as u8).wrapping_mul(31) ^ (i >> 16) as u8 ^ seed).collect()
}

pub(super) async fn contents(store: &Store, bucket: u64, name: &str) -> Option<Bytes> {
    let reader = store.open_object(bucket, name).await.unwrap()?;
    Some(reader.read_all().await.unwrap())
}

/// All files under `dir`.
pub(super) fn files(dir: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            out.extend(files(&entry.path()));
        } else {
            out.push(entry.path());
        }
    }
    out
}

pub(super) fn the_file(disk: &Path) -> PathBuf {
    let all = files(&disk.join("objects"));
    assert_eq!(all.len(), 1, "{all:?}");
    all.into_iter().next().unwrap()
}

#[tokio::test]
async fn what_was_put_is_read_whole_in_ranges_and_as_a_stream() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let block = BLOCK as usize;
    for size in [0, 1, block - 1, block, block + 1, 3 * block, 9 * block + 17] {
        let name = format!("o{size}");
        let data = payload(size, 3);
        let mut work = store.begin(1, &name, None).await.unwrap();
        for piece in data.chunks(50_000) {
            work.write(Bytes::copy_from_slice(piece)).await.unwrap();
        }
        assert_eq!(work.written(), size as u64);
        let record = store.commit(work, owned()).await.unwrap();
        assert_eq!(record.size, size as u64);
        let reader = store.reader(&record).await.unwrap();
        assert_eq!(reader.read_all().await.unwrap(), data);
        let at = |x: usize| x.min(size);
        let edges = [0, 1, at(7), at(block - 1), at(block), at(5 * block + 3), size];
        for start in edges {
            for end in edges.into_iter().filter(|e| *e >= start && *e <= size) {
                let range = ByteRange { start: start.min(size) as u64, end: end as u64 };
                let want = &data[start.min(size)..end];
                assert_eq!(reader.read(range).await.unwrap(), want);
                let pieces: Vec<Bytes> = reader.stream(range).try_collect().await.unwrap();
                assert!(pieces.iter().all(|p| p.len() <= 256 << 10));
                assert_eq!(pieces.concat(), want);
            }
        }
        let beyond = ByteRange { start: 0, end: size as u64 + 1 };
        assert_eq!(reader.read(beyond).await.unwrap_err().code, ErrorCode::RangeNotSatisfiable);
        let (_, small) = store.read_small(1, &name, 100_000).await.unwrap().unwrap();
        assert_eq!(small, (size <= 100_000).then_some(data));
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_an_error_and_never_wrong_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let data = payload(3 * BLOCK as usize + 100, 1);
    let store = open(dir.path()).await.unwrap();
    let record = store.put(1, "o", data.clone(), owned()).await.unwrap();
    let path = the_file(dir.path());
    let sound = fs::read(&path).unwrap();
    let table = data.len()..data.len() + 16;
    let blocks = (0..4).flat_map(|b| [b * BLOCK as usize, b * BLOCK as usize + 99]);
    for (n, byte) in blocks.chain(table).enumerate() {
        let mut damaged = sound.clone();
        damaged[byte] ^= 1 << (n % 8);
        fs::write(&path, &damaged).unwrap();
        let reader = store.reader(&record).await.unwrap();
        assert!(is_corrupt(&reader.read_all().await.unwrap_err()), "byte {byte}");
        let whole: Result<Vec<Bytes>> =
            reader.stream(ByteRange::whole(record.size)).try_collect().await;
        assert!(is_corrupt(&whole.unwrap_err()), "byte {byte}");
        for b in 0..4u64 {
            let range = ByteRange { start: b * BLOCK + 1, end: b * BLOCK + 50 };
            match reader.read(range).await {
                Ok(got) => assert_eq!(got, &data[range.start as usize..range.end as usize]),
                Err(e) => assert!(is_corrupt(&e)),
            }
        }
    }
    fs::write(&path, &sound[..data.len() - 1]).unwrap();
    let reader = store.reader(&record).await.unwrap();
    assert!(is_corrupt(&reader.read_all().await.unwrap_err()));
    fs::write(&path, &sound).unwrap();
    assert_eq!(contents(&store, 1, "o").await.unwrap(), data);
}

#[tokio::test]
async fn names_never_become_paths() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    let store = open(&disk).await.unwrap();
    let names = ["../../escape", "/etc/x", "a//b", "x/", "..", ".", "~", "a\nb", "\u{1F4A7}"];
    for name in names {
        store.put(1, name, payload(10, 0), owned()).await.unwrap();
        assert_eq!(contents(&store, 1, name).await.unwrap(), payload(10, 0));
    }
    let long = "n".repeat(1024);
    store.put(1, &long, payload(1, 0), owned()).await.unwrap();
    for bad in ["", "nul\0", &"n".repeat(1025)] {
        assert_eq!(store.begin(1, bad, None).await.err().unwrap().code, ErrorCode::InvalidName);
    }
    for name in names {
        store.put(1, name, payload(FILE_OBJECT_BYTES, 0), owned()).await.unwrap();
        assert_eq!(contents(&store, 1, name).await.unwrap(), payload(FILE_OBJECT_BYTES, 0));
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    let hex = |p: &PathBuf| u64::from_str_radix(p.file_name().unwrap().to_str().unwrap(), 16);
    for folder in ["objects", "log", "work"] {
        assert!(files(&disk.join(folder)).iter().all(|p| hex(p).is_ok()));
    }
}

#[tokio::test]
async fn usage_follows_every_change_and_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    store.put(1, "a", payload(100, 0), owned()).await.unwrap();
    store.put(1, "b", payload(200, 0), cached()).await.unwrap();
    store.put(2, "a", payload(300, 0), owned()).await.unwrap();
    store.put(1, "a", payload(1000, 0), owned()).await.unwrap();
    assert_eq!(store.remove(2, "a").await.unwrap().unwrap().size, 300);
    assert_eq!(store.remove(2, "a").await.unwrap(), None);
    let before = store.usage();
    assert_eq!((before.objects, before.bytes, before.budget), (2, 1200, BIG));
    assert!(before.stored >= before.bytes);
    let report = &store.disk_report()[0];
    assert_eq!((report.path.as_path(), report.usage), (dir.path(), before));
    drop(store);
    assert_eq!(open(dir.path()).await.unwrap().usage(), before);
    let store = rebuilt(dir.path()).await.unwrap();
    assert_eq!(store.usage(), before);
    assert_eq!(contents(&store, 1, "a").await.unwrap(), payload(1000, 0));
    assert_eq!(store.buckets().await.unwrap(), [1]);
    assert_eq!(store.remove_bucket(1).await.unwrap(), (2, 1200));
    let after = store.usage();
    assert_eq!((after.objects, after.bytes, after.stored), (0, 0, 0));
    assert!(files(&dir.path().join("objects")).is_empty());
}

#[tokio::test]
async fn a_reader_is_not_hurt_by_overwrite_or_removal() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let old = store.put(1, "o", payload(MIB, 1), owned()).await.unwrap();
    let reader = store.reader(&old).await.unwrap();
    let new = store.put(1, "o", payload(10, 2), owned()).await.unwrap();
    assert!(new.generation > old.generation);
    assert_eq!(reader.read_all().await.unwrap(), payload(MIB, 1));
    assert_eq!(store.reader(&old).await.err().unwrap().code, ErrorCode::ObjectNotFound);
    let newer = store.open_object(1, "o").await.unwrap().unwrap();
    assert!(!store.discard(&old).await.unwrap(), "a newer commit must stay");
    assert!(store.discard(&new).await.unwrap());
    assert_eq!(newer.read_all().await.unwrap(), payload(10, 2));
    assert_eq!(contents(&store, 1, "o").await, None);
}

#[tokio::test]
async fn an_entry_without_a_file_is_absent_and_goes() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let record = store.put(1, "o", payload(FILE_OBJECT_BYTES, 1), cached()).await.unwrap();
    fs::remove_file(the_file(dir.path())).unwrap();
    assert!(store.open_object(1, "o").await.unwrap().is_none());
    assert_eq!(store.get(1, "o").await.unwrap(), None);
    assert_eq!(store.usage().objects, 0);
    assert_eq!(store.update(&record, |_| ()).await.unwrap_err().code, ErrorCode::ObjectNotFound);
}

#[tokio::test]
async fn a_growing_file_can_be_followed_and_vanishes_when_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let mut work = store.begin(1, "o", Some(200)).await.unwrap();
    let follower = work.file();
    let mut seen = [0; 100];
    work.write(payload(100, 1)).await.unwrap();
    follower.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen, payload(100, 1)[..]);
    assert_eq!(store.get(1, "o").await.unwrap(), None);
    drop(work);
    assert!(files(&dir.path().join("work")).is_empty());
    follower.read_exact_at(&mut seen, 0).unwrap();
    let mut work = store.begin(1, "o", Some(100)).await.unwrap();
    work.write(payload(100, 2)).await.unwrap();
    let follower = work.file();
    store.commit(work, owned()).await.unwrap();
    store.remove(1, "o").await.unwrap();
    follower.read_exact_at(&mut seen, 0).unwrap();
    assert_eq!(seen, payload(100, 2)[..]);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_keeps_reading_and_deleting() {
    let dir = tempfile::tempdir().unwrap();
    let disks = vec![DiskSettings::new(dir.path(), Some(MIB as u64))];
    let store = Store::open(disks, Arc::new(RealDisk)).await.unwrap();
    let refused = store.begin(1, "big", Some(2 * MIB as u64)).await.err().unwrap();
    assert_eq!(refused.code, ErrorCode::OutOfSpace);
    store.put(1, "half", payload(MIB / 2, 0), owned()).await.unwrap();
    let mut work = store.begin(1, "grows", None).await.unwrap();
    let error = loop {
        match work.write(payload(100_000, 0)).await {
            Ok(()) => assert!(work.written() < MIB as u64),
            Err(e) => break e,
        }
    };
    assert_eq!(error.code, ErrorCode::OutOfSpace);
    drop(work);
    assert!(files(&dir.path().join("work")).is_empty());
    assert_eq!(contents(&store, 1, "half").await.unwrap().len(), MIB / 2);
    let refused = store.put(1, "other", payload(MIB / 2, 0), owned()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::OutOfSpace);
    store.remove(1, "half").await.unwrap();
    store.put(1, "other", payload(MIB / 2, 0), owned()).await.unwrap();
}

#[tokio::test]
async fn changed_metadata_of_owned_objects_survives_the_loss_of_the_index() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let record = store.put(1, "o", payload(10, 0), owned()).await.unwrap();
    for i in 0..3 {
        let changed = store
            .update(&record, move |m| {
                m.custom.insert("k".into(), i.to_string());
                m.epoch = 9;
            })
            .await
            .unwrap();
        assert_eq!(store.get(1, "o").await.unwrap().unwrap(), changed);
    }
    store.update(&record, |m| m.epoch = 10).await.unwrap();
    drop(store);
    let store = open(dir.path()).await.unwrap();
    assert_eq!(store.get(1, "o").await.unwrap().unwrap().meta.epoch, 10);
    drop(store);
    let store = rebuilt(dir.path()).await.unwrap();
    let meta = store.get(1, "o").await.unwrap().unwrap().meta;
    assert_eq!((meta.custom["k"].as_str(), meta.epoch), ("2", 9));
    assert_eq!(contents(&store, 1, "o").await.unwrap(), payload(10, 0));
}

#[tokio::test]
async fn access_times_are_visible_immediately_and_survive_a_flush() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let record = store.put(1, "o", payload(10, 0), owned()).await.unwrap();
    store.touch(&record, 55);
    assert_eq!(store.get(1, "o").await.unwrap().unwrap().meta.atime_ns, 55);
    store.flush().await.unwrap();
    drop(store);
    let store = open(dir.path()).await.unwrap();
    assert_eq!(store.get(1, "o").await.unwrap().unwrap().meta.atime_ns, 55);
}

#[tokio::test]
async fn owned_objects_are_synced_in_order_and_cached_ones_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let io = FaultyDisk::new();
    let disks = vec![DiskSettings::new(dir.path(), Some(BIG))];
    let store = Store::open(disks, Arc::new(io.clone())).await.unwrap();
    store.put(1, "o", payload(10, 0), owned()).await.unwrap();
    store.put(1, "l", payload(FILE_OBJECT_BYTES, 0), owned()).await.unwrap();
    let steps = || {
        let log = io.log().join(" ");
        io.plan(u64::MAX / 2, Fault::Crash);
        log
    };
    steps();
    store.put(1, "o", payload(10, 1), owned()).await.unwrap();
    assert_eq!(steps(), "append sync index.batch");
    store.remove(1, "o").await.unwrap();
    assert_eq!(steps(), "append sync index.batch");
    store.put(1, "l", payload(FILE_OBJECT_BYTES, 1), owned()).await.unwrap();
    let in_a_file = "create write write sync sync_dir append sync index.batch rename unlink";
    assert_eq!(steps().replace("write write write", "write write"), in_a_file);
    store.remove(1, "l").await.unwrap();
    assert_eq!(steps(), "append sync index.batch unlink");
    for size in [10, FILE_OBJECT_BYTES] {
        store.put(1, "c", payload(size, 1), cached()).await.unwrap();
        store.remove(1, "c").await.unwrap();
        let log = steps();
        assert!(log.contains("append") && !log.contains("sync"), "{log}");
    }
}

#[tokio::test]
async fn concurrent_writers_share_a_sync() {
    let dir = tempfile::tempdir().unwrap();
    let io = FaultyDisk::new();
    let disks = vec![DiskSettings::new(dir.path(), Some(BIG))];
    let store = Store::open(disks, Arc::new(io.clone())).await.unwrap();
    io.plan(u64::MAX / 2, Fault::Crash);
    let names: Vec<String> = (0..200).map(|i| format!("o{i}")).collect();
    let puts = names.iter().map(|name| store.put(1, name, payload(500, 0), owned()));
    futures::future::try_join_all(puts).await.unwrap();
    let syncs = io.log().iter().filter(|step| **step == "sync").count();
    assert!((1..100).contains(&syncs), "{syncs} syncs");
}

#[tokio::test]
async fn after_a_failed_sync_the_disk_takes_no_writes_and_still_reads() {
    let dir = tempfile::tempdir().unwrap();
    let io = FaultyDisk::new();
    let disks = vec![DiskSettings::new(dir.path(), Some(BIG))];
    let store = Store::open(disks, Arc::new(io.clone())).await.unwrap();
    // After the first one the log preallocates; then a write is an append and a sync.
    for name in ["before", "o"] {
        store.put(1, name, payload(10, 0), owned()).await.unwrap();
    }
    io.plan(1, Fault::Fail(std::io::ErrorKind::Other));
    store.put(1, "o", payload(10, 1), owned()).await.unwrap_err();
    assert!(io.struck());
    let e = store.put(1, "p", payload(10, 1), owned()).await.unwrap_err();
    assert!(e.message.contains("takes no"), "{e}");
    assert_eq!(contents(&store, 1, "o").await.unwrap(), payload(10, 0));
}

#[tokio::test]
async fn compaction_frees_what_is_dead_and_keeps_what_is_live() {
    let dir = tempfile::tempdir().unwrap();
    let disks = || vec![DiskSettings::new(dir.path(), Some(64 << 20))];
    let store = Store::open(disks(), Arc::new(RealDisk)).await.unwrap();
    for i in 0..200usize {
        let meta = if i % 2 == 0 { owned() } else { cached() };
        store.put(1, &format!("o{i:03}"), payload(30_000, i as u8), meta).await.unwrap();
    }
    for i in (0..200).filter(|i| i % 5 != 0) {
        store.remove(1, &format!("o{i:03}")).await.unwrap();
    }
    let before = store.usage();
    let volume = store.volumes()[0].clone();
    // Some of it may have been done in the background already.
    blocking(move || volume.compact_all()).await.unwrap();
    let after = store.usage();
    assert!(after.dead < 1_000_000, "{after:?}");
    assert_eq!((after.objects, after.stored), (before.objects, before.stored));
    let on_disk: u64 =
        files(&dir.path().join("log")).iter().map(|f| f.metadata().unwrap().len()).sum();
    assert!(on_disk < 2_500_000, "{on_disk}");
    drop(store);
    for rebuild_index in [false, true] {
        let settings = vec![DiskSettings { rebuild_index, ..disks().remove(0) }];
        let store = Store::open(settings, Arc::new(RealDisk)).await.unwrap();
        assert_eq!(store.usage().objects, 40);
        for i in 0..200usize {
            let kept = (i % 5 == 0).then(|| payload(30_000, i as u8));
            assert_eq!(contents(&store, 1, &format!("o{i:03}")).await, kept);
        }
    }
}

#[tokio::test]
async fn listings_agree_with_a_sorted_set() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let names: BTreeSet<String> = (0..60)
        .map(|i: u32| format!("{}/{:x}", ["a", "ab", "b", "\u{e4}"][i as usize % 4], i * 7919))
        .collect();
    for name in &names {
        store.put(5, name, payload(1, 0), cached()).await.unwrap();
        store.put(6, name, payload(1, 0), cached()).await.unwrap();
    }
    let bounds = [None, Some(""), Some("a/5"), Some("ab"), Some("b/1ee"), Some("zz"), Some("~")];
    for prefix in ["", "a", "a/", "ab/", "b/1", "\u{e4}", "zz"] {
        for after in bounds {
            for until in bounds {
                for limit in [1, 7, 100] {
                    let (rows, more) = store.list(5, prefix, after, until, limit).await.unwrap();
                    let want: Vec<&String> = names
                        .iter()
                        .filter(|n| n.starts_with(prefix))
                        .filter(|n| after.is_none_or(|a| n.as_str() > a))
                        .filter(|n| until.is_none_or(|u| n.as_str() <= u))
                        .collect();
                    let got: Vec<&String> = rows.iter().map(|r| &r.name).collect();
                    assert_eq!(got, want[..want.len().min(limit)], "{prefix} {after:?} {until:?}");
                    assert_eq!(more, want.len() > limit);
                }
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put(u8, usize),
    Remove(u8),
    Reopen(bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0u8..6, 0usize..200_000).prop_map(|(k, n)| Op::Put(k, n)),
        3 => (0u8..6).prop_map(Op::Remove),
        1 => any::<bool>().prop_map(Op::Reopen),
    ];
    proptest::collection::vec(op, 1..30)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]
    #[test]
    fn any_history_leaves_what_a_map_would_hold(ops in ops()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let mut store = Some(open(dir.path()).await.unwrap());
            let mut model = std::collections::BTreeMap::new();
            for (i, op) in ops.into_iter().enumerate() {
                let now = store.as_ref().unwrap();
                match op {
                    Op::Put(k, n) => {
                        let data = payload(n, i as u8);
                        now.put(1, &format!("k{k}"), data.clone(), cached()).await.unwrap();
                        model.insert(format!("k{k}"), data);
                    }
                    Op::Remove(k) => {
                        let removed = now.remove(1, &format!("k{k}")).await.unwrap();
                        assert_eq!(removed.is_some(), model.remove(&format!("k{k}")).is_some());
                    }
                    Op::Reopen(rebuild) => {
                        drop(store.take());
                        let again =
                            if rebuild { rebuilt(dir.path()).await } else { open(dir.path()).await };
                        store = Some(again.unwrap());
                    }
                }
            }
            let store = store.unwrap();
            for (name, data) in &model {
                assert_eq!(contents(&store, 1, name).await.as_ref(), Some(data));
            }
            let bytes: usize = model.values().map(Bytes::len).sum();
            let usage = store.usage();
            assert_eq!((usage.objects as usize, usage.bytes as usize), (model.len(), bytes));
            let large = model.values().filter(|data| data.len() as u64 > INLINE_MAX_BYTES).count();
            assert_eq!(files(&dir.path().join("objects")).len(), large);
        });
    }
}

#[tokio::test]
async fn names_that_no_index_can_hold_are_refused_and_the_disk_stays_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    store.put(1, "xx", Bytes::from("here"), owned()).await.unwrap();
    for bytes in [65_528, 70_000, 1 << 20] {
        let name = "x".repeat(bytes);
        let refused = [
            store.find(1, &name).err(),
            store.get(1, &name).await.err(),
            store.open_object(1, &name).await.err(),
            store.remove(1, &name).await.err(),
            store.put(1, &name, Bytes::new(), owned()).await.err(),
            store.list(1, &name, None, None, 9).await.err(),
        ];
        for (n, refused) in refused.into_iter().enumerate() {
            assert_eq!(refused.map(|e| e.code), Some(ErrorCode::InvalidName), "call {n}, {bytes}");
        }
        // Where a page starts and ends may be any text.
        let names = |page: Vec<Record>| page.into_iter().map(|r| r.name).collect::<Vec<_>>();
        let (after, _) = store.list(1, "", Some(&name), None, 9).await.unwrap();
        assert_eq!(names(after), [""; 0], "\"xx\" sorts before {bytes} letters");
        let (until, _) = store.list(1, "", None, Some(&name), 9).await.unwrap();
        assert_eq!(names(until), ["xx"]);
        let (after, _) = store.list(1, "", Some(&"w".repeat(bytes)), None, 9).await.unwrap();
        assert_eq!(names(after), ["xx"]);
        assert!(store.partial(1, &name).await.unwrap().is_none());
    }
    let longest = "x".repeat(65_527);
    assert!(store.find(1, &longest).unwrap().is_none());
    assert_eq!(store.list(1, &longest, None, None, 9).await.unwrap().0.len(), 0);
    let volume = store.volumes()[0].clone();
    assert!(!volume.shared().index.is_damaged() && store.disks_away().is_empty());
    assert_eq!(contents(&store, 1, "xx").await.unwrap(), "here");
}
