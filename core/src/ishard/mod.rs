//! `ishard`: packs the objects of a bucket into shards. The complete plan is made here before any
//! data is read; the targets execute it.
//!
//! A *sample* is all files of one key. [`plan`] groups a [`Listing`] into samples, orders them and
//! cuts the sequence into shards, so that a sample is never split. The same spec over the same
//! listing gives the same plan on any node.

mod cut;
mod ekm;
mod key;
mod listing;
mod manifest;
mod plan;
#[cfg(test)]
mod properties;
mod sample;
mod spec;
#[cfg(test)]
mod tests;
mod totals;

pub use ekm::{Ekm, EkmRule};
pub(crate) use key::compile;
pub use key::{ExtMode, KeyMode};
pub use listing::Listing;
pub use manifest::ManifestLine;
pub use plan::{Outputs, Plan, PlannedFile, PlannedShard, plan};
pub use spec::{
    DEFAULT_MANIFEST, DEFAULT_SHARD_BYTES, DEFAULT_TEMPLATE, EkmUnmatched, IshardSpec,
    MissingAction, OnDuplicate, Overwrite, ShardSize, Sort,
};
pub use totals::Totals;
