//! `forebay doctor`: checks the connection and the cluster for faults; prints a line with advice
//! for each.

mod clocks;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use forebay_client::{Client, ClientConfig};
use forebay_core::bucket::BucketInfo;
use forebay_core::clock_offset::CLOCK_TOLERANCE_S;
use forebay_core::date::format_utc;
use forebay_core::intra::{ClusterInfo, DiskStatus, MapReply};
use forebay_core::sign::GRANT_TTL_S;
use forebay_core::size::ByteSize;
use forebay_core::state::{Node, NodeStatus, Role};
use forebay_core::v1::list::ListMsg;
use serde_json::json;

use crate::bucket::show_backend;
use crate::cluster::{NO_MAJORITY, role, status_of};
use crate::doctor_bucket;
use crate::failure::{Failure, exit};
use crate::output::{Column, Format, Row, Rows};
use crate::probe::{self, Answer};
use crate::session::Session;

/// A check that takes longer than this is reported as a failure.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Open files that a client of a busy cluster may need.
const OPEN_FILES: u64 = 4096;
/// Open files that a node needs: connections, and a few for each object in progress.
const NODE_FILES: u64 = 8192;
/// Maximum number of buckets with a backend that are checked.
const BACKENDS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warn,
    Fail,
}

#[derive(Clone, Debug)]
struct Finding {
    check: String,
    verdict: Verdict,
    detail: String,
    hint: String,
}

impl Finding {
    fn ok(check: impl Into<String>, detail: impl Into<String>) -> Self {
        let (check, detail) = (check.into(), detail.into());
        Self { check, verdict: Verdict::Ok, detail, hint: String::new() }
    }

    fn bad(
        verdict: Verdict,
        check: impl Into<String>,
        detail: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { check: check.into(), verdict, detail: detail.into(), hint: hint.into() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// A bucket, optionally with a prefix or the name of an object. Each target reports the identity
    /// that it uses at the bucket's cloud, and whether it can list and read the bucket
    #[arg(value_name = "BUCKET[/PREFIX]")]
    bucket: Option<String>,
}

pub(crate) async fn run(session: &Session, args: &DoctorArgs) -> Result<(), Failure> {
    match &args.bucket {
        Some(bucket) => doctor_bucket::run(session, bucket).await,
        None => cluster(session).await,
    }
}

async fn cluster(session: &Session) -> Result<(), Failure> {
    let mut all =
        vec![open_files(&std::fs::read_to_string("/proc/self/limits").unwrap_or_default())];
    let config = ClientConfig { deadline: CHECK_TIMEOUT, ..ClientConfig::new(&session.endpoint) };
    let client = Client::new(config)?;
    let started = Instant::now();
    match client.map().await {
        Err(e) => {
            let hint = format!(
                "start one with `forebay serve --dir DIR`, or set FOREBAY_ENDPOINT; now it is {}",
                session.endpoint
            );
            all.push(Finding::bad(Verdict::Fail, "endpoint", e.message(), hint));
        }
        Ok(map) => {
            let took = started.elapsed().as_millis();
            let detail = format!("{} answers in {took} ms", session.endpoint);
            all.push(Finding::ok("endpoint", detail));
            all.push(targets(&map));
            all.push(clocks::here(&map, now_s()));
            let gateway_s = map.grant_expires_s.saturating_sub(GRANT_TTL_S);
            let nodes = map.state.nodes.values().map(|node| health(node, gateway_s));
            all.extend(futures::future::join_all(nodes).await);
            let backed = map.state.buckets.values().filter(|b| b.has_backend()).take(BACKENDS);
            let backends = backed.map(|bucket| backend(&client, bucket));
            all.extend(futures::future::join_all(backends).await);
            match client.cluster_info().await {
                Ok(info) => {
                    all.extend(majority(&info));
                    all.extend(clocks::of_nodes(&info));
                    all.extend(drained(&info));
                    all.extend(budgets(&info));
                    all.extend(disks(&info));
                    all.extend(node_files(&info));
                    all.extend(lost(&info));
                }
                Err(e) => all.push(Finding::bad(Verdict::Fail, "budgets", e.message(), "")),
            }
        }
    }
    let reached = all.iter().all(|f| f.check != "endpoint" || f.verdict == Verdict::Ok);
    let failed = all.iter().any(|f| f.verdict == Verdict::Fail);
    print(session, all)?;
    match (reached, failed) {
        (false, _) => Err(Failure::silent(exit::UNAVAILABLE)),
        (true, true) => Err(Failure::silent(exit::FAILED)),
        (true, false) => Ok(()),
    }
}

fn print(session: &Session, all: Vec<Finding>) -> Result<(), Failure> {
    let columns = [Column("", false), Column("CHECK", false), Column("FOUND", false)];
    let mut rows = Rows::new(session.format, &columns);
    for f in all {
        let mark = match f.verdict {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Fail => "FAIL",
        };
        let found = match f.hint.as_str() {
            "" => f.detail.clone(),
            hint => format!("{}; fix: {hint}", f.detail),
        };
        if session.format == Format::Table && session.quiet && f.verdict == Verdict::Ok {
            continue;
        }
        let json = json!({ "check": f.check, "result": mark.to_lowercase(), "found": f.detail,
            "hint": if f.hint.is_empty() { None } else { Some(&f.hint) } });
        rows.push(Row { name: f.check.clone(), cells: vec![mark.into(), f.check, found], json })?;
    }
    rows.finish()
}

fn targets(map: &MapReply) -> Finding {
    let (all, alive) = (map.state.targets().count(), map.state.alive_targets().count());
    let gateways = map.state.gateways().count();
    let detail = format!(
        "version {}, {gateways} gateways, {alive} of {all} targets alive",
        map.state.version
    );
    match (all, alive) {
        (0, _) => Finding::bad(
            Verdict::Fail,
            "map",
            detail,
            "start a target that joins: forebay target --config FILE",
        ),
        (_, 0) => Finding::bad(Verdict::Fail, "map", detail, "start the targets again"),
        (all, alive) if alive < all => {
            let away = map.state.holding_targets().filter(|node| !node.alive).count();
            let native = map.state.buckets.values().filter(|info| !info.has_backend());
            let unread: Vec<String> = native
                .filter(|info| away > spare_targets(info))
                .map(|info| info.bucket.to_string())
                .collect();
            if !unread.is_empty() {
                let detail = format!("{detail}; objects cannot be read in {}", some_of(&unread));
                let hint = "start the missing targets again; if their disks are lost, \
                    `forebay node remove ID --lost` gives up what was on them";
                return Finding::bad(Verdict::Fail, "map", detail, hint);
            }
            let hint = "start the missing targets again; native objects on them wait until then";
            Finding::bad(Verdict::Warn, "map", detail, hint)
        }
        _ => Finding::ok("map", detail),
    }
}

/// How many targets may be unavailable before objects of a native bucket cannot be read.
fn spare_targets(info: &BucketInfo) -> usize {
    let copies = (info.copies as usize).saturating_sub(1);
    info.erasure.map_or(copies, |slices| usize::from(slices.parity).max(copies))
}

/// The first few of a list of names.
fn some_of(names: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{}{more}", names[..names.len().min(SHOWN)].join(", "))
}

/// Checks a node. `gateway_s`: the gateway's clock a moment ago, unix seconds.
async fn health(node: &Node, gateway_s: u64) -> Finding {
    let check = format!("{} {}", role(node.role), node.id);
    let address = node.url.strip_prefix("http://").unwrap_or(&node.url).trim_end_matches('/');
    let started = Instant::now();
    match probe::get(address, "/healthz").await {
        Ok(Answer { status: 200, .. }) if node.alive => {
            let took = started.elapsed().as_millis();
            Finding::ok(check, format!("{} is healthy, in {took} ms", node.url))
        }
        // Other nodes reject a node's signatures while their clocks differ by this much.
        Ok(Answer { status: 200, date_s: Some(date_s), .. })
            if date_s.abs_diff(gateway_s) > CLOCK_TOLERANCE_S =>
        {
            let [own, theirs] = [date_s, gateway_s].map(|s| format_utc(s * 1_000_000_000));
            let detail = format!(
                "{} answers but the cluster counts it as down: its clock says {own}, the gateway's {theirs}",
                node.url
            );
            Finding::bad(Verdict::Fail, check, detail, "set the clocks (NTP)")
        }
        Ok(Answer { status: 200, .. }) => Finding::bad(
            Verdict::Warn,
            check,
            format!("{} answers but the cluster counts it as down", node.url),
            "if this stays, look into its log: it does not reach the primary gateway",
        ),
        Ok(Answer { status, .. }) => {
            let detail = format!("{} answers /healthz with status {status}", node.url);
            Finding::bad(Verdict::Fail, check, detail, "look into its log")
        }
        Err(e) if node.alive && e.kind() == std::io::ErrorKind::ConnectionRefused => Finding::bad(
            Verdict::Fail,
            check,
            format!("no process listens at {}", node.url),
            "start it again with its own command line; the map still has it alive",
        ),
        Err(e) if node.alive => Finding::bad(
            Verdict::Fail,
            check,
            format!("{} is not reachable from here: {e}", node.url),
            "open the way to it (clients go to targets directly), or set its listen.advertise",
        ),
        Err(e) => Finding::bad(
            Verdict::Warn,
            check,
            format!("{} is down: {e}", node.url),
            "start it again with its own command line",
        ),
    }
}

/// Whether the targets can access a bucket's backend.
async fn backend(client: &Client, info: &BucketInfo) -> Finding {
    let check = format!("bucket {}", info.bucket);
    let shown = info.backend.as_ref().map(show_backend).unwrap_or_default();
    let one = ListMsg { page_size: 1, props: "name".into(), ..ListMsg::default() };
    match client.list_page(&info.bucket, &one).await {
        Ok(_) => Finding::ok(check, format!("{shown} can be read")),
        Err(e) => {
            let hint = e.hint().unwrap_or("look into the log of the targets").to_owned();
            Finding::bad(Verdict::Fail, check, e.message(), hint)
        }
    }
}

/// Whether the gateways have a majority, so that changes are possible.
fn majority(info: &ClusterInfo) -> Option<Finding> {
    let gateways = info.nodes.iter().filter(|node| node.role == Role::Gateway).count();
    match info.led? {
        true => Some(Finding::ok("gateways", format!("{} leads", info.primary))),
        false => Some(Finding::bad(
            Verdict::Fail,
            "gateways",
            NO_MAJORITY,
            format!("start gateways until {} of {gateways} reply", gateways / 2 + 1),
        )),
    }
}

/// Nodes that an operator has drained.
fn drained(info: &ClusterInfo) -> Vec<Finding> {
    let nodes = info.nodes.iter().filter_map(|node| {
        let check = format!("{} {}", role(node.role), node.id);
        match status_of(node) {
            NodeStatus::Drained => {
                let detail = "drained: it holds no native object, and may be stopped or removed";
                Some(Finding::ok(check, detail))
            }
            NodeStatus::Draining => Some(Finding::bad(
                Verdict::Warn,
                check,
                "draining: its native objects move to other targets",
                "wait until it is drained before you stop it; `forebay job ls` shows the progress",
            )),
            NodeStatus::Alive | NodeStatus::Down => None,
        }
    });
    nodes.collect()
}

fn budgets(info: &ClusterInfo) -> Vec<Finding> {
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
fn disks(info: &ClusterInfo) -> Vec<Finding> {
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

/// Nodes whose limit of open files is too low.
fn node_files(info: &ClusterInfo) -> Vec<Finding> {
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

/// Objects of which stored bytes are damaged permanently.
fn lost(info: &ClusterInfo) -> Vec<Finding> {
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

/// Reads `Max open files` of this process, in the form of `/proc/self/limits`.
fn open_files(limits: &str) -> Finding {
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

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::NodeId;
    use forebay_core::intra::{DiskUsage, FileSystemUsage, Machine, NodeInfo, NodeUsage};
    use forebay_core::state::ClusterState;

    fn map(alive: &[bool]) -> MapReply {
        let mut state = ClusterState::default();
        for (i, alive) in alive.iter().enumerate() {
            let id = NodeId::new(&format!("target-{i:02}")).unwrap();
            let node = Node {
                id: id.clone(),
                role: Role::Target,
                url: String::new(),
                alive: *alive,
                alive_since: 0,
                weight: 1,
                zone: String::new(),
                maintenance: false,
                emptied: false,
                lagging: false,
                leaving: None,
                instance: 0,
            };
            state.nodes.insert(id, node);
        }
        let primary = NodeId::new("gateway-1").unwrap();
        MapReply { state, primary, grant: String::new(), grant_expires_s: 1000 + GRANT_TTL_S }
    }

    fn target() -> NodeInfo {
        NodeInfo {
            id: NodeId::new("target-01").unwrap(),
            role: Role::Target,
            url: String::new(),
            alive: true,
            maintenance: false,
            emptied: false,
            usage: NodeUsage::default(),
        }
    }

    #[test]
    fn a_lost_majority_and_drained_targets_are_found() {
        let draining = NodeInfo { maintenance: true, ..target() };
        let drained_one = NodeInfo { emptied: true, ..draining.clone() };
        let mut info = ClusterInfo {
            cluster_id: "c".into(),
            version: 1,
            primary: NodeId::new("gateway-1").unwrap(),
            nodes: vec![target(), draining, drained_one],
            buckets: 0,
            led: Some(false),
            clock_ns: 0,
        };
        let found = majority(&info).unwrap();
        assert!(found.verdict == Verdict::Fail && found.detail.contains("no majority"));
        info.led = Some(true);
        assert_eq!(majority(&info).unwrap().verdict, Verdict::Ok);
        let verdicts: Vec<_> = drained(&info).iter().map(|f| f.verdict).collect();
        assert_eq!(verdicts, [Verdict::Warn, Verdict::Ok]);
    }

    #[test]
    fn findings_are_as_bad_as_what_was_found() {
        assert_eq!(targets(&map(&[true, true])).verdict, Verdict::Ok);
        assert_eq!(targets(&map(&[true, false])).verdict, Verdict::Warn);
        assert_eq!(targets(&map(&[false])).verdict, Verdict::Fail);
        assert_eq!(targets(&map(&[])).verdict, Verdict::Fail);
        assert_eq!(clocks::here(&map(&[]), 1003).verdict, Verdict::Ok);
        assert_eq!(clocks::here(&map(&[]), 940).verdict, Verdict::Warn);
        assert_eq!(clocks::here(&map(&[]), 5000).verdict, Verdict::Fail);
        let limits =
            |n: &str| open_files(&format!("Max open files            {n}   524288  files\n"));
        assert_eq!(limits("1024").verdict, Verdict::Warn);
        assert_eq!(limits("65536").verdict, Verdict::Ok);
        assert_eq!(limits("unlimited").verdict, Verdict::Ok);
    }

    #[test]
    fn a_full_disk_and_a_missing_budget_are_found() {
        let of = |usage| NodeInfo { usage, ..target() };
        let node =
            |bytes, budget| of(NodeUsage { bytes, budget, uptime_s: 1, ..NodeUsage::default() });
        let info = ClusterInfo {
            cluster_id: "c".into(),
            version: 1,
            primary: NodeId::new("gateway-1").unwrap(),
            nodes: vec![node(10, 100), node(99, 100), node(0, 0), of(NodeUsage::default())],
            buckets: 0,
            led: None,
            clock_ns: 0,
        };
        let verdicts: Vec<_> = budgets(&info).into_iter().map(|f| f.verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok, Verdict::Warn, Verdict::Fail, Verdict::Warn]);
        assert!(budgets(&info)[3].detail.contains("not known"), "it has not reported");
        assert!(lost(&info).is_empty());
    }

    #[test]
    fn away_disks_are_reported_with_advice() {
        let disk = |state, why: &str| DiskUsage {
            path: format!("/{}", DiskStatus::as_str(state)),
            state,
            why: why.into(),
            ..DiskUsage::default()
        };
        let on = |free, full| DiskUsage {
            budget: 100,
            used: 20,
            file_system: Some(FileSystemUsage { size: 200, free, full }),
            ..disk(DiskStatus::InUse, "")
        };
        let machine = Machine { open_files: 1024, ..Machine::default() };
        let mountpaths = vec![
            disk(DiskStatus::InUse, ""),
            disk(DiskStatus::InUse, "no room"),
            disk(DiskStatus::Leaving, ""),
            disk(DiskStatus::Mending, "its index is damaged"),
            disk(DiskStatus::Away, "not mounted"),
            disk(DiskStatus::Disabled, ""),
            on(10, true),
            on(10, false),
            on(90, false),
        ];
        let usage = NodeUsage { mountpaths, machine, ..NodeUsage::default() };
        let node = NodeInfo { usage, ..target() };
        let info = ClusterInfo {
            cluster_id: "c".into(),
            version: 1,
            primary: NodeId::new("gateway-1").unwrap(),
            nodes: vec![node],
            buckets: 0,
            led: None,
            clock_ns: 0,
        };
        let found = disks(&info);
        let verdicts: Vec<_> = found.iter().map(|f| f.verdict).collect();
        use Verdict::{Fail, Ok, Warn};
        assert_eq!(verdicts, [Warn, Ok, Warn, Fail, Ok, Fail, Warn]);
        assert!(found[5].detail.contains("file system is full"), "{}", found[5].detail);
        assert!(found[6].detail.contains("larger than what is free"), "{}", found[6].detail);
        let away = &found[3];
        assert!(away.detail.contains("not mounted"), "{}", away.detail);
        assert!(away.hint.contains("disk detach target-01 /away --force"), "{}", away.hint);
        assert_eq!(node_files(&info).len(), 1);
    }

    #[test]
    fn lost_objects_are_named() {
        let usage =
            NodeUsage { lost: 2, lost_names: vec!["ais://own/a".into()], ..NodeUsage::default() };
        let node = NodeInfo { usage, ..target() };
        let info = ClusterInfo {
            cluster_id: "c".into(),
            version: 1,
            primary: NodeId::new("gateway-1").unwrap(),
            nodes: vec![node],
            buckets: 0,
            led: None,
            clock_ns: 0,
        };
        let found = lost(&info);
        assert_eq!((found.len(), found[0].verdict), (1, Verdict::Fail));
        assert!(found[0].detail.contains("ais://own/a, …"), "{}", found[0].detail);
    }
}
