//! A segment that overwrites a recycled one loses and adds nothing, whenever the process ends.
#![allow(clippy::unwrap_used)]

use std::os::unix::fs::{FileExt, MetadataExt};

use tempfile::TempDir;

use super::room::MAX_REUSE_GROUP_BYTES;
use super::tests::{DISK, entries, open, placed, put, state};
use super::*;
use crate::faulty::FaultyDisk;
use crate::format::{FORMAT, FORMAT_2, SegmentHeader, SegmentState, TailContent};

pub(super) const SEGMENT: u64 = 100_000;
const OVER_OLD: Option<SegmentState> = Some(SegmentState::Open(TailContent::Recycled));
const NEW: Option<SegmentState> = Some(SegmentState::Open(TailContent::Zeros));

/// A log in a folder of its own, with what is written to it.
pub(super) struct Written {
    pub(super) dir: TempDir,
    disk: FaultyDisk,
    pub(super) log: Log,
    pub(super) entries: Vec<Entry>,
    next: u64,
}

impl Written {
    pub(super) fn new() -> Self {
        let dir = TempDir::new().unwrap();
        std::fs::create_dir(dir.path().join("work")).unwrap();
        let disk = FaultyDisk::new();
        let (log, spares) = (dir.path().join("log"), dir.path().join("work"));
        let log = Log::open(Arc::new(disk.clone()), log, spares, DISK, SEGMENT).unwrap();
        Self { dir, disk, log, entries: Vec::new(), next: 1 }
    }

    /// Segments that were filled by synced groups, the first `released` of which are released.
    pub(super) fn filled(released: u64) -> Self {
        let mut written = Self::new();
        while written.log.end().segment < 6 {
            written.group(3, 4_000);
        }
        for segment in 1..=released {
            written.release(segment);
        }
        written
    }

    pub(super) fn release(&mut self, segment: u64) -> bool {
        let removed = self.log.remove(segment, true).unwrap();
        self.entries.retain(|entry| spot(entry).segment != segment);
        removed.is_none()
    }

    /// A synced group of objects of this size.
    pub(super) fn group(&mut self, count: u64, size: usize) {
        let items: Vec<_> = (self.next..self.next + count).map(|i| put("a", i, size)).collect();
        let locations = self.log.append_to_sync(&items).unwrap();
        self.log.sync().unwrap();
        self.next += count;
        self.entries.extend(items.iter().zip(locations).map(|(item, spot)| placed(item, spot)));
    }

    /// Begins the next segment.
    pub(super) fn next_segment(&mut self) -> u64 {
        let segment = self.log.end().segment;
        while self.log.end().segment == segment {
            self.group(1, 9_000);
        }
        segment + 1
    }

    /// The log as it would be after the process was killed now.
    pub(super) fn killed(&self) -> (Log, TempDir) {
        let twin = TempDir::new().unwrap();
        std::fs::create_dir(twin.path().join("log")).unwrap();
        for entry in std::fs::read_dir(self.dir.path().join("log")).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), twin.path().join("log").join(entry.file_name())).unwrap();
        }
        (open(twin.path(), SEGMENT), twin)
    }

    fn meta(&self, segment: u64) -> std::fs::Metadata {
        std::fs::metadata(&self.log.segment(segment).unwrap().path).unwrap()
    }

    fn spare_files(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("work")).unwrap().count()
    }
}

pub(super) fn spot(entry: &Entry) -> Spot {
    let Entry::Put(record) = entry else { panic!("{entry:?}") };
    record.spot()
}

#[test]
fn a_released_segment_becomes_the_next_one() {
    let mut written = Written::filled(0);
    let inode = written.meta(2).ino();
    assert!(written.release(2), "it is kept");
    assert_eq!((written.spare_files(), written.log.spare_bytes() > SEGMENT / 2), (1, true));
    written.disk.plan(u64::MAX / 2, crate::faulty::Fault::Crash);
    let segment = written.next_segment();
    assert_eq!(written.meta(segment).ino(), inode);
    assert!(!written.disk.log().contains(&"create"));
    assert_eq!((written.spare_files(), written.log.spare_bytes()), (0, 0));
    assert_eq!(entries(&written.log), written.entries);
}

#[test]
fn a_released_segment_of_format_2_becomes_one_of_this_format() {
    let mut written = Written::filled(0);
    written.log.close();
    let old = written.log.segment(2).unwrap();
    let mut bytes = std::fs::read(&old.path).unwrap();
    let header = SegmentHeader { format: FORMAT_2, ..old.header };
    bytes[..SEGMENT_HEADER as usize].copy_from_slice(&header.encode(None));
    std::fs::write(&old.path, bytes).unwrap();
    written.log = open(written.dir.path(), SEGMENT);
    assert_eq!(written.log.segment(2).unwrap().header, header);
    written.next_segment();
    let inode = written.meta(2).ino();
    assert!(written.release(2), "it is kept");
    let segment = written.next_segment();
    assert_eq!(written.meta(segment).ino(), inode);
    assert_eq!(written.log.segment(segment).unwrap().header.format, FORMAT);
    assert_eq!(entries(&written.log), written.entries);
}

#[test]
fn what_is_written_over_a_segment_is_all_that_is_found_after_a_crash() {
    let mut written = Written::filled(3);
    let first = written.next_segment();
    for i in 0..40 {
        written.group(1 + i % 3, [10, 3_000, 9_000][i as usize % 3]);
        let (after, _twin) = written.killed();
        assert_eq!(entries(&after), written.entries, "no damage, and nothing else");
    }
    assert!(written.log.end().segment > first + 1, "more than one was written over");
    for segment in first..written.log.end().segment {
        assert_eq!(written.meta(segment).len(), written.log.segment(segment).unwrap().len());
    }
}

#[test]
fn half_a_group_counts_for_nothing_and_what_stood_there_before_neither() {
    for head_is_lost in [true, false] {
        let mut written = Written::filled(0);
        let before = std::fs::read(&written.log.segment(2).unwrap().path).unwrap();
        written.release(2);
        let segment = written.next_segment();
        written.group(1, 5_000);
        let items = [put("b", 1001, 9_000), put("c", 1002, 9_000), put("d", 1003, 10)];
        let locations = written.log.append_to_sync(&items).unwrap();
        // A page of the group did not reach the disk.
        let head = u64::from(locations[1].offset);
        let lost = if head_is_lost { head } else { head + u64::from(locations[1].head) + 4_000 };
        let old = &before[lost as usize..lost as usize + 512];
        let path = &written.log.segment(segment).unwrap().path;
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.write_all_at(old, lost).unwrap();

        let (after, twin) = written.killed();
        let payloads = |log: &Log| {
            let found = log.scan_segment(segment, false).map(|found| match found.unwrap() {
                Found::Entry { payload_sound, .. } => payload_sound != Some(false),
                Found::Damaged { .. } => false,
            });
            found.collect::<Vec<_>>()
        };
        let synced = written.entries.iter().filter(|e| spot(e).segment == segment).count();
        let expected = [vec![true; synced], vec![true, false, true]].concat();
        assert_eq!(payloads(&after), expected);
        // The same as opening the disk does.
        let end = u64::from(locations[2].offset + locations[2].head + 10).next_multiple_of(8);
        after.wipe(Position { segment, offset: head }).unwrap();
        after.cut(segment, end).unwrap();
        let again = open(twin.path(), SEGMENT);
        assert_eq!(again.segment(segment).unwrap().len(), end);
        assert_eq!(payloads(&again), expected);
    }
}

#[test]
fn a_segment_with_room_and_no_frame_has_none_after_a_crash() {
    let mut written = Written::filled(1);
    written.next_segment();
    let segment = written.log.end().segment;
    let path = written.log.segment(segment).unwrap().path.clone();
    // The header alone reached the disk.
    let bytes = std::fs::read(&path).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.write_all_at(&vec![7; bytes.len() - 64], 64).unwrap();
    let (after, _twin) = written.killed();
    assert_eq!(after.scan_segment(segment, true).count(), 0);
    assert_eq!(after.open_segments(0), [(segment, 64)].into());
    after.cut(segment, 64).unwrap();
    assert_eq!(after.open_segments(0), BTreeMap::new());
}

#[test]
fn a_segment_that_is_still_read_is_not_written_over() {
    let mut written = Written::filled(0);
    let inode = written.meta(1).ino();
    let held = written.log.segment(1).unwrap();
    let (file, _) = held.open(&*written.log.io).unwrap();
    assert!(written.release(1));
    let segment = written.next_segment();
    assert_ne!(written.meta(segment).ino(), inode);
    let mut bytes = vec![0; 64];
    file.read_exact_at(&mut bytes, 0).unwrap();
    let sealed = SegmentState::Sealed { end: held.len() as u32 };
    assert_eq!(bytes, held.header.encode(Some(sealed)), "readers have what they had");
    drop((file, held));
    let segment = written.next_segment();
    assert_eq!(written.meta(segment).ino(), inode);
}

#[test]
fn an_unsynced_group_ends_the_room_and_the_row() {
    let mut written = Written::filled(2);
    let segment = written.next_segment();
    assert_eq!(state(&written.log, segment), OVER_OLD);
    assert!(written.meta(segment).len() > written.log.segment(segment).unwrap().len());
    let item = put("unsynced", 5_000, 100);
    let spot = written.log.append(std::slice::from_ref(&item)).unwrap()[0];
    written.entries.push(placed(&item, spot));
    assert_eq!(written.meta(segment).len(), written.log.segment(segment).unwrap().len());
    assert!(!written.release(3), "there is no use for one now");
    let next = written.next_segment();
    assert_eq!(state(&written.log, next), NEW);
    assert_eq!(written.spare_files(), 1, "kept for when there is");
    assert_eq!(entries(&written.log), written.entries);
}

#[test]
fn an_append_of_nothing_leaves_the_room() {
    let mut written = Written::filled(1);
    let segment = written.next_segment();
    written.log.append(&[]).unwrap();
    written.log.append_to_sync(&[]).unwrap();
    assert_eq!(state(&written.log, segment), OVER_OLD);
    assert!(written.meta(segment).len() > written.log.segment(segment).unwrap().len());
}

#[test]
fn a_group_that_is_too_large_lets_the_file_grow() {
    let dir = TempDir::new().unwrap();
    std::fs::create_dir(dir.path().join("work")).unwrap();
    let usual = 2 * MAX_REUSE_GROUP_BYTES;
    let log = open(dir.path(), usual);
    let write = |from: u64, count: u64| {
        let items: Vec<_> = (from..from + count).map(|i| put("a", i, 500_000)).collect();
        log.append_to_sync(&items).unwrap();
        log.sync().unwrap();
    };
    (0..18).for_each(|i| write(i + 1, 1));
    assert_eq!(log.end().segment, 2);
    assert!(log.remove(1, true).unwrap().is_none());
    while log.end().segment < 3 {
        write(1_000, 1);
    }
    let file_len = || std::fs::metadata(&log.segment(3).unwrap().path).unwrap().len();
    assert_eq!(state(&log, 3), OVER_OLD);
    assert!(file_len() > log.segment(3).unwrap().len());
    write(2_000, 10);
    assert_eq!(file_len(), log.segment(3).unwrap().len());
}

#[test]
fn few_are_kept_and_none_that_is_short_or_may_hold_more_than_it_says() {
    let mut written = Written::filled(0);
    let kept: Vec<bool> = (1..=5).map(|segment| written.release(segment)).collect();
    assert_eq!(kept, [true, true, true, false, false]);
    let bytes = written.log.spare_bytes();
    assert!(bytes > 3 * SEGMENT / 2);
    assert_eq!(written.log.give_up_old_spares(), 0, "they were just kept");
    assert_eq!(written.log.give_up_spares(), bytes);
    assert_eq!((written.spare_files(), written.log.spare_bytes()), (0, 0));

    let mut written = Written::filled(0);
    written.log.seal();
    written.group(1, 100);
    let short = written.log.end().segment;
    written.log.seal();
    written.group(1, 100);
    assert!(!written.release(short));
    let path = written.log.segment(3).unwrap().path.clone();
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(SEGMENT).unwrap();
    assert!(!written.release(3));
}

#[test]
fn a_closed_log_leaves_no_spares() {
    let written = Written::filled(2);
    assert_eq!(written.spare_files(), 2);
    written.log.close();
    assert_eq!(written.spare_files(), 0);
}
