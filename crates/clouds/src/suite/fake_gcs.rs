//! A real fake-gcs-server for this test process.

use super::process::{Kind, SharedServer};

static FAKE_GCS: SharedServer = SharedServer::new(Kind {
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
});

/// The endpoint of the running server; `None` if there is none here.
pub(super) async fn endpoint() -> Option<String> {
    FAKE_GCS.endpoint().await
}
