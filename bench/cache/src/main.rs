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
}
