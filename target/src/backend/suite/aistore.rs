//! The backend of other clusters on a real AIStore, one proxy and one target: the promises.

use std::ffi::OsString;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::json;

use super::process::{Kind, Server};
use super::{Fixture, conformance, remote};

const KIND: Kind = Kind {
    name: "AIStore",
    variable: "AISNODE",
    required: "FOREBAY_REQUIRE_AISTORE",
    file: "aisnode",
    processes: |port, folder| vec![node(port, folder, 0), node(port, folder, 1)],
    environment: &[],
    // Not before a target has joined.
    ready: "/v1/health?prr=true",
};

/// Writes the configuration of the proxy (0) or the target (1); the arguments that it starts with.
/// Values are those of AIStore's own development setup.
fn node(port: u16, folder: &Path, index: u16) -> Vec<OsString> {
    let role = ["proxy", "target"][usize::from(index)];
    let place = folder.join(role);
    std::fs::create_dir_all(place.join("log")).unwrap();
    std::fs::create_dir_all(folder.join("disk")).unwrap();
    let primary = format!("http://127.0.0.1:{port}");
    let port = |step: u16| (port + 3 * index + step).to_string();
    let local = json!({
        "confdir": place,
        "log_dir": place.join("log"),
        "host_net": {
            "hostname": "127.0.0.1", "port": port(0),
            "hostname_intra_control": "127.0.0.1", "port_intra_control": port(1),
            "hostname_intra_data": "127.0.0.1", "port_intra_data": port(2),
        },
        "fspaths": {},
        "test_fspaths": { "root": format!("{}/disk/", folder.display()), "count": 1, "instance": index },
    });
    let (config, local_config) = (place.join("config.json"), place.join("local.json"));
    std::fs::write(&config, configuration(&primary).to_string()).unwrap();
    std::fs::write(&local_config, local.to_string()).unwrap();
    let named = |name: &str, path: &Path| format!("-{name}={}", path.display()).into();
    let mut arguments = vec![named("config", &config), named("local_config", &local_config)];
    arguments.push(format!("-role={role}").into());
    arguments.extend((index == 0).then(|| "-ntargets=1".into()));
    arguments
}

fn configuration(primary: &str) -> serde_json::Value {
    json!({
        "backend": {},
        "features": "0",
        "timeout": {
            "cplane_operation": "2s", "max_keepalive": "5s", "cold_get_conflict": "5s",
            "max_host_busy": "20s", "startup_time": "1m", "join_startup_time": "3m",
            "send_file_time": "5m", "ec_streams_time": "10m", "object_md": "2h",
        },
        "proxy": {
            "primary_url": primary, "original_url": primary, "discovery_url": "",
            "non_electable": false,
        },
        "space": {
            "cleanupwm": 80, "lowwm": 90, "highwm": 95, "out_of_space": 98,
            "batch_size": 32768, "dont_cleanup_time": "120m",
        },
        "resilver": { "enabled": true },
        "memsys": {
            "min_free": "2gb", "default_buf": "32kb", "to_gc": "4gb", "hk_time": "3m",
            "min_pct_total": 0, "min_pct_free": 0,
        },
        "versioning": { "enabled": true, "validate_warm_get": false },
        "net": {
            "l4": { "proto": "tcp", "sndrcv_buf_size": 131_072 },
            "http": {
                "use_https": false, "server_crt": "server.crt", "server_key": "server.key",
                "domain_tls": "", "client_ca_tls": "", "client_auth_tls": 0,
                "idle_conn_time": "6s", "idle_conns_per_host": 32, "idle_conns": 256,
                "write_buffer_size": 65_536, "read_buffer_size": 65_536,
                "chunked_transfer": true, "skip_verify": false,
            },
            "use_ipv6": false,
        },
        "auth": {},
        "distributed_sort": {
            "duplicated_records": "ignore", "missing_shards": "ignore",
            "ekm_malformed_line": "abort", "ekm_missing_key": "abort",
            "default_max_mem_usage": "80%", "call_timeout": "10m",
            "dsorter_mem_threshold": "100GB", "compression": "never", "bundle_multiplier": 4,
        },
    })
}

/// A new bucket there; `None`, with a word about it, where there is no binary.
async fn fixture() -> Option<Fixture> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let start = || SERVER.get_or_init(|| KIND.start()).as_ref().map(|s| s.endpoint.clone());
    let endpoint = tokio::task::spawn_blocking(start).await.unwrap()?;
    Some(Fixture { keeps_folders: true, ..remote::open(endpoint).await })
}

conformance!(fixture);
conformance!(fixture: a_content_type_comes_back);
