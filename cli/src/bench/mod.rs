//! `forebay bench`: how many objects and bytes a second this machine gets from the cluster, and how long
//! single requests take.

mod compare;
mod load;
mod report;
mod work;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use forebay_core::Error;
use forebay_core::size::{ByteSize, parse_duration};

use crate::failure::{Failure, exit};
use crate::session::Session;
use crate::uri;
use load::Run;
use report::Report;
use work::Work;

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// Write objects of random bytes
    #[command(after_help = "Examples:
  forebay bench put ais://scratch --size 1MiB --jobs 32
  forebay bench put ais://scratch/keep/ --objects 10000 --keep

The objects are named bench/000000 and so on below the URI. Each is written
again when all are written, and they are removed at the end unless --keep is
set. An object of such a name that existed before is lost.")]
    Put(PutArgs),
    /// Read objects in random order
    #[command(after_help = "Examples:
  forebay bench get s3://data/train/ --jobs 32 --time 30s
  forebay bench get ais://images --range 64KiB -o json > today.json

An object of a backend that is not cached is fetched. Run the command twice to
compare the first read with the next ones.")]
    Get(GetArgs),
    /// Read batches of objects chosen at random
    #[command(after_help = "Example:
  forebay bench batch ais://images --batch 256 --jobs 4")]
    Batch(BatchArgs),
    /// Read whole shards with all of their members
    #[command(after_help = "Example:
  forebay bench shard ais://shards/train/ --jobs 8")]
    Shard(ReadArgs),
    /// Compare two results that were written with -o json
    #[command(after_help = "Example:
  forebay bench compare before.json after.json")]
    Compare(CompareArgs),
}

#[derive(Debug, Args)]
pub(crate) struct LoadArgs {
    /// Bucket, optionally with a prefix of names
    #[arg(value_name = "BUCKET[/PREFIX]")]
    uri: String,
    /// Requests at once, 1 to 1024
    #[arg(short, long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: u16,
    /// How long the load lasts, for example 30s
    #[arg(long, default_value = "10s", value_parser = positive)]
    time: Duration,
    /// Number that decides the order of random choices
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Args)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Most objects of the listing to use
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    objects: u32,
}

#[derive(Debug, Args)]
pub(crate) struct PutArgs {
    #[command(flatten)]
    load: LoadArgs,
    /// Bytes of each object, at most 1 GiB
    #[arg(long, default_value = "1MiB", value_parser = ByteSize::parse)]
    size: ByteSize,
    /// Number of objects
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    objects: u32,
    /// Keep the objects
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// Read so many bytes at a random position, in place of whole objects
    #[arg(long, value_name = "SIZE", value_parser = ByteSize::parse)]
    range: Option<ByteSize>,
}

#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    #[command(flatten)]
    read: ReadArgs,
    /// Objects of one batch
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch: u32,
}

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Result of the first run
    first: PathBuf,
    /// Result of the second run
    second: PathBuf,
}

/// Largest object that is written: each job has one in memory.
const LARGEST: u64 = 1 << 30;

/// A duration longer than nothing.
fn positive(text: &str) -> Result<Duration, Error> {
    match parse_duration(text)? {
        time if time.is_zero() => Err(Error::invalid("the time must be longer than nothing")),
        time => Ok(time),
    }
}

pub(crate) async fn run(session: &Session, command: &BenchCommand) -> Result<(), Failure> {
    match command {
        BenchCommand::Put(args) => put(session, args).await,
        BenchCommand::Get(args) => {
            let range = args.range.map(|range| range.0);
            if range == Some(0) {
                return Err(Failure::usage(
                    "--range 0 reads nothing",
                    "choose a size such as 64KiB",
                ));
            }
            let names = work::names(session, &args.read.load.uri, args.read.objects).await?;
            read(session, "get", &args.read.load, Work::Get { names, range }).await
        }
        BenchCommand::Batch(args) => {
            let names = work::names(session, &args.read.load.uri, args.read.objects).await?;
            let size = args.batch as usize;
            read(session, "batch", &args.read.load, Work::Batch { names, size }).await
        }
        BenchCommand::Shard(args) => {
            let names = work::names(session, &args.load.uri, args.objects).await?;
            read(session, "shard", &args.load, Work::Shard { names }).await
        }
        BenchCommand::Compare(args) => compare::run(session, &args.first, &args.second),
    }
}

async fn put(session: &Session, args: &PutArgs) -> Result<(), Failure> {
    let size = args.size.0;
    if size > LARGEST {
        return Err(Failure::usage(
            format!("--size {} is larger than 1 GiB", args.size),
            "choose a smaller size",
        ));
    }
    let (bucket, prefix) = uri::remote(&args.load.uri)?;
    // A bucket that does not exist is an error before the load.
    session.client.head_bucket(&bucket).await?;
    let prefix = format!("{prefix}bench/");
    let count = u64::from(args.objects);
    let work =
        Arc::new(Work::Put { bucket, prefix, count, payload: work::payload(size, args.load.seed) });
    let measured = load::run(session, &of_args(&args.load), Arc::clone(&work)).await;
    // Also after a failure: what was written is removed.
    let removed = if args.keep { Ok(()) } else { work::remove(session, &work).await };
    let measured = measured?;
    removed?;
    finish(session, &Report::new(session, "put", &args.load.uri, args.load.jobs, measured))
}

async fn read(session: &Session, kind: &str, args: &LoadArgs, work: Work) -> Result<(), Failure> {
    let measured = load::run(session, &of_args(args), Arc::new(work)).await?;
    finish(session, &Report::new(session, kind, &args.uri, args.jobs, measured))
}

fn of_args(args: &LoadArgs) -> Run {
    Run { jobs: args.jobs, time: args.time, seed: args.seed }
}

/// Prints the result; failed requests decide the exit code.
fn finish(session: &Session, report: &Report) -> Result<(), Failure> {
    report.print(session)?;
    match (report.requests, report.failed()) {
        (_, 0) => Ok(()),
        (0, _) => Err(Failure::silent(exit::FAILED)),
        _ => Err(Failure::silent(exit::PARTIAL)),
    }
}
