//! Keeps each disk within its budget and each bucket within its rules.
//!
//! The store tells [`CacheWatch`] of each copy that comes, is read or goes; a policy ranks the
//! [`Residents`], [`Watermarks`] say how much must go, and the [`Evictor`] drops it. [`Gate`] says
//! what is kept in the first place.

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
