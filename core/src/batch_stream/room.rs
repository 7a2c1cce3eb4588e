//! Memory for large payloads of a stream.

use std::sync::Arc;

use bytes::Bytes;

use crate::buffers::GrowingBuffer;

/// Memory for the bytes of one entry, or of a piece of one. As a slice it is the bytes written so
/// far.
pub trait Room: AsRef<[u8]> + Send {
    /// Appends bytes; never more than the requested size.
    fn append(&mut self, piece: &[u8]);

    /// Ends the writing and returns the bytes.
    fn finish(self: Box<Self>) -> Bytes;
}

/// Allocates memory for an entry of this size. `None`: the decoder allocates it.
pub type Rooms = Arc<dyn Fn(usize) -> Option<Box<dyn Room>> + Send + Sync>;

/// The memory that the decoder allocates itself.
impl Room for GrowingBuffer {
    fn append(&mut self, piece: &[u8]) {
        Self::append(self, piece);
    }

    fn finish(self: Box<Self>) -> Bytes {
        self.freeze()
    }
}
