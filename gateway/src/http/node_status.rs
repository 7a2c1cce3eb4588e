//! What v1 clients show of a node (§4.4), from its report.

use forebay_core::intra::{ClusterInfo, NodeInfo};
use forebay_core::state::{ClusterState, Node};
use forebay_core::v1::cluster::node_json;
use serde_json::{Value, json};

/// Protocol level of the reference that clients compare with their own.
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
        "status": if node.alive { "" } else { "maintenance" },
        "deployment": "forebay", "ais_version": PROTOCOL_VERSION, "build_time": "",
        "k8s_pod_name": "",
        "cluster": {
            "smap": {"Primary": {"pub_url": "", "control_url": "", "id": info.primary},
                "uuid": state.cluster_id, "version": version},
            "bmd": {"uuid": state.cluster_id, "version": version},
            "rmd": {"version": "0"}, "config": {"version": "1"}, "etlmd": {"version": "0"},
            "flags": 0,
        },
        "sys_info": sysinfo(),
        "smap_version": version,
    })
}

/// `what=node_stats`.
pub(crate) fn stats(node: &Node, report: &NodeInfo) -> Value {
    json!({"snode": node_json(node), "tracker": tracker(report), "capacity": capacity(report)})
}

fn tracker(report: &NodeInfo) -> Value {
    let u = &report.usage;
    json!({
        "get.size": u.hit_bytes + u.miss_bytes,
        "get.cold.size": u.miss_bytes,
        "get.cold.n": u.backend_reads,
        "up.ns.time": u.uptime_s.saturating_mul(1_000_000_000),
    })
}

fn capacity(report: &NodeInfo) -> Value {
    let u = &report.usage;
    let percent = (u.bytes.saturating_mul(100)).checked_div(u.budget).unwrap_or(0);
    json!({
        "mountpaths": {}, "cs_err": "",
        "total_used": u.bytes.to_string(),
        "total_avail": u.budget.saturating_sub(u.bytes).to_string(),
        "pct_max": percent, "pct_avg": percent, "pct_min": percent,
    })
}

/// Nodes do not report their machine; the shape is what clients decode.
pub(crate) fn sysinfo() -> Value {
    json!({
        "mem_used": 0, "mem_avail": 0, "pct_mem_used": 0.0, "pct_cpu_used": 0.0,
        "load_avg": {"One": 0.0, "Five": 0.0, "Fifteen": 0.0}, "cpu_util": 0,
    })
}

/// `what=bmd`: provider → namespace → bucket → properties.
pub(crate) fn bmd(state: &ClusterState) -> Value {
    let mut providers = serde_json::Map::new();
    for info in state.buckets.values() {
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

/// `what=cluster_config`: the sections that clients look at, where we have something to say.
pub(crate) fn cluster_config(state: &ClusterState) -> Value {
    json!({
        "uuid": state.cluster_id, "config_version": "1", "lastupdate_time": "",
        "features": "0", "backend": {"aws": {}, "gcp": {}, "ais": {}},
        "checksum": {"type": "xxhash2", "validate_cold_get": true, "validate_warm_get": false,
            "validate_obj_move": false, "enable_read_range": false},
        "versioning": {"enabled": true, "validate_warm_get": false, "synchronize": false},
        "mirror": {"copies": 2, "burst_buffer": 512, "enabled": false},
        "rebalance": {"enabled": false}, "auth": {"enabled": false},
        "lru": {"enabled": true}, "ec": {"enabled": false},
    })
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
        let bmd = bmd(&state);
        assert_eq!(bmd["providers"]["ais"]["@#"].as_object().unwrap().len(), 2);
        assert_eq!(bmd["providers"]["aws"]["@#"]["c"]["provider"], "aws");
        assert_eq!(bmd["version"], "3");
    }
}
