//! The AIStore v1 REST API as data: the only place with its paths, headers and JSON names.
//!
//! The contract is the protocol of its public clients; section numbers in comments are those of the
//! wire reference.

pub mod action;
pub mod archive;
pub mod authn;
pub mod batch;
pub mod bucket;
pub mod cluster;
pub mod custom;
pub mod download;
pub mod dsort;
pub mod error;
pub mod etl;
pub mod headers;
pub mod inventory;
pub mod jobs;
pub mod list;
pub mod object;
pub mod query;
pub mod time_layout;
pub mod transfers;
pub mod uploads;
