//! kill -9 and power cuts in the middle of a load, and what is there afterwards.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh64::xxh64;

use crate::engines::{self, Spec};
use crate::loop_disk::LoopDisk;
use crate::os;
use crate::workload::{BATCH, Workload};

/// More than any engine loads before it is cut.
const KEYS: u64 = 4_000_000;
const DISK: u64 = 3 << 30;
/// Cuts of one index, one after the other: the second load goes on where the first was cut.
const CUTS: u64 = 2;
const SCATTER: u64 = 64 << 10;
/// A cut comes after a random number of batches below this, or when a load takes too long.
const MOST_BATCHES: u64 = 2500;
const PATIENCE: Duration = Duration::from_secs(40);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    Kill,
    Power,
}

/// What one cut led to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    pub fault: Fault,
    pub sync: bool,
    pub seed: u64,
    /// Batches that `apply` had returned from when the cut came.
    pub done: u64,
    /// The position found afterwards; `None` when the index did not open.
    pub position: Option<u64>,
    /// Whether exactly the batches up to the position are there, or what is wrong.
    pub verdict: Verdict,
    pub open_seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Prefix,
    /// It opens, but is no prefix.
    Wrong(String),
    /// It does not open.
    Refused(String),
}

/// Report of the process that looks at the index after a cut.
#[derive(Debug, Serialize, Deserialize)]
pub struct Verified {
    pub position: u64,
    pub open_seconds: f64,
    pub wrong: Option<String>,
}

fn workload(seed: u64) -> Workload {
    Workload { keys: KEYS, seed, ascending: false }
}

/// Loads from the position on until it is killed; writes to `done` how far it is.
pub fn load(spec: &Spec, path: &Path, seed: u64, sync: bool, done: &Path) -> Result<()> {
    let work = workload(seed);
    let done = OpenOptions::new().create(true).truncate(false).write(true).open(done)?;
    let index = engines::open(spec, path)?;
    let first = index.position()?.unwrap_or(0);
    for number in first..work.batches() {
        index.apply(&work.batch(number), number + 1, sync)?;
        done.write_all_at(&(number + 1).to_le_bytes(), 0)?;
    }
    // Loaded before the cut came: wait for it.
    loop {
        thread::sleep(Duration::from_secs(1));
    }
}

/// Opens what a cut left and compares it with the batches up to its position.
pub fn verify(spec: &Spec, path: &Path, seed: u64) -> Result<Verified> {
    let work = workload(seed);
    let began = Instant::now();
    let index = engines::open(spec, path)?;
    let position = index.position()?.unwrap_or(0);
    let open_seconds = began.elapsed().as_secs_f64();
    let (mut count, mut later, mut foreign) = (0u64, 0u64, 0u64);
    index.scan(&[], &mut |key, value| {
        match work.sequence_of(key, value) {
            Some(sequence) if sequence / BATCH < position => count += 1,
            Some(_) => later += 1,
            None => foreign += 1,
        }
        true
    })?;
    let expected = (position * BATCH).min(KEYS);
    let mut missing_by_get = 0;
    for i in 0..1000.min(expected) {
        let sequence = expected - 1 - i * 97 % expected;
        missing_by_get += u64::from(!index.get(&work.key(work.rank(sequence)), &mut |_| {})?);
    }
    let sound = count == expected && later == 0 && foreign == 0 && missing_by_get == 0;
    let wrong = (!sound).then(|| {
        format!(
            "position {position}: {count} of {expected} entries, {later} of later batches, \
             {foreign} that were never written, {missing_by_get} not found by get"
        )
    });
    Ok(Verified { position, open_seconds, wrong })
}

/// Runs one seed of a fault against an engine: one outcome for each of its cuts.
pub fn run(spec: &str, folder: &Path, fault: Fault, sync: bool, seed: u64) -> Result<Vec<Outcome>> {
    let folder = folder.join(format!("fault-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    let result = cut_and_look(spec, &folder, fault, sync, seed);
    fs::remove_dir_all(&folder)?;
    result
}

fn cut_and_look(
    spec: &str,
    folder: &Path,
    fault: Fault,
    sync: bool,
    seed: u64,
) -> Result<Vec<Outcome>> {
    let disk = match fault {
        Fault::Power => Some(LoopDisk::make(folder, DISK)?),
        Fault::Kill => None,
    };
    let spec = &with_small_memtables(spec);
    let index = disk.as_ref().map_or(folder, LoopDisk::path).join("index");
    let done = folder.join("done");
    let mut outcomes = Vec::new();
    for cut in 0..CUTS {
        let random = xxh64(&[seed.to_le_bytes(), cut.to_le_bytes()].concat(), 5);
        let batches = if sync { 20 + random % 300 } else { 100 + random % MOST_BATCHES };
        let mut loader = start_load(spec, &index, seed, sync, &done)?;
        let ended = AtomicBool::new(false);
        thread::scope(|scope| -> Result<()> {
            if disk.is_some() {
                scope.spawn(|| scatter(&index, random, &ended));
            }
            let mut first = None;
            let until = Instant::now() + PATIENCE;
            let ended_by_itself = loop {
                thread::sleep(Duration::from_millis(5));
                let reached = read_done(&done);
                if reached > 0 {
                    first.get_or_insert(reached);
                }
                let enough =
                    first.is_some_and(|first| reached - first >= batches) || Instant::now() > until;
                if let Some(status) = loader.try_wait()? {
                    break Some(status);
                }
                if enough {
                    break None;
                }
            };
            ended.store(true, Ordering::Relaxed);
            if let Some(status) = ended_by_itself {
                bail!("the load ended by itself: {status}");
            }
            match &disk {
                Some(disk) => disk.cut(),
                None => Ok(()),
            }
        })?;
        // How far the load was when the power went; what it says afterwards counts for nothing.
        let reached = read_done(&done);
        loader.kill()?;
        loader.wait()?;
        let reached = if disk.is_some() { reached } else { read_done(&done) };
        fs::remove_file(&done).ok();
        if let Some(disk) = &disk {
            disk.restore()?;
        }
        let outcome = look(spec, &index, fault, sync, seed, reached)?;
        let usable = outcome.verdict == Verdict::Prefix;
        outcomes.push(outcome);
        if !usable {
            break;
        }
    }
    Ok(outcomes)
}

/// Memtables of 4 MiB, where an engine has them: a short load then sees many of its tables
/// written, merged and made known.
fn with_small_memtables(spec: &str) -> String {
    match spec.split(':').next() {
        Some("fjall" | "rocksdb") if spec.contains(':') => format!("{spec},memtable=4"),
        Some("fjall" | "rocksdb") => format!("{spec}:memtable=4"),
        _ => spec.to_owned(),
    }
}

fn read_done(path: &Path) -> u64 {
    fs::read(path).ok().and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn start_load(spec: &str, index: &Path, seed: u64, sync: bool, done: &Path) -> Result<Child> {
    let mut command = step("fault-load", spec, index, seed)?;
    command.arg("--done").arg(done).stderr(Stdio::null());
    if sync {
        command.arg("--sync");
    }
    Ok(command.spawn()?)
}

fn step(name: &str, spec: &str, index: &Path, seed: u64) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["step", name, spec, "--seed", &seed.to_string(), "--path"]).arg(index);
    Ok(command)
}

fn look(
    spec: &str,
    index: &Path,
    fault: Fault,
    sync: bool,
    seed: u64,
    done: u64,
) -> Result<Outcome> {
    let out = step("fault-verify", spec, index, seed)?.output()?;
    let (position, verdict, open_seconds) = if out.status.success() {
        let found: Verified = serde_json::from_slice(&out.stdout).context("report of a step")?;
        let lost = sync && found.position < done;
        let wrong = found.wrong.or_else(|| {
            lost.then(|| format!("position {}, but {done} batches were synced", found.position))
        });
        (Some(found.position), wrong.map_or(Verdict::Prefix, Verdict::Wrong), found.open_seconds)
    } else {
        let error = String::from_utf8_lossy(&out.stderr);
        let error: String = error.trim().chars().take(600).collect();
        (None, Verdict::Refused(error), 0.0)
    };
    Ok(Outcome { fault, sync, seed, done, position, verdict, open_seconds })
}

/// Writes random pieces of the index' files to the disk, out of order and without a sync, as the
/// kernel may at any time: a run of seconds would hardly see it otherwise.
fn scatter(index: &Path, seed: u64, ended: &AtomicBool) {
    let mut step = seed;
    while !ended.load(Ordering::Relaxed) {
        step = xxh64(&step.to_le_bytes(), seed);
        let files: Vec<PathBuf> = os::files(index);
        if let Some(file) = files.get(step as usize % files.len().max(1))
            && let Ok(file) = File::open(file)
        {
            let pieces = file.metadata().map_or(0, |meta| meta.len() / SCATTER + 1);
            os::write_back(&file, (step >> 20) % pieces.max(1) * SCATTER, SCATTER);
        }
        thread::sleep(Duration::from_millis(3));
    }
}
