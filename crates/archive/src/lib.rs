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
mod index;
mod limits;
mod source;
pub mod tar;
pub mod zip;

pub use build::read_index;
pub use decompress::{decompress, is_behind_end};
pub use detect::{detect, format_of};
pub use index::{INDEX_FORMAT, Member, Packed, SHARD_STATS, ShardIndex, ShardIndexReply};
pub use limits::Limits;
pub use source::{ReadAt, from_io, into_io};
pub use tar::{TarIndexer, TarReader};

use forebay_core::error::Error;

/// The error for an archive whose bytes do not match its format.
pub(crate) fn damaged(what: impl Into<String>) -> Error {
    Error::invalid(what)
}
