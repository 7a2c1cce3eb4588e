//! The file with the process id of a node: `dev` stops nodes by it that were restarted by hand, and
//! a node waits for its predecessor to end. Reads `/proc`; on systems without it no process is
//! found.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use forebay_core::Error;

use crate::node::{Stopped, exit};

/// Time that a killed process may take to release its port and its disks.
const DYING: Duration = Duration::from_secs(5);
/// Time for a process that was killed a moment ago to begin to end.
const ALIVE: Duration = Duration::from_secs(1);

fn path(dir: &Path) -> PathBuf {
    dir.join("pid")
}

fn read(dir: &Path) -> Option<u32> {
    fs::read_to_string(path(dir)).ok()?.trim().parse().ok()
}

/// Writes this process's id, in the folder of the node's state.
pub(crate) fn write(dir: &Path) -> Result<(), Stopped> {
    let path = path(dir);
    fs::write(&path, format!("{}\n", std::process::id())).map_err(|e| {
        let error = Error::internal(format!("cannot write {}: {e}", path.display()));
        Stopped::new(exit::DISK_UNUSABLE, error)
    })
}

/// The process that runs the node now. Its command line must name the node's settings, because
/// process ids are reused.
pub(crate) fn running(dir: &Path, config: &Path) -> Option<u32> {
    let pid = read(dir)?;
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let config = config.as_os_str().as_encoded_bytes();
    line.split(|&b| b == 0).any(|word| word == config).then_some(pid)
}

/// Waits while the node's previous process is ending: a node may be restarted right after it was
/// killed. A process that does not end is waited for only for a moment.
pub(crate) fn wait_for_predecessor(dir: &Path, config: &Path) {
    // In a container every start has the same process id: the file then names this process.
    let Some(pid) = read(dir).filter(|pid| *pid != std::process::id()) else { return };
    let started = Instant::now();
    while running(dir, config).is_some() && started.elapsed() < ALIVE
        || is_dying(pid) && started.elapsed() < DYING
    {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether the process has lost its memory (no command line) but still has threads, which hold its
/// files and sockets.
fn is_dying(pid: u32) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if !fs::read(process.join("cmdline")).is_ok_and(|line| line.is_empty()) {
        return false;
    }
    let threads = fs::read_dir(process.join("task")).into_iter().flatten().flatten();
    let mut states = threads.filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).ok()?;
        // `pid (name) state …`, and the name may hold anything.
        stat.rsplit_once(") ")?.1.chars().next()
    });
    states.any(|state| !matches!(state, 'Z' | 'X'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_with_the_nodes_settings_is_the_node() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(running(dir.path(), Path::new("/x")), None);
        write(dir.path()).unwrap();
        assert_eq!(running(dir.path(), Path::new("/no/such/setting")), None);
        let first = std::env::args_os().next().unwrap();
        assert_eq!(running(dir.path(), Path::new(&first)), Some(std::process::id()));
    }

    #[test]
    fn nobody_waits_for_a_process_that_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let config = Path::new("/no/such/setting");
        let started = Instant::now();
        wait_for_predecessor(dir.path(), config);
        write(dir.path()).unwrap();
        let me = std::env::args_os().next().unwrap();
        wait_for_predecessor(dir.path(), Path::new(&me));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        fs::write(path(dir.path()), child.id().to_string()).unwrap();
        // A zombie: it holds no resources any more.
        while !fs::read(format!("/proc/{}/cmdline", child.id())).unwrap().is_empty() {}
        wait_for_predecessor(dir.path(), config);
        assert!(started.elapsed() < ALIVE);
        child.wait().unwrap();
    }
}
