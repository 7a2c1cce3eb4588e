//! Damage costs only the frames it hits, and no other bytes are taken for a frame.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::{Path, PathBuf};

use forebay_core::ErrorCode;
use proptest::prelude::*;
use tempfile::TempDir;

use super::room::tail_by_length;
use super::tests::{frame, open, placed, put, remove};
use super::*;
use crate::format::{
    self, FORMAT, FORMAT_2, SEGMENT_HEADER, SegmentHeader, SegmentState, TailContent,
};
use crate::record::{Place, Record};

/// A log of one segment, and the items in it.
struct Written {
    dir: TempDir,
    items: Vec<Item>,
    locations: Vec<Spot>,
    bytes: Vec<u8>,
}

impl Written {
    fn new(items: Vec<Item>) -> Self {
        let dir = TempDir::new().unwrap();
        let locations = open(dir.path(), 1 << 30).append(&items).unwrap();
        let bytes = fs::read(segment(dir.path(), 1)).unwrap();
        Self { dir, items, locations, bytes }
    }

    /// Bytes of frame `i`: where it begins, where its payload does, where that ends.
    fn frame(&self, i: usize) -> (usize, usize, usize) {
        let start = self.locations[i].offset as usize;
        let payload = start + self.locations[i].head as usize;
        (start, payload, payload + self.items[i].payload.len())
    }

    /// Opens the log with `bytes` in place of its segment and checks its entries: all frames that
    /// `touched` spares are there, and nothing that was not written.
    fn check(&self, bytes: &[u8], touched: impl Fn(usize, usize) -> bool) {
        fs::write(segment(self.dir.path(), 1), bytes).unwrap();
        let log = open(self.dir.path(), 1 << 30);
        if log.segments().is_empty() {
            assert!(touched(0, SEGMENT_HEADER as usize));
            let gone = bytes.len() < SEGMENT_HEADER as usize;
            assert_eq!(log.damaged().len(), if gone { 0 } else { 1 });
            return;
        }
        self.check_together(&log, &touched, bytes.len());
        let mut found = BTreeMap::new();
        let mut end = SEGMENT_HEADER;
        for item in log.scan_segment(1, true) {
            let (at, len) = match item.unwrap() {
                Found::Entry { at, len, entry, payload_sound } => {
                    found.insert(at.offset as usize, (entry, payload_sound.unwrap()));
                    (at, len)
                }
                Found::Damaged { at, len } => (at, len),
            };
            // Frames and damage cover the segment without gaps.
            assert_eq!(at.offset, end);
            end += len;
        }
        // Without a state in the header a truncated file looks as if it had preallocated space.
        let has_state = header_of(bytes).1.is_some();
        let tail = tail_by_length(bytes.len() as u64).filter(|_| !has_state);
        let may_be_old = tail == Some(TailContent::Recycled);
        assert!(may_be_old || bytes.iter().skip(end as usize).all(|byte| *byte == 0));
        for (i, item) in self.items.iter().enumerate() {
            let (start, payload, end) = self.frame(i);
            let head_hit = touched(start, payload) || end > bytes.len();
            let payload_hit = touched(payload, end);
            match found.remove(&start) {
                Some((entry, sound)) => {
                    assert!(!head_hit);
                    assert_eq!(entry, placed(item, self.locations[i]));
                    assert_eq!(sound, !payload_hit);
                }
                None => assert!(head_hit),
            }
            let Entry::Put(record) = placed(item, self.locations[i]) else { continue };
            if record.place.is_log() {
                let whole = !head_hit && !payload_hit;
                for read in [
                    log.read(&self.locations[i], record.size),
                    now(&log, &self.locations[i], &record),
                ] {
                    match read {
                        Ok(got) if whole => {
                            assert_eq!(got, Some((*record.clone(), item.payload.clone())))
                        }
                        Err(e) if !whole => assert_eq!(e.code, ErrorCode::Corrupt),
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        assert!(found.is_empty(), "nobody wrote {found:?}");
    }
}

impl Written {
    /// Reads all payloads of the log together: undamaged ones are returned, the others are not.
    fn check_together(&self, log: &Log, touched: &impl Fn(usize, usize) -> bool, len: usize) {
        let mut records = Vec::new();
        for (i, item) in self.items.iter().enumerate() {
            if let Entry::Put(record) = placed(item, self.locations[i])
                && record.place.is_log()
            {
                records.push((i, record));
            }
        }
        let wanted: Vec<Frame<'_>> = records
            .iter()
            .map(|(_, record)| Frame { with_record: true, ..Frame::of(record).unwrap() })
            .collect();
        let payloads = log.payloads_now(&wanted);
        assert_eq!(payloads.len(), records.len());
        for ((i, record), payload) in records.iter().zip(payloads) {
            let (start, _, end) = self.frame(*i);
            let whole = !touched(start, end) && end <= len;
            // Not every file system can report what is in memory.
            let can_tell = log.read_now(&Frame::of(record).unwrap()).is_some();
            match payload {
                Some(taken) => {
                    assert!(whole && taken.payload == self.items[*i].payload);
                    assert_eq!(taken.commit.generation, record.generation);
                    assert_eq!(taken.record.as_ref(), Some(record));
                }
                None => assert!(!whole || !can_tell),
            }
            let of = Frame::of(record).unwrap();
            let any = Frame { generation: None, ..of };
            assert_eq!(log.payloads_now(&[any])[0].is_some(), whole && can_tell, "any commit");
            let other = Frame { generation: Some(record.generation + 1), ..of };
            assert_eq!(log.payloads_now(&[other]), [None], "another commit");
            assert_eq!(log.read_now(&other), None, "another commit");
            let other = Frame { name: "other", ..of };
            assert_eq!(log.payloads_now(&[other]), [None], "another object");
            assert_eq!(log.read_now(&other), None, "another object");
            let longer = Frame { len: of.len + 8, ..of };
            assert_eq!(log.payloads_now(&[longer]), [None], "another length");
            assert_eq!(log.read_now(&longer), None, "another length");
        }
    }
}

fn now(log: &Log, spot: &Spot, record: &Record) -> Result<Option<(Record, Bytes)>> {
    let at = Record { place: Place::Log(*spot), ..record.clone() };
    match log.read_now(&Frame::of(&at).unwrap()) {
        Some(found) => Ok(Some(found)),
        None => log.read(spot, record.size),
    }
}

/// The header of the one segment, and its state.
fn header_of(bytes: &[u8]) -> (SegmentHeader, Option<SegmentState>) {
    SegmentHeader::decode(bytes.first_chunk().unwrap(), 1, super::tests::DISK).unwrap()
}

fn segment(dir: &Path, id: u64) -> PathBuf {
    dir.join("log").join(format!("{id:016x}"))
}

fn items() -> impl Strategy<Value = Vec<Item>> {
    let size = prop_oneof![0usize..20, 0usize..3000, Just(65536), 65000usize..70000];
    let item = (size, 0u8..4);
    proptest::collection::vec(item, 1..12).prop_map(|items| {
        let items = items.into_iter().zip(1..).map(|((size, kind), sequence)| match kind {
            0 => remove("gone", sequence),
            1 => {
                let record = Record::for_test("large", 1 << 20, sequence, Default::default());
                Item { entry: Entry::Put(Box::new(record)), payload: Bytes::new() }
            }
            _ => put("some/name", sequence, size),
        });
        items.collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_flipped_bit_is_never_read(items in items(), at in any::<[prop::sample::Index; 8]>()) {
        let written = Written::new(items);
        for at in at {
            let mut bytes = written.bytes.clone();
            let bit = at.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            written.check(&bytes, |from, to| (from..to).contains(&(bit / 8)));
        }
    }

    #[test]
    fn a_cut_takes_the_frames_behind_it(items in items(), at in any::<[prop::sample::Index; 8]>()) {
        let written = Written::new(items);
        for at in at {
            let len = at.index(written.bytes.len());
            written.check(&written.bytes[..len], |_, to| to > len);
        }
    }

    #[test]
    fn a_cut_of_a_segment_without_a_state_takes_the_frames_behind_it(
        items in items(),
        at in any::<[prop::sample::Index; 8]>(),
    ) {
        let mut written = Written::new(items);
        let (header, _) = header_of(&written.bytes);
        written.bytes[..SEGMENT_HEADER as usize].copy_from_slice(&header.encode(None));
        for at in at {
            let len = at.index(written.bytes.len());
            written.check(&written.bytes[..len], |_, to| to > len);
        }
    }

    #[test]
    fn a_scan_finds_every_frame_that_damage_spared(
        items in items(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), 1usize..5000), 1..4),
        with in any::<u8>(),
    ) {
        let written = Written::new(items);
        let mut bytes = written.bytes.clone();
        for (at, len) in hits {
            let at = at.index(bytes.len());
            let end = (at + len).min(bytes.len());
            bytes[at..end].fill(with);
        }
        let differs = |from: usize, to: usize| bytes[from..to] != written.bytes[from..to];
        // The header may have lost one of its two salts.
        if !differs(0, SEGMENT_HEADER as usize) {
            written.check(&bytes, differs);
        }
    }

    #[test]
    fn noise_never_panics(noise in proptest::collection::vec(any::<u8>(), 0..3000)) {
        let written = Written::new(vec![put("a", 1, 10)]);
        let mut bytes = written.bytes[..SEGMENT_HEADER as usize].to_vec();
        bytes.extend(noise);
        fs::write(segment(written.dir.path(), 1), bytes).unwrap();
        let log = open(written.dir.path(), 1 << 30);
        for found in log.scan_segment(1, true) {
            prop_assert!(matches!(found.unwrap(), Found::Damaged { .. }), "noise passed");
        }
    }
}

#[test]
fn frames_in_a_payload_are_not_found_when_their_carrier_is_damaged() {
    // Whole frames of this very segment, and frames that are forged without the salt, at every
    // distance from a multiple of eight.
    let inner = Written::new(vec![put("inner", 1, 100), put("inner", 2, 200)]);
    let real = &inner.bytes[inner.locations[0].offset as usize..];
    let mut payload = Vec::new();
    for shift in 0..8 {
        payload.resize(payload.len().next_multiple_of(8) + shift, 0);
        payload.extend_from_slice(real);
    }
    for offset in (SEGMENT_HEADER..20_000).step_by(8) {
        let (disk_id, salt) = (super::tests::DISK, 0);
        let guess = SegmentHeader { format: FORMAT, segment: 1, disk_id, salt };
        let Item { entry, payload: bytes } = put("forged", 9, 8);
        payload.resize(payload.len().next_multiple_of(8) + 3, 0);
        format::encode_head(&mut payload, &guess, offset, &entry, &bytes).unwrap();
    }
    payload.truncate(format::MAX_PAYLOAD as usize);
    // In the segment that the copied frames are of, so that only their place is wrong.
    let log_dir = inner.dir.path();
    let mut carrier = put("carrier", 3, payload.len());
    carrier.payload = payload.into();
    fs::write(segment(log_dir, 1), &inner.bytes).unwrap();
    let (header, _) = header_of(&inner.bytes);
    let mut bytes = inner.bytes.clone();
    let mut ends = Vec::new();
    for item in [&carrier, &put("after", 4, 50)] {
        let at = bytes.len() as u64;
        format::encode_head(&mut bytes, &header, at, &item.entry, &item.payload).unwrap();
        bytes.extend_from_slice(&item.payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        ends.push(at as usize);
    }
    for hit in [0, 4, 8, 12, 20] {
        let mut damaged = bytes.clone();
        damaged[ends[0] + hit] ^= 0x40;
        fs::write(segment(log_dir, 1), &damaged).unwrap();
        let log = open(log_dir, 1 << 30);
        let found = log.scan_segment(1, true).map(|f| f.unwrap());
        let names = found.map(|found| match found {
            Found::Entry { entry, .. } => format!("{} {}", entry.name(), entry.sequence()),
            Found::Damaged { .. } => "damaged".to_owned(),
        });
        assert_eq!(names.collect::<Vec<_>>(), ["inner 1", "inner 2", "damaged", "after 4"]);
    }
}

#[test]
fn a_segment_lives_on_one_of_its_two_salts() {
    let written = Written::new(vec![put("a", 1, 10)]);
    for range in [0..48, 44..64, 32..40, 40..44, 48..56, 56..60] {
        let mut bytes = written.bytes.clone();
        bytes[range].fill(0xaa);
        written.check(&bytes, |_, _| false);
    }
}

#[test]
fn a_segment_without_a_sound_header_is_set_aside() {
    for (from, to) in [(0, 64), (36, 56)] {
        let written = Written::new(vec![put("a", 1, 10)]);
        let mut bytes = written.bytes.clone();
        bytes[from..to].fill(0xaa);
        fs::write(segment(written.dir.path(), 1), &bytes).unwrap();
        let log = open(written.dir.path(), 1 << 30);
        assert_eq!(log.segments(), []);
        assert_eq!(log.damaged()[0].0, 1);
        assert_eq!(log.read(&written.locations[0], 10).unwrap_err().code, ErrorCode::Corrupt);
        assert_eq!(log.payloads_now(&[frame("a", 1, written.locations[0], 10)]), [None]);
        // Its id is taken, and the file stays until it is removed.
        assert_eq!(log.append(&[put("b", 2, 10)]).unwrap()[0].segment, 2);
        assert_eq!(fs::read(segment(written.dir.path(), 1)).unwrap(), bytes);
        log.remove(1, false).unwrap();
        assert_eq!(log.damaged(), []);
        assert_eq!(log.read(&written.locations[0], 10).unwrap(), None);
    }
}

#[test]
fn a_segment_that_was_never_written_goes_and_its_id_is_not_given_again() {
    for len in [0, 10, 63] {
        let written = Written::new(vec![put("a", 1, 10)]);
        fs::write(segment(written.dir.path(), 9), vec![0; len]).unwrap();
        let log = open(written.dir.path(), 1 << 30);
        assert!(!segment(written.dir.path(), 9).exists());
        assert_eq!((log.segments().len(), log.damaged().len()), (1, 0));
        assert_eq!(log.append(&[put("b", 2, 10)]).unwrap()[0].segment, 10);
    }
}

#[test]
fn segments_of_other_disks_and_names_are_set_aside() {
    let written = Written::new(vec![put("a", 1, 10)]);
    let dir = written.dir.path();
    fs::copy(segment(dir, 1), segment(dir, 7)).unwrap();
    fs::write(dir.join("log/notes"), "not ours").unwrap();
    let log = open(dir, 1 << 30);
    assert_eq!((log.segments().len(), log.damaged()[0].0), (1, 7));
    let other = Log::open(Arc::new(crate::RealDisk), dir.join("log"), dir.join("work"), 5, 1 << 30)
        .unwrap();
    assert_eq!((other.segments().len(), other.damaged().len()), (0, 2));
    assert!(other.damaged()[0].1.contains("another disk"));
}

/// The error of opening a log whose first segment has `byte` at this place of its header.
fn refusal(at: usize, byte: u8) -> Error {
    let written = Written::new(vec![put("a", 1, 10)]);
    let mut bytes = written.bytes.clone();
    bytes[at] = byte;
    let crc = forebay_core::checksum::crc32c(&bytes[..40]).to_le_bytes();
    bytes[40..44].copy_from_slice(&crc);
    bytes[44..64].fill(0x55);
    fs::write(segment(written.dir.path(), 1), &bytes).unwrap();
    let io = Arc::new(crate::RealDisk);
    let log = Log::open(
        io,
        written.dir.path().join("log"),
        written.dir.path().join("work"),
        super::tests::DISK,
        1 << 30,
    );
    log.err().unwrap()
}

#[test]
fn a_segment_of_a_later_format_or_with_unknown_features_is_refused() {
    let e = refusal(8, 4);
    assert_eq!(e.code, ErrorCode::Unsupported);
    assert!(e.message.contains("format 4") && e.message.contains("format 3"), "{e}");
    for at in 10..16 {
        let e = refusal(at, 0x80);
        assert_eq!(e.code, ErrorCode::Unsupported);
        assert!(e.message.contains("features"), "{e}");
    }
}

#[test]
fn a_segment_of_format_2_is_read_on_one_of_its_two_salts() {
    let written = Written::new(vec![put("a", 1, 10)]);
    let (header, _) = header_of(&written.bytes);
    assert_eq!(header.format, FORMAT);
    let mut bytes = written.bytes.clone();
    let header = SegmentHeader { format: FORMAT_2, ..header };
    bytes[..SEGMENT_HEADER as usize].copy_from_slice(&header.encode(None));
    for range in [0..0, 0..48, 44..64, 32..40, 40..44, 48..56, 56..60] {
        let mut bytes = bytes.clone();
        bytes[range].fill(0xaa);
        written.check(&bytes, |_, _| false);
    }
}
