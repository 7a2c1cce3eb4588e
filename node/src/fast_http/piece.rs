//! The pieces of a body: bytes, or parts of files that the kernel can send directly.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use forebay_core::Result;
use futures::stream::BoxStream;

/// The body of an answer. It ends after an error.
pub type Pieces = BoxStream<'static, Result<Piece>>;

/// The next bytes of a body.
pub enum Piece {
    Bytes(Bytes),
    File(FilePart),
}

/// Bytes of an open file, without a copy of them in this process.
pub struct FilePart {
    pub file: Arc<dyn Held>,
    /// Offset of the first byte.
    pub start: u64,
    /// Offset after the last byte.
    pub end: u64,
    /// When they were last found in the page cache.
    pub seen: Instant,
    /// Alternative source for the bytes from an offset of the file on, if they are no longer in the
    /// page cache. Without it the connection ends there.
    pub instead: Option<Instead>,
}

/// Makes the replacement for a file's part from an offset to its end.
pub type Instead = Box<dyn FnOnce(u64) -> Pieces + Send>;

/// An open file whose bytes are sent only while they are in the page cache.
pub trait Held: AsFd + Send + Sync {
    /// Whether the bytes from `start` to `end` are in the page cache.
    fn is_here(&self, start: u64, end: u64) -> bool;
}

impl Piece {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(part) => part.end - part.start,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Bytes> for Piece {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}
