//! The native batch stream, version 1, as `docs/batch-stream.md` describes it: encoder and
//! incremental decoder over plain buffers.
//!
//! `header { frame }* end`. A frame is a table of rows followed by the payloads of all rows in the
//! same order; an object larger than a piece is several rows with the flag [`MORE`] on all but
//! the last. A stream that ends without the end frame is an error.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::buffers::Buffer;
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
        // Large payloads, and how much of the buffer goes before each.
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

/// Payloads up to this many bytes share a buffer: one of its own would cost more than the copy.
const SHARED: usize = 16 << 10;

/// Memory for one payload.
pub trait Room: Send {
    /// Writes behind what is there. No more comes than the room was made for.
    fn append(&mut self, piece: &[u8]);

    /// The payload, once all of it was written.
    fn finish(self: Box<Self>) -> Bytes;
}

/// Makes room for the bytes of a whole entry of this size. `None`: the decoder's own will do.
pub type Rooms = Arc<dyn Fn(usize) -> Option<Box<dyn Room>> + Send + Sync>;

/// The room that the decoder makes by itself.
struct Own {
    buffer: Buffer,
    filled: usize,
}

impl Room for Own {
    fn append(&mut self, piece: &[u8]) {
        let end = self.filled + piece.len();
        self.buffer.bytes_mut()[self.filled..end].copy_from_slice(piece);
        self.filled = end;
    }

    fn finish(self: Box<Self>) -> Bytes {
        self.buffer.freeze()
    }
}

/// Reads a stream as its bytes arrive.
///
/// Payloads are copied out of what came, so that a connection has its buffer back at once and reads
/// into memory that the CPU knows.
#[derive(Default)]
pub struct Decoder {
    /// Asked for room for entries that are large and come in one piece.
    rooms: Option<Rooms>,
    /// The beginning of a header or of a table.
    held: Vec<u8>,
    map_version: Option<u64>,
    rows: VecDeque<Pending>,
    /// The payload of the first row, as far as it came, and how far that is.
    filling: Option<(Box<dyn Room>, usize)>,
    entries: u32,
    total: u64,
    ended: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose large entries lie where `rooms` says.
    pub fn into_rooms(rooms: Rooms) -> Self {
        Self { rooms: Some(rooms), ..Self::default() }
    }

    /// Takes in the next bytes from the network; the rows that are whole now are appended to `out`.
    pub fn decode(&mut self, mut input: &[u8], out: &mut VecDeque<Row>) -> Result<()> {
        if self.map_version.is_none() && !self.read_header(&mut input)? {
            return Ok(());
        }
        loop {
            if self.rows.is_empty() {
                if self.ended {
                    return match input {
                        [] => Ok(()),
                        _ => Err(corrupt("bytes after the end frame")),
                    };
                }
                if !self.read_table(&mut input)? {
                    return Ok(());
                }
            }
            self.read_shared(&mut input, out)?;
            if !self.rows.is_empty() && !self.read_own(&mut input, out)? {
                return Ok(());
            }
        }
    }

    /// Whether the end frame has come.
    pub fn is_complete(&self) -> bool {
        self.ended
    }

    /// Version of the cluster's state under which the stream was answered, once known.
    pub fn map_version(&self) -> Option<u64> {
        self.map_version
    }

    /// Rows whose small payloads are all there, into one buffer.
    fn read_shared(&mut self, input: &mut &[u8], out: &mut VecDeque<Row>) -> Result<()> {
        if self.filling.is_some() {
            return Ok(());
        }
        let (mut count, mut bytes) = (0, 0);
        for row in &self.rows {
            if row.size > SHARED || bytes + row.size > input.len() {
                break;
            }
            count += 1;
            bytes += row.size;
        }
        if count == 0 {
            return Ok(());
        }
        let mut buffer = Buffer::take(bytes);
        buffer.bytes_mut().copy_from_slice(&input[..bytes]);
        *input = &input[bytes..];
        let mut all = buffer.freeze();
        for row in self.rows.drain(..count) {
            out.push_back(row.finish(
                all.split_to(row.size),
                &mut self.entries,
                &mut self.total,
            )?);
        }
        Ok(())
    }

    /// The first row, whose payload has a buffer of its own; false when more bytes are needed.
    fn read_own(&mut self, input: &mut &[u8], out: &mut VecDeque<Row>) -> Result<bool> {
        let Some(row) = self.rows.front() else { return Ok(true) };
        let (room, filled) = self.filling.get_or_insert_with(|| (row.room(self.rooms.as_ref()), 0));
        let now = (row.size - *filled).min(input.len());
        room.append(&input[..now]);
        *filled += now;
        *input = &input[now..];
        if *filled < row.size {
            return Ok(false);
        }
        if let (Some(row), Some((room, _))) = (self.rows.pop_front(), self.filling.take()) {
            out.push_back(row.finish(room.finish(), &mut self.entries, &mut self.total)?);
        }
        Ok(true)
    }

    /// Whether the first `n` bytes of a header or table are held.
    fn hold(&mut self, n: usize, input: &mut &[u8]) -> bool {
        let now = n.saturating_sub(self.held.len()).min(input.len());
        self.held.extend_from_slice(&input[..now]);
        *input = &input[now..];
        self.held.len() >= n
    }

    fn read_header(&mut self, input: &mut &[u8]) -> Result<bool> {
        if !self.hold(HEADER_LEN, input) {
            return Ok(false);
        }
        let held = std::mem::take(&mut self.held);
        let mut head = &held[..];
        if head[..MAGIC.len()] != MAGIC[..] {
            return Err(corrupt("not a batch stream"));
        }
        head.advance(MAGIC.len());
        let version = head.get_u16_le();
        if version != VERSION {
            return Err(corrupt(&format!("version {version} of the format is not known here")));
        }
        head.advance(2);
        self.map_version = Some(head.get_u64_le());
        Ok(true)
    }

    /// Reads a frame's table, or the end frame; false when more bytes are needed.
    fn read_table(&mut self, input: &mut &[u8]) -> Result<bool> {
        if !self.hold(FRAME_HEAD_LEN, input) {
            return Ok(false);
        }
        let (kind, mut count) = (self.held[0], &self.held[4..]);
        let count = count.get_u32_le();
        let body = match kind {
            KIND_END => END_LEN,
            KIND_ROWS if (1..=MAX_ROWS as u32).contains(&count) => count as usize * ROW_LEN,
            _ => return Err(corrupt(&format!("frame of kind {kind} with {count} rows"))),
        };
        if !self.hold(FRAME_HEAD_LEN + body, input) {
            return Ok(false);
        }
        let held = std::mem::take(&mut self.held);
        let mut body = &held[FRAME_HEAD_LEN..];
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

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Decoder({} entries, {} bytes)", self.entries, self.total)
    }
}

impl Pending {
    /// Room for the payload.
    fn room(&self, rooms: Option<&Rooms>) -> Box<dyn Room> {
        let is_whole = self.status == 0 && !self.more && self.size as u64 == self.total;
        let room =
            rooms.filter(|_| is_whole && self.size > SHARED).and_then(|room| room(self.size));
        room.unwrap_or_else(|| Box::new(Own { buffer: Buffer::take(self.size), filled: 0 }))
    }

    /// The row, counted, if these bytes are its payload.
    fn finish(&self, payload: Bytes, entries: &mut u32, total: &mut u64) -> Result<Row> {
        let Self { index, status, more, crc, total: size, .. } = *self;
        if crc32c(&payload) != crc {
            return Err(corrupt(&format!("checksum of entry {index} does not match")));
        }
        *entries += u32::from(!more);
        *total += payload.len() as u64;
        Ok(Row { index, status, more, total: size, payload })
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
        let mut rows = VecDeque::new();
        for chunk in bytes.chunks(step) {
            d.decode(chunk, &mut rows)?;
        }
        Ok((rows.into(), d.is_complete()))
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
    fn entries_that_are_large_and_come_in_one_piece_lie_in_the_callers_room() {
        struct Lent(Vec<u8>);
        impl Room for Lent {
            fn append(&mut self, piece: &[u8]) {
                self.0.extend_from_slice(piece);
            }
            fn finish(self: Box<Self>) -> Bytes {
                self.0.into()
            }
        }
        let row = |index: u32, status: u16, more: bool, size: usize, total: u64| {
            let payload = Bytes::from(vec![index as u8; size]);
            Row { index, status, more, total, payload }
        };
        let large = SHARED + 1;
        let rows = vec![
            row(0, 0, false, large, large as u64),
            row(1, 0, false, SHARED, SHARED as u64),
            row(2, 0, true, large, 2 * large as u64),
            row(2, 0, false, large, 2 * large as u64),
            row(3, 500, false, large, large as u64),
            row(4, 0, false, 2 * large, 2 * large as u64),
            row(5, 0, false, large + 5, large as u64 + 5),
        ];
        let asked = Arc::new(std::sync::Mutex::new(Vec::new()));
        let noted = asked.clone();
        let mut decoder = Decoder::into_rooms(Arc::new(move |size| {
            noted.lock().unwrap().push(size);
            // Who has no room leaves it to the decoder.
            (size != large + 5).then(|| Box::new(Lent(Vec::with_capacity(size))) as Box<dyn Room>)
        }));
        let mut back = VecDeque::new();
        for chunk in encode(&rows, 3).chunks(1000) {
            decoder.decode(chunk, &mut back).unwrap();
        }
        assert_eq!(Vec::from(back), rows);
        assert_eq!(*asked.lock().unwrap(), [large, 2 * large, large + 5]);
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
