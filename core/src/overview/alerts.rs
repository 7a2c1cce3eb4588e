//! Alerts of the overview: the conditions that a gateway sees by itself. Those that the alert rules of
//! Prometheus also have bear the same names, so that the runbooks apply. No I/O.

use serde::{Deserialize, Serialize};

use super::Rates;
use crate::intra::{DiskStatus, NodeInfo};
use crate::size::ByteSize;
use crate::state::{NodeStatus, Role};

/// Free share of a file system below which it counts as nearly full.
const NEARLY_FULL_SHARE: f64 = 0.05;
/// Used share of a target's budget above which eviction does not keep up.
const BUDGET_SHARE: f64 = 0.93;
/// Share of failed requests that raises an alert, from this many failures per second.
const FAILED_SHARE: f64 = 0.05;
const MIN_ERRORS_PER_S: f64 = 0.2;

/// How urgent an alert is; the most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Data or service is lost, or is about to be.
    Critical,
    Warning,
    /// Expected, and worth knowing.
    Info,
}

impl Severity {
    /// The name in JSON and on screens.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::Warning => "warning",
            Self::Info => "info",
        }
    }
}

/// A condition that needs attention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    /// That of the alert rule, if there is one.
    pub name: String,
    pub severity: Severity,
    pub text: String,
}

/// A node as a gateway knows it.
#[derive(Clone, Debug)]
pub struct NodeView<'a> {
    pub info: &'a NodeInfo,
    /// Whether it sent its figures in time.
    pub answered: bool,
    pub rates: Rates,
}

/// The alerts of a cluster, the most urgent first. `led` is whether a gateway leads.
pub fn alerts(led: bool, nodes: &[NodeView<'_>]) -> Vec<Alert> {
    let mut found = Vec::new();
    if !led {
        let text = "no gateway leads: nothing can be changed, and this is the last known state";
        found.push(alert("ForebayNoLeader", Severity::Critical, text.to_owned()));
    }
    for node in nodes {
        of_node(node, &mut found);
        if node.info.role == Role::Target && node.info.usage.is_known() {
            of_disks(node.info, &mut found);
        }
    }
    found.sort_by(|a, b| (a.severity, &a.name, &a.text).cmp(&(b.severity, &b.name, &b.text)));
    found
}

fn alert(name: &str, severity: Severity, text: String) -> Alert {
    Alert { name: name.to_owned(), severity, text }
}

fn of_node(node: &NodeView<'_>, found: &mut Vec<Alert>) {
    let NodeInfo { id, role, .. } = node.info;
    let mut push = |name: &str, severity, text| found.push(alert(name, severity, text));
    let name = format!("{} {id}", role.name());
    match NodeStatus::of(node.info.alive, node.info.maintenance, node.info.emptied) {
        NodeStatus::Down if *role == Role::Target => {
            push("ForebayTargetDead", Severity::Critical, format!("{name} is down"));
        }
        NodeStatus::Down => {
            push("ForebayGatewayDead", Severity::Critical, format!("{name} is down"));
        }
        _ if !node.answered => {
            let text = format!("{name} does not answer; it still counts as alive");
            push("ForebayNodeSilent", Severity::Warning, text);
        }
        NodeStatus::Draining => {
            let text = format!("{name} is draining: its native objects move to other targets");
            push("ForebayDraining", Severity::Info, text);
        }
        NodeStatus::Drained => {
            push("ForebayDrained", Severity::Info, format!("{name} is drained and may be removed"));
        }
        NodeStatus::Alive => {}
    }
    let Rates { requests_per_s, errors_per_s, .. } = node.rates;
    if errors_per_s >= MIN_ERRORS_PER_S && errors_per_s > requests_per_s * FAILED_SHARE {
        let percent = 100.0 * errors_per_s / requests_per_s.max(errors_per_s);
        let text = format!("{name} fails {percent:.0} % of its requests; its log has the causes");
        push("ForebayRequestsFail", Severity::Warning, text);
    }
    let lost = node.info.usage.lost;
    if lost > 0 {
        let text = format!("{name} has {lost} damaged objects that no other copy can repair");
        push("ForebayDataLost", Severity::Critical, text);
    }
}

fn of_disks(node: &NodeInfo, found: &mut Vec<Alert>) {
    let mut push = |name: &str, severity, text| found.push(alert(name, severity, text));
    for disk in &node.usage.mountpaths {
        let place = format!("disk {} of {}", disk.path, node.id);
        match disk.state {
            DiskStatus::Away => {
                let why = if disk.why.is_empty() { "it failed or is missing" } else { &disk.why };
                push("ForebayDiskAway", Severity::Critical, format!("{place} is away: {why}"));
            }
            DiskStatus::Mending => {
                let text = format!("{place} is being checked; its objects come back after that");
                push("ForebayDiskMending", Severity::Warning, text);
            }
            DiskStatus::Leaving => {
                let text = format!("{place} is leaving: its objects move to other disks");
                push("ForebayDiskLeaving", Severity::Info, text);
            }
            DiskStatus::Disabled | DiskStatus::InUse => {}
        }
        let Some(system) = disk.file_system else { continue };
        let free = ByteSize(system.free);
        if system.full {
            let text = format!("{place} has {free} free: new objects are or will be rejected");
            push("ForebayFileSystemFull", Severity::Critical, text);
        } else if (system.free as f64) < system.size as f64 * NEARLY_FULL_SHARE {
            let text = format!("{place} has {free} of {} free", ByteSize(system.size));
            push("ForebayFileSystemNearlyFull", Severity::Warning, text);
        }
    }
    let (used, budget) = (node.usage.bytes, node.usage.budget);
    if budget > 0 && used as f64 > budget as f64 * BUDGET_SHARE {
        let percent = 100.0 * used as f64 / budget as f64;
        let text = format!("target {} uses {percent:.0} % of its budget", node.id);
        push("ForebayDiskFull", Severity::Warning, text);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::NodeId;
    use crate::intra::{DiskUsage, FileSystemUsage, NodeUsage};

    fn node(role: Role, usage: NodeUsage) -> NodeInfo {
        NodeInfo {
            id: NodeId::new("target01").unwrap(),
            role,
            url: "http://127.0.0.1:1".into(),
            alive: true,
            maintenance: false,
            emptied: false,
            usage,
        }
    }

    fn names(led: bool, info: &NodeInfo, answered: bool, rates: Rates) -> Vec<String> {
        let found = alerts(led, &[NodeView { info, answered, rates }]);
        found.into_iter().map(|alert| alert.name).collect()
    }

    fn with_disk(disk: DiskUsage) -> Vec<String> {
        let usage = NodeUsage { uptime_s: 9, mountpaths: vec![disk], ..NodeUsage::default() };
        names(true, &node(Role::Target, usage), true, Rates::default())
    }

    #[test]
    fn a_healthy_cluster_has_no_alerts() {
        let file_system = Some(FileSystemUsage { size: 1_000, free: 500, full: false });
        let disk = DiskUsage { path: "/d".into(), file_system, ..DiskUsage::default() };
        assert!(with_disk(disk).is_empty());
        let gateway = node(Role::Gateway, NodeUsage::default());
        assert!(names(true, &gateway, true, Rates::default()).is_empty());
    }

    #[test]
    fn nodes_that_are_down_silent_or_draining_are_named() {
        let quiet = Rates::default();
        let mut target = node(Role::Target, NodeUsage::default());
        assert_eq!(names(false, &target, true, quiet), ["ForebayNoLeader"]);
        assert_eq!(names(true, &target, false, quiet), ["ForebayNodeSilent"]);
        target.maintenance = true;
        assert_eq!(names(true, &target, true, quiet), ["ForebayDraining"]);
        target.emptied = true;
        assert_eq!(names(true, &target, true, quiet), ["ForebayDrained"]);
        target.alive = false;
        assert_eq!(names(true, &target, false, quiet), ["ForebayTargetDead"]);
        target.role = Role::Gateway;
        assert_eq!(names(true, &target, false, quiet), ["ForebayGatewayDead"]);
    }

    #[test]
    fn failing_requests_count_from_a_share_on() {
        let target = node(Role::Target, NodeUsage::default());
        let rates =
            |errors_per_s| Rates { requests_per_s: 100.0, errors_per_s, ..Rates::default() };
        assert!(names(true, &target, true, rates(5.0)).is_empty());
        assert_eq!(names(true, &target, true, rates(6.0)), ["ForebayRequestsFail"]);
        let rare = Rates { requests_per_s: 0.1, errors_per_s: 0.1, ..Rates::default() };
        assert!(names(true, &target, true, rare).is_empty());
    }

    #[test]
    fn disks_that_are_away_or_full_are_named_the_most_urgent_first() {
        let of = |state| DiskUsage { path: "/d".into(), state, ..DiskUsage::default() };
        assert_eq!(with_disk(of(DiskStatus::Away)), ["ForebayDiskAway"]);
        assert_eq!(with_disk(of(DiskStatus::Mending)), ["ForebayDiskMending"]);
        assert_eq!(with_disk(of(DiskStatus::Leaving)), ["ForebayDiskLeaving"]);
        let free = |free, full| {
            let file_system = Some(FileSystemUsage { size: 1_000, free, full });
            with_disk(DiskUsage { file_system, ..of(DiskStatus::InUse) })
        };
        assert_eq!(free(49, false), ["ForebayFileSystemNearlyFull"]);
        assert_eq!(free(49, true), ["ForebayFileSystemFull"]);
        assert!(free(50, false).is_empty());
        let usage =
            NodeUsage { bytes: 98, budget: 100, lost: 2, uptime_s: 1, ..NodeUsage::default() };
        let found = names(true, &node(Role::Target, usage), false, Rates::default());
        assert_eq!(found, ["ForebayDataLost", "ForebayDiskFull", "ForebayNodeSilent"]);
    }
}
