//! The cluster map as v1 clients read it (§4.2).

use serde_json::{Map, Value, json};

use crate::intra::NodeUsage;
use crate::name::NodeId;
use crate::placement::digest;
use crate::state::{ClusterState, Node, Role};

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

/// `YYYY-MM-DD HH:MM:SS` of unix nanoseconds, UTC.
pub fn format_time(unix_ns: u64) -> String {
    let secs = unix_ns / 1_000_000_000;
    let (y, m, d) = civil(secs / 86_400);
    let s = secs % 86_400;
    format!("{y:04}-{m:02}-{d:02} {:02}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

/// RFC 3339 with nanoseconds, UTC, of unix nanoseconds; 0 is the year 1, Go's zero time.
pub fn format_rfc3339(unix_ns: u64) -> String {
    if unix_ns == 0 {
        return "0001-01-01T00:00:00Z".into();
    }
    let text = format_time(unix_ns).replace(' ', "T");
    format!("{text}.{:09}Z", unix_ns % 1_000_000_000)
}

/// `02 Jan 06 15:04 UTC` of unix nanoseconds: the default time format of listings.
pub fn format_rfc822(unix_ns: u64) -> String {
    let secs = unix_ns / 1_000_000_000;
    let (y, m, d) = civil(secs / 86_400);
    let s = secs % 86_400;
    format!(
        "{d:02} {} {:02} {:02}:{:02} UTC",
        MONTHS[m as usize - 1],
        y % 100,
        s / 3600,
        s / 60 % 60
    )
}

/// `Sat, 21 Nov 2026 03:51:51 GMT` of unix nanoseconds: HTTP's date form.
pub fn format_http_date(unix_ns: u64) -> String {
    let secs = unix_ns / 1_000_000_000;
    let days = secs / 86_400;
    let (y, m, d) = civil(days);
    let s = secs % 86_400;
    let day = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
    let month = MONTHS[m as usize - 1];
    format!("{day}, {d:02} {month} {y:04} {:02}:{:02}:{:02} GMT", s / 3600, s / 60 % 60, s % 60)
}

pub(super) const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Year, month, day of a day since 1970-01-01 (proleptic Gregorian, by 400-year cycles that start
/// in March).
pub(crate) fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    (yoe + era * 400 + u64::from(month <= 2), month, day)
}

/// The day since 1970-01-01 of a date; the inverse of [`civil`].
pub(crate) fn day_number(year: u64, month: u64, day: u64) -> u64 {
    let y = if month <= 2 { year - 1 } else { year };
    let (era, yoe) = (y / 400, y % 400);
    let doy = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
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

    #[test]
    fn times_print_as_clients_parse_them() {
        let ns = 1_795_233_111_530_862_741;
        assert_eq!(format_time(ns), "2026-11-21 03:51:51");
        assert_eq!(format_rfc3339(ns), "2026-11-21T03:51:51.530862741Z");
        assert_eq!(format_rfc822(ns), "21 Nov 26 03:51 UTC");
        assert_eq!(format_http_date(ns), "Sat, 21 Nov 2026 03:51:51 GMT");
        assert_eq!(format_time(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(format_rfc3339(0), "0001-01-01T00:00:00Z");
    }
}
