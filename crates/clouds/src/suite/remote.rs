//! Tests the backend for other clusters on a real Forebay of one process.

use std::sync::atomic::{AtomicU64, Ordering};

use forebay_core::name::Bucket;

use super::process::{Kind, SharedServer};
use super::{Fixture, conformance};
use crate::remote::{RemoteBackend, RemoteSettings};

static FOREBAY: SharedServer = SharedServer::new(Kind {
    name: "forebay",
    variable: "FOREBAY_BIN",
    required: "FOREBAY_REQUIRE_BIN",
    file: "forebay",
    processes: |port, folder| {
        let place = [folder.join("data").into(), "--port".into(), port.to_string().into()];
        vec![["serve".into(), "--dir".into()].into_iter().chain(place).collect()]
    },
    environment: &[],
    ready: "/readyz",
});

/// The URL of the running cluster; `None` if there is no binary.
async fn endpoint() -> Option<String> {
    FOREBAY.endpoint().await
}

async fn fixture() -> Option<Fixture> {
    Some(open(endpoint().await?).await)
}

/// A new bucket of the cluster behind a URL, which need not be a Forebay.
pub(super) async fn open(endpoint: String) -> Fixture {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let name = format!("bucket-{}", COUNT.fetch_add(1, Ordering::Relaxed));
    forebay_node::tls::choose_provider();
    // A gateway is ready before its target has joined it.
    let joined = format!("{endpoint}/v1/cluster?what=target_ips");
    while reqwest::get(&joined).await.unwrap().text().await.unwrap().is_empty() {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let create = reqwest::Client::new().post(format!("{endpoint}/v1/buckets/{name}"));
    let create = create.json(&serde_json::json!({ "action": "create-bck" }));
    assert!(create.send().await.unwrap().status().is_success());
    let attached = |name: &str| Bucket::parse_uri(&format!("ais://@far/{name}")).unwrap().0;
    let over = |name: &str| {
        let settings = RemoteSettings::default();
        RemoteBackend::new(attached(name), name, Some(&endpoint), settings).unwrap()
    };
    Fixture {
        bucket: attached(&name),
        backend: std::sync::Arc::new(over(&name)),
        missing: std::sync::Arc::new(over("no-such-bucket")),
        missing_bucket: attached("no-such-bucket"),
        large: 12 << 20,
        tells_missing_deletes: true,
        keeps_custom: false,
        keeps_content_type: false,
        keeps_folders: false,
        tells_times: false,
        _folder: None,
    }
}

conformance!(fixture);
conformance!(fixture: a_content_type_comes_back);
