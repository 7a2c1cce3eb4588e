//! Writes and syncs that fail leave the log as it was before.
#![allow(clippy::unwrap_used)]

use std::io;

use tempfile::TempDir;

use super::tests::{DISK, entries, open, placed, put};
use super::*;
use crate::faulty::{Fault, FaultyDisk};
use crate::format;

const SEGMENT: u64 = 8192;

fn faulty(dir: &TempDir) -> (FaultyDisk, Log) {
    let disk = FaultyDisk::new();
    let log = Log::open(
        Arc::new(disk.clone()),
        dir.path().join("log"),
        dir.path().join("work"),
        DISK,
        SEGMENT,
    )
    .unwrap();
    (disk, log)
}

/// The full segments that `batch` leaves behind, with the next one open.
const LEFT_SEGMENTS: u64 = 3;

/// More than three segments of frames, some with a part of their own.
fn batch(first: u64) -> Vec<Item> {
    (first..first + 6).map(|i| put("name", i, 1000 + 1000 * (i as usize % 5))).collect()
}

fn append(log: &Log, items: &[Item]) -> Result<Vec<Entry>> {
    let locations = log.append(items)?;
    Ok(items.iter().zip(locations).map(|(item, spot)| placed(item, spot)).collect())
}

#[test]
fn a_failed_append_counts_for_nothing_and_the_next_one_works() {
    for step in 0.. {
        let dir = TempDir::new().unwrap();
        let (disk, log) = faulty(&dir);
        let mut expected = append(&log, &batch(1)).unwrap();
        disk.plan(step, Fault::Fail(io::ErrorKind::StorageFull));
        let result = append(&log, &batch(11));
        let struck = disk.struck();
        // The first steps seal the segments that `batch(1)` left. A segment that could not be
        // sealed stays open and is sealed later, so the append goes on.
        let sealing = step < LEFT_SEGMENTS;
        assert_eq!(result.is_err(), struck && !sealing, "step {step} of {:?}", disk.log());
        expected.extend(result.unwrap_or_default());
        assert_eq!(entries(&log), expected);
        disk.plan(1000, Fault::Crash);
        expected.extend(append(&log, &batch(21)).unwrap());
        log.sync().unwrap();
        assert_eq!(entries(&log), expected);
        drop(log);
        let log = open(dir.path(), SEGMENT);
        assert_eq!(entries(&log), expected);
        assert_eq!(log.damaged(), []);
        if !struck {
            break;
        }
    }
}

#[test]
fn a_crash_in_an_append_leaves_what_was_before_and_whole_frames_of_it() {
    for fault in [Fault::Crash, Fault::Torn] {
        for step in 0.. {
            let dir = TempDir::new().unwrap();
            let (disk, log) = faulty(&dir);
            let before = append(&log, &batch(1)).unwrap();
            disk.plan(step, fault);
            let result = append(&log, &batch(11));
            drop(log);
            let log = open(dir.path(), SEGMENT);
            let found: Vec<_> = log
                .scan(Position::default(), true)
                .filter_map(|found| match found.unwrap() {
                    Found::Entry { entry, payload_sound, .. } => {
                        assert_eq!(payload_sound, Some(true));
                        Some(entry)
                    }
                    Found::Damaged { .. } => None,
                })
                .collect();
            let (old, new) = found.split_at(before.len());
            assert_eq!(old, before);
            let sequences: Vec<_> = new.iter().map(Entry::sequence).collect();
            assert_eq!(sequences, (11..11 + new.len() as u64).collect::<Vec<_>>());
            append(&log, &batch(21)).unwrap();
            if result.is_ok() {
                assert_eq!(new.len(), 6);
                break;
            }
        }
    }
}

#[test]
fn after_a_failed_sync_nothing_more_is_taken() {
    // The segments and their folder.
    for step in 0..3 {
        let dir = TempDir::new().unwrap();
        let (disk, log) = faulty(&dir);
        let before = append(&log, &batch(1)).unwrap();
        disk.plan(step, Fault::Fail(io::ErrorKind::Other));
        log.sync().unwrap_err();
        assert!(disk.struck());
        log.sync().unwrap_err();
        log.append(&batch(11)).unwrap_err();
        assert!(log.remove(1, false).is_err());
        assert_eq!(entries(&log), before);
    }
}

#[test]
fn a_sync_writes_what_is_new_and_nothing_else() {
    let dir = TempDir::new().unwrap();
    let (disk, log) = faulty(&dir);
    let item = put("name", 1, 10);
    let steps = |disk: &FaultyDisk| {
        let steps = disk.log();
        disk.plan(1000, Fault::Crash);
        steps
    };
    steps(&disk);
    log.append(std::slice::from_ref(&item)).unwrap();
    log.sync().unwrap();
    assert_eq!(steps(&disk), ["create", "append", "sync", "sync_dir"]);
    log.append(&[item.clone(), item.clone()]).unwrap();
    log.append(std::slice::from_ref(&item)).unwrap();
    log.sync().unwrap();
    log.sync().unwrap();
    assert_eq!(steps(&disk), ["append", "append", "sync"]);
    log.seal();
    log.append(&[item]).unwrap();
    log.sync().unwrap();
    // The header of the segment before is written, and not synced.
    assert_eq!(steps(&disk), ["write", "create", "append", "sync", "sync_dir"]);
    log.remove(1, false).unwrap();
    assert_eq!(steps(&disk), ["unlink", "sync_dir"]);
}

#[test]
fn a_record_that_is_too_long_spoils_nothing() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), SEGMENT);
    let mut long = put("long", 2, 10);
    let Entry::Put(record) = &mut long.entry else { panic!() };
    record.meta.custom.insert("k".into(), "v".repeat(format::MAX_RECORD));
    let e = log.append(&[put("a", 1, 10), long]).unwrap_err();
    assert_eq!(e.code, forebay_core::ErrorCode::InvalidArgument);
    assert_eq!(entries(&log), []);
    append(&log, &[put("a", 3, 10)]).unwrap();
    assert_eq!(entries(&log).len(), 1);
}
