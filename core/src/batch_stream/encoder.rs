//! Writing a stream.

use bytes::{BufMut, Bytes, BytesMut};

use super::{
    END_LEN, FRAME_HEAD_LEN, HEADER_LEN, KIND_END, KIND_ROWS, KIND_TIMES, MAGIC, MAX_PIECE,
    MAX_ROWS, MORE, ROW_LEN, Row, TIMES, VERSION,
};
use crate::buffers::Buffer;
use crate::checksum::crc32c;
use crate::timing::StageTimes;

/// Payloads up to this size are copied into one buffer with their table: a copy costs less than a
/// separate buffer.
pub(super) const COPIED: usize = 16 << 10;
/// Writes a stream, frame by frame.
#[derive(Debug, Default)]
pub struct Encoder {
    rows: Vec<Row>,
    bytes: usize,
    entries: u32,
    total: u64,
}

impl Encoder {
    /// The first bytes of a stream answered under `map_version`.
    pub fn header(map_version: u64) -> Bytes {
        let mut b = BytesMut::with_capacity(HEADER_LEN);
        b.put_slice(MAGIC);
        b.put_u16_le(VERSION);
        b.put_u16_le(0);
        b.put_u64_le(map_version);
        b.freeze()
    }

    /// Adds a row to the frame being filled. `row.payload` must not exceed [`MAX_PIECE`].
    pub fn push(&mut self, row: Row) {
        debug_assert!(row.payload.len() <= MAX_PIECE);
        self.bytes += row.payload.len();
        self.rows.push(row);
    }

    /// Whether the frame is large enough to send to a reader that gets about `bytes` at a time.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.rows.len() >= MAX_ROWS || self.bytes >= bytes
    }

    /// Whether the frame being filled has no row yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Ends the frame and returns its table, then its payloads; large ones are not copied. Returns
    /// nothing if the frame is empty.
    pub fn flush(&mut self) -> Vec<Bytes> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let copied = |row: &&Row| row.payload.len() <= COPIED;
        let small: usize = self.rows.iter().filter(copied).map(|row| row.payload.len()).sum();
        let mut buffer = Buffer::take(FRAME_HEAD_LEN + self.rows.len() * ROW_LEN + small);
        let mut room = buffer.bytes_mut();
        let len = room.len();
        room.put_u8(KIND_ROWS);
        room.put_bytes(0, 3);
        room.put_u32_le(self.rows.len() as u32);
        for row in &self.rows {
            room.put_u32_le(row.index);
            room.put_u16_le(row.status);
            room.put_u16_le(if row.more { MORE } else { 0 });
            room.put_u32_le(row.payload.len() as u32);
            room.put_u32_le(crc32c(&row.payload));
            room.put_u64_le(row.total);
            self.entries += u32::from(!row.more);
            self.total += row.payload.len() as u64;
        }
        // Large payloads, and the length of the buffer before each.
        let mut large = Vec::new();
        for row in self.rows.drain(..) {
            if row.payload.len() <= COPIED {
                room.put_slice(&row.payload);
            } else {
                large.push((len - room.len(), row.payload));
            }
        }
        self.bytes = 0;
        let (mut rest, mut sent) = (buffer.freeze(), 0);
        let mut out = Vec::with_capacity(2 * large.len() + 1);
        for (before, payload) in large {
            if before > sent {
                out.push(rest.split_to(before - sent));
                sent = before;
            }
            out.push(payload);
        }
        if !rest.is_empty() {
            out.push(rest);
        }
        out
    }

    /// A frame with the times of the request so far, between two calls of [`Self::flush`]. Only for
    /// clients that ask for it: others refuse the frame.
    pub fn times(times: &StageTimes) -> Bytes {
        let mut b = BytesMut::with_capacity(FRAME_HEAD_LEN + 8 * TIMES);
        b.put_u8(KIND_TIMES);
        b.put_bytes(0, 3);
        b.put_u32_le(TIMES as u32);
        for micros in times.to_micros() {
            b.put_u64_le(micros);
        }
        b.freeze()
    }

    /// The end frame, after the last [`Self::flush`].
    pub fn end(self) -> Bytes {
        let mut b = BytesMut::with_capacity(FRAME_HEAD_LEN + END_LEN);
        b.put_u8(KIND_END);
        b.put_bytes(0, 3);
        b.put_u32_le(self.entries);
        b.put_u64_le(self.total);
        b.freeze()
    }
}
