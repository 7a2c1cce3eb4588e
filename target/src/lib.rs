//! A target: owns bytes. It stores objects, fills misses from backends, serves objects, ranges and
//! batches, and runs jobs.
//!
//! A GET walks [`http`] → [`object`] → [`store`], and on a miss `object::cold` → [`backend`].
//! Members of archives are [`shard`]'s, through `object`, and [`scrub`] reads what nobody else does.
//! Dependencies go one way:
//! `http → {object, shard, batch, job, scrub} → {store, backend, cache}`; only `object` joins the store
//! with the backends, and `wiring` alone sees all parts.

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
pub mod store;
mod wiring;

pub use wiring::run;
