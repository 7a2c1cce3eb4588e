//! Limits of open files: of this process, and of the nodes.

use forebay_core::intra::ClusterInfo;

use super::finding::{Finding, Verdict};

/// Open files that a client of a busy cluster may need.
const OPEN_FILES: u64 = 4096;
/// Open files that a node needs: connections, and a few for each object in progress.
const NODE_FILES: u64 = 8192;

/// Nodes whose limit of open files is too low.
pub(super) fn of_nodes(info: &ClusterInfo) -> Vec<Finding> {
    let low = |n: u64| n > 0 && n < NODE_FILES;
    let nodes = info.nodes.iter().filter(|n| n.alive && low(n.usage.machine.open_files));
    nodes
        .map(|node| {
            let detail = format!("its process may open {}", node.usage.machine.open_files);
            let hint =
                format!("raise its hard limit: ulimit -Hn, or LimitNOFILE={}", NODE_FILES * 8);
            Finding::bad(Verdict::Warn, format!("open files {}", node.id), detail, hint)
        })
        .collect()
}

/// Reads `Max open files` of this process, in the form of `/proc/self/limits`.
pub(super) fn here(limits: &str) -> Finding {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next());
    match soft.map(|soft| (soft, soft.parse::<u64>())) {
        Some((_, Ok(n))) if n < OPEN_FILES => Finding::bad(
            Verdict::Warn,
            "open files",
            format!("a process may open {n}"),
            format!("ulimit -n {}", OPEN_FILES * 16),
        ),
        Some((soft, _)) => Finding::ok("open files", format!("a process may open {soft}")),
        None => Finding::ok("open files", "not known on this system"),
    }
}
