//! Prints the hit ratio of each eviction policy on each trace, as a table for
//! `docs/decisions/0040-cache-policy.md`.
//!
//! ```text
//! cargo run --release -p forebay-target --example cache_policies [objects]
//! ```
#![allow(clippy::print_stdout)]

use forebay_target::cache::policy::{
    Density, Lru, NoReplacement, Policy, S3Fifo, Sampled, Sieve, trace,
};

/// Default number of objects of a data set.
const OBJECTS: u32 = 10_000;
/// Sizes of the cache in percent of the data set.
const SIZES: [usize; 4] = [10, 25, 50, 90];

type Make = fn() -> Box<dyn Policy>;

fn main() {
    let objects = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(OBJECTS);
    let policies: [(&str, Make); 7] = [
        ("LRU", || Box::<Lru>::default()),
        ("random", || Box::new(Sampled::new(1))),
        ("2-random", || Box::new(Sampled::new(2))),
        ("SIEVE", || Box::<Sieve>::default()),
        ("S3-FIFO", || Box::<S3Fifo>::default()),
        ("no replacement", || Box::<NoReplacement>::default()),
        ("density", || Box::<Density>::default()),
    ];
    let names: Vec<&str> = policies.iter().map(|(name, _)| *name).collect();
    println!("| trace | cache | {} |", names.join(" | "));
    println!("|---|--:|{}", "--:|".repeat(policies.len()));
    for trace in trace::all(objects) {
        for size in SIZES {
            let capacity = (objects as usize * size / 100).max(1);
            let hits = policies.iter().map(|(_, make)| {
                format!("{:.1}", 100.0 * trace::hit_ratio(&mut *make(), &trace, capacity))
            });
            let hits: Vec<String> = hits.collect();
            println!("| {} | {size} % | {} |", trace.name, hits.join(" | "));
        }
    }
}
