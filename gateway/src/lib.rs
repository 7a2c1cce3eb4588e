//! The front of a Forebay cluster: stores the cluster's metadata, admits nodes, routes requests to
//! the targets that own objects, and merges the answers of all targets. It stores no object bytes.
//!
//! Where to look: `http` receives requests; `route` finds a bucket and its owner; `listing` merges
//! listings; `job_control` runs jobs; the state changes through `changes`, then `meta`, which is
//! one Raft group over all gateways; `cluster` handles membership and liveness.

mod accounts;
mod bucket_props;
mod changes;
mod cluster;
mod cluster_view;
mod event_stream;
mod http;
mod ids;
mod inventory;
mod inventory_page;
mod job_control;
mod list_level;
mod list_merge;
mod listing;
mod meta;
mod metric_sums;
#[cfg(test)]
mod metrics_page;
mod overview;
mod route;
mod s3;
mod targets;
mod wiring;

pub use wiring::{restore, run};
