//! Simulates a large cluster with the code that nodes run: how large its map is, what a change of the
//! map costs a target, how evenly objects lie, and what a fifth target beside four takes over.
//!
//!     cargo run --release -p forebay-scale -- --placed 100000000
//!
//! Placement, plans and the encoding of the map are those of `forebay-core`, called as nodes call them.
//! There are no sockets and no disks here. docs/scale.md says how the figures are read.

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

/// Simulates a large cluster and says what its map and its placement cost.
#[derive(Debug, Parser)]
#[command(after_help = "All of it, as in docs/scale.md (some minutes on one core):\n    \
    forebay-scale --placed 100000000")]
struct Args {
    /// Targets of the cluster, all of one weight
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    targets: u64,
    /// Objects of the cluster: what a target has to look at is its share of them
    #[arg(long, default_value_t = 100_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    objects: u64,
    /// How many of the objects are placed one by one to see how evenly they lie; from fewer than all,
    /// the balance of all is estimated
    #[arg(long, default_value_t = 2_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    placed: u64,
    /// Copies that a target looks at in each plan; left out, its share of the objects
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    looked_at: Option<u64>,
    /// Threads that place objects for the balance. Plans are always made by one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..))]
    threads: u8,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Say nothing of the progress
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
