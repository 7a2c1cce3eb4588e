//! The cluster map as v1 clients read it (§4.2).

use forebay_core::date::format_time;
use forebay_core::intra::NodeUsage;
use forebay_core::name::NodeId;
use forebay_core::placement::digest;
use forebay_core::state::{ClusterState, Node, Role};
use serde_json::{Map, Value, json};

/// Node flag: in maintenance, so that clients do not choose it as an owner.
const FLAG_MAINTENANCE: u64 = 4;

/// Host and port of a node's URL.
fn address(node: &Node) -> (&str, &str) {
    let rest = node.url.split_once("://").map_or(node.url.as_str(), |(_, rest)| rest);
    rest.rsplit_once(':').unwrap_or((rest, "80"))
}

/// One node.
pub fn node_json(node: &Node) -> Value {
    let (host, port) = address(node);
    let net = json!({"node_ip_addr": host, "daemon_port": port, "direct_url": node.url});
    json!({
        "public_net": net, "intra_data_net": net, "intra_control_net": net,
        "daemon_type": if node.role == Role::Gateway { "proxy" } else { "target" },
        "daemon_id": node.id,
        "flags": if node.alive && !node.maintenance { 0 } else { FLAG_MAINTENANCE },
        "id_digest": digest(node.id.as_str()),
    })
}

/// `what=smap`. Dead targets stay in the map with a flag, so that clients neither choose them as
/// owners nor treat their objects as lost.
pub fn smap_json(state: &ClusterState, primary: &NodeId) -> Value {
    let group = |role| -> Map<String, Value> {
        let nodes = state.nodes.values().filter(|n| n.role == role);
        nodes.map(|n| (n.id.to_string(), node_json(n))).collect()
    };
    json!({
        "pmap": group(Role::Gateway),
        "proxy_si": state.node(primary).map(node_json),
        "tmap": group(Role::Target),
        "uuid": state.cluster_id,
        "creation_time": format_time(state.created_ns),
        "version": state.version.to_string(),
    })
}

/// `what=cluster_config`: all settings, and the cluster's properties.
pub fn config_json(state: &ClusterState, primary: &NodeId) -> Value {
    let mut config = state.settings.to_json();
    let url = state.node(primary).map(|n| n.url.as_str()).unwrap_or_default();
    if let Some(Value::Object(proxy)) = config.get_mut("proxy") {
        proxy.insert("primary_url".into(), json!(url));
        proxy.insert("original_url".into(), json!(url));
    }
    let updated = state.settings.updated_ns();
    let updated = if updated == 0 { String::new() } else { format_time(updated) };
    let own = [
        ("uuid", json!(state.cluster_id)),
        ("config_version", json!(state.settings.version().to_string())),
        ("lastupdate_time", json!(updated)),
        ("backend", json!({"ais": {}, "aws": {}, "gcp": {}})),
    ];
    config.extend(own.map(|(key, value)| (key.to_owned(), value)));
    Value::Object(config)
}

/// `what=config`: the cluster's configuration with the node's own values.
pub fn node_config_json(
    state: &ClusterState,
    primary: &NodeId,
    node: &Node,
    usage: &NodeUsage,
) -> Value {
    let mut config = config_json(state, primary);
    let (host, port) = address(node);
    // Each disk's path with its label; there are no labels here.
    config["fspaths"] = usage.disks.iter().map(|path| (path.clone(), json!(""))).collect();
    config["confdir"] = json!("");
    config["log_dir"] = json!("");
    config["test_fspaths"] = json!({"root": "", "count": 0, "instance": 0});
    config["host_net"] = json!({
        "hostname": host, "hostname_intra_control": "", "hostname_intra_data": "",
        "port": port, "port_intra_control": "0", "port_intra_data": "0",
    });
    config
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_the_types_that_typed_clients_decode() {
        let config = config_json(&ClusterState::default(), &NodeId::new("gateway-1").unwrap());
        assert_eq!(config["config_version"], json!("1"));
        assert_eq!(config["features"], json!("0"));
        assert_eq!(config["timeout"]["cplane_operation"], json!("2s"));
        assert_eq!(config["auth"], json!({"client_auth_required": false}));
        assert_eq!(config["net"]["http"]["client_auth_tls"], json!(0));
        assert!(config["backend"].get("aws").is_some() && config["lastupdate_time"].is_string());
    }

    #[test]
    fn a_node_s_configuration_names_its_disks_and_where_it_listens() {
        let node: Node = serde_json::from_value(json!({"id": "target-01", "role": "target",
            "url": "http://10.0.0.7:7401", "alive": true, "alive_since": 1}))
        .unwrap();
        let disks = vec!["/data/1".to_owned(), "/data/2".to_owned()];
        let usage = NodeUsage { disks, ..NodeUsage::default() };
        let primary = NodeId::new("gateway-1").unwrap();
        let config = node_config_json(&ClusterState::default(), &primary, &node, &usage);
        assert_eq!(config["fspaths"], json!({"/data/1": "", "/data/2": ""}));
        assert_eq!(
            config["host_net"],
            json!({"hostname": "10.0.0.7", "hostname_intra_control": "", "hostname_intra_data": "",
                "port": "7401", "port_intra_control": "0", "port_intra_data": "0"})
        );
        assert!(
            config["timeout"].is_object(),
            "the cluster's settings stand beside the node's own"
        );
    }
}
