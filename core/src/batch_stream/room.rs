//! Where the payloads of a stream lie when they are large.

use std::sync::Arc;

use bytes::Bytes;

use crate::buffers::GrowingBuffer;

/// Memory for the bytes of one entry, or of a piece of one. As a slice it is what was written.
pub trait Room: AsRef<[u8]> + Send {
    /// Writes behind what is there. No more comes than the room was made for.
    fn append(&mut self, piece: &[u8]);

    /// What was written, all that will be.
    fn finish(self: Box<Self>) -> Bytes;
}

/// Makes room for an entry of this size. `None`: the decoder's own will do.
pub type Rooms = Arc<dyn Fn(usize) -> Option<Box<dyn Room>> + Send + Sync>;

/// The room that the decoder makes by itself.
impl Room for GrowingBuffer {
    fn append(&mut self, piece: &[u8]) {
        Self::append(self, piece);
    }

    fn finish(self: Box<Self>) -> Bytes {
        self.freeze()
    }
}
