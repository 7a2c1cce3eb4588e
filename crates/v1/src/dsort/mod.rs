//! The messages of dsort (§13).

mod info;
mod request;

pub use info::{Filter, job_json, metrics_json, unknown_dsort};
pub use request::{request_json, requested};

/// The path of all of them.
pub const PATH: &str = "/v1/sort";
