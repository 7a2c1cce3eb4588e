//! Measures the memory and time that a table of residents takes.
//!
//! ```text
//! cargo run --release -p forebay-target --example cache_memory [residents]
//! ```
#![allow(clippy::print_stdout)]

use std::time::Duration;

use forebay_core::config::CachePolicy;
use forebay_store::Observer;
use forebay_target::cache::policy::{Dice, build};
use forebay_target::cache::{CacheWatch, Resident, Residents};

/// Memory of this process in MiB, as the kernel counts it.
fn resident_mib(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(field)).unwrap_or("0");
    line.trim_matches([':', '\t', ' ', 'k', 'B']).trim().parse().unwrap_or(0u64) >> 10
}

/// CPU time of this process so far; on a busy machine wall-clock time says little.
fn spent() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
    let ticks: u64 = fields.skip(11).take(2).filter_map(|f| f.parse::<u64>().ok()).sum();
    Duration::from_millis(10 * ticks)
}

fn each(time: Duration, n: u64) -> String {
    format!("{:.0} ns", time.as_nanos() as f64 / n as f64)
}

fn main() {
    let n: u64 = std::env::args().nth(1).and_then(|a| a.parse().ok()).unwrap_or(10_000_000);
    // One policy per process: memory that one policy frees would hide that of the next.
    let policy = match std::env::args().nth(2).as_deref() {
        Some("lru") => CachePolicy::Lru,
        _ => CachePolicy::Density,
    };
    let before = resident_mib("VmRSS");
    let mut residents = Residents::new(build(policy));
    let mut dice = Dice::new(1);
    let started = spent();
    for generation in 1..=n {
        let new = Resident { generation, bucket_id: 1 + generation % 3, stored: 1152, seen_s: 1 };
        residents.insert(new, dice.roll());
    }
    let inserted = spent() - started;
    let rss = resident_mib("VmRSS") - before;
    println!("{policy:?}, {n} residents: {rss} MiB, peak {} MiB", resident_mib("VmHWM"));
    println!("  {:.1} bytes each", (rss << 20) as f64 / n as f64);
    println!("  insert {}", each(inserted, n));
    let started = spent();
    for _ in 0..n / 10 {
        residents.access(1 + dice.below(n), 2);
    }
    println!("  access {}", each(spent() - started, n / 10));
    let mut taken = 0;
    let started = spent();
    while taken < n / 10 {
        let victims = residents.victims(None, u64::MAX, 4096).len();
        taken += victims.max(1) as u64;
    }
    println!("  victim {}", each(spent() - started, taken));
    drop(residents);

    let watch = CacheWatch::new(policy, [1 << 40]);
    for threads in [1, 2] {
        let started = spent();
        std::thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| (1..=5_000_000).for_each(|g| watch.accessed(0, g)));
            }
        });
        println!(
            "  note of an access, {threads} threads: {}",
            each(spent() - started, threads * 5_000_000)
        );
    }
}
