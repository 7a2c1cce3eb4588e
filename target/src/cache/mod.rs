//! Keeps each disk within its budget: when to evict (`watermark`), what (`eviction`), and the task
//! that does it.

mod eviction;
mod evictor;
mod watermark;

pub use eviction::{EvictionPolicy, Lru};
pub use evictor::Evictor;
pub use watermark::Watermarks;
