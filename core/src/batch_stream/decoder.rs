//! Reading a stream.

use std::collections::{HashMap, VecDeque};

use bytes::{Buf, Bytes};

use super::{
    END_LEN, FRAME_HEAD_LEN, HEADER_LEN, KIND_END, KIND_ROWS, KIND_TIMES, MAGIC, MAX_PIECE,
    MAX_ROWS, MAX_TIMES, MORE, ROW_LEN, Room, Rooms, Row, TIMES, VERSION,
};
use crate::buffers::{BELIEVED, Buffer, GrowingBuffer};
use crate::checksum::crc32c;
use crate::error::{Error, Result};
use crate::timing::StageTimes;

#[derive(Debug)]
struct Pending {
    index: u32,
    status: u16,
    more: bool,
    size: usize,
    crc: u32,
    total: u64,
}

/// Payloads up to this size share a buffer: a separate buffer would cost more than the copy.
pub(super) const SHARED: usize = 16 << 10;

/// A payload that is being received.
struct Coming {
    room: Box<dyn Room>,
    /// Its offset in the room, after the earlier pieces.
    start: usize,
    filled: usize,
}

/// Decodes a stream as its bytes arrive.
///
/// Payloads are copied out of the received bytes, so that a connection can reuse its buffer
/// immediately and reads into memory that is in the CPU's cache.
#[derive(Default)]
pub struct Decoder {
    /// Whether the rows of an entry are joined into one.
    is_joining: bool,
    /// Supplies memory for large entries.
    rooms: Option<Rooms>,
    /// The beginning of an incomplete header or table.
    held: Vec<u8>,
    map_version: Option<u64>,
    rows: VecDeque<Pending>,
    /// The payload of the first row, as far as received.
    filling: Option<Coming>,
    /// Entries of which pieces were received, by index.
    joined: HashMap<u32, Box<dyn Room>>,
    entries: u32,
    total: u64,
    /// Of the last frame of times.
    times: Option<StageTimes>,
    ended: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Self::default()
    }

    /// A decoder whose rows are complete entries; `rooms`, if given, supplies the memory for large
    /// ones.
    pub fn of_entries(rooms: Option<Rooms>) -> Self {
        Self { is_joining: true, rooms, ..Self::default() }
    }

    /// Decodes the next bytes from the network; appends the rows that are complete now to `out`.
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

    /// The stages of the request so far, by the last frame of times.
    pub fn times(&self) -> Option<StageTimes> {
        self.times
    }

    /// Reads rows whose small payloads are all available into one buffer.
    fn read_shared(&mut self, input: &mut &[u8], out: &mut VecDeque<Row>) -> Result<()> {
        if self.filling.is_some() {
            return Ok(());
        }
        let (mut count, mut bytes) = (0, 0);
        for row in &self.rows {
            if row.size > SHARED || bytes + row.size > input.len() || self.is_piece(row) {
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
            let payload = all.split_to(row.size);
            if self.is_joining {
                row.check_whole(payload.len())?;
            }
            row.check(&payload, &mut self.entries, &mut self.total)?;
            out.push_back(row.with(payload));
        }
        Ok(())
    }

    /// Whether the row will be joined with others.
    fn is_piece(&self, row: &Pending) -> bool {
        self.is_joining
            && (row.more || !self.joined.is_empty() && self.joined.contains_key(&row.index))
    }

    /// Reads the first row, whose payload has its own buffer; false if more bytes are needed.
    fn read_own(&mut self, input: &mut &[u8], out: &mut VecDeque<Row>) -> Result<bool> {
        let Some(row) = self.rows.front() else { return Ok(true) };
        let coming = match &mut self.filling {
            Some(coming) => coming,
            None => {
                let started = self.joined.remove(&row.index).filter(|_| row.status == 0);
                let room = match started {
                    Some(room) => room,
                    None => row.room(self.is_joining, self.rooms.as_ref()),
                };
                let start = room.as_ref().as_ref().len();
                if self.is_joining && row.status == 0 && (start + row.size) as u64 > row.total {
                    return Err(corrupt(&format!("entry {} is longer than its size", row.index)));
                }
                self.filling.insert(Coming { room, start, filled: 0 })
            }
        };
        let now = (row.size - coming.filled).min(input.len());
        coming.room.append(&input[..now]);
        coming.filled += now;
        *input = &input[now..];
        if coming.filled < row.size {
            return Ok(false);
        }
        let (Some(row), Some(Coming { room, start, .. })) =
            (self.rows.pop_front(), self.filling.take())
        else {
            return Ok(true);
        };
        row.check(&room.as_ref().as_ref()[start..], &mut self.entries, &mut self.total)?;
        if self.is_joining && row.more && row.status == 0 {
            self.joined.insert(row.index, room);
        } else {
            if self.is_joining {
                row.check_whole(room.as_ref().as_ref().len())?;
            }
            out.push_back(row.with(room.finish()));
        }
        Ok(true)
    }

    /// Whether the first `n` bytes of a header or table are available.
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
            KIND_TIMES if (TIMES..=MAX_TIMES).contains(&(count as usize)) => count as usize * 8,
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
        if kind == KIND_TIMES {
            let micros = [(); TIMES].map(|()| body.get_u64_le());
            self.times = Some(StageTimes::from_micros(micros));
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
    /// Checks that an entry without further pieces has all its bytes.
    fn check_whole(&self, bytes: usize) -> Result<()> {
        if self.status != 0 || bytes as u64 == self.total {
            return Ok(());
        }
        let Self { index, total, .. } = self;
        Err(corrupt(&format!("entry {index} has {bytes} bytes, not the {total} of its size")))
    }

    /// Allocates memory for the payload, or for the entry of which it is the first piece.
    fn room(&self, is_joining: bool, rooms: Option<&Rooms>) -> Box<dyn Room> {
        let size = match is_joining && self.status == 0 {
            true => self.total,
            false => self.size as u64,
        };
        let is_lent = self.status == 0 && (SHARED as u64 + 1..=BELIEVED).contains(&size);
        let room = rooms.filter(|_| is_lent).and_then(|room| room(size as usize));
        room.unwrap_or_else(|| Box::new(GrowingBuffer::new(size)))
    }

    /// Counts the row if these bytes are its payload.
    fn check(&self, payload: &[u8], entries: &mut u32, total: &mut u64) -> Result<()> {
        if crc32c(payload) != self.crc {
            return Err(corrupt(&format!("checksum of entry {} does not match", self.index)));
        }
        *entries += u32::from(!self.more);
        *total += payload.len() as u64;
        Ok(())
    }

    fn with(self, payload: Bytes) -> Row {
        let Self { index, status, more, total, .. } = self;
        Row { index, status, more, total, payload }
    }
}

fn corrupt(what: &str) -> Error {
    Error::internal(format!("corrupt batch stream: {what}"))
}
