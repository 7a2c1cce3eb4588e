//! The parts that every Forebay node shares, gateway or target: configuration, listener, errors in
//! one format, the cluster's state, metrics, logs, and an orderly stop.
//!
//! A server is built from these parts in its `wiring.rs`: [`config_load`] → [`identity`] →
//! [`listener`] with a router behind the [`edge`], [`membership`] for the state in [`maps`],
//! [`lifecycle`] around all.

pub mod access;
pub mod activity;
pub mod audit;
pub mod auth;
mod bare_answer;
pub mod bill;
pub mod body_budget;
pub mod bucket_reads;
pub mod cgroup;
pub mod checks;
pub mod clock;
mod clock_watch;
pub mod config_load;
#[cfg(test)]
mod config_page;
mod connections;
mod drain;
pub mod edge;
pub mod exchange;
mod exemplar;
pub mod fast_http;
pub mod file_modes;
pub mod forwarded;
mod histogram;
mod id_share;
pub mod identity;
pub mod lifecycle;
pub mod listener;
pub mod logs;
pub mod machine;
pub mod maps;
pub mod membership;
pub mod metric_families;
pub mod metrics;
pub mod node_key;
mod off_worker;
pub mod open_metrics;
pub mod pace;
pub mod quota;
pub mod rates;
pub mod relay;
pub mod reload;
pub mod reply;
pub mod routing;
pub mod s3;
pub mod scale_down;
pub mod secret_file;
pub mod sender;
pub mod service_manager;
pub mod stall;
pub mod telemetry;
pub mod tls;
mod token_join;
pub mod trace;
pub mod traffic;

pub use histogram::{Histogram, HistogramVec};
pub use off_worker::off_worker;
