//! Keeps each disk within its budget and each bucket within its rules.
//!
//! The store notifies [`CacheWatch`] of each copy that is added, read or removed. A policy ranks
//! the [`Residents`], [`Watermarks`] define how much to free, and the [`Evictor`] drops the copies.
//! [`Gate`] decides which objects are cached at all.

mod admission;
mod evictor;
mod notes;
pub mod policy;
mod residents;
mod watch;
mod watermark;

pub use admission::Gate;
pub use evictor::Evictor;
pub use residents::{Resident, Residents, UsageCounters};
pub use watch::{CacheWatch, Rules};
pub use watermark::Watermarks;
