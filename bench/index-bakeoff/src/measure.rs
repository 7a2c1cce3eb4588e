//! One engine at its work: load, reopen, read. Each step runs in a process of its own, so that
//! memory and CPU time are the step's.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::engines::{self, Index, Spec};
use crate::os;
use crate::workload::Workload;

const GETS: u64 = 200_000;
/// Keys of the hot set: all of them fit any of the caches.
const HOT: u64 = 20_000;
const PAGE: usize = 1000;

/// Microseconds at which a share of the calls was done.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Latency {
    pub p50_us: f64,
    pub p99_us: f64,
    pub max_us: f64,
}

impl Latency {
    fn of(mut nanoseconds: Vec<u64>) -> Self {
        nanoseconds.sort_unstable();
        let at = |share: f64| {
            let last = nanoseconds.len().saturating_sub(1);
            nanoseconds.get((last as f64 * share) as usize).map_or(0.0, |ns| *ns as f64 / 1000.0)
        };
        Self { p50_us: at(0.5), p99_us: at(0.99), max_us: at(1.0) }
    }
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Load {
    /// Keys that were put in before the time was over.
    pub keys: u64,
    /// Time within the engine's calls.
    pub seconds: f64,
    /// CPU time of the process, that of making keys and values (the same for all) taken off.
    pub cpu_seconds: f64,
    pub batch: Latency,
    pub peak_memory: u64,
    pub peak_disk: u64,
    /// Right after the last batch.
    pub disk: u64,
    /// Until background work was at rest, and the disk use then.
    pub settle_seconds: f64,
    pub settled_disk: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Reopen {
    /// Until the first record was read: time, and CPU time of all threads.
    pub seconds: f64,
    pub cpu_seconds: f64,
    /// Until the last handle was closed in good order.
    pub close_seconds: f64,
    pub disk: u64,
    pub peak_memory: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Read {
    pub reopen_seconds: f64,
    pub reopen_cpu_seconds: f64,
    pub uniform: Latency,
    pub hot: Latency,
    pub absent: Latency,
    /// Names per second of CPU time in pages of 1,000, each page a new seek.
    pub paged_per_second: f64,
    pub full_per_second: f64,
    pub peak_memory: u64,
    /// Resident at the end without pages of files.
    pub anonymous_memory: u64,
}

/// Puts all keys in, waits for background work to rest, and leaves the index open to be killed.
pub fn load(spec: &Spec, path: &Path, work: &Workload, limit: Duration) -> Result<Load> {
    let watch = DiskWatch::start(path);
    let index = engines::open(spec, path)?;
    let began = Instant::now();
    let (mut busy, mut making, mut batches) = (Duration::ZERO, Duration::ZERO, Vec::new());
    let mut keys = 0;
    for number in 0..work.batches() {
        let making_began = os::thread_cpu_time();
        let entries = work.batch(number);
        making += os::thread_cpu_time() - making_began;
        let applying = Instant::now();
        index.apply(&entries, number + 1, false)?;
        let took = applying.elapsed();
        busy += took;
        batches.push(took.as_nanos() as u64);
        keys += entries.len() as u64;
        if number % 4096 == 4095 {
            eprintln!("  {keys} keys, {:.0} s", began.elapsed().as_secs_f64());
        }
        if began.elapsed() > limit {
            eprintln!("  stopped: the limit of {} s is over", limit.as_secs());
            break;
        }
    }
    let cpu = os::cpu_time().saturating_sub(making);
    let disk = os::disk_use(path);
    let settling = Instant::now();
    settle(index.as_ref(), path)?;
    let out = Load {
        keys,
        seconds: busy.as_secs_f64(),
        cpu_seconds: cpu.as_secs_f64(),
        batch: Latency::of(batches),
        peak_memory: os::peak_memory()?,
        peak_disk: watch.stop(),
        disk,
        settle_seconds: settling.elapsed().as_secs_f64(),
        settled_disk: os::disk_use(path),
    };
    // More batches, so that the next open has a journal to replay, as after any crash.
    let more = Workload { seed: work.seed + 1, ..work.clone() };
    for number in 0..work.batches().min(400) {
        index.apply(&more.batch(number), work.batches(), false)?;
    }
    // Whoever started this process ends it by a signal: nothing here may be closed in good order.
    std::mem::forget(index);
    Ok(out)
}

/// Flushes, then waits until the process and the disk use are quiet, two minutes at most.
fn settle(index: &dyn Index, path: &Path) -> Result<()> {
    index.flush()?;
    let until = Instant::now() + Duration::from_secs(120);
    let mut last = (os::cpu_time(), os::disk_use(path));
    while Instant::now() < until {
        thread::sleep(Duration::from_secs(2));
        let now = (os::cpu_time(), os::disk_use(path));
        if now.0 - last.0 < Duration::from_millis(100) && now.1 == last.1 {
            return Ok(());
        }
        last = now;
    }
    Ok(())
}

/// Opens what a killed process left and closes it in good order.
pub fn reopen(spec: &Spec, path: &Path, work: &Workload) -> Result<Reopen> {
    let began = Instant::now();
    let index = engines::open(spec, path)?;
    ensure!(index.position()?.is_some(), "the position is gone");
    index.get(&work.key(work.rank(0)), &mut |_| {})?;
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), os::cpu_time());
    settle(index.as_ref(), path)?;
    let closing = Instant::now();
    drop(index);
    Ok(Reopen {
        seconds,
        cpu_seconds: cpu.as_secs_f64(),
        close_seconds: closing.elapsed().as_secs_f64(),
        disk: os::disk_use(path),
        peak_memory: os::peak_memory()?,
    })
}

/// Gets and scans over the `keys` first keys of the load.
pub fn read(spec: &Spec, path: &Path, work: &Workload, keys: u64) -> Result<Read> {
    let began = Instant::now();
    let index = engines::open(spec, path)?;
    index.get(&work.key(work.rank(0)), &mut |_| {})?;
    let reopen_seconds = began.elapsed().as_secs_f64();
    let reopen_cpu_seconds = os::cpu_time().as_secs_f64();
    let hot = HOT.min(keys);
    let spread = |i: u64, n: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % n;
    let get = |count: u64, expected: bool, key: &dyn Fn(u64) -> Vec<u8>| -> Result<Latency> {
        let mut took = Vec::with_capacity(count as usize);
        for i in 0..count {
            let key = key(i);
            let began = Instant::now();
            let found = index.get(&key, &mut |value| {
                std::hint::black_box(value);
            })?;
            took.push(began.elapsed().as_nanos() as u64);
            ensure!(found == expected, "a key is {}there", if found { "" } else { "not " });
        }
        Ok(Latency::of(took))
    };
    let uniform = get(GETS, true, &|i| work.key(work.rank(spread(i, keys))))?;
    let hot_key = |i: u64| work.key(work.rank(spread(spread(i, hot), keys)));
    get(hot * 2, true, &hot_key)?;
    let hot = get(GETS, true, &hot_key)?;
    let absent = get(GETS, false, &|i| work.absent(work.rank(spread(i, keys))))?;
    Ok(Read {
        reopen_seconds,
        reopen_cpu_seconds,
        uniform,
        hot,
        absent,
        paged_per_second: paged(index.as_ref(), work, keys)?,
        full_per_second: full(index.as_ref(), keys)?,
        peak_memory: os::peak_memory()?,
        anonymous_memory: os::anonymous_memory()?,
    })
}

/// Lists bucket 1 page by page.
fn paged(index: &dyn Index, work: &Workload, keys: u64) -> Result<f64> {
    let (mut from, end) = work.bucket(1);
    let (mut names, began) = (0, os::thread_cpu_time());
    loop {
        let (mut here, mut last) = (0, Vec::new());
        index.scan(&from, &mut |key, value| {
            if key >= end.as_slice() {
                return false;
            }
            std::hint::black_box(value);
            here += 1;
            last.clear();
            last.extend_from_slice(key);
            here < PAGE
        })?;
        names += here as u64;
        if here < PAGE {
            break;
        }
        last.push(0);
        from = last;
    }
    ensure!(keys < work.keys || names == work.per_bucket(), "the pages list {names} names");
    Ok(names as f64 / (os::thread_cpu_time() - began).as_secs_f64())
}

fn full(index: &dyn Index, keys: u64) -> Result<f64> {
    let (mut names, began) = (0u64, os::thread_cpu_time());
    index.scan(&[], &mut |key, value| {
        std::hint::black_box((key, value));
        names += 1;
        true
    })?;
    ensure!(names >= keys, "the scan visits {names} of {keys} names");
    Ok(names as f64 / (os::thread_cpu_time() - began).as_secs_f64())
}

/// Looks at the disk use of a folder twice a second.
struct DiskWatch {
    stop: Arc<AtomicBool>,
    peak: Arc<AtomicU64>,
    thread: thread::JoinHandle<()>,
}

impl DiskWatch {
    fn start(path: &Path) -> Self {
        let (stop, peak) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (path, stop2, peak2) = (path.to_owned(), stop.clone(), peak.clone());
        let thread = thread::spawn(move || {
            while !stop2.load(Ordering::Relaxed) {
                peak2.fetch_max(os::disk_use(&path), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(500));
            }
        });
        Self { stop, peak, thread }
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let _ = self.thread.join();
        self.peak.load(Ordering::Relaxed)
    }
}
