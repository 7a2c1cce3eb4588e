//! Preallocation loses and adds nothing, whenever the process ends.
#![allow(clippy::unwrap_used)]

use std::io;
use std::os::unix::fs::FileExt;

use tempfile::TempDir;

use super::tests::{DISK, entries, open, placed, put, state};
use super::*;
use crate::faulty::{Fault, FaultyDisk};
use crate::format::SegmentState;

const SEGMENT: u64 = 1 << 24;

/// A log whose process was killed now, and its folder.
fn killed(dir: &TempDir) -> (Log, TempDir) {
    let twin = TempDir::new().unwrap();
    std::fs::create_dir(twin.path().join("log")).unwrap();
    for entry in std::fs::read_dir(dir.path().join("log")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), twin.path().join("log").join(entry.file_name())).unwrap();
    }
    (open(twin.path(), SEGMENT), twin)
}

fn file_len(log: &Log, segment: u64) -> u64 {
    std::fs::metadata(&log.segment(segment).unwrap().path).unwrap().len()
}

/// Whether the file is longer than its frames.
fn has_room(log: &Log, segment: u64) -> bool {
    file_len(log, segment) > log.segment(segment).unwrap().len()
}

/// A synced group of one object each.
fn write(log: &Log, sequences: std::ops::Range<u64>, size: usize) -> Vec<(Spot, Entry)> {
    let write = |sequence| {
        let item = put("a", sequence, size);
        let spot = log.append_to_sync(std::slice::from_ref(&item)).unwrap()[0];
        log.sync().unwrap();
        (spot, placed(&item, spot))
    };
    sequences.map(write).collect()
}

/// The payload checks of a scan; without damaged stretches.
fn sounds(log: &Log) -> Vec<Option<Option<bool>>> {
    let found = log.scan_segment(1, false).map(|found| match found.unwrap() {
        Found::Entry { payload_sound, .. } => Some(payload_sound),
        Found::Damaged { .. } => None,
    });
    found.collect()
}

fn wipe(log: &Log, at: u64, len: usize) {
    let path = &log.segment(1).unwrap().path;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&vec![0; len], at).unwrap();
}

#[test]
fn what_is_written_to_a_room_is_there_after_a_crash() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), SEGMENT);
    let mut expected = Vec::new();
    for i in 0..40 {
        expected.extend(write(&log, 10 * i + 1..10 * i + 11, 10_000).into_iter().map(|(_, e)| e));
        assert!(has_room(&log, 1));
        assert!(file_len(&log, 1) - log.segment(1).unwrap().len() <= 1 << 20);
        let (after, _twin) = killed(&dir);
        assert_eq!(entries(&after), expected, "no damage, and nothing else");
    }
}

#[test]
fn a_log_that_was_closed_ends_with_its_last_frame() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), SEGMENT);
    let written = write(&log, 1..10, 5_000);
    log.close();
    assert_eq!(file_len(&log, 1), log.segment(1).unwrap().len());
    let end = file_len(&log, 1) as u32;
    assert_eq!(state(&log, 1), Some(SegmentState::Sealed { end }));
    assert_eq!(entries(&log).len(), written.len());
}

#[test]
fn a_group_that_is_not_synced_or_not_small_lets_the_file_grow() {
    for size in [100, super::room::INLINE_MAX_BYTES as usize] {
        let dir = TempDir::new().unwrap();
        let log = open(dir.path(), SEGMENT);
        write(&log, 1..5, 5_000);
        assert!(has_room(&log, 1));
        match size {
            100 => drop(log.append(&[put("a", 5, size)]).unwrap()),
            _ => drop(write(&log, 5..6, size)),
        }
        assert_eq!(file_len(&log, 1), log.segment(1).unwrap().len());
        assert_eq!(entries(&log).len(), 5);
    }
}

#[test]
fn a_full_segment_has_no_room_left() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 100_000);
    assert_eq!(write(&log, 1..100, 9_000).len(), entries(&log).len());
    let segments = log.segments();
    for (id, len) in &segments[..segments.len() - 1] {
        assert_eq!((file_len(&log, *id), *len <= 100_000), (*len, true));
    }
}

#[test]
fn half_a_group_counts_for_nothing_and_its_neighbours_stay() {
    for head_is_lost in [true, false] {
        let dir = TempDir::new().unwrap();
        let log = open(dir.path(), SEGMENT);
        write(&log, 1..3, 5_000);
        let group = [put("b", 3, 9_000), put("c", 4, 9_000), put("d", 5, 10)];
        let locations = log.append_to_sync(&group).unwrap();
        let start = u64::from(locations[1].offset);
        let at = if head_is_lost { start } else { start + u64::from(locations[1].head) + 4000 };
        wipe(&log, at, 512);
        let (after, twin) = killed(&dir);
        let sound = Some(None);
        let torn = if head_is_lost { None } else { Some(Some(false)) };
        assert_eq!(sounds(&after), [sound, sound, sound, torn, sound]);
        // The same as opening the disk does.
        let end = u64::from(locations[2].offset + locations[2].head + 10).next_multiple_of(8);
        after.wipe(Position { segment: 1, offset: start }).unwrap();
        after.cut(1, end).unwrap();
        assert_eq!((file_len(&after, 1), after.segment(1).unwrap().len()), (end, end));
        assert_eq!(state(&after, 1), Some(SegmentState::Sealed { end: end as u32 }));
        let again = open(twin.path(), SEGMENT);
        assert_eq!(sounds(&again), [sound, sound, sound, None, sound]);
    }
}

#[test]
fn what_is_damaged_in_a_segment_that_was_closed_stays_what_it_was() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), SEGMENT);
    let written = write(&log, 1..4, 9_000);
    log.close();
    let (spot, _) = &written[1];
    wipe(&log, u64::from(spot.offset + spot.head) + 4000, 512);
    assert_eq!(sounds(&open(dir.path(), SEGMENT)), [Some(None); 3]);
}

#[test]
fn a_payload_of_zeros_at_the_end_is_no_room() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), SEGMENT);
    write(&log, 1..3, 100);
    let mut zeros = put("zeros", 3, 9_000);
    zeros.payload = vec![0; 9_000].into();
    let spot = log.append_to_sync(std::slice::from_ref(&zeros)).unwrap()[0];
    let (after, _twin) = killed(&dir);
    assert_eq!(entries(&after).pop(), Some(placed(&zeros, spot)));
    assert_eq!(sounds(&after), [Some(None); 3]);
}

#[test]
fn a_room_that_cannot_be_made_costs_nothing() {
    for step in 0.. {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::new();
        let folder = dir.path().join("log");
        let log = Log::open(Arc::new(disk.clone()), folder, dir.path().join("work"), DISK, SEGMENT)
            .unwrap();
        let mut expected: Vec<_> = write(&log, 1..3, 5_000).into_iter().map(|(_, e)| e).collect();
        disk.plan(step, Fault::Fail(io::ErrorKind::StorageFull));
        let mut all = true;
        for sequence in 3..250 {
            let item = put("a", sequence, 5_000);
            match log.append_to_sync(std::slice::from_ref(&item)) {
                Ok(locations) => expected.push(placed(&item, locations[0])),
                Err(_) => all = false,
            }
            if log.sync().is_err() {
                break;
            }
        }
        assert_eq!(entries(&log), expected, "step {step}");
        let (after, _twin) = killed(&dir);
        assert_eq!(entries(&after), expected, "step {step}");
        if !disk.struck() || step == 12 {
            assert!(step > 3 && (all || disk.struck()));
            break;
        }
    }
}
