//! The state of a segment stands in its header: the length of its file has no meaning, and after a
//! power cut at any step the segment has what was synced and nothing of an earlier segment.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io;

use proptest::prelude::*;
use tempfile::TempDir;

use super::spare_tests::{SEGMENT, Written, spot};
use super::tests::{DISK, entries, open, placed, put, state};
use super::*;
use crate::faulty::{Fault, FaultyDisk};
use crate::format::{FORMAT, FORMAT_2, SegmentHeader, SegmentState, TailContent};
use crate::page_cache::PAGE;

const NEW: Option<SegmentState> = Some(SegmentState::Open(TailContent::Zeros));
const OVER_OLD: Option<SegmentState> = Some(SegmentState::Open(TailContent::Recycled));
const HEADER: usize = SEGMENT_HEADER as usize;

fn path(dir: &TempDir, segment: u64) -> PathBuf {
    dir.path().join("log").join(format!("{segment:016x}"))
}

fn sealed(log: &Log, segment: u64) -> Option<SegmentState> {
    let end = log.segment(segment).unwrap().len() as u32;
    Some(SegmentState::Sealed { end })
}

/// The log after a power cut that left these bytes of one segment, or not even its name.
fn after_power_cut(written: &Written, segment: u64, bytes: Option<&[u8]>) -> (Log, TempDir) {
    let (_, twin) = written.killed();
    match bytes {
        Some(bytes) => fs::write(path(&twin, segment), bytes).unwrap(),
        None => fs::remove_file(path(&twin, segment)).unwrap(),
    }
    (open(twin.path(), SEGMENT), twin)
}

/// Sound entries of a scan.
fn sound(log: &Log) -> Vec<Entry> {
    let found = log.scan(Position::default(), true).filter_map(|found| match found.unwrap() {
        Found::Entry { entry, payload_sound: Some(true), .. } => Some(entry),
        _ => None,
    });
    found.collect()
}

/// Does what opening the disk does without an index.
fn recover(log: &Log) {
    let mut ends = log.open_segments(0);
    for found in log.scan(Position::default(), false) {
        let found = found.unwrap();
        if let Found::Entry { at, payload_sound: Some(false), .. } = &found {
            log.wipe(*at).unwrap();
        }
        let (Found::Entry { at, len, .. } | Found::Damaged { at, len }) = found;
        ends.insert(at.segment, at.offset + len);
    }
    ends.into_iter().for_each(|(segment, end)| log.cut(segment, end).unwrap());
}

/// Checks a log after a power cut, before and after it is opened: it has all entries of `synced`
/// and nothing that is not in `written` either.
fn check((log, twin): (Log, TempDir), synced: &[Entry], written: &[Entry], place: &str) {
    let found = sound(&log);
    assert!(synced.iter().all(|entry| found.contains(entry)), "{place}: lost");
    assert!(found.iter().all(|entry| written.contains(entry)), "{place}: nobody wrote that");
    recover(&log);
    assert_eq!(sound(&log), found, "{place}: recovered");
    let again = open(twin.path(), SEGMENT);
    assert_eq!(sound(&again), found, "{place}: opened again");
    assert_eq!(again.open_segments(0), BTreeMap::new(), "{place}");
}

/// The file after a write from `before` to `after` of which a power cut kept one page, or all but one.
fn torn(before: &[u8], after: &[u8]) -> Vec<Vec<u8>> {
    let len = before.len().max(after.len());
    let whole = |bytes: &[u8]| [bytes, &vec![0; len - bytes.len()]].concat();
    let (before, after) = (whole(before), whole(after));
    let pages = (0..len).step_by(PAGE as usize).map(|at| at..(at + PAGE as usize).min(len));
    let changed = pages.filter(|page| before[page.clone()] != after[page.clone()]);
    let files = changed.flat_map(|page| {
        let (mut only, mut without) = (before.clone(), after.clone());
        only[page.clone()].copy_from_slice(&after[page.clone()]);
        without[page.clone()].copy_from_slice(&before[page]);
        [only, without]
    });
    files.collect()
}

fn of_segment(entries: &[Entry], segment: u64) -> Vec<Entry> {
    entries.iter().filter(|entry| spot(entry).segment == segment).cloned().collect()
}

fn without(entries: &[Entry], segment: u64) -> Vec<Entry> {
    entries.iter().filter(|entry| spot(entry).segment != segment).cloned().collect()
}

#[test]
fn a_segment_is_sealed_by_the_sync_of_its_last_group() {
    let mut written = Written::filled(1);
    let segment = written.next_segment();
    assert_eq!(state(&written.log, segment), OVER_OLD);
    for before in 2..segment {
        assert_eq!(state(&written.log, before), sealed(&written.log, before));
    }
    written.next_segment();
    assert_eq!(state(&written.log, segment), sealed(&written.log, segment));
    assert_eq!(state(&written.log, segment + 1), NEW);
    assert_eq!(entries(&written.killed().0), written.entries);
}

#[test]
fn a_segment_of_unsynced_groups_is_sealed_with_the_next_group_or_by_the_end_of_the_process() {
    let dir = TempDir::new().unwrap();
    let log = open(dir.path(), SEGMENT);
    let items: Vec<_> = (1..13).map(|i| put("a", i, 9_000)).collect();
    log.append(&items).unwrap();
    assert_eq!((state(&log, 1), state(&log, 2)), (NEW, NEW));
    log.append(&[put("b", 20, 10)]).unwrap();
    assert_eq!((state(&log, 1), state(&log, 2)), (sealed(&log, 1), NEW));
    log.close();
    assert_eq!(state(&log, 2), sealed(&log, 2));
}

#[test]
fn an_unsynced_group_in_preallocated_space_is_not_sealed() {
    let mut written = Written::filled(1);
    let segment = written.next_segment();
    written.log.append_to_sync(&[put("b", 5_000, 10)]).unwrap();
    written.log.close();
    assert_eq!(state(&written.log, segment), OVER_OLD);
}

#[test]
fn a_header_that_cannot_be_sealed_costs_nothing() {
    for step in 0.. {
        let dir = TempDir::new().unwrap();
        let disk = FaultyDisk::new();
        let (folder, spares) = (dir.path().join("log"), dir.path().join("work"));
        let log = Log::open(Arc::new(disk.clone()), folder, spares, DISK, 20_000).unwrap();
        disk.plan(step, Fault::Fail(io::ErrorKind::StorageFull));
        let mut expected = Vec::new();
        for sequence in 1..8 {
            let item = put("a", sequence, 9_000);
            if let Ok(locations) = log.append_to_sync(std::slice::from_ref(&item)) {
                expected.push(placed(&item, locations[0]));
            }
            if log.sync().is_err() {
                break;
            }
        }
        assert_eq!(entries(&log), expected, "step {step}");
        assert_eq!(entries(&open(dir.path(), 20_000)), expected, "step {step}");
        if !disk.struck() {
            assert!(step > 10 && disk.log().contains(&"write"));
            break;
        }
    }
}

#[test]
fn a_power_cut_between_any_two_steps_of_recycling_leaves_what_was_synced() {
    let mut written = Written::filled(0);
    let old = fs::read(path(&written.dir, 2)).unwrap();
    written.release(2);
    let before = written.entries.clone();
    assert_eq!(entries(&written.killed().0), before, "the file is none of the log's");

    let segment = written.next_segment();
    let others = without(&written.entries, segment);
    let first = fs::read(path(&written.dir, segment)).unwrap();
    let first_group = written.entries.clone();
    check(after_power_cut(&written, segment, None), &others, &others, "no name");
    let mut header_only = old.clone();
    header_only[..PAGE as usize].fill(0);
    header_only[..HEADER].copy_from_slice(&first[..HEADER]);
    check(after_power_cut(&written, segment, Some(&header_only)), &others, &others, "header alone");
    for bytes in torn(&header_only, &first) {
        let cut = after_power_cut(&written, segment, Some(&bytes));
        check(cut, &others, &first_group, "first group");
    }

    written.group(2, 9_000);
    let second = fs::read(path(&written.dir, segment)).unwrap();
    for bytes in torn(&first, &second) {
        let cut = after_power_cut(&written, segment, Some(&bytes));
        check(cut, &first_group, &written.entries, "second group");
    }

    written.next_segment();
    let all = written.entries.clone();
    let whole = fs::read(path(&written.dir, segment)).unwrap();
    assert_eq!(state(&written.log, segment), sealed(&written.log, segment));
    for header in (0..=HEADER).step_by(4) {
        let unsealed = [&whole[..header], &second[header..HEADER], &whole[HEADER..]].concat();
        // The file was truncated, or was not yet.
        for bytes in
            [unsealed.clone(), [&unsealed[..], &old[whole.len().min(old.len())..]].concat()]
        {
            let cut = after_power_cut(&written, segment, Some(&bytes));
            check(cut, &all, &all, "sealed");
        }
    }
}

#[test]
fn a_power_cut_while_space_is_preallocated_leaves_what_was_synced() {
    let mut written = Written::new();
    written.group(1, 5_000);
    let mut before = fs::read(path(&written.dir, 1)).unwrap();
    for _ in 0..3 {
        let synced = written.entries.clone();
        written.group(2, 9_000);
        let after = fs::read(path(&written.dir, 1)).unwrap();
        for bytes in torn(&before, &after) {
            for len in [before.len(), after.len()] {
                let cut = after_power_cut(&written, 1, Some(&bytes[..len]));
                check(cut, &synced, &written.entries, "preallocated");
            }
        }
        before = after;
    }
}

/// A segment in each state, killed now.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Growing,
    Preallocated,
    Recycled,
    Sealed,
}

fn in_state(kind: Kind, count: u64, size: usize) -> (Written, u64) {
    match kind {
        Kind::Growing => {
            let mut written = Written::new();
            let items: Vec<_> = (1..=count).map(|i| put("a", i, size)).collect();
            let locations = written.log.append(&items).unwrap();
            written.entries = items.iter().zip(locations).map(|(i, at)| placed(i, at)).collect();
            (written, 1)
        }
        Kind::Preallocated => {
            let mut written = Written::new();
            written.group(1, size);
            written.group(count, size);
            (written, 1)
        }
        Kind::Recycled => {
            let mut written = Written::filled(2);
            let segment = written.next_segment();
            written.group(count, size);
            (written, segment)
        }
        Kind::Sealed => (Written::filled(0), 2),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_file_whose_length_a_tool_changed_is_read_as_before(
        kind in prop_oneof![
            Just(Kind::Growing),
            Just(Kind::Preallocated),
            Just(Kind::Recycled),
            Just(Kind::Sealed),
        ],
        count in 1u64..4,
        size in 1usize..9_000,
        more in 1usize..5_000,
    ) {
        let (written, segment) = in_state(kind, count, size);
        let bytes = fs::read(path(&written.dir, segment)).unwrap();
        let last = of_segment(&written.entries, segment).pop().unwrap();
        let Entry::Put(record) = &last else { panic!("{last:?}") };
        let at = spot(&last);
        let end = u64::from(at.offset) + u64::from(at.head) + record.size;
        let end = end as usize;
        let zeros = |len: usize| [&bytes[..], &vec![0; len - bytes.len()]].concat();
        let mut variants = vec![
            bytes[..end].to_vec(),
            bytes[..end.next_multiple_of(8).min(bytes.len())].to_vec(),
            zeros(bytes.len().next_multiple_of(512)),
            zeros(bytes.len().next_multiple_of(PAGE as usize)),
            zeros((bytes.len() + 1).next_multiple_of(1 << 20)),
            zeros(bytes.len() + more),
        ];
        if matches!(kind, Kind::Sealed) {
            variants.push([&bytes[..], &vec![7; more]].concat());
        }
        for bytes in variants {
            let (log, twin) = after_power_cut(&written, segment, Some(&bytes));
            prop_assert_eq!(entries(&log), written.entries.clone());
            recover(&log);
            let again = open(twin.path(), SEGMENT);
            prop_assert_eq!(entries(&again), written.entries.clone());
            prop_assert_eq!(again.open_segments(0), BTreeMap::new());
        }
    }
}

/// The file of a segment as programs wrote it that know no states: it has this length.
fn without_state(bytes: &[u8], format: u16, segment: u64, len: usize) -> Vec<u8> {
    let (header, _) = SegmentHeader::decode(bytes.first_chunk().unwrap(), segment, DISK).unwrap();
    let header = SegmentHeader { format, ..header }.encode(None);
    let mut file = [&header[..], &bytes[HEADER..]].concat();
    file.resize(len, 0);
    file
}

#[test]
fn a_segment_without_a_state_is_read_by_its_length_and_gets_none() {
    for (kind, behind) in [(Kind::Preallocated, 4), (Kind::Recycled, 2)] {
        for format in [FORMAT, FORMAT_2] {
            let (written, segment) = in_state(kind, 2, 900);
            let bytes = fs::read(path(&written.dir, segment)).unwrap();
            let len = bytes.len() / 8 * 8 - 8 + behind;
            let file = without_state(&bytes, format, segment, len);
            let (log, twin) = after_power_cut(&written, segment, Some(&file));
            assert_eq!(entries(&log), written.entries, "{kind:?}");
            assert!(log.open_segments(0).contains_key(&segment));
            recover(&log);
            let end = written.log.segment(segment).unwrap().len() as usize;
            assert_eq!(fs::read(path(&twin, segment)).unwrap(), file[..end], "{kind:?}");
            let again = open(twin.path(), SEGMENT);
            assert_eq!(entries(&again), written.entries, "{kind:?}");
            assert_eq!((state(&again, segment), again.open_segments(0)), (None, BTreeMap::new()));
        }
    }
}

#[test]
fn zeros_behind_the_frames_of_a_whole_segment_without_a_state_are_damage() {
    let (written, segment) = in_state(Kind::Sealed, 1, 1);
    let bytes = fs::read(path(&written.dir, segment)).unwrap();
    let file = without_state(&bytes, FORMAT, segment, bytes.len() + 512);
    let (log, _twin) = after_power_cut(&written, segment, Some(&file));
    let last = log.scan_segment(segment, true).last().unwrap().unwrap();
    let at = Position { segment, offset: bytes.len() as u64 };
    assert_eq!(last, Found::Damaged { at, len: 512 });
}

#[test]
fn the_log_has_all_entries_of_each_golden_segment() {
    let golden: [(&[u8], usize); 5] = [
        (include_bytes!("../format/golden/segment-format2.bin"), 5),
        (include_bytes!("../format/golden/segment-format3.bin"), 6),
        (include_bytes!("../format/golden/segment-format3-open.bin"), 6),
        (include_bytes!("../format/golden/segment-format3-recycled.bin"), 6),
        (include_bytes!("../format/golden/segment-format3-sealed.bin"), 6),
    ];
    for (bytes, count) in golden {
        let dir = TempDir::new().unwrap();
        fs::create_dir(dir.path().join("log")).unwrap();
        fs::write(path(&dir, 0x2a), bytes).unwrap();
        let io = Arc::new(crate::RealDisk);
        let (folder, spares) = (dir.path().join("log"), dir.path().join("work"));
        let log = Log::open(io, folder, spares, 0xfeed_beef_0123_4567, SEGMENT).unwrap();
        assert_eq!((entries(&log).len(), log.damaged()), (count, Vec::new()));
    }
}
