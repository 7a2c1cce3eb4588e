//! The cache returns what was stored, and nothing of an object that changes.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::slot::SECOND_NS;
use super::*;
use crate::record::{Place, Record, Spot};

fn known(n: u64) -> Known {
    let (offset, len) = (n as u32 * 8, 100 + n as u32);
    let validated_ns = n * SECOND_NS;
    Known { disk: 3, segment: n, offset, len, epoch: n, validated_ns, atime_ns: n + 7 }
}

fn close<'a>(location_cache: &'a LocationCache, name: &str) -> Closed<'a> {
    location_cache.close(vec![key_digest(1, name)])
}

#[test]
fn a_place_that_was_noted_is_found() {
    let location_cache = LocationCache::with_bytes(1 << 20);
    location_cache.note(location_cache.find(1, "a").1, known(1));
    assert_eq!(location_cache.find(1, "a").0.unwrap(), known(1));
    assert!(location_cache.find(2, "a").0.is_none() && location_cache.find(1, "b").0.is_none());
    location_cache.accessed(key_digest(1, "a"), 500);
    assert_eq!(location_cache.find(1, "a").0.unwrap().atime_ns, 500);
    location_cache.clear();
    assert!(location_cache.find(1, "a").0.is_none());
}

#[test]
fn a_change_forgets_the_place_and_lets_nobody_note_what_it_read_before() {
    let location_cache = LocationCache::with_bytes(1 << 20);
    location_cache.note(location_cache.find(1, "a").1, known(1));
    let before = {
        let closed = close(&location_cache, "a");
        let during = location_cache.find(1, "a").1;
        location_cache.note(during, known(2));
        assert!(location_cache.find(1, "a").0.is_none(), "noted while it changed");
        drop(closed);
        location_cache.note(during, known(2));
        assert!(location_cache.find(1, "a").0.is_none(), "noted what was read while it changed");
        during
    };
    location_cache.note(location_cache.find(1, "a").1, known(3));
    assert_eq!(location_cache.find(1, "a").0.unwrap(), known(3));
    drop(close(&location_cache, "a"));
    location_cache.note(before, known(2));
    assert!(location_cache.find(1, "a").0.is_none(), "noted what was read before the change");
}

#[test]
fn a_batch_notes_what_it_wrote() {
    let location_cache = LocationCache::with_bytes(1 << 20);
    let before = location_cache.find(1, "a").1;
    close(&location_cache, "a").written(vec![(key_digest(1, "a"), known(5))]);
    location_cache.note(before, known(2));
    assert_eq!(location_cache.find(1, "a").0.unwrap(), known(5));
}

#[test]
fn more_objects_than_there_is_memory_push_one_another_out() {
    let location_cache = LocationCache::with_bytes(64 << 10);
    for n in 1..10_000 {
        let name = n.to_string();
        location_cache.note(location_cache.find(1, &name).1, known(n));
    }
    let found = (1..10_000).filter(|n| match location_cache.find(1, &n.to_string()).0 {
        Some(found) => {
            assert_eq!(found, known(*n));
            true
        }
        None => false,
    });
    assert!((1000..=2048).contains(&found.count()));
}

proptest! {
    #[test]
    fn what_is_noted_comes_back_or_is_refused(
        (segment, offset, head) in (any::<u64>(), any::<u32>(), 17u32..5000),
        (size, disk, epoch) in (0u64..1 << 26, 0usize..300, any::<u64>()),
        (validated_ns, atime_ns) in (any::<u64>(), any::<u64>()),
    ) {
        let mut record = Record::for_test("a", size, 1, Default::default());
        record.place = Place::Log(Spot { segment, offset, head });
        record.disk = disk;
        record.meta.epoch = epoch;
        record.meta.validated_ns = validated_ns;
        record.meta.atime_ns = atime_ns;
        if let Some(known) = Known::of(&record) {
            let location_cache = LocationCache::with_bytes(1 << 16);
            location_cache.note(location_cache.find(1, "a").1, known);
            prop_assert_eq!(location_cache.find(1, "a").0.unwrap(), known);
            prop_assert_eq!((known.segment, known.offset, known.disk), (segment, offset, disk));
            prop_assert_eq!(u64::from(known.len), size + u64::from(head));
            prop_assert_eq!((known.epoch, known.atime_ns), (epoch, atime_ns));
            prop_assert!(known.validated_ns <= validated_ns);
            prop_assert!(validated_ns - known.validated_ns < SECOND_NS);
        } else {
            let wide = u64::from(u32::MAX);
            prop_assert!(
                segment > wide || epoch > wide || validated_ns / SECOND_NS > wide
                    || disk > 255 || size + u64::from(head) >= 1 << 24
            );
        }
    }
}
