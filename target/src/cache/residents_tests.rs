//! The table of residents against a plain map.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use proptest::prelude::*;

use forebay_core::config::CachePolicy;

use super::*;
use crate::cache::policy::build;

fn some(generation: u64, bucket_id: u64, stored: u64) -> Resident {
    Resident { generation, bucket_id, stored, seen_s: 10 }
}

fn generations(residents: &[Resident]) -> Vec<u64> {
    residents.iter().map(|r| r.generation).collect()
}

#[test]
fn victims_are_enough_and_no_longer_count() {
    let mut r = Residents::new(build(CachePolicy::Lru));
    for g in 1..=5 {
        r.insert(some(g, 7, 100), g);
    }
    r.access(1, 20);
    assert_eq!(r.tallies()[0].stored, 5 * 128, "in whole units");
    assert_eq!(generations(&r.victims(None, 129, 100)), [2, 3]);
    assert_eq!(generations(&r.victims(None, u64::MAX, 1)), [4]);
    assert_eq!((r.len(), r.tallies()[0].objects), (2, 2));
    assert_eq!(r.victims(None, u64::MAX, 100).len(), 2);
    assert!(r.is_empty() && r.victims(None, 1, 1).is_empty());
}

#[test]
fn nothing_of_a_pinned_bucket_goes_until_it_is_let_loose() {
    let mut r = Residents::new(build(CachePolicy::Density));
    r.insert(some(1, 7, 64), 1);
    r.pin(7, true);
    r.pin(8, true);
    r.insert(some(2, 7, 64), 2);
    r.insert(some(3, 8, 64), 3);
    r.insert(some(4, 9, 64), 4);
    r.access(2, 30);
    assert_eq!(generations(&r.victims(None, u64::MAX, 100)), [4]);
    r.pin(7, false);
    let mut left = generations(&r.victims(None, u64::MAX, 100));
    left.sort_unstable();
    assert_eq!(left, [1, 2]);
    r.remove(3);
    assert!(r.is_empty());
}

#[test]
fn what_was_not_read_since_goes_in_portions() {
    let mut r = Residents::new(build(CachePolicy::Density));
    for g in 1..=5 {
        r.insert(some(g, 7, 64), g);
    }
    r.insert(some(6, 8, 64), 6);
    r.access(2, 50);
    let (first, next) = r.expired(7, 50, 0, 2);
    assert_eq!(generations(&first), [1, 3]);
    let (rest, next) = r.expired(7, 50, next.unwrap(), 100);
    assert_eq!((generations(&rest), next), (vec![4, 5], None));
    assert_eq!(r.len(), 2);
}

proptest! {
    #[test]
    fn it_always_knows_who_is_there(
        steps in proptest::collection::vec((0u8..6, 0u64..60, 1u64..4), 0..300),
        kind in proptest::sample::select(vec![CachePolicy::Lru, CachePolicy::Density]),
    ) {
        let mut r = Residents::new(build(kind));
        let mut there: BTreeMap<u64, u64> = BTreeMap::new();
        let mut pinned = [false; 4];
        for (what, generation, bucket) in steps {
            match what {
                0 | 1 => {
                    r.insert(some(generation, bucket, 64), mix(generation));
                    there.entry(generation).or_insert(bucket);
                }
                2 => r.access(generation, 11),
                3 => {
                    r.remove(generation);
                    there.remove(&generation);
                }
                4 => {
                    pinned[bucket as usize] ^= true;
                    r.pin(bucket, pinned[bucket as usize]);
                }
                _ => {
                    let of = (generation % 2 == 0).then_some(bucket);
                    for victim in r.victims(of, 128, 10) {
                        prop_assert!(!pinned[victim.bucket_id as usize]);
                        prop_assert!(of.is_none_or(|b| b == victim.bucket_id));
                        prop_assert_eq!(there.remove(&victim.generation), Some(victim.bucket_id));
                    }
                }
            }
            prop_assert_eq!(r.len(), there.len());
            let counted: u64 = r.tallies().iter().map(|t| t.stored).sum();
            prop_assert_eq!(counted, 64 * there.len() as u64);
        }
    }

    #[test]
    fn no_bucket_falls_below_its_minimum_while_another_has_more(
        copies in proptest::collection::vec((1u64..4, 1u64..11), 0..80),
        minimums in proptest::collection::vec(0u64..200, 3),
        bytes in 1u64..2000,
        kind in proptest::sample::select(vec![CachePolicy::Lru, CachePolicy::Density]),
    ) {
        const LARGEST: u64 = 10 * 64;
        let mut r = Residents::new(build(kind));
        for (bucket, min) in (1u64..4).zip(&minimums) {
            r.set_min(bucket, min * 64);
        }
        for (generation, (bucket, units)) in (1u64..).zip(copies) {
            r.insert(some(generation, bucket, units * 64), mix(generation));
            r.access(generation / 2, 20);
        }
        loop {
            let before = r.tallies().to_vec();
            let victims = r.victims(None, bytes, 10);
            let has_much_above = before.iter().any(|t| t.stored > 0 && t.above_min() >= LARGEST);
            if victims.is_empty() {
                prop_assert!(before.iter().all(|t| t.above_min() == 0), "{before:?}");
                break;
            }
            for (before, after) in before.iter().zip(r.tallies()) {
                prop_assert!(before.above_min() > 0 || after.stored == before.stored);
                prop_assert!(after.stored + LARGEST > after.min || after.stored == before.stored);
                let fell = after.stored < after.min && after.stored < before.stored;
                prop_assert!(!fell || !has_much_above, "{before:?} {after:?}");
            }
        }
        while !r.is_empty() {
            prop_assert!(!r.victims_below_minimums(bytes, 10).is_empty());
        }
    }
}
