//! A stored object for the archive readers: read at any offset, or from its start on. Blocks; used
//! on the blocking pool only.

use std::io::{self, Read};
use std::sync::Mutex;

use bytes::Bytes;
use forebay_archive::{ReadAt, into_io};
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use tokio_util::sync::CancellationToken;

use crate::object::Stored;

/// Bytes of one checked block of the store: the least that is read.
const BLOCK: u64 = 64 << 10;
/// Bytes read at once when scanning headers of small members.
const HEADER_READ_BYTES: u64 = 8 * BLOCK;
/// Headers up to this distance are cheaper to reach by reading on.
const NEAR: u64 = 2 * BLOCK;
/// Bytes read at once when everything is read.
const READ_CHUNK_BYTES: u64 = 8 * BLOCK;

/// Random reads of a stored object.
pub(super) struct Anywhere {
    stored: Stored,
    stop: CancellationToken,
    window: Mutex<Window>,
}

/// The bytes read last.
#[derive(Default)]
struct Window {
    start: u64,
    bytes: Bytes,
}

impl Anywhere {
    pub(super) fn new(stored: Stored, stop: CancellationToken) -> Self {
        Self { stored, stop, window: Mutex::default() }
    }
}

impl ReadAt for Anywhere {
    fn size(&self) -> u64 {
        self.stored.record().size
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        let mut window = self.window.locked();
        let window_end = window.start + window.bytes.len() as u64;
        if offset < window.start || end > window_end {
            if self.stop.is_cancelled() {
                return Err(Error::unavailable("this target is stopping"));
            }
            let is_near = window_end > 0 && (window.start..=window_end + NEAR).contains(&offset);
            let ahead = if is_near { HEADER_READ_BYTES } else { BLOCK };
            let start = offset / BLOCK * BLOCK;
            // Beyond the object's end the reader rejects.
            let stop = (start + ahead).min(self.size()).max(end);
            let bytes = self.stored.read_blocking(ByteRange { start, end: stop })?;
            *window = Window { start, bytes };
        }
        let from = (offset - window.start) as usize;
        buf.copy_from_slice(&window.bytes[from..from + buf.len()]);
        Ok(())
    }
}

/// A range of a stored object, read from its start to its end.
pub(super) struct Forward {
    stored: Stored,
    stop: CancellationToken,
    at: u64,
    end: u64,
    piece: Bytes,
}

impl Forward {
    pub(super) fn new(stored: Stored, stop: CancellationToken, range: ByteRange) -> Self {
        Self { stored, stop, at: range.start, end: range.end, piece: Bytes::new() }
    }
}

impl Read for Forward {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() && self.at < self.end {
            if self.stop.is_cancelled() {
                return Err(into_io(Error::unavailable("this target is stopping")));
            }
            let end = ((self.at / BLOCK * BLOCK) + READ_CHUNK_BYTES).min(self.end);
            let range = ByteRange { start: self.at, end };
            self.piece = self.stored.read_blocking(range).map_err(into_io)?;
            self.at = end;
        }
        let n = buf.len().min(self.piece.len());
        buf[..n].copy_from_slice(&self.piece.split_to(n));
        Ok(n)
    }
}
