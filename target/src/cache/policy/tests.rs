//! Rules that hold for every policy.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::*;

fn every_policy() -> Vec<(&'static str, Box<dyn Policy>)> {
    vec![("LRU", build(CachePolicy::Lru)), ("density", build(CachePolicy::Density))]
}

#[test]
fn victims_are_residents_and_none_is_offered_after_it_was_taken() {
    for (name, mut policy) in every_policy() {
        let mut dice = Dice::new(9);
        let mut there = BTreeSet::new();
        for step in 0..20_000u64 {
            let slot = dice.below(300) as Slot;
            match dice.below(10) {
                0..4 if !there.contains(&slot) => {
                    policy.insert(slot, (slot % 3) as u16, mix(u64::from(slot)));
                    there.insert(slot);
                }
                4..8 if there.contains(&slot) => policy.access(slot),
                8 if there.remove(&slot) => policy.remove(slot),
                9 if step % 7 == 0 => {
                    let mut wanted = dice.below(20);
                    policy.evict(Buckets::All, &mut |slot| {
                        if wanted == 0 {
                            return Verdict::Enough;
                        }
                        assert!(there.contains(&slot), "{name} offers {slot}");
                        if slot % 5 == 0 {
                            return Verdict::Skip;
                        }
                        wanted -= 1;
                        there.remove(&slot);
                        Verdict::Take
                    });
                }
                _ => {}
            }
        }
    }
}

#[test]
fn all_of_one_bucket_can_be_had_and_nothing_of_another() {
    for (name, mut policy) in every_policy() {
        for slot in 0..300 {
            policy.insert(slot, (slot % 3) as u16, mix(u64::from(slot)));
            if slot % 2 == 0 {
                policy.access(slot);
            }
        }
        let mut taken = BTreeSet::new();
        policy.evict(Buckets::One(1), &mut |slot| {
            taken.insert(slot);
            Verdict::Take
        });
        assert_eq!(taken, (0..300).filter(|s| s % 3 == 1).collect(), "{name}");
        policy.evict(Buckets::One(1), &mut |slot| panic!("{name} offers {slot} again"));
    }
}

#[test]
fn a_bucket_that_has_no_more_to_give_does_not_hide_the_others() {
    for (name, mut policy) in every_policy() {
        for slot in 0..300 {
            policy.insert(slot, u16::from(slot >= 200), mix(u64::from(slot)));
        }
        // The first bucket is not read any more.
        (0..5).for_each(|_| (200..300).for_each(|slot| policy.access(slot)));
        let mut taken = 0;
        policy.evict(Buckets::Where(&|bucket| bucket == 1), &mut |slot| {
            assert!(slot >= 200, "{name}");
            taken += 1;
            Verdict::Take
        });
        assert_eq!(taken, 100, "{name}");
    }
}

#[test]
fn an_empty_cache_has_no_victim() {
    for (_, mut policy) in every_policy() {
        policy.evict(Buckets::All, &mut |slot| panic!("{slot}"));
        policy.insert(7, 0, 1);
        policy.remove(7);
        policy.evict(Buckets::All, &mut |slot| panic!("{slot}"));
    }
}

#[test]
fn a_cache_where_nothing_may_go_ends_the_search() {
    for (_, mut policy) in every_policy() {
        for slot in 0..100 {
            policy.insert(slot, 0, mix(u64::from(slot)));
        }
        policy.evict(Buckets::All, &mut |_| Verdict::Skip);
    }
}
