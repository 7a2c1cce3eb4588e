//! Jobs on this target: start, watch, stop. Each target works on the objects that it owns. A job
//! that packs shards runs on one target. Work that one request does itself is a job too
//! ([`request`]).
//!
//! The runner ([`Jobs`]) owns the progress, records, stop and end of every job. A kind of job is
//! one file: it implements [`run::Job`], or [`walk::ObjectJob`] if it does one step for each
//! object. [`kinds`] makes the kind of a requested job.

mod archive;
pub(crate) mod build;
mod cleanup;
mod cluster_client;
mod copy;
mod delete;
mod dsort;
mod evict;
mod index_shard;
mod ishard;
pub(crate) mod kinds;
mod load_metadata;
mod lru;
mod notes;
mod prefetch;
mod rebalance;
mod request;
mod resilver;
mod run;
mod runner;
mod scope;
mod scrub;
mod selection;
mod sync;
mod table;
#[cfg(test)]
mod tests;
pub(crate) mod transform_inline;
mod unserved;
mod walk;
mod walked;
mod write_back;

pub(crate) use self::notes::Notes;
pub(crate) use self::request::{Registration, RequestJob};
pub(crate) use self::resilver::make_up_for_losses;
pub(crate) use self::runner::Jobs;
