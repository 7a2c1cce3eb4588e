//! The native batch stream, version 1, as `docs/batch-stream.md` describes it: encoder and
//! incremental decoder over plain buffers.
//!
//! `header { frame }* end`. A frame is a table of rows followed by the payloads of all rows in the
//! same order; an object larger than a piece is several rows with the flag [`MORE`] on all but
//! the last. A stream that ends without the end frame is an error.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::checksum::crc32c;
use crate::error::{Error, Result};

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

/// Most rows in a frame.
pub const MAX_ROWS: usize = 1024;
/// Most bytes of one row's payload.
pub const MAX_PIECE: usize = 1 << 20;
/// Payloads up to this many bytes travel in one piece with their table: a copy costs less than a
/// piece of its own.
const COPIED: usize = 16 << 10;
/// Row flag: the entry goes on in a later row.
pub const MORE: u16 = 1;

/// One row with its payload: an entry, a piece of one, or a failure (`status` is then an HTTP
/// status and the payload its message).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Position in the request.
    pub index: u32,
    /// 0 for bytes of the object.
    pub status: u16,
    pub more: bool,
    /// Size of the whole entry, the same on all its rows; 0 for a failure.
    pub total: u64,
    pub payload: Bytes,
}

impl Row {
    pub fn failure(index: u32, error: &Error) -> Self {
        let mut text = error.to_string();
        text.truncate(text.floor_char_boundary(4096));
        Self { index, status: error.code.status(), more: false, total: 0, payload: text.into() }
    }
}

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

    /// Whether the frame is worth sending to a reader who is sent about `bytes` at a time.
    pub fn is_full(&self, bytes: usize) -> bool {
        self.rows.len() >= MAX_ROWS || self.bytes >= bytes
    }

    /// Whether the frame being filled has no row yet.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Ends the frame: its table, then its payloads, the large ones uncopied. Nothing when it is
    /// empty.
    pub fn flush(&mut self) -> Vec<Bytes> {
        if self.rows.is_empty() {
            return Vec::new();
        }
        let copied = |row: &&Row| row.payload.len() <= COPIED;
        let small: usize = self.rows.iter().filter(copied).map(|row| row.payload.len()).sum();
        let table = FRAME_HEAD_LEN + self.rows.len() * ROW_LEN;
        let mut table = BytesMut::with_capacity(table + small);
        table.put_u8(KIND_ROWS);
        table.put_bytes(0, 3);
        table.put_u32_le(self.rows.len() as u32);
        for row in &self.rows {
            table.put_u32_le(row.index);
            table.put_u16_le(row.status);
            table.put_u16_le(if row.more { MORE } else { 0 });
            table.put_u32_le(row.payload.len() as u32);
            table.put_u32_le(crc32c(&row.payload));
            table.put_u64_le(row.total);
            self.entries += u32::from(!row.more);
            self.total += row.payload.len() as u64;
        }
        let mut out = Vec::new();
        for row in self.rows.drain(..) {
            if row.payload.len() <= COPIED {
                table.put_slice(&row.payload);
                continue;
            }
            if !table.is_empty() {
                out.push(table.split().freeze());
            }
            out.push(row.payload);
        }
        if !table.is_empty() {
            out.push(table.freeze());
        }
        self.bytes = 0;
        out
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

#[derive(Debug)]
struct Pending {
    index: u32,
    status: u16,
    more: bool,
    size: usize,
    crc: u32,
    total: u64,
}

/// Bytes that came and were not taken yet, in the pieces in which they came.
#[derive(Debug, Default)]
struct Received {
    pieces: std::collections::VecDeque<Bytes>,
    len: usize,
}

impl Received {
    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.len += piece.len();
            self.pieces.push_back(piece);
        }
    }

    /// The first bytes, which stay.
    fn peek<const N: usize>(&self) -> Option<[u8; N]> {
        let mut head = [0; N];
        let mut bytes = self.pieces.iter().flatten();
        for byte in &mut head {
            *byte = *bytes.next()?;
        }
        Some(head)
    }

    /// The first `n` bytes, if so many are there; copied only where they came in several pieces.
    fn take(&mut self, n: usize) -> Option<Bytes> {
        if self.len < n {
            return None;
        }
        self.len -= n;
        let mut whole = BytesMut::new();
        loop {
            let missing = n - whole.len();
            let Some(first) = self.pieces.front_mut() else { break };
            let part = first.split_to(missing.min(first.len()));
            if first.is_empty() {
                self.pieces.pop_front();
            }
            if part.len() == n {
                return Some(part);
            }
            whole.reserve(missing);
            whole.put_slice(&part);
            if whole.len() == n {
                break;
            }
        }
        Some(whole.freeze())
    }
}

/// Reads a stream as its bytes arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Received,
    map_version: Option<u64>,
    rows: std::collections::VecDeque<Pending>,
    entries: u32,
    total: u64,
    ended: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next bytes from the network.
    pub fn feed(&mut self, bytes: Bytes) {
        self.buffer.push(bytes);
    }

    /// The next whole row, or `None` when more bytes are needed or the stream has ended.
    pub fn next_row(&mut self) -> Result<Option<Row>> {
        if self.map_version.is_none() && !self.read_header()? {
            return Ok(None);
        }
        while self.rows.is_empty() {
            if self.ended {
                return match self.buffer.len {
                    0 => Ok(None),
                    _ => Err(corrupt("bytes after the end frame")),
                };
            }
            if !self.read_table()? {
                return Ok(None);
            }
        }
        let Some(row) = self.rows.front() else { return Ok(None) };
        let Some(payload) = self.buffer.take(row.size) else { return Ok(None) };
        let Some(row) = self.rows.pop_front() else { return Ok(None) };
        if crc32c(&payload) != row.crc {
            return Err(corrupt(&format!("checksum of entry {} does not match", row.index)));
        }
        self.entries += u32::from(!row.more);
        self.total += row.size as u64;
        Ok(Some(Row {
            index: row.index,
            status: row.status,
            more: row.more,
            total: row.total,
            payload,
        }))
    }

    /// Whether the end frame has come.
    pub fn is_complete(&self) -> bool {
        self.ended
    }

    /// Version of the cluster's state under which the stream was answered, once known.
    pub fn map_version(&self) -> Option<u64> {
        self.map_version
    }

    fn read_header(&mut self) -> Result<bool> {
        let Some(mut head) = self.buffer.take(HEADER_LEN) else { return Ok(false) };
        if head.split_to(4)[..] != MAGIC[..] {
            return Err(corrupt("not a batch stream"));
        }
        let version = head.get_u16_le();
        if version != VERSION {
            return Err(corrupt(&format!("version {version} of the format is not known here")));
        }
        head.advance(2);
        self.map_version = Some(head.get_u64_le());
        Ok(true)
    }

    /// Reads a frame's table, or the end frame; false when more bytes are needed.
    fn read_table(&mut self) -> Result<bool> {
        let Some(head) = self.buffer.peek::<FRAME_HEAD_LEN>() else { return Ok(false) };
        let kind = head[0];
        let count = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let body = match kind {
            KIND_END => END_LEN,
            KIND_ROWS if (1..=MAX_ROWS as u32).contains(&count) => count as usize * ROW_LEN,
            _ => return Err(corrupt(&format!("frame of kind {kind} with {count} rows"))),
        };
        let Some(mut body) = self.buffer.take(FRAME_HEAD_LEN + body) else { return Ok(false) };
        body.advance(FRAME_HEAD_LEN);
        if kind == KIND_END {
            if (count, body.get_u64_le()) != (self.entries, self.total) {
                return Err(corrupt("the end frame does not count what came before it"));
            }
            self.ended = true;
            return Ok(true);
        }
        for _ in 0..count {
            let (index, status) = (body.get_u32_le(), body.get_u16_le());
            let (flags, size) = (body.get_u16_le(), body.get_u32_le());
            let (crc, total) = (body.get_u32_le(), body.get_u64_le());
            if size > MAX_PIECE as u32 || flags & !MORE != 0 {
                return Err(corrupt(&format!("row of {size} bytes with flags {flags}")));
            }
            let size = size as usize;
            let more = flags & MORE != 0;
            self.rows.push_back(Pending { index, status, more, size, crc, total });
        }
        Ok(true)
    }
}

fn corrupt(what: &str) -> Error {
    Error::internal(format!("corrupt batch stream: {what}"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::error::ErrorCode;
    use proptest::prelude::*;

    fn encode(rows: &[Row], every: usize) -> Vec<u8> {
        let mut out = Encoder::header(9).to_vec();
        let mut e = Encoder::default();
        for (i, row) in rows.iter().enumerate() {
            e.push(row.clone());
            if i % every == 0 {
                e.flush().iter().for_each(|b| out.extend_from_slice(b));
            }
        }
        e.flush().iter().for_each(|b| out.extend_from_slice(b));
        out.extend_from_slice(&e.end());
        out
    }

    fn decode(bytes: &[u8], step: usize) -> Result<(Vec<Row>, bool)> {
        let mut d = Decoder::new();
        let mut rows = Vec::new();
        for chunk in bytes.chunks(step) {
            d.feed(Bytes::copy_from_slice(chunk));
            while let Some(row) = d.next_row()? {
                rows.push(row);
            }
        }
        Ok((rows, d.is_complete()))
    }

    fn any_row() -> impl Strategy<Value = Row> {
        let numbers = (any::<u32>(), 0u16..600, any::<bool>(), any::<u64>());
        (numbers, prop::collection::vec(any::<u8>(), 0..200)).prop_map(
            |((index, status, more, total), p)| Row {
                index,
                status,
                more,
                total,
                payload: p.into(),
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_however_it_is_cut(
            rows in prop::collection::vec(any_row(), 0..40), every in 1usize..9, step in 1usize..97
        ) {
            let (back, complete) = decode(&encode(&rows, every), step).unwrap();
            prop_assert!(complete);
            prop_assert_eq!(back, rows);
        }

        #[test]
        fn no_bytes_make_the_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let mut framed = Encoder::header(1).to_vec();
            framed.extend_from_slice(&bytes);
            let _ = decode(&framed, 7);
        }

        #[test]
        fn a_cut_stream_is_never_complete(cut in 0usize..1000) {
            let row = Row { index: 1, status: 0, more: false, total: 300, payload: vec![7; 300].into() };
            let whole = encode(&[row.clone(), row], 1);
            let cut = cut % whole.len();
            prop_assert!(!decode(&whole[..cut], 50).unwrap().1);
        }
    }

    #[test]
    fn small_payloads_travel_with_their_table_and_large_ones_as_they_are() {
        let row = |index: u32, size: usize| {
            let payload = Bytes::from(vec![index as u8; size]);
            Row { index, status: 0, more: false, total: size as u64, payload }
        };
        let sizes = [10, 0, COPIED + 1, COPIED, 7, MAX_PIECE, MAX_PIECE, 3];
        let rows: Vec<Row> = sizes.iter().zip(0..).map(|(size, i)| row(i, *size)).collect();
        let mut encoder = Encoder::default();
        rows.iter().cloned().for_each(|row| encoder.push(row));
        let parts = encoder.flush();
        // Table and 0, 1; 2; 3, 4; 5; 6; 7.
        assert_eq!(parts.len(), 6);
        assert_eq!(parts[1].as_ptr(), rows[2].payload.as_ptr(), "not copied");
        let mut bytes = Encoder::header(1).to_vec();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.extend_from_slice(&encoder.end());
        assert_eq!(decode(&bytes, 5000).unwrap(), (rows, true));
    }

    #[test]
    fn a_flipped_bit_in_a_payload_is_noticed() {
        let row =
            Row { index: 1, status: 0, more: false, total: 300, payload: vec![7; 300].into() };
        let mut bytes = encode(&[row], 1);
        bytes[100] ^= 1;
        assert_eq!(decode(&bytes, 64).unwrap_err().code, ErrorCode::Internal);
    }

    #[test]
    fn a_failure_carries_its_status_and_message() {
        let row =
            Row::failure(4, &Error::new(ErrorCode::ObjectNotFound, "ais://b/o does not exist"));
        assert_eq!((row.status, &row.payload[..]), (404, &b"ais://b/o does not exist"[..]));
    }
}
