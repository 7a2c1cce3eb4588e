//! Shards that a job writes. The job decides the contents of each ([`owners`]). The target that
//! owns a shard packs it ([`builds`], [`pack`]). It keeps the shard as an object, or unpublished
//! until the job reports that all shards are complete.

pub(crate) mod builds;
mod owners;
mod pack;

use super::run::stopped;

pub(super) use owners::{Built, Contents, Order, Owners, Wanted};
pub(super) use pack::writer;
