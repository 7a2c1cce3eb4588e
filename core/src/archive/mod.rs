//! Archives of samples (shards): their formats, reading them, and indexes of their members.
//!
//! An archive is read once, by [`read_index`] or piecewise by [`tar::TarIndexer`]; afterwards its
//! [`ShardIndex`] gives the position of each member. Names of members are only names, never paths.
//! An archive's own claims are accepted only within [`Limits`], so that a hostile archive costs
//! bounded time and memory. Bytes come through [`ReadAt`] and [`std::io::Read`]; nothing here opens
//! files.

mod build;
mod decompress;
mod detect;
mod format;
mod index;
mod limits;
mod matcher;
pub mod names;
pub mod sample;
mod source;
mod stat;
pub mod tar;
pub mod zip;

pub use build::read_index;
pub use decompress::{decompress, is_behind_end};
pub use format::ArchiveFormat;
pub use index::{INDEX_FORMAT, Member, Packed, SHARD_STATS, ShardIndex, ShardIndexReply};
pub use limits::Limits;
pub use matcher::{MemberMatch, MemberMatcher};
pub use source::{ReadAt, from_io, into_io};
pub use stat::Stat;
pub use tar::{TarIndexer, TarReader};

use crate::error::Error;

/// The error for an archive whose bytes do not match its format.
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::invalid(what)
}
