//! Members of the cluster: how many targets are alive, whether gateways have a majority, which nodes
//! are drained.

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{ClusterInfo, MapReply};
use forebay_core::state::{NodeStatus, Role};

use super::finding::{Finding, Verdict};
use crate::cluster::{NO_MAJORITY, status_of};

/// How many targets are alive, and what cannot be read without the others.
pub(super) fn targets(map: &MapReply) -> Finding {
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
            let unreadable: Vec<String> = native
                .filter(|info| away > spare_targets(info))
                .map(|info| info.bucket.to_string())
                .collect();
            if !unreadable.is_empty() {
                let detail =
                    format!("{detail}; objects cannot be read in {}", some_of(&unreadable));
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

/// Whether the gateways have a majority, so that changes are possible.
pub(super) fn majority(info: &ClusterInfo) -> Option<Finding> {
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
pub(super) fn drained(info: &ClusterInfo) -> Vec<Finding> {
    let nodes = info.nodes.iter().filter_map(|node| {
        let check = format!("{} {}", node.role.name(), node.id);
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
