//! A real MinIO for this test process.

use std::sync::OnceLock;

use super::process::{Kind, Server};

pub(super) const ACCESS_KEY: &str = "forebaytest";
pub(super) const SECRET_KEY: &str = "forebaytestsecret";

const KIND: Kind = Kind {
    name: "MinIO",
    variable: "FOREBAY_MINIO",
    required: "FOREBAY_REQUIRE_MINIO",
    file: "minio",
    processes: |port, folder| {
        let mut all: Vec<_> = ["server", "--quiet", "--address"].map(Into::into).into();
        all.extend([format!("127.0.0.1:{port}").into(), folder.join("data").into()]);
        vec![all]
    },
    environment: &[
        ("MINIO_ROOT_USER", ACCESS_KEY),
        ("MINIO_ROOT_PASSWORD", SECRET_KEY),
        ("MINIO_BROWSER", "off"),
        ("MINIO_UPDATE", "off"),
    ],
    ready: "/minio/health/ready",
};

/// The endpoint of the running MinIO; `None`, with a message, if there is none.
pub(super) async fn endpoint() -> Option<String> {
    static MINIO: OnceLock<Option<Server>> = OnceLock::new();
    let start = || MINIO.get_or_init(|| KIND.start()).as_ref().map(|m| m.endpoint.clone());
    tokio::task::spawn_blocking(start).await.unwrap()
}
