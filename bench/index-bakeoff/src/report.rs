//! Results as JSON, and as the tables of bench/notes/index-engine.md.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use crate::faults::{Fault, Outcome, Verdict};
use crate::measure::{Load, Read, Reopen};

/// All that was found out about one engine.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub engine: String,
    pub keys_asked: u64,
    pub order: String,
    pub load: Option<Load>,
    /// Opened after the loading process was killed.
    pub reopen_killed: Option<Reopen>,
    pub read: Option<Read>,
    pub faults: Vec<Outcome>,
    /// What kept a step from being done.
    pub notes: Vec<String>,
}

/// Puts results into a file; those that are there stay, step by step replaced by newer ones.
pub fn save(path: &Path, new: &[Results]) -> Result<()> {
    let mut all = if path.exists() { load(path)? } else { Vec::new() };
    for new in new {
        match all.iter_mut().find(|old| old.engine == new.engine) {
            Some(old) => merge(old, new.clone()),
            None => all.push(new.clone()),
        }
    }
    let partial = path.with_extension("partial");
    fs::write(&partial, serde_json::to_vec_pretty(&all)?)?;
    Ok(fs::rename(partial, path)?)
}

pub fn load(path: &Path) -> Result<Vec<Results>> {
    let text = fs::read(path).with_context(|| path.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| path.display().to_string())
}

fn merge(old: &mut Results, new: Results) {
    if new.load.is_some() {
        (old.keys_asked, old.order) = (new.keys_asked, new.order);
    }
    old.load = new.load.or(old.load.take());
    old.reopen_killed = new.reopen_killed.or(old.reopen_killed.take());
    old.read = new.read.or(old.read.take());
    if !new.faults.is_empty() {
        old.faults = new.faults;
    }
    old.notes = new.notes;
}

/// A row: what it says, how an engine's number is found, how it is written.
type Row = (&'static str, fn(&Results) -> Option<f64>, Unit);

#[derive(Clone, Copy)]
enum Unit {
    Number,
    MiB,
    Ratio,
}

const ROWS: &[Row] = &[
    ("keys", |r| Some(r.load.as_ref()?.keys as f64), Unit::Number),
    ("load, time", |r| per_key(r, |l| l.seconds), Unit::Ratio),
    ("load, CPU", |r| per_key(r, |l| l.cpu_seconds), Unit::Ratio),
    ("batch of 256, p50", |r| Some(r.load.as_ref()?.batch.p50_us), Unit::Ratio),
    ("batch of 256, p99", |r| Some(r.load.as_ref()?.batch.p99_us), Unit::Ratio),
    ("batch of 256, longest", |r| Some(r.load.as_ref()?.batch.max_us), Unit::Ratio),
    ("disk, peak in the load (MiB)", |r| Some(r.load.as_ref()?.peak_disk as f64), Unit::MiB),
    ("disk after the load (MiB)", |r| Some(r.load.as_ref()?.disk as f64), Unit::MiB),
    ("disk at rest (MiB)", |r| Some(r.load.as_ref()?.settled_disk as f64), Unit::MiB),
    ("peak memory, load (MiB)", |r| Some(r.load.as_ref()?.peak_memory as f64), Unit::MiB),
    ("peak memory, reads (MiB)", |r| Some(r.read.as_ref()?.peak_memory as f64), Unit::MiB),
    ("get, any key, p50", |r| Some(r.read.as_ref()?.uniform.p50_us), Unit::Ratio),
    ("get, any key, p99", |r| Some(r.read.as_ref()?.uniform.p99_us), Unit::Ratio),
    ("get, hot keys, p50", |r| Some(r.read.as_ref()?.hot.p50_us), Unit::Ratio),
    ("get, hot keys, p99", |r| Some(r.read.as_ref()?.hot.p99_us), Unit::Ratio),
    ("get, absent, p50", |r| Some(r.read.as_ref()?.absent.p50_us), Unit::Ratio),
    ("get, absent, p99", |r| Some(r.read.as_ref()?.absent.p99_us), Unit::Ratio),
    (
        "a name in pages of 1,000, CPU",
        |r| Some(1.0 / r.read.as_ref()?.paged_per_second),
        Unit::Ratio,
    ),
    ("a name in a full scan, CPU", |r| Some(1.0 / r.read.as_ref()?.full_per_second), Unit::Ratio),
    ("reopen, orderly end, CPU", |r| Some(r.read.as_ref()?.reopen_cpu_seconds), Unit::Ratio),
    ("reopen, kill -9, CPU", |r| Some(r.reopen_killed.as_ref()?.cpu_seconds), Unit::Ratio),
];

fn per_key(results: &Results, time: fn(&Load) -> f64) -> Option<f64> {
    let load = results.load.as_ref()?;
    Some(time(load) / load.keys as f64)
}

/// The table. `absolute`: times in microseconds or seconds instead of ratios to the first engine.
pub fn table(all: &[Results], absolute: bool) -> String {
    let mut out = String::new();
    let names: Vec<&str> = all.iter().map(|r| r.engine.as_str()).collect();
    let _ = writeln!(out, "| | {} |", names.join(" | "));
    let _ = writeln!(out, "|---|{}", "---:|".repeat(all.len()));
    for (label, value, unit) in ROWS {
        let base = all.first().and_then(value);
        let cells: Vec<String> = all
            .iter()
            .map(|results| match (value(results), unit) {
                (None, _) => "–".to_owned(),
                (Some(v), Unit::Number) => format!("{v:.0}"),
                (Some(v), Unit::MiB) => format!("{:.0}", v / f64::from(1 << 20)),
                (Some(v), Unit::Ratio) if absolute => format!("{v:.3e}"),
                (Some(v), Unit::Ratio) => match base {
                    Some(base) if base > 0.0 => ratio(v / base),
                    _ => "–".to_owned(),
                },
            })
            .collect();
        let _ = writeln!(out, "| {label} | {} |", cells.join(" | "));
    }
    for (label, fault, sync) in [
        ("kill -9", Fault::Kill, false),
        ("power cut", Fault::Power, false),
        ("power cut, each batch synced", Fault::Power, true),
    ] {
        let cells: Vec<String> = all.iter().map(|r| faults(r, fault, sync)).collect();
        let _ = writeln!(out, "| {label} | {} |", cells.join(" | "));
    }
    out
}

fn ratio(value: f64) -> String {
    match value {
        v if v >= 10.0 => format!("{v:.0} ×"),
        v if v >= 0.1 => format!("{v:.2} ×"),
        v => format!("{v:.3} ×"),
    }
}

/// `sound/all`, and how the others went.
fn faults(results: &Results, fault: Fault, sync: bool) -> String {
    let these: Vec<_> =
        results.faults.iter().filter(|o| o.fault == fault && o.sync == sync).collect();
    if these.is_empty() {
        return "–".to_owned();
    }
    let count = |f: fn(&Verdict) -> bool| these.iter().filter(|o| f(&o.verdict)).count();
    let sound = count(|v| *v == Verdict::Prefix);
    let mut out = format!("{sound}/{} sound", these.len());
    for (n, what) in [
        (count(|v| matches!(v, Verdict::Refused(_))), "did not open"),
        (count(|v| matches!(v, Verdict::Wrong(_))), "wrong"),
    ] {
        if n > 0 {
            let _ = write!(out, ", {n} {what}");
        }
    }
    out
}
