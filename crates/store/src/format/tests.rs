//! The layouts return what was encoded and reject what they did not write.
#![allow(clippy::unwrap_used)]

use forebay_core::checksum::Checksum;
use proptest::prelude::*;

use super::record::{decode_entry, encode_entry, entry_bound};
use super::*;
use crate::extensions::{Extension, Extensions};
use crate::record::{Extent, Place, Record, RecordMeta, Spot};

/// Records of every shape, in the log or in files.
pub(crate) fn records() -> impl Strategy<Value = Record> {
    let text = "\\PC{0,12}";
    let hex = "[0-9a-f]{0,40}";
    let meta = (
        proptest::option::of((1usize..KINDS.len(), "[0-9a-fA-F]{0,64}")),
        (prop_oneof![text, hex], prop_oneof![text, "[0-9]{0,20}"], prop_oneof![text, hex]),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        times(),
        proptest::collection::btree_map(text, text, 0..4),
        proptest::collection::vec(any::<u32>().prop_map(u64::from), 0..3),
        extensions(),
    );
    let meta = meta.prop_map(|(sum, texts, flags, times, custom, parts, extensions)| {
        let (etag, version, backend_version) = texts;
        RecordMeta {
            checksum: sum.map(|(k, value)| Checksum { kind: KINDS[k], value }),
            etag,
            version,
            backend_version,
            class: if flags.0 { Class::Owned } else { Class::Cache },
            backed: flags.1,
            dirty: flags.2,
            epoch: times[0],
            validated_ns: times[1],
            atime_ns: times[2],
            mtime_ns: times[3],
            custom,
            parts: parts.into_iter().collect(),
            extensions,
        }
    });
    (any::<[u64; 3]>(), "[a-z/.\u{e4}]{1,40}", meta, places()).prop_map(
        |([bucket_id, generation, sequence], name, meta, (size, place))| Record {
            bucket_id,
            name,
            size,
            generation,
            sequence,
            meta,
            place,
            disk: 0,
        },
    )
}

fn extensions() -> impl Strategy<Value = Extensions> {
    let ids = prop_oneof![0..300u64, any::<u64>()];
    let fields = proptest::collection::btree_map(ids, any::<Vec<u8>>(), 0..3);
    fields.prop_map(|fields| of_fields(fields.into_iter().collect()))
}

/// The extensions with these ids and values.
fn of_fields(fields: Vec<(u64, Vec<u8>)>) -> Extensions {
    let field = |(id, value): (u64, Vec<u8>)| Extension { id, value: value.into() };
    Extensions::in_order(fields.into_iter().map(field).collect()).unwrap()
}

fn times() -> impl Strategy<Value = [u64; 4]> {
    // Equal ones and zero are the usual case.
    any::<[u64; 4]>().prop_flat_map(|t| (Just(t), any::<[bool; 3]>())).prop_map(|(mut t, on)| {
        if on[0] {
            t[2] = t[3];
        }
        if on[1] {
            t[1] = 0;
        }
        if on[2] {
            t = t.map(|t| 1_700_000_000_000_000_000 + t % 1_000_000_000_000);
        }
        t
    })
}

fn places() -> impl Strategy<Value = (u64, Place)> {
    let spot = (any::<u64>(), any::<u32>(), any::<u32>())
        .prop_map(|(segment, offset, head)| Place::Log(Spot { segment, offset, head }));
    let files = proptest::collection::vec((any::<u64>(), 0..u64::MAX >> 4), 0..5).prop_map(|f| {
        let files: Vec<_> = f.into_iter().map(|(id, size)| Extent { id, size }).collect();
        (files.iter().map(|f| f.size).sum(), Place::Files(Spot::default(), files))
    });
    prop_oneof![(0..MAX_PAYLOAD, spot), files]
}

fn in_files() -> impl Strategy<Value = Record> {
    records().prop_map(|mut record| {
        if record.place.is_log() {
            record.place = Place::Files(
                Spot::default(),
                vec![Extent { id: record.generation, size: record.size }],
            );
        }
        record
    })
}

/// States of segments of this format, or none.
fn states() -> impl Strategy<Value = Option<SegmentState>> {
    prop_oneof![
        Just(None),
        Just(Some(SegmentState::Open(TailContent::Zeros))),
        Just(Some(SegmentState::Open(TailContent::Recycled))),
        any::<u32>().prop_map(|end| Some(SegmentState::Sealed { end })),
    ]
}

fn headers() -> impl Strategy<Value = SegmentHeader> {
    any::<[u64; 3]>().prop_map(|[segment, disk_id, salt]| {
        let format = FORMAT;
        SegmentHeader { format, segment, disk_id, salt }
    })
}

proptest! {
    #[test]
    fn records_survive_the_round_trip(record in records()) {
        let value = encode_value(&record).unwrap();
        let key = key(record.bucket_id, &record.name);
        prop_assert_eq!(decode_value(&key, &value, 0).unwrap(), record);
    }

    #[test]
    fn a_glance_sees_what_the_whole_record_says(record in records()) {
        let Record { sequence, size, ref meta, .. } = record;
        let glance = glance_value(&encode_value(&record).unwrap()).unwrap();
        prop_assert_eq!(glance, Glance { sequence, size, mtime_ns: meta.mtime_ns });
    }

    #[test]
    fn trailers_survive_the_round_trip(record in in_files(), before in any::<Vec<u8>>()) {
        let mut tail = before;
        tail.extend(encode_trailer(&record).unwrap());
        prop_assert_eq!(decode_tail(&tail).unwrap(), Some(record));
    }

    #[test]
    fn entries_survive_the_round_trip(record in records(), removed: bool) {
        let Record { bucket_id, name, sequence, .. } = record.clone();
        let entry = match removed {
            true => Entry::Remove { bucket_id, name, sequence },
            false => Entry::Put(Box::new(record.clone())),
        };
        let mut out = Vec::new();
        encode_entry(&mut out, &entry).unwrap();
        prop_assert!(out.len() <= entry_bound(&entry));
        let (spot, size) = match record.place {
            Place::Log(spot) if !removed => (spot, record.size),
            _ => (Spot::default(), 0),
        };
        prop_assert_eq!(decode_entry(&out, FORMAT, spot, size).unwrap(), entry);
    }

    #[test]
    fn a_trailer_in_a_payload_is_none(record in in_files(), after in 1usize..100) {
        let mut tail = encode_trailer(&record).unwrap();
        tail.resize(tail.len() + after, 0);
        prop_assert!(!matches!(decode_tail(&tail), Ok(Some(_))));
    }

    #[test]
    fn a_flipped_bit_is_never_taken_for_a_record(record in in_files(), at in any::<usize>()) {
        let mut bytes = encode_trailer(&record).unwrap();
        let bit = at % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!matches!(decode_tail(&bytes), Ok(Some(_))));
    }

    #[test]
    fn random_bytes_never_panic(bytes in any::<Vec<u8>>(), len in any::<u16>(), kind in 0u8..4) {
        let mut value = bytes.clone();
        let _ = decode_value(&bytes, &value, 0);
        value.insert(0, 3);
        let _ = decode_value(&key(1, "a"), &value, 0);
        let _ = glance_value(&value);
        value[0] = kind;
        for format in [FORMAT_2, FORMAT] {
            let _ = decode_entry(&value, format, Spot::default(), u64::from(len));
        }
        for format in [FIRST_FORMAT, FORMAT_2, FORMAT] {
            let mut tail = b"FBRECORD".to_vec();
            tail.extend(format.to_le_bytes());
            tail.extend(&bytes);
            tail.extend(crc32c(&tail).to_le_bytes());
            let _ = v1::decode_record(&tail);
            super::trailer::push_footer(&mut tail, format);
            let _ = decode_tail(&tail);
        }
    }

    #[test]
    fn states_of_segments_survive_the_round_trip(state in states(), header in headers()) {
        let found = SegmentHeader::decode(&header.encode(state), header.segment, header.disk_id);
        prop_assert_eq!(found.unwrap(), (header, state));
    }

    #[test]
    fn a_header_that_was_half_rewritten_has_the_state_before_or_after(
        before in states().prop_filter("it has a state", Option::is_some),
        after in states().prop_filter("it has a state", Option::is_some),
        header in headers(),
        written in 0..=SEGMENT_HEADER as usize,
    ) {
        let mut torn = header.encode(before);
        torn[..written].copy_from_slice(&header.encode(after)[..written]);
        let found = SegmentHeader::decode(&torn, header.segment, header.disk_id);
        let (found, state) = found.unwrap();
        prop_assert_eq!(found, header);
        prop_assert!(state == before || state == after, "{:?}", state);
    }

    #[test]
    fn a_flipped_bit_never_changes_the_state_of_a_segment(
        state in states(),
        header in headers(),
        bit in 0..SEGMENT_HEADER as usize * 8,
    ) {
        let mut bytes = header.encode(state);
        bytes[bit / 8] ^= 1 << (bit % 8);
        let found = SegmentHeader::decode(&bytes, header.segment, header.disk_id);
        prop_assert_eq!(found.unwrap(), (header, state));
    }

    #[test]
    fn features_that_are_no_state_are_refused(features in any::<[u8; 6]>(), header in headers()) {
        let mut bytes = header.encode(None);
        bytes[10..16].copy_from_slice(&features);
        let crc = crc32c(&bytes[..40]).to_le_bytes();
        bytes[40..44].copy_from_slice(&crc);
        let found = SegmentHeader::decode(&bytes, header.segment, header.disk_id);
        match found {
            // The second checksum of the header may be that without features.
            Ok((found, _)) => prop_assert_eq!(found, header),
            Err(e) => prop_assert_eq!(e.code, ErrorCode::Unsupported),
        }
        bytes[44..64].fill(0x55);
        match SegmentHeader::decode(&bytes, header.segment, header.disk_id) {
            Ok((_, state)) => prop_assert!(header.encode(state)[10..16] == features),
            Err(e) => prop_assert_eq!(e.code, ErrorCode::Unsupported),
        }
    }

    #[test]
    fn keys_of_a_bucket_sort_by_name(a in "\\PC{0,9}", b in "\\PC{0,9}", id in any::<u64>()) {
        prop_assert_eq!(key(id, &a).cmp(&key(id, &b)), a.as_bytes().cmp(b.as_bytes()));
        let made = key(id, &a);
        prop_assert_eq!(parse_key(&made).unwrap(), (id, a.as_str()));
    }
}

#[test]
fn an_unknown_format_is_named_in_the_refusal() {
    let record = Record::for_test("a", 0, 1, RecordMeta::default());
    let mut bytes = encode_trailer(&record).unwrap();
    let at = bytes.len() - 12;
    bytes[at] = 9;
    let e = decode_tail(&bytes).unwrap_err();
    assert_eq!(e.code, ErrorCode::Unsupported);
    assert!(e.message.contains("format 9") && e.message.contains("format 3"), "{e}");
}

/// The trailer of a record that format 3 wrote, with another format in its record.
fn relabelled(record: &Record, format: u16) -> Vec<u8> {
    let mut bytes = encode_trailer(record).unwrap();
    bytes.truncate(bytes.len() - FOOTER - 4);
    bytes[8..10].copy_from_slice(&format.to_le_bytes());
    bytes.extend(crc32c(&bytes).to_le_bytes());
    bytes
}

#[test]
fn records_of_format_2_have_no_extensions() {
    let plain = Record::for_test("a", 0, 1, RecordMeta::default());
    let mut extended = plain.clone();
    extended.meta.extensions = of_fields(vec![(300, vec![7])]);
    for (record, is_sound) in [(plain, true), (extended, false)] {
        let mut file = relabelled(&record, FORMAT_2);
        super::trailer::push_footer(&mut file, FORMAT_2);
        let found = decode_tail(&file).map_err(|e| e.code);
        let read = if is_sound { Ok(Some(record.clone())) } else { Err(ErrorCode::Corrupt) };
        assert_eq!(found, read);

        let header = SegmentHeader { format: FORMAT_2, segment: 7, disk_id: 1, salt: 3 };
        let mut frame = Vec::new();
        encode_head(&mut frame, &header, 64, &Entry::Put(Box::new(record)), &[]).unwrap();
        assert_eq!(decode_head(&frame, &header, 64).is_ok(), is_sound);
    }
}

#[test]
fn a_record_and_its_footer_have_the_same_format() {
    let record = Record::for_test("a", 0, 1, RecordMeta::default());
    for (format, footer) in [(FORMAT_2, FORMAT), (FORMAT, FORMAT_2)] {
        let mut file = relabelled(&record, format);
        super::trailer::push_footer(&mut file, footer);
        assert_eq!(decode_tail(&file).unwrap_err().code, ErrorCode::Corrupt);
    }
}

/// The record of an object in the log, with these bytes as its extensions.
fn with_extensions(bytes: &[u8]) -> Result<Entry> {
    let mut record = Record::for_test("a", 0, 1, RecordMeta::default());
    record.place = Place::Log(Spot::default());
    record.meta.extensions = of_fields(vec![(0, Vec::new())]);
    let mut out = Vec::new();
    encode_entry(&mut out, &Entry::Put(Box::new(record))).unwrap();
    assert_eq!(out.split_off(out.len() - 3), [1, 0, 0]);
    out.extend(bytes);
    decode_entry(&out, FORMAT, Spot::default(), 0)
}

#[test]
fn extensions_that_are_out_of_order_repeated_or_too_long_are_damage() {
    assert!(with_extensions(&[2, 5, 0, 9, 1, 7]).is_ok());
    let too_long = [&[1u8, 5][..], &[0xff; 9], &[1, 0]].concat();
    let damaged: [&[u8]; 8] = [
        &[],
        &[0],
        &[2, 9, 0, 5, 0],
        &[2, 5, 0, 5, 0],
        &[1, 5],
        &[1, 5, 3, 7, 7],
        &[1, 5, 1, 7, 7],
        &too_long,
    ];
    for bytes in damaged {
        assert_eq!(with_extensions(bytes).unwrap_err().code, ErrorCode::Corrupt, "{bytes:?}");
    }
}

#[test]
fn an_index_of_another_layout_is_no_index() {
    let record = Record::for_test("a", 0, 1, RecordMeta::default());
    let mut value = encode_value(&record).unwrap();
    value[0] = 9;
    assert_eq!(decode_value(&key(1, "a"), &value, 0).unwrap_err().code, ErrorCode::Corrupt);
}

#[test]
fn oversized_metadata_is_refused() {
    let mut meta = RecordMeta::default();
    meta.custom.insert("k".into(), "v".repeat(MAX_RECORD));
    let record = Record::for_test("a", 0, 1, meta);
    assert_eq!(encode_trailer(&record).unwrap_err().code, ErrorCode::InvalidArgument);
    let entry = Entry::Put(Box::new(record));
    assert_eq!(check_entry(&entry).unwrap_err().code, ErrorCode::InvalidArgument);
}

#[test]
fn files_must_have_the_bytes_of_their_object() {
    let mut record = Record::for_test("a", 5, 1, RecordMeta::default());
    record.size = 6;
    assert_eq!(encode_trailer(&record).unwrap_err().code, ErrorCode::Internal);
}

/// Two salts of one segment that leave the same in the checksum of a frame: CRCs are linear, so of 33
/// differences in one bit each some cancel out.
fn salts_that_collide(segment: u64) -> (u64, u64) {
    let of = |salt: u64| crc32c(&[salt.to_le_bytes(), segment.to_le_bytes()].concat());
    // By their highest bit.
    let mut basis = [None; 32];
    for bit in 0..64 {
        let (mut rest, mut salt) = (of(1 << bit) ^ of(0), 1u64 << bit);
        while rest != 0 {
            match &mut basis[rest.ilog2() as usize] {
                Some((vector, of_salt)) => (rest, salt) = (rest ^ *vector, salt ^ *of_salt),
                free => {
                    *free = Some((rest, salt));
                    break;
                }
            }
        }
        if rest == 0 {
            return (0, salt);
        }
    }
    unreachable!("64 vectors of 32 bits")
}

#[test]
fn a_segment_takes_frames_of_another_one_at_its_places_only_if_their_salts_collide() {
    let header = |salt| SegmentHeader { format: FORMAT, segment: 7, disk_id: 1, salt };
    let (a, b) = salts_that_collide(7);
    assert_ne!(a, b);
    for (other, takes) in [(header(a), true), (header(b), true), (header(b ^ 1), false)] {
        let mut frame = Vec::new();
        let record = Record::for_test("name", 0, 1, RecordMeta::default());
        let entry = Entry::Put(Box::new(record));
        encode_head(&mut frame, &other, 64, &entry, &[]).unwrap();
        assert_eq!(header(a).takes_frames_of(&other), takes);
        assert_eq!(decode_head(&frame, &header(a), 64).is_ok(), takes);
    }
}
