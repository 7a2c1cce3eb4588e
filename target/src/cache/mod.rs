//! Keeps each disk within its budget: when to evict (`watermark`), what (`policy` ranks
//! `residents`), and the task that does it.

mod eviction;
mod evictor;
pub mod policy;
mod residents;
mod watermark;

pub use eviction::{EvictionPolicy, Lru};
pub use evictor::Evictor;
pub use residents::{Resident, Residents, Tally};
pub use watermark::Watermarks;
