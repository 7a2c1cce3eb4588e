//! Compares engines for the index of a disk: speed, disk use, memory, and what a crash leaves.

mod engines;
mod faults;
mod loop_disk;
mod measure;
mod os;
mod report;
mod workload;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use serde::de::DeserializeOwned;

use engines::Spec;
use faults::Fault;
use report::Results;
use workload::Workload;

/// Compare engines for the index of a disk.
///
/// An engine is written NAME or NAME:SETTING,SETTING=NUMBER, for example fjall, fjall:lz4 or
/// fjall:workers=2,journals=512. Every engine has a cache of 256 MiB. Every step runs in a process
/// of its own. Nothing is left in the folder.
#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Commands,
}

#[derive(Subcommand)]
enum Commands {
    /// Measure the engines, then crash them, then print the table
    All {
        #[command(flatten)]
        run: Run,
        #[command(flatten)]
        seeds: Seeds,
    },
    /// Load, reopen, read
    Measure {
        #[command(flatten)]
        run: Run,
    },
    /// End loads by kill -9 and by power cuts, and look at what is there
    Faults {
        #[command(flatten)]
        run: Run,
        #[command(flatten)]
        seeds: Seeds,
    },
    /// Print the table of results that are there
    Table {
        /// Files that other commands wrote
        #[arg(required = true)]
        json: Vec<PathBuf>,
        /// Times instead of ratios to the first engine
        #[arg(long)]
        absolute: bool,
    },
    /// One step, in the process that the commands above start for it
    #[command(hide = true)]
    Step {
        #[command(subcommand)]
        step: Step,
    },
}

#[derive(Args, Clone)]
struct Run {
    /// Engines; all that are in this build when none is named
    #[arg(long, value_delimiter = ';')]
    engines: Vec<String>,
    /// Keys to load
    #[arg(long, default_value_t = 1_000_000)]
    keys: u64,
    /// Folder for the indexes, on the disk to be measured
    #[arg(long)]
    dir: PathBuf,
    /// File for the results; what is there of other engines stays
    #[arg(long)]
    json: PathBuf,
    /// Load in the order of names instead of a shuffled one
    #[arg(long)]
    ascending: bool,
    /// Minutes after which a load stops, with as many keys as are there by then
    #[arg(long, default_value_t = 15)]
    limit: u64,
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args, Clone)]
struct Seeds {
    /// Seeds of kill -9, each with two kills
    #[arg(long, default_value_t = 5)]
    kills: u64,
    /// Seeds of power cuts, each with two cuts; needs root
    #[arg(long, default_value_t = 10)]
    cuts: u64,
    /// Seeds of power cuts while each batch is synced
    #[arg(long, default_value_t = 4)]
    synced_cuts: u64,
}

#[derive(Args, Clone)]
struct At {
    engine: String,
    #[arg(long)]
    path: PathBuf,
    #[arg(long)]
    seed: u64,
}

#[derive(Args, Clone)]
struct Keys {
    #[arg(long)]
    keys: u64,
    #[arg(long)]
    ascending: bool,
    /// Minutes for the load, or keys that it loaded
    #[arg(long)]
    limit: u64,
}

#[derive(Subcommand)]
enum Step {
    Load {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        keys: Keys,
    },
    Reopen {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        keys: Keys,
    },
    Read {
        #[command(flatten)]
        at: At,
        #[command(flatten)]
        keys: Keys,
    },
    FaultLoad {
        #[command(flatten)]
        at: At,
        #[arg(long)]
        sync: bool,
        #[arg(long)]
        done: PathBuf,
    },
    FaultVerify {
        #[command(flatten)]
        at: At,
    },
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Commands::All { run, seeds } => {
            each_engine(&run, |engine| Ok(measure_one(engine, &run)))?;
            each_engine(&run, |engine| crash_one(engine, &run, &seeds))?;
            print_table(&report::load(&run.json)?, false);
        }
        Commands::Measure { run } => {
            each_engine(&run, |engine| Ok(measure_one(engine, &run)))?;
            print_table(&report::load(&run.json)?, false);
        }
        Commands::Faults { run, seeds } => {
            each_engine(&run, |engine| crash_one(engine, &run, &seeds))?;
            print_table(&report::load(&run.json)?, false);
        }
        Commands::Table { json, absolute } => {
            let all: Vec<_> = json.iter().map(|path| report::load(path)).collect::<Result<_>>()?;
            print_table(&all.concat(), absolute);
        }
        Commands::Step { step } => return take(step),
    }
    Ok(())
}

fn print_table(all: &[Results], absolute: bool) {
    print!("{}", report::table(all, absolute));
    for results in all {
        for note in &results.notes {
            println!("- {}: {note}", results.engine);
        }
    }
}

fn each_engine(run: &Run, job: impl Fn(&str) -> Result<Results>) -> Result<()> {
    fs::create_dir_all(&run.dir)?;
    let engines = match run.engines.as_slice() {
        [] => engines::ALL.iter().map(|name| (*name).to_owned()).collect(),
        named => named.to_vec(),
    };
    for engine in &engines {
        Spec::parse(engine)?;
    }
    for engine in &engines {
        report::save(&run.json, &[job(engine)?])?;
    }
    Ok(())
}

/// Load, kill, reopen, read; a step that fails is noted and ends the engine's turn.
fn measure_one(engine: &str, run: &Run) -> Results {
    let order = if run.ascending { "ascending" } else { "shuffled" };
    let mut results = Results {
        engine: engine.to_owned(),
        keys_asked: run.keys,
        order: order.to_owned(),
        ..Results::default()
    };
    let path = run.dir.join(format!("index-{}", std::process::id()));
    if let Err(e) = measure_steps(engine, run, &path, &mut results) {
        eprintln!("{engine}: {e:#}");
        results.notes.push(format!("{e:#}"));
    }
    let _ = fs::remove_dir_all(&path);
    results
}

fn measure_steps(engine: &str, run: &Run, path: &Path, results: &mut Results) -> Result<()> {
    eprintln!("{engine}: load");
    let (loaded, mut process) = start::<measure::Load>("load", engine, run, path, run.limit)?;
    // It keeps the index open until it is killed.
    process.kill()?;
    process.wait()?;
    let keys = loaded.keys;
    results.load = Some(loaded);
    eprintln!("{engine}: reopen");
    results.reopen_killed = Some(finish(start("reopen", engine, run, path, keys)?)?);
    eprintln!("{engine}: read");
    results.read = Some(finish(start("read", engine, run, path, keys)?)?);
    Ok(())
}

/// Starts a step and reads its report, the one line that it prints.
fn start<R: DeserializeOwned>(
    name: &str,
    engine: &str,
    run: &Run,
    path: &Path,
    limit: u64,
) -> Result<(R, Child)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["step", name, engine, "--path"]).arg(path);
    command.args(["--seed", &run.seed.to_string(), "--keys", &run.keys.to_string()]);
    command.args(["--limit", &limit.to_string()]).stdout(Stdio::piped());
    if run.ascending {
        command.arg("--ascending");
    }
    let mut process = command.spawn()?;
    let out: ChildStdout = process.stdout.take().context("no output of a step")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line)?;
    match serde_json::from_str(&line) {
        Ok(report) => Ok((report, process)),
        Err(_) => bail!("the step {name} ended without a report: {}", process.wait()?),
    }
}

fn finish<R>((report, mut process): (R, Child)) -> Result<R> {
    let status = process.wait()?;
    ensure!(status.success(), "a step ended with {status}");
    Ok(report)
}

fn crash_one(engine: &str, run: &Run, seeds: &Seeds) -> Result<Results> {
    let mut results = Results { engine: engine.to_owned(), ..Results::default() };
    for (fault, sync, count) in [
        (Fault::Kill, false, seeds.kills),
        (Fault::Power, false, seeds.cuts),
        (Fault::Power, true, seeds.synced_cuts),
    ] {
        if fault == Fault::Power && !os::is_root() {
            results.notes.push("power cuts are skipped: they need root".to_owned());
            break;
        }
        for seed in run.seed..run.seed + count {
            for outcome in faults::run(engine, &run.dir, fault, sync, seed)? {
                eprintln!("{engine}: {}", serde_json::to_string(&outcome)?);
                results.faults.push(outcome);
            }
        }
    }
    Ok(results)
}

fn take(step: Step) -> Result<()> {
    let work = |at: &At, keys: &Keys| Workload {
        keys: keys.keys,
        seed: at.seed,
        ascending: keys.ascending,
    };
    match step {
        Step::Load { at, keys } => {
            let limit = Duration::from_secs(60 * keys.limit);
            let spec = Spec::parse(&at.engine)?;
            let report = measure::load(&spec, &at.path, &work(&at, &keys), limit)?;
            println!("{}", serde_json::to_string(&report)?);
            std::thread::park();
        }
        Step::Reopen { at, keys } => {
            let report = measure::reopen(&Spec::parse(&at.engine)?, &at.path, &work(&at, &keys))?;
            println!("{}", serde_json::to_string(&report)?);
        }
        Step::Read { at, keys } => {
            let spec = Spec::parse(&at.engine)?;
            let report = measure::read(&spec, &at.path, &work(&at, &keys), keys.limit)?;
            println!("{}", serde_json::to_string(&report)?);
        }
        Step::FaultLoad { at, sync, done } => {
            faults::load(&Spec::parse(&at.engine)?, &at.path, at.seed, sync, &done)?;
        }
        Step::FaultVerify { at } => {
            let report = faults::verify(&Spec::parse(&at.engine)?, &at.path, at.seed)?;
            println!("{}", serde_json::to_string(&report)?);
        }
    }
    Ok(())
}
