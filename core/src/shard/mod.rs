//! Shards, and the samples in them: archive formats by name, names, times and modes of members, and
//! selections of members. The crate `forebay-archive` reads and indexes the bytes.

mod format;
mod matcher;
pub mod names;
pub mod sample;
mod stat;

pub use format::ArchiveFormat;
pub use matcher::{MemberMatch, MemberMatcher};
pub use stat::Stat;
