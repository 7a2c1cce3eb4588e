//! `ishard`: packs the objects of a bucket into shards. The complete plan is made here before any
//! data is read; the targets execute it.
//!
//! A *sample* is all files of one key. [`plan`] groups a [`Listing`] into samples, orders them and
//! cuts the sequence into shards, so that a sample is never split. The same spec over the same
//! listing gives the same plan on any node.
//! listing is the same plan, wherever it is made.

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

pub use ekm::{Ekm, EkmRule};
pub use key::KeyMode;
pub(crate) use key::compile;
pub use listing::Listing;
pub use manifest::ManifestLine;
pub use plan::{Outputs, Plan, PlannedFile, PlannedShard, Totals, plan};
pub use spec::{
    DEFAULT_MANIFEST, DEFAULT_SHARD_BYTES, DEFAULT_TEMPLATE, EkmUnmatched, ExtMode, IshardSpec,
    MissingAction, OnDuplicate, Overwrite, ShardSize, Sort,
};
