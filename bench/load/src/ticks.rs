//! CPU time of processes, from /proc.

use std::collections::BTreeSet;
use std::fs;

/// Server processes, with their children.
#[derive(Debug)]
pub(crate) struct Processes(BTreeSet<u32>);

impl Processes {
    /// The processes `roots` and their current descendants.
    pub(crate) fn of(roots: &[u32]) -> Self {
        let mut found: BTreeSet<u32> = roots.iter().copied().collect();
        let parents: Vec<(u32, u32)> = fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                let pid = entry.file_name().to_str()?.parse().ok()?;
                Some((pid, *fields(pid)?.get(1)? as u32))
            })
            .collect();
        loop {
            let before = found.len();
            let children = parents.iter().filter(|(_, parent)| found.contains(parent));
            let children: Vec<u32> = children.map(|(pid, _)| *pid).collect();
            found.extend(children);
            if found.len() == before {
                return Self(found);
            }
        }
    }

    /// CPU time so far, in ticks (100 a second), user and kernel.
    pub(crate) fn ticks(&self) -> u64 {
        let of = |pid: &u32| fields(*pid).map_or(0, |f| f[11] + f[12]);
        self.0.iter().map(of).sum()
    }

    /// Resident memory, bytes.
    pub(crate) fn resident(&self) -> u64 {
        let of = |pid: &u32| fields(*pid).map_or(0, |f| f[21] * 4096);
        self.0.iter().map(of).sum()
    }
}

/// The numbers of /proc/PID/stat after the name: state (as 0), parent, …
fn fields(pid: u32) -> Option<Vec<u64>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<u64> = rest.split_whitespace().map(|f| f.parse().unwrap_or(0)).collect();
    (fields.len() > 22).then_some(fields)
}
