//! The log returns what was appended, and nothing else, whatever happened to its files.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use forebay_core::ErrorCode;
use forebay_core::checksum::{Checksum, ChecksumKind};
use tempfile::TempDir;

use super::*;
use crate::disk::RealDisk;
use crate::format::{SegmentHeader, SegmentState};
use crate::record::{Place, Record, RecordMeta};
use crate::skip;

pub(super) const DISK: u64 = 0xd15c;

pub(super) fn open(dir: &Path, segment_bytes: u64) -> Log {
    Log::open(Arc::new(RealDisk), dir.join("log"), dir.join("work"), DISK, segment_bytes).unwrap()
}

/// A put whose payload goes to the log; its bytes differ for each sequence.
pub(super) fn put(name: &str, sequence: u64, size: usize) -> Item {
    let mut record = Record::for_test(name, size as u64, sequence, RecordMeta::default());
    record.place = Place::Log(Spot::default());
    let payload = (0..size).map(|i| (i as u64 * 31 + sequence) as u8).collect::<Vec<_>>();
    Item { entry: Entry::Put(Box::new(record)), payload: payload.into() }
}

pub(super) fn remove(name: &str, sequence: u64) -> Item {
    let entry = Entry::Remove { bucket_id: 1, name: name.to_owned(), sequence };
    Item { entry, payload: Bytes::new() }
}

/// The frame of an item that [`put`] made, for reading.
pub(super) fn frame(name: &str, generation: u64, spot: Spot, size: u64) -> Frame<'_> {
    let (len, generation) = (u64::from(spot.head) + size, Some(generation));
    let (segment, offset) = (spot.segment, spot.offset);
    Frame { segment, offset, len, bucket_id: 1, name, generation, with_record: false }
}

/// The state in the header of a segment's file.
pub(super) fn state(log: &Log, segment: u64) -> Option<SegmentState> {
    let bytes = std::fs::read(&log.segment(segment).unwrap().path).unwrap();
    SegmentHeader::decode(bytes.first_chunk().unwrap(), segment, DISK).unwrap().1
}

/// The entry of an item as the log returns it.
pub(super) fn placed(item: &Item, spot: Spot) -> Entry {
    let mut entry = item.entry.clone();
    if let Entry::Put(record) = &mut entry {
        record.set_spot(spot);
    }
    entry
}

/// Entries of a whole scan; every payload must be sound.
pub(super) fn entries(log: &Log) -> Vec<Entry> {
    let found = log.scan(Position::default(), true).map(|found| match found.unwrap() {
        Found::Entry { entry, payload_sound, .. } => {
            assert_eq!(payload_sound, Some(true));
            entry
        }
        damaged => panic!("{damaged:?}"),
    });
    found.collect()
}

fn mixed() -> Vec<Item> {
    let files = Record::for_test("large", 1 << 30, 4, RecordMeta::default());
    vec![
        put("empty", 1, 0),
        put("small", 2, 1000),
        put("apart", 3, 5000),
        Item { entry: Entry::Put(Box::new(files)), payload: Bytes::new() },
        remove("small", 5),
        put("blocks", 6, 100_000),
    ]
}

#[test]
fn what_was_appended_is_read_back() {
    let dir = TempDir::new().unwrap();
    let items = mixed();
    let log = open(dir.path(), 1 << 20);
    let locations = log.append(&items).unwrap();
    log.sync().unwrap();
    let check = |log: &Log| {
        for (item, spot) in items.iter().zip(&locations) {
            let Entry::Put(record) = placed(item, *spot) else { continue };
            if record.place.is_log() {
                let (found, payload) = log.read(spot, record.size).unwrap().unwrap();
                assert_eq!((&found, &payload), (&*record, &item.payload));
            }
        }
        let all: Vec<_> = items.iter().zip(&locations).map(|(i, s)| placed(i, *s)).collect();
        assert_eq!(entries(log), all);
    };
    check(&log);
    check(&open(dir.path(), 1 << 20));
}

#[test]
fn positions_and_lengths_of_a_scan_lead_from_frame_to_frame() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 1 << 20);
    let before = log.end();
    log.append(&mixed()).unwrap();
    let middle = log.end();
    log.append(&mixed()).unwrap();
    let mut at = before;
    for found in log.scan(before, false) {
        let Found::Entry { at: found, len, payload_sound, .. } = found.unwrap() else { panic!() };
        assert_eq!((found, payload_sound), (at, None));
        at.offset += len;
    }
    assert_eq!(at, log.end());
    assert_eq!(log.scan(middle, false).count(), mixed().len());
    assert_eq!(log.scan(log.end(), false).count(), 0);
}

#[test]
fn a_small_object_takes_few_bytes_beside_its_payload() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 1 << 20);
    let mut item = put("train/000123.jpg", (9 << 40) | 123_456, 1024);
    let Entry::Put(record) = &mut item.entry else { panic!() };
    record.bucket_id = u64::MAX;
    record.meta.checksum =
        Some(Checksum { kind: ChecksumKind::Xxhash, value: "26c7827d889f6da3".into() });
    record.meta.version = "1".into();
    record.meta.mtime_ns = 1_700_000_000_123_456_789;
    record.meta.atime_ns = record.meta.mtime_ns;
    let start = log.end();
    let spot = log.append(std::slice::from_ref(&item)).unwrap()[0];
    log.append(&[item]).unwrap();
    let took = log.end().offset - start.offset;
    println!("{} bytes of head, {} for two", spot.head, took);
    assert!(took <= 2 * (1024 + 100), "{took}");
}

#[test]
fn full_segments_are_followed_by_new_ones() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 8192);
    let items: Vec<_> = (1..40).map(|i| put("a", i, 1500)).collect();
    log.append(&items[..20]).unwrap();
    items[20..].iter().for_each(|item| drop(log.append(std::slice::from_ref(item)).unwrap()));
    log.append(&[put("longer than a segment", 40, 20_000)]).unwrap();
    log.sync().unwrap();
    let segments = log.segments();
    assert!(segments.len() >= 8, "{segments:?}");
    assert!(segments[..segments.len() - 1].iter().all(|(_, len)| *len <= 8192));
    assert_eq!(entries(&log).len(), 40);
    assert_eq!(open(dir.path(), 8192).segments(), segments);
}

#[test]
fn ids_of_segments_are_never_given_twice() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 1 << 20);
    log.append(&[put("a", 1, 10)]).unwrap();
    let first = log.segments()[0].0;
    log.remove(first, false).unwrap();
    assert!(log.segments().iter().all(|(id, _)| *id > first));
    let log = open(dir.path(), 1 << 20);
    let spot = log.append(&[put("a", 1, 10)]).unwrap()[0];
    assert!(spot.segment > first);
}

#[test]
fn reading_a_removed_segment_returns_none_and_open_readers_continue() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 1 << 20);
    let locations = log.append(&[put("a", 1, 10), put("b", 2, 10)]).unwrap();
    let mut scan = log.scan_segment(locations[0].segment, false);
    scan.next().unwrap().unwrap();
    log.remove(locations[0].segment, false).unwrap();
    assert_eq!(log.read(&locations[0], 10).unwrap(), None);
    assert_eq!(log.read_now(&frame("a", 1, locations[0], 10)), None);
    assert!(matches!(scan.next().unwrap().unwrap(), Found::Entry { .. }));
    assert_eq!(log.scan_segment(locations[0].segment, false).count(), 0);
}

#[test]
fn a_read_of_another_record_or_length_is_corrupt() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 1 << 20);
    let locations = log.append(&[put("a", 1, 100), put("b", 2, 100)]).unwrap();
    let shifted = Spot { offset: locations[0].offset + 8, ..locations[0] };
    let beyond = Spot { offset: 1 << 30, ..locations[0] };
    for (spot, size) in [(locations[0], 99), (shifted, 100), (beyond, 100), (locations[0], 1 << 40)]
    {
        assert_eq!(log.read(&spot, size).unwrap_err().code, ErrorCode::Corrupt);
    }
}

#[test]
fn a_cached_frame_is_read_without_waiting() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 1 << 20);
    let item = put("a", 1, 5000);
    let spot = log.append(std::slice::from_ref(&item)).unwrap()[0];
    let Some((record, payload)) = log.read_now(&frame("a", 1, spot, 5000)) else {
        return skip::skipped("this kernel or file system does not report what is cached");
    };
    assert_eq!((record.generation, payload), (1, item.payload));
}

#[test]
fn more_segments_than_may_be_open_are_read() {
    let dir = TempDir::new().unwrap();
    drop(open(dir.path(), 1 << 20));
    let mut log = open(dir.path(), 256);
    log.max_open = 5;
    let items: Vec<_> = (1..40).map(|i| put("a", i, 200)).collect();
    let locations = log.append(&items).unwrap();
    assert_eq!(log.segments().len(), items.len());
    for _ in 0..2 {
        for (item, spot) in items.iter().zip(&locations) {
            assert_eq!(log.read(spot, 200).unwrap().unwrap().1, item.payload);
        }
        assert_eq!(entries(&log).len(), items.len());
        let open = log.segments.load().values().filter(|s| s.opened().is_some()).count();
        assert!(open <= 5, "{open}");
    }
}

#[test]
fn readers_and_scans_run_during_appends() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), 4096);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [(); 3].map(|()| {
            scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    for (sequence, entry) in (1..).zip(entries(&log)) {
                        assert_eq!(entry.sequence(), sequence);
                        let Entry::Put(record) = entry else { continue };
                        let (again, _) = log.read(&record.spot(), record.size).unwrap().unwrap();
                        assert_eq!(again, *record);
                    }
                }
            })
        });
        for i in 0..50 {
            let items: Vec<_> = (1..5).map(|j| put("a", i * 4 + j, 100 * j as usize)).collect();
            log.append(&items).unwrap();
        }
        done.store(true, Ordering::Release);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    assert_eq!(entries(&log).len(), 200);
}
