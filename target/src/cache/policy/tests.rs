//! Rules that hold for every policy, and the orderings on which the choice of the default rests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use super::trace::{self, Trace, hit_ratio};
use super::*;

const N: u32 = 2000;

fn every_policy() -> Vec<(&'static str, Box<dyn Policy>)> {
    vec![
        ("LRU", build(CachePolicy::Lru)),
        ("SIEVE", build(CachePolicy::Sieve)),
        ("S3-FIFO", build(CachePolicy::S3Fifo)),
        ("density", build(CachePolicy::Density)),
        ("random", Box::new(Sampled::new(1))),
        ("no replacement", Box::<NoReplacement>::default()),
    ]
}

fn percent(kind: CachePolicy, trace: &Trace, cache_percent: u32) -> f64 {
    100.0 * hit_ratio(&mut *build(kind), trace, (N * cache_percent / 100) as usize)
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
                    policy.evict(None, &mut |slot| {
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
        policy.evict(Some(1), &mut |slot| {
            taken.insert(slot);
            Verdict::Take
        });
        assert_eq!(taken, (0..300).filter(|s| s % 3 == 1).collect(), "{name}");
        policy.evict(Some(1), &mut |slot| panic!("{name} offers {slot} again"));
    }
}

#[test]
fn an_empty_cache_has_no_victim() {
    for (_, mut policy) in every_policy() {
        policy.evict(None, &mut |slot| panic!("{slot}"));
        policy.insert(7, 0, 1);
        policy.remove(7);
        policy.evict(None, &mut |slot| panic!("{slot}"));
    }
}

#[test]
fn a_cache_where_nothing_may_go_ends_the_search() {
    for (_, mut policy) in every_policy() {
        for slot in 0..100 {
            policy.insert(slot, 0, mix(u64::from(slot)));
        }
        policy.evict(None, &mut |_| Verdict::Skip);
    }
}

#[test]
fn on_epochs_density_has_nearly_the_most_hits_that_can_be_and_the_others_do_not() {
    for trace in [trace::scan(N, 6), trace::shuffled(N, 6)] {
        for cache in [10, 25, 50, 90] {
            // A cache of a tenth of the data cannot hit more than a tenth of an epoch.
            let density = percent(CachePolicy::Density, &trace, cache);
            let name = trace.name;
            assert!(density > 0.75 * f64::from(cache), "{name}, {cache} %: {density}");
            for other in [CachePolicy::Lru, CachePolicy::Sieve, CachePolicy::S3Fifo] {
                let hits = percent(other, &trace, cache);
                assert!(density > hits + 3.0, "{name}, {cache} %, {other:?}: {density}, {hits}");
            }
        }
    }
}

#[test]
fn with_favourites_density_is_as_good_as_policies_made_for_them() {
    let trace = trace::zipf(N, 15);
    for cache in [10, 25, 50, 90] {
        let density = percent(CachePolicy::Density, &trace, cache);
        for other in [CachePolicy::Lru, CachePolicy::Sieve, CachePolicy::S3Fifo] {
            let hits = percent(other, &trace, cache);
            assert!(density > hits - 2.0, "{cache} %, {other:?}: {density}, {hits}");
        }
    }
}

#[test]
fn two_jobs_and_a_mix_do_not_confuse_it() {
    for trace in [trace::two_jobs(N, 6), trace::epochs_and_zipf(N, 8)] {
        for cache in [10, 25, 50] {
            let density = percent(CachePolicy::Density, &trace, cache);
            for other in [CachePolicy::Lru, CachePolicy::Sieve, CachePolicy::S3Fifo] {
                let hits = percent(other, &trace, cache);
                let name = trace.name;
                assert!(density > hits - 3.0, "{name}, {cache} %, {other:?}: {density}, {hits}");
            }
        }
    }
}

#[test]
fn a_data_set_that_nobody_reads_any_more_gives_way() {
    for bucket in [0, 1] {
        let trace = trace::next_data_set(N, bucket);
        for cache in [10, 25, 50, 90] {
            let density = percent(CachePolicy::Density, &trace, cache);
            assert!(density > 0.7 * f64::from(cache), "{bucket}, {cache} %: {density}");
            let mut forever = NoReplacement::default();
            let stuck = hit_ratio(&mut forever, &trace, (N * cache / 100) as usize);
            assert!(stuck < 0.01, "what the yardstick keeps is never replaced: {stuck}");
        }
    }
}
