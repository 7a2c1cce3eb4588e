//! The door of a Forebay cluster: holds the cluster's metadata, admits nodes, routes requests to
//! the targets that own objects, merges what all of them know. No object bytes rest here.
#![allow(dead_code)]

mod bucket_props;
mod changes;
mod cluster;
mod ids;
mod job_control;
mod list_merge;
mod listing;
mod meta;
mod raw_http;
mod route;
mod targets;
