//! The v1 view of a node (§4.4), from its report.

use forebay_core::access::Access;
use forebay_core::intra::{ClusterInfo, DiskStatus, NodeInfo};
use forebay_core::state::{ClusterState, Node, Role};
use forebay_v1::cluster::node_json;
use serde_json::{Value, json};

/// Protocol level of the reference; clients compare it with their own.
pub(crate) const PROTOCOL_VERSION: &str = "5.0";

/// `what=node_status`.
pub(crate) fn status(
    state: &ClusterState,
    node: &Node,
    report: &NodeInfo,
    info: &ClusterInfo,
) -> Value {
    let version = state.version.to_string();
    json!({
        "snode": node_json(node),
        "tracker": tracker(report),
        "capacity": capacity(report),
        "status": if in_use(node) { "" } else { "maintenance" },
        "deployment": "forebay", "ais_version": PROTOCOL_VERSION, "build_time": "",
        "k8s_pod_name": "",
        "cluster": {
            "smap": {"Primary": {"pub_url": "", "control_url": "", "id": info.primary},
                "uuid": state.cluster_id, "version": version},
            "bmd": {"uuid": state.cluster_id, "version": version},
            "rmd": {"version": "0"},
            "config": {"version": state.settings.version().to_string()},
            "etlmd": {"version": "0"},
            "flags": state_flags(node),
        },
        "sys_info": sysinfo(report),
        "smap_version": version,
    })
}

fn in_use(node: &Node) -> bool {
    node.alive && !node.maintenance
}

/// Flags: the cluster and the node have started; a node that is down counts as in maintenance.
fn state_flags(node: &Node) -> u64 {
    const STARTED: u64 = 2 | 4;
    const MAINTENANCE: u64 = 1024;
    if in_use(node) { STARTED } else { STARTED | MAINTENANCE }
}

/// `what=node_stats`.
pub(crate) fn stats(node: &Node, report: &NodeInfo) -> Value {
    json!({"snode": node_json(node), "tracker": tracker(report), "capacity": capacity(report)})
}

fn tracker(report: &NodeInfo) -> Value {
    let u = &report.usage;
    let mut tracker = json!({
        "get.size": u.hit_bytes + u.miss_bytes,
        "get.cold.size": u.miss_bytes,
        "get.cold.n": u.backend_reads,
        "up.ns.time": u.uptime_s.saturating_mul(1_000_000_000),
    });
    for (name, n) in &u.tracker {
        tracker[name] = json!(n);
    }
    tracker
}

/// `what=metrics`: the kind of each name in `tracker`.
pub(crate) fn metric_kinds() -> Value {
    let mut kinds = json!({"up.ns.time": "special"});
    for op in ["get", "put", "del", "head", "lst"] {
        kinds[format!("{op}.n")] = json!("counter");
        kinds[format!("err.{op}.n")] = json!("counter");
    }
    for name in ["get.size", "get.cold.size"] {
        kinds[name] = json!("size");
    }
    kinds["get.cold.n"] = json!("counter");
    kinds
}

fn percent(used: u64, of: u64) -> u64 {
    used.saturating_mul(100).checked_div(of).unwrap_or(0).min(100)
}

fn capacity(report: &NodeInfo) -> Value {
    let u = &report.usage;
    let disks: serde_json::Map<String, Value> = u
        .mountpaths
        .iter()
        .filter(|m| matches!(m.state, DiskStatus::InUse | DiskStatus::Leaving))
        .map(|m| {
            let disk = json!({
                "used": m.used.to_string(), "avail": m.budget.saturating_sub(m.used).to_string(),
                "pct_used": percent(m.used, m.budget), "mountpath_label": "",
                "fs": {"Fs": m.path, "FsType": "", "FsID": "0,0"}, "disks": [],
            });
            (m.path.clone(), disk)
        })
        .collect();
    let in_use = || u.mountpaths.iter().filter(|m| m.budget > 0);
    let used = || in_use().map(|m| percent(m.used, m.budget));
    let average = percent(u.bytes, u.budget);
    json!({
        "mountpaths": disks, "cs_err": "",
        "total_used": u.bytes.to_string(),
        "total_avail": u.budget.saturating_sub(u.bytes).to_string(),
        "pct_max": used().max().unwrap_or(average), "pct_avg": average,
        "pct_min": used().min().unwrap_or(average),
    })
}

/// `what=disk`: capacity; the load of individual devices is not measured.
pub(crate) fn disk(report: &NodeInfo) -> Value {
    let mut disk = capacity(report);
    disk["AllDiskStats"] = json!({});
    disk
}

/// `what=mountpaths`.
pub(crate) fn mountpaths(report: &NodeInfo) -> Value {
    let named = |states: &[DiskStatus]| -> Vec<&str> {
        let disks = report.usage.mountpaths.iter().filter(|disk| states.contains(&disk.state));
        disks.map(|disk| disk.path.as_str()).collect()
    };
    // In v1, a failed disk counts as disabled.
    let disabled = named(&[DiskStatus::Disabled, DiskStatus::Away, DiskStatus::Mending]);
    json!({"available": named(&[DiskStatus::InUse]), "waiting_dd": named(&[DiskStatus::Leaving]),
        "disabled": disabled})
}

/// `what=sysinfo`.
pub(crate) fn sysinfo(report: &NodeInfo) -> Value {
    let m = &report.usage.machine;
    let [one, five, fifteen] = m.loads;
    let mut sysinfo = json!({
        "mem_used": m.mem_used, "mem_avail": m.mem_avail, "pct_mem_used": m.pct_mem_used,
        "pct_cpu_used": m.pct_cpu_used,
        "load_avg": {"One": one, "Five": five, "Fifteen": fifteen}, "cpu_util": m.cpu_util,
    });
    if report.role == Role::Target {
        let u = &report.usage;
        sysinfo["fs_used"] = json!(u.bytes.to_string());
        sysinfo["fs_capacity"] = json!(u.budget.to_string());
        sysinfo["pct_fs_used"] = json!(percent(u.bytes, u.budget));
    }
    sysinfo
}

/// `what=bmd`: provider → namespace → bucket → properties, of the buckets that the sender sees.
pub(crate) fn bmd(state: &ClusterState, access: &Access) -> Value {
    let mut providers = serde_json::Map::new();
    for info in state.buckets.values().filter(|info| access.sees(&info.bucket)) {
        let ns = &info.bucket.namespace;
        let namespaces =
            providers.entry(info.bucket.provider.as_str()).or_insert_with(|| json!({}));
        let buckets = &mut namespaces[format!("@{}#{}", ns.uuid, ns.name)];
        if buckets.is_null() {
            *buckets = json!({});
        }
        buckets[info.bucket.name.as_ref()] = crate::bucket_props::shown(info);
    }
    json!({"providers": providers, "uuid": state.cluster_id, "version": state.version.to_string()})
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::Bucket;
    use forebay_core::bucket::BucketInfo;
    use forebay_core::state::Command;

    use super::*;

    #[test]
    fn buckets_stand_under_provider_and_namespace() {
        let mut state = ClusterState::default();
        for (i, uri) in ["ais://a", "ais://b", "s3://c"].iter().enumerate() {
            let info = BucketInfo::requested(Bucket::parse_uri(uri).unwrap().0, None);
            let create = Command::CreateBucket { info: Box::new(info), now_ns: 1 };
            state.apply(i as u64 + 1, create).unwrap();
        }
        let bmd = bmd(&state, &Access::Open);
        assert_eq!(bmd["providers"]["ais"]["@#"].as_object().unwrap().len(), 2);
        assert_eq!(bmd["providers"]["aws"]["@#"]["c"]["provider"], "aws");
        assert_eq!(bmd["version"], "3");
    }
}
