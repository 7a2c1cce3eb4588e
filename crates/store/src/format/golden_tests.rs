//! Files of earlier versions stay readable for ever, and this version writes the documented bytes.
//!
//! `golden/` has files of each format. They are never changed; a new format adds its own.
#![allow(clippy::unwrap_used)]

use forebay_core::checksum::Checksum;

use super::*;
use crate::extensions::{Extension, Extensions};
use crate::record::{Extent, Place, Record, RecordMeta, Spot};

const OBJECT_1: &[u8] = include_bytes!("golden/object-format1.bin");
const OBJECT_1_CHANGED: &[u8] = include_bytes!("golden/object-format1-changed.bin");
const OBJECT_2: &[u8] = include_bytes!("golden/object-format2.bin");
const SEGMENT_2: &[u8] = include_bytes!("golden/segment-format2.bin");
const OBJECT_3: &[u8] = include_bytes!("golden/object-format3.bin");
const OBJECT_3_EXTENDED: &[u8] = include_bytes!("golden/object-format3-extended.bin");
const SEGMENT_3: &[u8] = include_bytes!("golden/segment-format3.bin");
const SEGMENT_3_OPEN: &[u8] = include_bytes!("golden/segment-format3-open.bin");
const SEGMENT_3_RECYCLED: &[u8] = include_bytes!("golden/segment-format3-recycled.bin");
const SEGMENT_3_SEALED: &[u8] = include_bytes!("golden/segment-format3-sealed.bin");
const SIDECAR_1: &[u8] = include_bytes!("golden/companion-format1.bin");

const GENERATION: u64 = (3 << 40) | 9;
const PAYLOAD: &[u8] = b"hello";

/// A record with a value in every field, of a copy of a cloud's object.
fn cached() -> Record {
    let meta = RecordMeta {
        checksum: Some(Checksum { kind: ChecksumKind::Xxhash, value: "26c7827d889f6da3".into() }),
        etag: "5d41402abc4b2a76b9719d911017c592".into(),
        version: "3".into(),
        backend_version: "1700000000000001".into(),
        class: Class::Cache,
        backed: true,
        dirty: false,
        epoch: 17,
        validated_ns: 1_700_000_000_123_456_789,
        atime_ns: 1_700_000_001_000_000_000,
        mtime_ns: 1_699_999_999_000_000_000,
        custom: [("colour".to_owned(), "grün".to_owned())].into(),
        parts: Default::default(),
        extensions: Extensions::default(),
    };
    Record {
        bucket_id: 0x0102_0304_0506_0708,
        name: "train/ä-0001.jpg".into(),
        size: PAYLOAD.len() as u64,
        generation: GENERATION,
        sequence: GENERATION,
        meta,
        place: Place::Files(
            Spot::default(),
            vec![Extent { id: GENERATION, size: PAYLOAD.len() as u64 }],
        ),
        disk: 0,
    }
}

/// The same object, written on this node and not yet uploaded to the cloud.
fn owned() -> Record {
    let mut record = cached();
    record.meta.class = Class::Owned;
    record.meta.backed = false;
    record.meta.dirty = true;
    record.meta.version = "4".into();
    record.meta.custom.clear();
    record
}

/// The first object with the id of a key, and an extension that nobody has to know.
fn extended() -> Record {
    let field = |id: u64, value: &[u8]| Extension { id, value: value.into() };
    let fields = vec![field(1, b"key-7"), field(300, &[0, 0xff])];
    let mut record = cached();
    record.meta.extensions = Extensions::in_order(fields).unwrap();
    record
}

const HEADER: SegmentHeader = SegmentHeader {
    format: FORMAT,
    segment: 0x2a,
    disk_id: 0xfeed_beef_0123_4567,
    salt: 0x0fed_cba9_8765_4321,
};

fn in_log(mut record: Record) -> Entry {
    record.place = Place::Log(Spot::default());
    Entry::Put(Box::new(record))
}

/// The entries of the golden segment of format 2: every kind of record.
fn entries() -> Vec<(Entry, &'static [u8])> {
    let mut changed = owned();
    changed.sequence += 5;
    let mut empty = owned();
    empty.size = 0;
    empty.meta = RecordMeta { class: Class::Cache, ..RecordMeta::default() };
    let mut large = cached();
    large.name = "large".into();
    large.size = 700 << 20;
    large.sequence += 7;
    large.place = Place::Files(
        Spot::default(),
        vec![
            Extent { id: GENERATION, size: 512 << 20 },
            Extent { id: GENERATION + 1, size: 188 << 20 },
        ],
    );
    let remove = Entry::Remove { bucket_id: 3, name: "old".into(), sequence: GENERATION + 8 };
    vec![
        (in_log(cached()), PAYLOAD),
        (in_log(changed), PAYLOAD),
        (in_log(empty), b""),
        (Entry::Put(Box::new(large)), b""),
        (remove, b""),
    ]
}

/// The entries of the golden segment of format 3.
fn entries_3() -> Vec<(Entry, &'static [u8])> {
    let mut entries = entries();
    entries.push((in_log(extended()), PAYLOAD));
    entries
}

/// The file of a record as this version writes it.
fn object(record: &Record) -> Vec<u8> {
    let mut file = PAYLOAD.to_vec();
    file.extend(crc32c(PAYLOAD).to_le_bytes());
    file.extend(encode_trailer(record).unwrap());
    file
}

/// The segment of these entries as this version writes it, in this state.
fn segment(state: Option<SegmentState>, entries: Vec<(Entry, &[u8])>) -> Vec<u8> {
    let mut segment = HEADER.encode(state).to_vec();
    for (entry, payload) in entries {
        let at = segment.len() as u64;
        encode_head(&mut segment, &HEADER, at, &entry, payload).unwrap();
        segment.extend_from_slice(payload);
        segment.resize(segment.len().next_multiple_of(ALIGN as usize), 0);
    }
    segment
}

#[test]
fn object_files_of_format_1_are_read() {
    assert_eq!(decode_tail(OBJECT_1).unwrap(), Some(cached()));
    assert_eq!(decode_tail(OBJECT_1_CHANGED).unwrap(), Some(owned()));
    let (payload, rest) = OBJECT_1.split_at(PAYLOAD.len());
    assert_eq!(bad_block(payload, &rest[..4]), None);
}

#[test]
fn a_torn_append_of_format_1_leaves_the_record_before_it() {
    for len in OBJECT_1.len()..OBJECT_1_CHANGED.len() {
        assert_eq!(decode_tail(&OBJECT_1_CHANGED[..len]).unwrap(), Some(cached()));
    }
}

#[test]
fn object_files_of_format_2_are_read() {
    assert_eq!(decode_tail(OBJECT_2).unwrap(), Some(cached()));
}

#[test]
fn object_files_of_format_3_are_read_and_written() {
    assert_eq!(decode_tail(OBJECT_3).unwrap(), Some(cached()));
    assert_eq!(object(&cached()), OBJECT_3);
    assert_eq!(decode_tail(OBJECT_3_EXTENDED).unwrap(), Some(extended()));
    assert_eq!(object(&extended()), OBJECT_3_EXTENDED);
}

/// The header and the state of a golden segment.
fn header_of(bytes: &[u8]) -> (SegmentHeader, Option<SegmentState>) {
    let header = bytes.first_chunk().unwrap();
    SegmentHeader::decode(header, HEADER.segment, HEADER.disk_id).unwrap()
}

/// Checks that a golden segment of this format has these entries.
fn check_segment(bytes: &[u8], format: u16, entries: Vec<(Entry, &[u8])>) {
    let (header, _) = header_of(bytes);
    assert_eq!(header, SegmentHeader { format, ..HEADER });
    let mut at = SEGMENT_HEADER as usize;
    for (mut entry, payload) in entries {
        let fixed = Fixed::decode(&bytes[at..]).unwrap();
        let (head, rest) = bytes[at..].split_at(fixed.head as usize);
        if let Entry::Put(record) = &mut entry {
            let segment = HEADER.segment;
            record.set_spot(Spot { segment, offset: at as u32, head: fixed.head });
        }
        assert_eq!(decode_head(head, &header, at as u64).unwrap(), entry);
        assert_eq!(&rest[..fixed.payload as usize], payload);
        assert_eq!(bad_block(payload, split_table(head, u64::from(fixed.payload))), None);
        at += fixed.frame_bytes() as usize;
    }
    assert_eq!(at, bytes.len());
}

#[test]
fn segments_of_format_2_are_read() {
    check_segment(SEGMENT_2, FORMAT_2, entries());
    assert_eq!(header_of(SEGMENT_2).1, None);
}

#[test]
fn segments_of_format_3_are_read_and_written() {
    check_segment(SEGMENT_3, FORMAT, entries_3());
    assert_eq!(header_of(SEGMENT_3).1, None);
    assert_eq!(segment(None, entries_3()), SEGMENT_3);
}

/// The golden segments whose headers have a state, with this state and the end of the frames.
fn stated() -> [(&'static [u8], SegmentState); 3] {
    let end = SEGMENT_3.len() as u32;
    [
        (SEGMENT_3_OPEN, SegmentState::Open(TailContent::Zeros)),
        (SEGMENT_3_RECYCLED, SegmentState::Open(TailContent::Recycled)),
        (SEGMENT_3_SEALED, SegmentState::Sealed { end }),
    ]
}

#[test]
fn segments_with_a_state_in_their_header_are_read_and_written() {
    for (bytes, state) in stated() {
        assert_eq!(header_of(bytes), (HEADER, Some(state)));
        let (frames, behind) = bytes.split_at(SEGMENT_3.len());
        check_segment(frames, FORMAT, entries_3());
        assert_eq!(segment(Some(state), entries_3()), frames);
        assert!(!behind.is_empty(), "the file does not end with the frames");
    }
}

#[test]
fn programs_that_know_no_states_refuse_segments_with_one() {
    for (bytes, state) in stated() {
        // They accept a header whose checksum is that without features, and otherwise refuse one
        // with a sound checksum and any feature.
        let unknown = HEADER.encode(None)[40..44].to_vec();
        assert!(bytes[40..44] != unknown && bytes[56..60] != unknown, "{state:?}");
        assert_eq!(bytes[40..44], crc32c(&bytes[..40]).to_le_bytes());
        assert_ne!(bytes[10..16], [0; 6]);
    }
}

#[test]
fn sidecars_of_format_1_are_read_and_written() {
    assert_eq!(decode_sidecar(SIDECAR_1.to_vec(), GENERATION).unwrap(), b"learned");
    assert_eq!(encode_sidecar(GENERATION, b"learned"), SIDECAR_1);
}
