//! The native batch stream, version 1, as `docs/batch-stream.md` describes it: encoder and
//! incremental decoder over plain buffers.
//!
//! `header { frame }* end`. A frame is a table of rows followed by the payloads of all rows in the
//! same order; an object larger than a piece is several rows with the flag [`MORE`] on all but
//! the last. A stream that ends without the end frame is an error. Between frames there are frames of
//! times ([`crate::timing`]), if the client asked for them.

mod decoder;
mod encoder;
mod room;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use crate::error::Error;

pub use self::decoder::Decoder;
pub use self::encoder::Encoder;
pub use self::room::{Room, Rooms};

/// Media type of the stream.
pub const CONTENT_TYPE: &str = "application/vnd.forebay.batch";

const MAGIC: &[u8; 4] = b"FBBS";
/// Version of the format.
pub const VERSION: u16 = 1;
const HEADER_LEN: usize = 16;
const FRAME_HEAD_LEN: usize = 8;
const ROW_LEN: usize = 24;
const END_LEN: usize = 8;
const KIND_ROWS: u8 = 1;
const KIND_END: u8 = 2;
const KIND_TIMES: u8 = 3;
/// Numbers in a frame of times that this version knows, and the most that a later one may have.
const TIMES: usize = 4;
const MAX_TIMES: usize = 64;

/// Most rows in a frame.
pub const MAX_ROWS: usize = 1024;
/// Most bytes of one row's payload.
pub const MAX_PIECE: usize = 1 << 20;
/// Row flag: the entry continues in a later row.
pub const MORE: u16 = 1;

/// One row with its payload: an entry, a piece of one, or a failure (`status` is then an HTTP
/// status and the payload its message).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position in the request.
    pub index: u32,
    /// 0 for bytes of the object.
    pub status: u16,
    /// Whether the entry continues in a later row.
    pub more: bool,
    /// Size of the whole entry, the same on all its rows; 0 for a failure.
    pub total: u64,
    /// Bytes of the entry, or the message.
    pub payload: Bytes,
}

impl Row {
    /// A row with the error of an entry.
    pub fn failure(index: u32, error: &Error) -> Self {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(4096));
        Self { index, status: error.code.status(), more: false, total: 0, payload: text.into() }
    }
}
