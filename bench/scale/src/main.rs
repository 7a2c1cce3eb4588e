//! Simulates a large cluster with the code that nodes run: the size of its map, the cost of a
//! change of the map for a target, the balance of objects, and the share that a fifth target takes
//! over from four.
//!
//!     cargo run --release -p forebay-scale -- --placed 100000000
//!
//! Placement, plans and the encoding of the map are those of `forebay-core`, called as nodes call
//! them. There are no sockets and no disks. docs/scale.md explains the figures.

// A program for people at a terminal: it prints.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod balance;
mod cluster;
mod cost;
mod map;
mod plan;
mod progress;
mod report;

use std::error::Error;
use std::process::ExitCode;

use clap::Parser;

use crate::report::Report;

/// Simulates a large cluster and prints the costs of its map and its placement.
#[derive(Debug, Parser)]
#[command(after_help = "All of it, as in docs/scale.md (some minutes on one core):\n    \
    forebay-scale --placed 100000000")]
struct Args {
    /// Targets of the cluster, all of one weight
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    targets: u64,
    /// Objects of the cluster; a target plans its share of them
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// How many of the objects are placed one by one to measure the balance; from fewer than all,
    /// the balance of all is estimated
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    placed: u64,
    /// Copies that a target checks in each plan; without it, its share of the objects
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    looked_at: Option<u64>,
    /// Threads that place objects for the balance; plans always use one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    threads: u8,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<(), Box<dyn Error>> {
    let placed = args.placed.min(args.objects);
    let looked_at = args.looked_at.unwrap_or(args.objects.div_ceil(args.targets));
    let progress = |what: &str, of: u64| progress::Progress::new(what, of, args.quiet);
    let report = Report {
        targets: args.targets,
        objects: args.objects,
        clock: cost::clock(),
        maps: map::measure(args.targets)?,
        plans: plan::measure(args.targets, args.objects, looked_at, &progress)?,
        growth: plan::growth(&progress)?,
        balance: balance::measure(args.targets, args.objects, placed, args.threads, &progress)?,
    };
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print!("{report}");
    }
    Ok(())
}
