//! Policies that Forebay does not offer, to compare its own with.

mod ghost;
mod no_replacement;
mod s3_fifo;
mod sampled;
mod sieve;

use forebay_target::cache::policy::{Density, Lru, Policy};

pub(crate) use no_replacement::NoReplacement;
pub(crate) use s3_fifo::S3Fifo;
pub(crate) use sampled::Sampled;
pub(crate) use sieve::Sieve;

/// Creates an empty policy.
pub(crate) type Make = fn() -> Box<dyn Policy>;

/// All policies of the table, each with its name: first the ones to compare with, then Forebay's
/// default.
pub(crate) const ALL: [(&str, Make); 7] = [
    ("LRU", || Box::<Lru>::default()),
    ("random", || Box::new(Sampled::new(1))),
    ("2-random", || Box::new(Sampled::new(2))),
    ("SIEVE", || Box::<Sieve>::default()),
    ("S3-FIFO", || Box::<S3Fifo>::default()),
    ("no replacement", || Box::<NoReplacement>::default()),
    ("density", || Box::<Density>::default()),
];
