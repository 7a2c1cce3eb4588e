//! A target: stores the data. It stores objects, fetches missing ones from backends, serves
//! objects, ranges and batches, and runs jobs.
//!
//! A GET passes [`http`] → [`object`] → [`forebay_store`], and on a miss `object::cold_cache` →
//! [`forebay_clouds`]. Members of archives are handled by [`shard`], through `object`. [`scrub`]
//! checks stored bytes in the background. Dependencies go one way:
//! `http → {object, shard, batch, job, scrub} → {cache, forebay_store, forebay_clouds}`; only
//! `object` joins the store with the backends, and only `wiring` uses all parts.

mod batch;
pub mod cache;
mod destroyed;
mod disks;
mod download;
mod etl;
mod http;
mod inventory;
mod job;
mod note_file;
mod object;
mod promote;
mod s3;
mod scrub;
mod shard;
mod state_sync;
mod wiring;

/// Version of the format on disk.
pub use forebay_store::FORMAT as DISK_FORMAT;
pub use wiring::run;
