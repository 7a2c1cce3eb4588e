//! The resources of the node's machine and their load, from `/proc`.
//!
//! Without `/proc` all numbers are 0: they are for display only, and nothing depends on them.

use std::fs::read_to_string;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use forebay_core::intra::Machine;
use forebay_core::locks::MutexExt;

use crate::cgroup::{Resources, kib};

/// Numbers younger than this are reused.
const FRESH: Duration = Duration::from_secs(1);
/// Clock ticks of `/proc` in a second: fixed in Linux's interface.
const TICKS: f64 = 100.0;

struct Sample {
    at: Instant,
    /// Ticks that all processors were busy, and all ticks.
    busy: u64,
    total: u64,
    /// Ticks that this process used.
    own: u64,
    machine: Machine,
}

/// Returns the current numbers.
pub fn machine() -> Machine {
    static LAST: Mutex<Option<Sample>> = Mutex::new(None);
    let mut last = LAST.locked();
    if let Some(sample) = last.as_ref().filter(|s| s.at.elapsed() < FRESH) {
        return sample.machine.clone();
    }
    let sample = take(last.as_ref());
    let machine = sample.machine.clone();
    *last = Some(sample);
    machine
}

fn take(last: Option<&Sample>) -> Sample {
    let read = |path: &str| read_to_string(path).unwrap_or_default();
    let (busy, total) = ticks(&read("/proc/stat"));
    let own = own_ticks(&read("/proc/self/stat"));
    let memory = read("/proc/meminfo");
    let here = Resources::read();
    let mem_used = kib(&read("/proc/self/status"), "VmRSS:");
    // A cgroup with a limit has no more than that.
    let mem_avail = kib(&memory, "MemAvailable:").min(here.memory.saturating_sub(mem_used).max(1));
    let mut loads = [0.0; 3];
    for (load, text) in loads.iter_mut().zip(read("/proc/loadavg").split_whitespace()) {
        *load = text.parse().unwrap_or(0.0);
    }
    let percent = |part: f64, whole: f64| if whole > 0.0 { 100.0 * part / whole } else { 0.0 };
    let (mut cpu_util, mut pct_cpu_used) = (0.0, 0.0);
    if let Some(last) = last {
        let gone = last.at.elapsed().as_secs_f64() * TICKS;
        cpu_util =
            percent(busy.saturating_sub(last.busy) as f64, total.saturating_sub(last.total) as f64);
        pct_cpu_used = percent(own.saturating_sub(last.own) as f64, gone);
    }
    let machine = Machine {
        mem_used,
        mem_avail,
        pct_mem_used: percent(mem_used as f64, here.memory as f64),
        pct_cpu_used,
        cpu_util: cpu_util as u64,
        loads,
        open_files: open_files(&read("/proc/self/limits")),
        cpus: here.cpus,
        host_cpus: here.host_cpus,
        mem_limit: here.memory,
        host_mem: here.host_memory,
    };
    Sample { at: Instant::now(), busy, total, own, machine }
}

/// The soft limit in a line such as `Max open files  1024  4096  files`.
fn open_files(limits: &str) -> u64 {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    soft.map_or(0, |soft| soft.parse().unwrap_or(u64::MAX))
}

/// Busy and all ticks of the first line of `/proc/stat`.
fn ticks(stat: &str) -> (u64, u64) {
    let line = stat.lines().next().unwrap_or("");
    // user nice system idle iowait irq softirq steal; guests are in user already.
    let numbers: Vec<u64> =
        line.split_whitespace().skip(1).take(8).map(|n| n.parse().unwrap_or(0)).collect();
    let total: u64 = numbers.iter().sum();
    let idle = numbers.iter().skip(3).take(2).sum();
    (total.saturating_sub(idle), total)
}

/// User and system ticks of `/proc/self/stat`, whose second field may hold spaces.
fn own_ticks(stat: &str) -> u64 {
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(11).take(2).map(|n| n.parse().unwrap_or(0)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_where_linux_puts_them() {
        let memory = "MemTotal:       16 kB\nMemAvailable:  4 kB\n";
        assert_eq!((kib(memory, "MemTotal:"), kib(memory, "MemAvailable:")), (16_384, 4_096));
        assert_eq!(kib("", "MemTotal:"), 0);
        assert_eq!(open_files("Max open files            1024      524288   files\n"), 1024);
        assert_eq!(open_files("Max open files            unlimited unlimited files\n"), u64::MAX);
        assert_eq!(open_files(""), 0);
        assert_eq!(ticks("cpu  10 0 20 60 10 0 0 0 5 5\ncpu0 1 1 1"), (30, 100));
        assert_eq!(ticks("x"), (0, 0));
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 30 12 0";
        assert_eq!(own_ticks(stat), 42);
        assert_eq!(own_ticks(""), 0);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_has_memory() {
        let machine = machine();
        assert!(machine.mem_used > 0 && machine.mem_avail > 0, "{machine:?}");
    }
}
