//! The orderings on which the choice of the default policy rests.

use forebay_core::config::CachePolicy;
use forebay_target::cache::policy::{Density, Lru, Policy, build};

use crate::policy::{NoReplacement, S3Fifo, Sieve};
use crate::trace::{self, Trace, hit_ratio, hit_ratios};

const N: u32 = 2000;

fn percent<P: Policy + Default>(trace: &Trace, cache_percent: u32) -> f64 {
    100.0 * hit_ratio(&mut P::default(), trace, (N * cache_percent / 100) as usize)
}

/// Hits in percent of the policies that density is compared with.
fn others(trace: &Trace, cache: u32) -> [(&'static str, f64); 3] {
    [
        ("LRU", percent::<Lru>(trace, cache)),
        ("SIEVE", percent::<Sieve>(trace, cache)),
        ("S3-FIFO", percent::<S3Fifo>(trace, cache)),
    ]
}

#[test]
fn on_epochs_density_has_nearly_the_most_hits_that_can_be_and_the_others_do_not() {
    for trace in [trace::scan(N, 6), trace::shuffled(N, 6)] {
        for cache in [10, 25, 50, 90] {
            // A cache of a tenth of the data cannot hit more than a tenth of an epoch.
            let density = percent::<Density>(&trace, cache);
            let name = trace.name;
            assert!(density > 0.75 * f64::from(cache), "{name}, {cache} %: {density}");
            for (other, hits) in others(&trace, cache) {
                assert!(density > hits + 3.0, "{name}, {cache} %, {other}: {density}, {hits}");
            }
        }
    }
}

#[test]
fn a_job_with_a_guaranteed_part_keeps_its_hits_beside_a_scanner() {
    // The data set is four tenths of the cache, the guaranteed part a little more.
    let (capacity, min) = (5 * N as usize / 2, 11 * N as usize / 10);
    for policy in [CachePolicy::Density, CachePolicy::Lru] {
        let [alone, _] = hit_ratios(build(policy), &trace::beside_scanner(N, 8, 0), capacity, 0);
        for pace in [1, 4, 16] {
            let trace = trace::beside_scanner(N, 8, pace);
            let [job, _] = hit_ratios(build(policy), &trace, capacity, min);
            assert!(job >= 0.95 * alone, "{policy:?}, {pace}: {job} of {alone}");
        }
    }
}

#[test]
fn with_favourites_density_is_as_good_as_policies_made_for_them() {
    let trace = trace::zipf(N, 15);
    for cache in [10, 25, 50, 90] {
        let density = percent::<Density>(&trace, cache);
        for (other, hits) in others(&trace, cache) {
            assert!(density > hits - 2.0, "{cache} %, {other}: {density}, {hits}");
        }
    }
}

#[test]
fn two_jobs_and_a_mix_do_not_confuse_it() {
    for trace in [trace::two_jobs(N, 6), trace::epochs_and_zipf(N, 8)] {
        for cache in [10, 25, 50] {
            let density = percent::<Density>(&trace, cache);
            for (other, hits) in others(&trace, cache) {
                let name = trace.name;
                assert!(density > hits - 3.0, "{name}, {cache} %, {other}: {density}, {hits}");
            }
        }
    }
}

#[test]
fn a_data_set_that_nobody_reads_any_more_gives_way() {
    for bucket in [0, 1] {
        let trace = trace::next_data_set(N, bucket);
        for cache in [10, 25, 50, 90] {
            let density = percent::<Density>(&trace, cache);
            assert!(density > 0.7 * f64::from(cache), "{bucket}, {cache} %: {density}");
            let mut forever = NoReplacement::default();
            let stuck = hit_ratio(&mut forever, &trace, (N * cache / 100) as usize);
            assert!(stuck < 0.01, "what the yardstick keeps is never replaced: {stuck}");
        }
    }
}
