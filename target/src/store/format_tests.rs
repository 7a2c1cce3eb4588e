//! The layouts keep what they are given and refuse what they did not write.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::*;

fn records() -> impl Strategy<Value = Record> {
    let text = "\\PC{0,12}";
    let meta = (
        proptest::option::of((1usize..KINDS.len(), "[0-9a-f]{0,64}")),
        (text, text, text),
        (any::<bool>(), any::<bool>(), any::<bool>()),
        any::<[u64; 4]>(),
        proptest::collection::btree_map(text, text, 0..4),
    );
    (any::<[u64; 3]>(), "[a-z/.\u{e4}]{1,40}", meta).prop_map(
        |(
            [bucket_id, size, generation],
            name,
            (sum, (etag, version, at), flags, times, custom),
        )| {
            Record {
                bucket_id,
                name,
                size,
                generation,
                disk: 0,
                meta: RecordMeta {
                    checksum: sum.map(|(k, value)| Checksum { kind: KINDS[k], value }),
                    etag,
                    version,
                    backend_version: at,
                    class: if flags.0 { Class::Owned } else { Class::Cache },
                    backed: flags.1,
                    dirty: flags.2,
                    epoch: times[0],
                    validated_ns: times[1],
                    atime_ns: times[2],
                    mtime_ns: times[3],
                    custom,
                },
            }
        },
    )
}

proptest! {
    #[test]
    fn records_survive_the_round_trip(record in records(), before in any::<Vec<u8>>()) {
        let mut tail = before;
        tail.extend(encode_trailer(&record).unwrap());
        prop_assert_eq!(decode_tail(&tail).unwrap(), Some(record.clone()));
        let value = encode_value(&record).unwrap();
        let key = key(record.bucket_id, &record.name);
        prop_assert_eq!(decode_value(&key, &value, 0).unwrap(), record);
    }

    #[test]
    fn a_torn_append_leaves_the_record_before_it(
        old in records(), new in records(), cut in 1usize..100,
    ) {
        let mut tail = encode_trailer(&old).unwrap();
        let append = encode_trailer(&new).unwrap();
        tail.extend_from_slice(&append[..append.len() - cut.min(append.len())]);
        prop_assert_eq!(decode_tail(&tail).unwrap(), Some(old));
    }

    #[test]
    fn a_flipped_bit_is_never_taken_for_a_record(record in records(), at in any::<usize>()) {
        let mut bytes = encode_trailer(&record).unwrap();
        let bit = at % (bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // The two bytes after the format in the footer are reserved and mean nothing yet.
        let reserved = bytes.len() - 10..bytes.len() - 8;
        if !reserved.contains(&(bit / 8)) {
            prop_assert!(!matches!(decode_tail(&bytes), Ok(Some(_))));
        }
    }

    #[test]
    fn random_bytes_never_panic(bytes in any::<Vec<u8>>(), len in any::<u16>()) {
        let _ = decode_value(&bytes, &bytes, 0);
        let mut tail = bytes.clone();
        tail.extend(u32::from(len).to_le_bytes());
        tail.extend(FORMAT.to_le_bytes());
        tail.extend([0, 0]);
        tail.extend(FOOTER_MAGIC);
        let _ = decode_tail(&tail);
        let mut record = RECORD_MAGIC.to_vec();
        record.extend(FORMAT.to_le_bytes());
        record.extend(&bytes);
        record.extend(crc32c(&record).to_le_bytes());
        let _ = decode_record(&record);
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
    let record = Record {
        bucket_id: 1,
        name: "a".into(),
        size: 0,
        generation: 1,
        meta: RecordMeta::default(),
        disk: 0,
    };
    let mut value = encode_value(&record).unwrap();
    value[8] = 9;
    let e = decode_value(&key(1, "a"), &value, 0).unwrap_err();
    assert_eq!(e.code, ErrorCode::Unsupported);
    assert!(e.message.contains("format 9") && e.message.contains("format 1"), "{e}");
}

#[test]
fn oversized_metadata_is_refused() {
    let mut meta = RecordMeta::default();
    meta.custom.insert("k".into(), "v".repeat(MAX_RECORD));
    let record = Record { bucket_id: 1, name: "a".into(), size: 0, generation: 1, meta, disk: 0 };
    assert_eq!(encode_trailer(&record).unwrap_err().code, ErrorCode::InvalidArgument);
}
