//! A memory limit for processes: a cgroup of version 1 or 2.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::wait;

/// The group; it ends with this value, after its processes.
pub struct MemoryLimit(PathBuf);

impl MemoryLimit {
    /// A group with a limit of this many bytes; an error with the reason if this machine cannot
    /// have one.
    pub fn new(name: &str, bytes: u64) -> Result<Self, String> {
        let name = format!("forebay-{}-{name}", std::process::id());
        let (first, second) = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup");
        let (parent, file) = match PathBuf::from(first).join("memory.limit_in_bytes").exists() {
            true => (first, "memory.limit_in_bytes"),
            false => (second, "memory.max"),
        };
        let group = Self(PathBuf::from(parent).join(name));
        let made = fs::create_dir(&group.0)
            .and_then(|()| fs::write(group.0.join(file), bytes.to_string()));
        made.map(|()| group).map_err(|e| format!("no cgroup with a limit of memory: {e}"))
    }

    /// Words before a command that put it into the group.
    pub fn before(&self) -> [String; 3] {
        let join = format!("echo $$ > {}/cgroup.procs; exec \"$0\" \"$@\"", self.0.display());
        // The program that follows is the `$0` of the script.
        ["sh".into(), "-c".into(), join]
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            wait::until("the cgroup is empty", Duration::from_secs(10), || {
                fs::remove_dir(&self.0).is_ok()
            });
        }
    }
}

/// The most memory that a process has had, in MiB.
pub fn peak_mib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap() / 1024
}
