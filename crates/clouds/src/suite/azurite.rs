//! A real Azurite for this test process.

use super::process::{Kind, SharedServer};

pub(super) const ACCOUNT: &str = "forebaytest";
/// The key of `ACCOUNT` at this server only.
pub(super) const KEY: &str = "Zm9yZWJheSB0ZXN0cyB3aXRoIEF6dXJpdGU=";

static AZURITE: SharedServer = SharedServer::new(Kind {
    name: "Azurite",
    variable: "FOREBAY_AZURITE",
    required: "FOREBAY_REQUIRE_AZURITE",
    file: "azurite-blob",
    processes: |port, folder| {
        let port = port.to_string();
        // The crate uses a newer version of the protocol than Azurite lists.
        let all = ["--silent", "--skipApiVersionCheck", "--disableTelemetry"];
        let place = ["--blobHost", "127.0.0.1", "--blobPort", &port, "--location"];
        let data = folder.join("data").into();
        vec![all.into_iter().chain(place).map(Into::into).chain([data]).collect()]
    },
    environment: &[("AZURITE_ACCOUNTS", "forebaytest:Zm9yZWJheSB0ZXN0cyB3aXRoIEF6dXJpdGU=")],
    // It has no health check, and rejects this request properly when it runs.
    ready: "/",
});

/// The endpoint of the running Azurite; `None` if there is none here.
pub(super) async fn endpoint() -> Option<String> {
    AZURITE.endpoint().await
}
