//! Runs seeds of the simulator and prints those that fail.
//!
//!     cargo run --release -p forebay-sim -- --seeds 1..1000
//!     cargo run --release -p forebay-sim -- --seed 17

// A program for people at a terminal: it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::ops::RangeInclusive;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use forebay_sim::broken::Broken;
use forebay_sim::run::{LAST, Outcome, run_and_tell};

/// Runs the cluster's rules under a seeded simulator
#[derive(Debug, Parser)]
struct Args {
    /// Runs this seed alone, and prints its last events
    #[arg(long)]
    seed: Option<u64>,
    /// The first and the last seed to run
    #[arg(long, value_name = "A..B", value_parser = range, default_value = "1..1000")]
    seeds: RangeInclusive<u64>,
    /// Breaks a rule on purpose, to check that the simulator finds it
    #[arg(long)]
    broken: Option<Broken>,
    /// Continues after a seed that fails
    #[arg(long)]
    all: bool,
    /// How many of the last events of a failed seed are printed
    #[arg(long, default_value_t = LAST)]
    last: usize,
    /// Prints JSON, one line for each seed
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let seeds = match args.seed {
        Some(seed) => seed..=seed,
        None => args.seeds.clone(),
    };
    let (started, mut done, mut failed, mut steps) = (Instant::now(), 0u64, 0u64, 0u64);
    let mut slowest: f64 = 0.0;
    for seed in seeds {
        let outcome = run_and_tell(seed, args.broken, args.last);
        done += 1;
        steps += outcome.steps;
        slowest = slowest.max(outcome.converged_after);
        failed += u64::from(outcome.failure.is_some());
        if args.json {
            match serde_json::to_string(&outcome) {
                Ok(line) => println!("{line}"),
                Err(e) => eprintln!("error: {e}"),
            }
        } else if outcome.failure.is_some() || args.seed.is_some() {
            tell(&outcome);
        }
        if outcome.failure.is_some() && !args.all {
            break;
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "{done} seeds, {failed} failed, {:.1} seeds a second, {} steps a seed, converged within {slowest:.1} s",
        done as f64 / seconds,
        steps / done.max(1),
    );
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn range(text: &str) -> Result<RangeInclusive<u64>, String> {
    let ends = text.split_once("..").and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (first, last) = ends.ok_or("two numbers with two dots between them, as in 1..1000")?;
    Ok(first..=last)
}

fn tell(outcome: &Outcome) {
    let Outcome { seed, steps, virtual_seconds, faults, requests, answered, .. } = outcome;
    println!(
        "seed {seed}: {steps} steps, {virtual_seconds:.1} s, {faults} faults, {answered} of {requests} \
         requests answered, digest {:016x}",
        outcome.digest
    );
    if let Some(failure) = &outcome.failure {
        println!("seed {seed} fails at step {}:\n{}", failure.step, failure.why);
        println!("last events:\n{}", failure.last_events.join("\n"));
    }
}
