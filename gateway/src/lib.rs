//! The door of a Forebay cluster: holds the cluster's metadata, admits nodes, routes requests to
//! the targets that own objects, merges what all of them know. No object bytes rest here.
//!
//! Where to look: a request comes in at `http`; a bucket and its owner are found in `route`; a
//! listing is merged in `listing`; a job is run by `job_control`; the state changes through
//! `changes`, then `meta`, which is one Raft group over all gateways; members come, live and go in
//! `cluster`.

mod bucket_props;
mod changes;
mod cluster;
mod cluster_view;
mod http;
mod ids;
mod inventory;
mod job_control;
mod list_merge;
mod listing;
mod meta;
mod metric_sums;
mod raw_http;
mod route;
mod s3;
mod targets;
mod wiring;

pub use wiring::{restore, run};
