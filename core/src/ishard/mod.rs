//! `ishard`: packing the objects of a bucket into shards. What goes where is decided here, all of
//! it before the first byte is read; doing it is the targets' work.
//!
//! A *sample* is all files of one key. [`plan`] groups a [`Listing`] into samples, orders them and
//! cuts the sequence into shards, so that a sample is never split. The same spec over the same
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
