//! Prints the hit ratio of each eviction policy on each trace, as a table for
//! `docs/decisions/0040-cache-policy.md`.
//!
//! ```text
//! cargo run --release -p forebay-cache-replay [objects]
//! ```
#![allow(clippy::print_stdout)]

mod policy;
#[cfg(test)]
mod tests;
mod trace;

use forebay_core::config::CachePolicy;
use forebay_target::cache::policy::build;

/// Default number of objects of a data set.
const OBJECTS: u32 = 10_000;
/// Sizes of the cache in percent of the data set.
const SIZES: [usize; 4] = [10, 25, 50, 90];

fn main() {
    let objects = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(OBJECTS);
    let names = policy::ALL.map(|(name, _)| name);
    println!("| trace | cache | {} |", names.join(" | "));
    println!("|---|--:|{}", "--:|".repeat(names.len()));
    for trace in trace::all(objects) {
        for size in SIZES {
            let capacity = (objects as usize * size / 100).max(1);
            let hits = policy::ALL.map(|(_, make)| {
                format!("{:.1}", 100.0 * trace::hit_ratio(&mut *make(), &trace, capacity))
            });
            println!("| {} | {size} % | {} |", trace.name, hits.join(" | "));
        }
    }
    beside_scanner(objects);
}

/// Prints the hits of a job, whose data set is four tenths of the cache, beside a scanner: without and
/// with a guaranteed part of 44 %.
fn beside_scanner(objects: u32) {
    let capacity = 5 * objects as usize / 2;
    println!(
        "\n| policy | scanner's reads per read of the job | alone | without | guaranteed 44 % |"
    );
    println!("|---|--:|--:|--:|--:|");
    for policy in [CachePolicy::Density, CachePolicy::Lru] {
        for pace in [1, 4, 16] {
            let hits = |pace, min| {
                let trace = trace::beside_scanner(objects, 8, pace);
                100.0 * trace::hit_ratios(build(policy), &trace, capacity, min)[0]
            };
            let with = hits(pace, capacity * 44 / 100);
            let (alone, without) = (hits(0, 0), hits(pace, 0));
            println!("| {policy:?} | {pace} | {alone:.1} | {without:.1} | {with:.1} |");
        }
    }
}
