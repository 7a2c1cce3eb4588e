//! The limits of memory and processors that the cgroup of this process sets (versions 1 and 2), beside
//! what the machine has.
//!
//! The number of worker threads follows the limit of processors without this: the standard library reads
//! it. Budgets of memory are bounded here.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use forebay_core::size::ByteSize;

/// Processors and memory that this process may use, and those of the machine. 0: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Resources {
    /// Processors that this process may use.
    pub cpus: u32,
    pub host_cpus: u32,
    /// Bytes of memory that this process may use: the limit of its cgroup, or the machine's.
    pub memory: u64,
    pub host_memory: u64,
}

impl Resources {
    /// Reads the limits.
    pub fn read() -> Self {
        let text = |path: &str| read_to_string(path).unwrap_or_default();
        let host_memory = kib(&text("/proc/meminfo"), "MemTotal:");
        let limit = memory_limit(&text("/proc/self/cgroup"), Path::new("/sys/fs/cgroup"));
        let memory = limit.map_or(host_memory, |limit| limit.min(host_memory));
        let cpus = std::thread::available_parallelism().map_or(0, |n| n.get() as u32);
        let host_cpus = processors(&text("/proc/stat")).max(cpus);
        Self { cpus, host_cpus, memory, host_memory }
    }

    /// A budget of memory: at most a part, one of `parts`, of what this process may use.
    pub fn bounded(&self, wanted: u64, parts: u64) -> u64 {
        match self.memory {
            0 => wanted,
            memory => wanted.min(memory / parts.max(1)),
        }
    }

    /// Describes limits and machine for people.
    pub fn describe(&self) -> String {
        format!(
            "{} of {} processors, {} of {} memory",
            self.cpus,
            self.host_cpus,
            ByteSize(self.memory),
            ByteSize(self.host_memory)
        )
    }
}

/// The number of lines of single processors in `/proc/stat`.
fn processors(stat: &str) -> u32 {
    let of_one = |line: &&str| {
        line.strip_prefix("cpu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    u32::try_from(stat.lines().filter(of_one).count()).unwrap_or(u32::MAX)
}

/// Bytes of a line such as `MemTotal: 16 kB`; 0 without one.
pub(crate) fn kib(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|l| l.strip_prefix(key));
    let number = line.and_then(|l| l.split_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0).saturating_mul(1024)
}

/// The smallest limit of memory of the cgroups that `/proc/self/cgroup` names, and of their parents.
/// `root` is where cgroups are mounted.
fn memory_limit(own: &str, root: &Path) -> Option<u64> {
    let mut limits = Vec::new();
    for line in own.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        if controllers.is_empty() {
            // Beside version 1, version 2 is mounted in a folder of its own.
            for mount in [root.to_owned(), root.join("unified")] {
                limits.extend(smallest(&mount, path, "memory.max"));
            }
        } else if controllers.split(',').any(|name| name == "memory") {
            limits.extend(smallest(&root.join("memory"), path, "memory.limit_in_bytes"));
        }
    }
    limits.into_iter().min()
}

/// The smallest number in the files of this name in a cgroup and its parents.
fn smallest(mount: &Path, path: &str, file: &str) -> Option<u64> {
    // In a container the path may be that of the machine, which is not mounted: then the mount is the
    // cgroup of the container.
    let mut folder: PathBuf = mount.join(path.trim_start_matches('/'));
    let mut limits = Vec::new();
    loop {
        limits.extend(number(&folder.join(file)));
        if folder == mount || !folder.pop() {
            return limits.into_iter().min();
        }
    }
}

/// The number in a file; `None` if it has none, such as `max`.
fn number(path: &Path) -> Option<u64> {
    read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn files(root: &Path, files: &[(&str, &str)]) {
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }

    #[test]
    fn version_2_has_the_smallest_limit_of_a_cgroup_and_its_parents() {
        let root = tempfile::tempdir().unwrap();
        let set =
            [("memory.max", "max\n"), ("pods/memory.max", "900\n"), ("pods/a/memory.max", "max")];
        files(root.path(), &set);
        assert_eq!(memory_limit("0::/pods/a\n", root.path()), Some(900));
        assert_eq!(memory_limit("0::/\n", root.path()), None);
        assert_eq!(memory_limit("0::/not/mounted/here\n", root.path()), None);
        files(root.path(), &[("memory.max", "500\n")]);
        assert_eq!(memory_limit("0::/not/mounted/here\n", root.path()), Some(500));
    }

    #[test]
    fn version_1_has_it_in_the_folder_of_the_controller() {
        let root = tempfile::tempdir().unwrap();
        let set = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/docker/x/memory.limit_in_bytes", "700\n"),
        ];
        files(root.path(), &set);
        let own = "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n";
        assert_eq!(memory_limit(own, root.path()), Some(700));
        assert_eq!(memory_limit("5:cpu:/docker/x\nnonsense\n", root.path()), None);
    }

    #[test]
    fn both_versions_at_once_give_the_smaller_limit() {
        let root = tempfile::tempdir().unwrap();
        let set =
            [("unified/pods/memory.max", "600\n"), ("memory/pods/memory.limit_in_bytes", "700\n")];
        files(root.path(), &set);
        assert_eq!(memory_limit("4:memory:/pods\n0::/pods\n", root.path()), Some(600));
        assert_eq!(memory_limit("4:memory:/pods\n0::/\n", root.path()), Some(700));
    }

    #[test]
    fn processors_are_counted_one_by_one() {
        assert_eq!(processors("cpu  1 2\ncpu0 1\ncpu1 1\nintr 5\ncpufreq 1\n"), 2);
    }

    #[test]
    fn budgets_are_a_part_of_the_limit() {
        let small = Resources { cpus: 1, host_cpus: 8, memory: 1 << 28, host_memory: 1 << 33 };
        assert_eq!(small.bounded(128 << 20, 8), 32 << 20);
        assert_eq!(Resources { memory: 1 << 33, ..small }.bounded(128 << 20, 8), 128 << 20);
        assert_eq!(Resources { memory: 0, ..small }.bounded(7, 8), 7);
        assert_eq!(small.describe(), "1 of 8 processors, 256MiB of 8GiB memory");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_may_use_something() {
        let here = Resources::read();
        assert!(here.cpus > 0 && here.cpus <= here.host_cpus, "{here:?}");
        assert!(here.memory > 0 && here.memory <= here.host_memory, "{here:?}");
    }
}
