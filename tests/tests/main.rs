//! All topics in one program. Run one by its name: `cargo test -p forebay-tests get_put::`.
#![allow(clippy::unwrap_used)]

mod admin;
mod azure;
mod bad_input;
mod batch;
mod batch_faults;
mod batch_load;
mod bit_rot;
mod cold_faults;
mod cold_get;
mod disks;
mod download;
mod dsort;
mod etl;
mod eviction;
mod folder;
mod gcs;
mod get_put;
mod ishard;
mod jobs;
mod kill_loop;
mod leader;
mod list;
mod membership;
mod moss;
mod object_ops;
mod origin;
mod partial;
mod power_cut;
mod remote;
mod restart;
mod s3;
mod s3_access;
mod shards;
mod uploads;
mod v1;
