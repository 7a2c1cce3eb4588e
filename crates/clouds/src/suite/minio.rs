//! A real MinIO for this test process.

use super::process::{Kind, SharedServer};

pub(super) const ACCESS_KEY: &str = "forebaytest";
pub(super) const SECRET_KEY: &str = "forebaytestsecret";

static MINIO: SharedServer = SharedServer::new(Kind {
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
});

/// The endpoint of the running MinIO; `None` if there is none here.
pub(super) async fn endpoint() -> Option<String> {
    MINIO.endpoint().await
}
