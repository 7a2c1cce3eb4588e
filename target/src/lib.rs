//! A target: stores the data. It stores objects, fetches missing ones from backends, serves
//! objects, ranges and batches, and runs jobs.
//!
//! A GET passes [`http`] → [`object`] → [`store`], and on a miss `object::cold_cache` → [`backend`].
//! Members of archives are handled by [`shard`], through `object`. [`scrub`] checks stored bytes in
//! the background. Dependencies go one way:
//! `http → {object, shard, batch, job, scrub} → {store, backend, cache}`; only `object` joins the
//! store with the backends, and only `wiring` uses all parts.

pub mod backend;
mod batch;
pub mod cache;
mod destroyed;
mod disks;
mod download;
mod egress;
mod etl;
mod http;
mod inventory;
mod job;
mod note_file;
mod object;
mod pace;
mod promote;
mod s3;
mod scrub;
mod shard;
#[cfg(test)]
#[path = "../../tests/src/skip.rs"]
#[allow(unreachable_pub)] // It is public in `forebay-tests`, which this crate must not depend on.
mod skip;
mod state_sync;
pub mod store;
mod wiring;

pub use wiring::run;
