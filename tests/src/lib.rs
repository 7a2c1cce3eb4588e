//! Fixtures of black-box tests: a real `forebay dev` cluster, a real MinIO, a real fake-gcs-server,
//! a real Azurite, a minimal HTTP client, and data whose every byte is known.
//!
//! A test that needs no cluster of its own takes its file's [`Shared`] one. Nothing here sleeps to
//! let things happen: [`wait::until`] asks for a condition and fails by its name.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

pub mod azure;
pub mod client_load;
pub mod clock;
pub mod cluster;
pub mod data;
pub mod faulty_origin;
pub mod figures;
pub mod gate;
pub mod gcs;
pub mod history;
pub mod http;
pub mod hunt;
pub mod issuer;
pub mod lab;
pub mod lab_cluster;
pub mod load;
pub mod loop_disk;
pub mod memory_limit;
pub mod minio;
pub mod ports;
pub mod private_file;
pub mod proxy;
pub mod request_ids;
pub mod s3;
pub mod secrets;
pub mod shared;
pub mod skip;
pub mod users;
pub mod wait;
pub mod web;

pub use azure::Azurite;
pub use clock::ClockShift;
pub use cluster::{Cluster, Options};
pub use faulty_origin::FaultyOrigin;
pub use forebay_sim::ledger;
pub use gate::Gate;
pub use gcs::FakeGcs;
pub use issuer::Issuer;
pub use lab_cluster::{LabCluster, LabNode, Shape};
pub use minio::Minio;
pub use proxy::Proxy;
pub use shared::Shared;
pub use users::Users;
