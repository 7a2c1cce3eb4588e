//! Tests the backend for other clusters on a real AIStore, one proxy and one target.

use std::ffi::OsString;
use std::path::Path;

use serde_json::json;

use super::process::{Kind, SharedServer};
use super::{Fixture, conformance, remote};

static AISTORE: SharedServer = SharedServer::new(Kind {
    name: "AIStore",
    variable: "AISNODE",
    required: "FOREBAY_REQUIRE_AISTORE",
    file: "aisnode",
    processes: |port, folder| vec![node(port, folder, 0), node(port, folder, 1)],
    environment: &[],
    // Not before a target has joined.
    ready: "/v1/health?prr=true",
});

/// Values of AIStore's own development setup; PRIMARY is replaced by its proxy.
const CONFIGURATION: &str = include_str!("../../../../tests/data/aistore.json");

/// Writes the configuration of the proxy (0) or the target (1). Returns its start arguments.
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
    std::fs::write(&config, CONFIGURATION.replace("PRIMARY", &primary)).unwrap();
    std::fs::write(&local_config, local.to_string()).unwrap();
    let named = |name: &str, path: &Path| format!("-{name}={}", path.display()).into();
    let mut arguments = vec![named("config", &config), named("local_config", &local_config)];
    arguments.push(format!("-role={role}").into());
    arguments.extend((index == 0).then(|| "-ntargets=1".into()));
    arguments
}

/// A new bucket; `None` if there is no binary.
async fn fixture() -> Option<Fixture> {
    let endpoint = AISTORE.endpoint().await?;
    Some(Fixture { keeps_folders: true, ..remote::open(endpoint).await })
}

conformance!(fixture);
conformance!(fixture: a_content_type_comes_back);
