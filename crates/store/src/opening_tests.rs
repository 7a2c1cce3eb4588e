//! Opening disks: several, in use elsewhere, unreadable, without index or log.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use bytes::Bytes;
use forebay_core::checksum::crc32c;

use super::faulty::{Fault, FaultyDisk};
use super::format::FOOTER;
use super::tests::*;
use super::*;

#[tokio::test]
async fn objects_spread_over_two_disks_and_stay_found_when_one_is_added() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let settings = |n: usize| -> Vec<DiskSettings> {
        dirs[..n].iter().map(|d| DiskSettings::new(d.path(), Some(BIG))).collect()
    };
    let name = |i: usize| format!("o{i:03}");
    let one = Store::open(settings(1), Arc::new(RealDisk)).await.unwrap();
    for i in 0..40 {
        one.put(1, &name(i), payload(i, 0), cached()).await.unwrap();
    }
    drop(one);
    let two = Store::open(settings(2), Arc::new(RealDisk)).await.unwrap();
    for i in 40..80 {
        two.put(1, &name(i), payload(i, 0), cached()).await.unwrap();
    }
    // When they are written again, some objects move to the other disk; none may remain twice.
    for i in 0..20 {
        two.put(1, &name(i), payload(i, 9), cached()).await.unwrap();
    }
    let before = two.usage();
    assert_eq!(before.objects, 80);
    for usage in two.disk_report().into_iter().map(|disk| disk.usage) {
        assert!((10..70).contains(&usage.objects), "{usage:?}");
    }
    drop(two);
    let two = Store::open(settings(2), Arc::new(RealDisk)).await.unwrap();
    assert_eq!(two.usage(), before);
    let (rows, more) = two.list(1, "", None, None, 1000).await.unwrap();
    assert!(!more);
    let names: Vec<String> = rows.into_iter().map(|r| r.name).collect();
    assert_eq!(names, (0..80).map(name).collect::<Vec<_>>());
    for i in 0..80 {
        let seed = if i < 20 { 9 } else { 0 };
        assert_eq!(contents(&two, 1, &name(i)).await.unwrap(), payload(i, seed));
        assert!(two.remove(1, &name(i)).await.unwrap().is_some());
        assert_eq!(two.get(1, &name(i)).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_disk_is_opened_by_one_store_at_a_time() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let e = open(dir.path()).await.err().unwrap();
    assert!(e.message.contains("in use") && e.message.contains(dir.path().to_str().unwrap()));
    drop(store);
    open(dir.path()).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_opened_is_named() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "").unwrap();
    let e = open(&dir.path().join("file/disk")).await.err().unwrap();
    assert!(e.message.contains("file/disk"), "{e}");
    let io = FaultyDisk::new();
    io.plan(0, Fault::Fail(std::io::ErrorKind::PermissionDenied));
    let disks = vec![DiskSettings::new(dir.path().join("disk"), None)];
    let e = Store::open(disks, Arc::new(io)).await.err().unwrap();
    assert!(e.message.contains("disk/.forebay") && e.hint.unwrap().contains("owner"));
    open(&dir.path().join("disk")).await.unwrap();
    let identity = dir.path().join("disk/.forebay/disk.json");
    fs::write(&identity, r#"{"format":9,"id":"x","opens":1}"#).unwrap();
    let e = open(&dir.path().join("disk")).await.err().unwrap();
    assert!(e.message.contains("disk.json") && e.message.contains("format 9"), "{e}");
    fs::write(&identity, "").unwrap();
    let e = open(&dir.path().join("disk")).await.err().unwrap();
    assert!(e.message.contains("cannot be read"), "{e}");
}

#[tokio::test]
async fn without_its_log_a_disk_still_has_what_its_files_say() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    let path = |r: &Record| store.volumes()[0].shared().object_path(r.extents()[0].id);
    let mut all = Vec::new();
    for name in ["sound", "empty", "zeros", "cut", "swapped", "big"] {
        let size = if name == "big" { 700_000 } else { FILE_OBJECT_BYTES };
        all.push(path(&store.put(1, name, payload(size, 0), owned()).await.unwrap()));
    }
    drop(store);
    fs::write(&all[1], "").unwrap();
    fs::write(&all[2], [0; 600]).unwrap();
    let cut = fs::read(&all[3]).unwrap();
    fs::write(&all[3], &cut[..cut.len() - 5]).unwrap();
    fs::copy(&all[0], &all[4]).unwrap();
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    let store = rebuilt(dir.path()).await.unwrap();
    let (rows, _) = store.list(1, "", None, None, 10).await.unwrap();
    let names: Vec<_> = rows.iter().map(|r| r.name.as_str()).collect();
    assert_eq!(names, ["big", "sound"]);
    assert_eq!(contents(&store, 1, "big").await.unwrap(), payload(700_000, 0));
    assert_eq!(files(&dir.path().join("objects")).len(), 2);
    assert_eq!(files(&dir.path().join(".forebay/lost")).len(), 2);
}

#[tokio::test]
async fn a_missing_or_half_built_index_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path()).await.unwrap();
    for i in 0..20 {
        store.put(i % 2, &format!("o{i}"), payload(100, i as u8), owned()).await.unwrap();
    }
    let before = store.usage();
    drop(store);
    fs::remove_dir_all(dir.path().join(".forebay/index")).unwrap();
    for step in 0.. {
        let io = FaultyDisk::new();
        io.plan(step, Fault::Crash);
        let disks = vec![DiskSettings::new(dir.path(), Some(BIG))];
        if Store::open(disks, Arc::new(io.clone())).await.is_ok() {
            break;
        }
        assert!(io.struck());
    }
    let store = open(dir.path()).await.unwrap();
    assert_eq!(store.usage(), before);
    assert_eq!(contents(&store, 1, "o7").await.unwrap(), payload(100, 7));
}

fn disk_json(disk: &Path) -> String {
    fs::read_to_string(disk.join(".forebay/disk.json")).unwrap()
}

/// Writes the versions on a closed disk as format 2 has them, which is the same otherwise.
fn as_format_2(disk: &Path) {
    let text = disk_json(disk).replace("\"format\":3", "\"format\":2");
    fs::write(disk.join(".forebay/disk.json"), text).unwrap();
    for path in files(&disk.join("log")) {
        let mut bytes = fs::read(&path).unwrap();
        bytes[8] = 2;
        // No state: a closed segment ends with its frames.
        bytes[10..16].fill(0);
        bytes[60..64].fill(0);
        let crc = crc32c(&bytes[..40]).to_le_bytes();
        bytes[40..44].copy_from_slice(&crc);
        bytes[56..60].copy_from_slice(&crc);
        fs::write(&path, bytes).unwrap();
    }
    for path in files(&disk.join("objects")) {
        let mut bytes = fs::read(&path).unwrap();
        let end = bytes.len() - FOOTER;
        let len = u32::from_le_bytes(*bytes[end..].first_chunk().unwrap()) as usize;
        let record = &mut bytes[end - len..end - 4];
        record[8] = 2;
        let crc = crc32c(record).to_le_bytes();
        bytes[end - 4..end].copy_from_slice(&crc);
        bytes[end + 4] = 2;
        fs::write(&path, bytes).unwrap();
    }
}

/// The formats of the segments on a disk, by their ids.
fn segment_formats(disk: &Path) -> Vec<u8> {
    let mut paths = files(&disk.join("log"));
    paths.sort();
    paths.iter().map(|path| fs::read(path).unwrap()[8]).collect()
}

/// A closed disk of format 2, and what is on it: an object in the log and one in a file.
async fn of_format_2(disk: &Path) -> [(&'static str, Bytes); 2] {
    let objects = [("small", payload(1000, 1)), ("large", payload(FILE_OBJECT_BYTES, 2))];
    let store = open(disk).await.unwrap();
    store.put(1, "removed", payload(1000, 3), owned()).await.unwrap();
    store.remove(1, "removed").await.unwrap();
    for (name, data) in &objects {
        store.put(1, name, data.clone(), owned()).await.unwrap();
    }
    drop(store);
    as_format_2(disk);
    assert!(disk_json(disk).contains("\"format\":2"));
    assert_eq!(segment_formats(disk), [2]);
    objects
}

#[tokio::test]
async fn a_disk_of_format_2_is_taken_over_and_its_segments_as_they_are_rewritten() {
    let dir = tempfile::tempdir().unwrap();
    let objects = of_format_2(dir.path()).await;
    let all_there = async |store: &Store| {
        for (name, data) in &objects {
            assert_eq!(contents(store, 1, name).await.as_ref(), Some(data));
        }
        assert!(disk_json(dir.path()).contains("\"format\":3"));
    };
    let store = open(dir.path()).await.unwrap();
    all_there(&store).await;
    store.put(1, "new", payload(1000, 4), owned()).await.unwrap();
    drop(store);
    assert_eq!(segment_formats(dir.path()), [2, 3]);

    let store = rebuilt(dir.path()).await.unwrap();
    all_there(&store).await;
    assert_eq!(contents(&store, 1, "new").await.unwrap(), payload(1000, 4));
    let volume = store.volumes()[0].clone();
    blocking(move || volume.compact_all()).await.unwrap();
    all_there(&store).await;
    drop(store);
    let formats = segment_formats(dir.path());
    assert!(!formats.is_empty() && formats.iter().all(|format| *format == 3), "{formats:?}");
    all_there(&open(dir.path()).await.unwrap()).await;
}

#[tokio::test]
async fn files_of_format_2_are_read_when_the_log_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let [_, (name, data)] = of_format_2(dir.path()).await;
    fs::remove_dir_all(dir.path().join("log")).unwrap();
    let store = rebuilt(dir.path()).await.unwrap();
    assert_eq!(contents(&store, 1, name).await, Some(data));
    assert_eq!(store.usage().objects, 1);
}
