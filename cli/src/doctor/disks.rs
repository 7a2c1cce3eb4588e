//! Disks of the targets: their budgets, their states, and damaged objects on them.

use forebay_core::intra::{ClusterInfo, DiskStatus};
use forebay_core::size::ByteSize;
use forebay_core::state::Role;

use super::finding::{Finding, Verdict};

/// How much of its budget each target uses.
pub(super) fn budgets(info: &ClusterInfo) -> Vec<Finding> {
    let targets = info.nodes.iter().filter(|n| n.role == Role::Target && n.alive);
    targets
        .map(|node| {
            let (used, budget) = (node.usage.bytes, node.usage.budget);
            let check = format!("disk {}", node.id);
            let detail = format!("{} of {} used", ByteSize(used), ByteSize(budget));
            if !node.usage.is_known() {
                let detail = "its usage is not known: it has not reported to a leading gateway yet";
                let hint = "try again in a moment; if this stays, look at the gateways";
                Finding::bad(Verdict::Warn, check, detail, hint)
            } else if budget == 0 {
                let hint = "set the size of its [[disk]]";
                Finding::bad(Verdict::Fail, check, "it has no disk budget".to_owned(), hint)
            } else if used > budget / 20 * 19 {
                let hint = "raise the size of its [[disk]], or remove native objects";
                Finding::bad(Verdict::Warn, check, detail, hint)
            } else {
                Finding::ok(check, detail)
            }
        })
        .collect()
}

/// Disks that are unavailable, or not used as configured.
pub(super) fn disks(info: &ClusterInfo) -> Vec<Finding> {
    let targets = info.nodes.iter().filter(|n| n.role == Role::Target && n.alive);
    let disks = targets.flat_map(|node| node.usage.mountpaths.iter().map(move |d| (node, d)));
    let found = disks.filter_map(|(node, disk)| {
        let waits = "objects that live only on it wait, and listings of their buckets with them";
        let (verdict, detail, hint) = match disk.state {
            DiskStatus::InUse | DiskStatus::Leaving if disk.file_system.is_some_and(|f| f.full) => {
                let free = disk.file_system.map(|f| ByteSize(f.free)).unwrap_or_default();
                (
                    Verdict::Fail,
                    format!("its file system is full ({free} free): new objects are refused or soon will be"),
                    "free space there, remove native objects, or add a disk".to_owned(),
                )
            }
            DiskStatus::InUse if disk.why.is_empty() => {
                let file_system =
                    disk.file_system.filter(|f| !f.holds_budget(disk.used, disk.budget))?;
                let (budget, free) = (ByteSize(disk.budget), ByteSize(file_system.free));
                (
                    Verdict::Warn,
                    format!("its budget of {budget} is larger than what is free there ({free})"),
                    "lower the size of its [[disk]] (serve: --size), or free space".to_owned(),
                )
            }
            DiskStatus::InUse => (
                Verdict::Warn,
                format!("it was to be emptied and stays: {}", disk.why),
                String::new(),
            ),
            DiskStatus::Leaving => (
                Verdict::Ok,
                format!("{} of it move to other disks", ByteSize(disk.used)),
                String::new(),
            ),
            DiskStatus::Mending => (
                Verdict::Warn,
                format!("{}; {waits}", disk.why),
                "it comes back by itself; look at the disk if this happens again".into(),
            ),
            DiskStatus::Away => (
                Verdict::Fail,
                format!("not in use: {}; {waits}", disk.why),
                format!(
                    "bring it back, it is taken into use then; if it is lost: \
                     forebay disk detach {} {} --force",
                    node.id, disk.path
                ),
            ),
            DiskStatus::Disabled if disk.why.is_empty() => {
                (Verdict::Ok, "disabled by command, and empty".to_owned(), String::new())
            }
            DiskStatus::Disabled => (
                Verdict::Warn,
                format!("disabled by command: {}; {waits}", disk.why),
                format!("forebay disk enable {} {}", node.id, disk.path),
            ),
        };
        let check = format!("disk {} {}", node.id, disk.path);
        Some(Finding { check, verdict, detail, hint })
    });
    found.collect()
}

/// Objects of which stored bytes are damaged permanently.
pub(super) fn lost(info: &ClusterInfo) -> Vec<Finding> {
    let damaged = info.nodes.iter().filter(|n| n.usage.lost > 0);
    damaged
        .map(|node| {
            let (count, names) = (node.usage.lost, node.usage.lost_names.join(", "));
            let more = if count > node.usage.lost_names.len() as u64 { ", …" } else { "" };
            let detail = format!("{count} damaged with no other copy: {names}{more}");
            let hint = "write them again or delete them, and look at the disk";
            Finding::bad(Verdict::Fail, format!("objects {}", node.id), detail, hint)
        })
        .collect()
}
