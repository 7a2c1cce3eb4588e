//! Findings about clusters that are made up.
#![allow(clippy::unwrap_used)]

use forebay_core::NodeId;
use forebay_core::intra::{
    ClusterInfo, DiskStatus, DiskUsage, FileSystemUsage, Machine, MapReply, NodeInfo, NodeUsage,
};
use forebay_core::sign::GRANT_TTL_S;
use forebay_core::state::{ClusterState, Node, Role};

use super::disks::{budgets, disks, lost};
use super::finding::Verdict;
use super::members::{drained, majority, targets};
use super::{clocks, open_files};

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
            https: String::new(),
            external: String::new(),
        };
        state.nodes.insert(id, node);
    }
    let primary = NodeId::new("gateway-1").unwrap();
    MapReply {
        state,
        primary,
        grant: String::new(),
        grant_expires_s: 1000 + GRANT_TTL_S,
        version: None,
        oldest_client: None,
    }
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
        |n: &str| open_files::here(&format!("Max open files            {n}   524288  files\n"));
    assert_eq!(limits("1024").verdict, Verdict::Warn);
    assert_eq!(limits("65536").verdict, Verdict::Ok);
    assert_eq!(limits("unlimited").verdict, Verdict::Ok);
}

#[test]
fn a_full_disk_and_a_missing_budget_are_found() {
    let of = |usage| NodeInfo { usage, ..target() };
    let node = |bytes, budget| of(NodeUsage { bytes, budget, uptime_s: 1, ..NodeUsage::default() });
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
    assert_eq!(open_files::of_nodes(&info).len(), 1);
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
