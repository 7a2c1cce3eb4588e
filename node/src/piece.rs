//! What a body is sent in: bytes, or parts of files that the kernel can send by itself.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use forebay_core::Result;
use futures::stream::BoxStream;

/// A body on its way out. After an error it ends.
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
    /// Offset of the byte behind the last.
    pub end: u64,
    /// When they were last found in memory.
    pub seen: Instant,
    /// Where the bytes from an offset of the file on come from when they are not in memory any more.
    /// Without it the connection ends there.
    pub instead: Option<Instead>,
}

/// Makes what is sent instead of a file's part, to its end.
pub type Instead = Box<dyn FnOnce(u64) -> Pieces + Send>;

/// An open file whose bytes are sent only while they lie in memory.
pub trait Held: AsFd + Send + Sync {
    /// Whether the bytes from `start` to `end` do.
    fn is_here(&self, start: u64, end: u64) -> bool;
}

impl Piece {
    /// Bytes of it.
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
