//! A real fake-gcs-server for this test process.

use std::sync::OnceLock;

use super::process::{Kind, Server};

const KIND: Kind = Kind {
    name: "fake-gcs-server",
    variable: "FOREBAY_FAKE_GCS",
    required: "FOREBAY_REQUIRE_FAKE_GCS",
    file: "fake-gcs-server",
    processes: |port, _| {
        let all = ["-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-port"];
        vec![all.into_iter().map(Into::into).chain([port.to_string().into()]).collect()]
    },
    environment: &[],
    ready: "/_internal/healthcheck",
};

/// The endpoint of the running server; `None`, with a message, if there is none.
pub(super) async fn endpoint() -> Option<String> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    let start = || SERVER.get_or_init(|| KIND.start()).as_ref().map(|s| s.endpoint.clone());
    tokio::task::spawn_blocking(start).await.unwrap()
}
