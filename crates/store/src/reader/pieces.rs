//! The stream of an object's chunks: from the page cache where it has them, else one is read ahead.

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::Result;
use forebay_core::size::ByteRange;
use forebay_node::fast_http::FilePart;
use tokio::task::JoinHandle;

use super::Open;
use super::load::CACHED_PIECE;
use crate::format::BLOCK;
use crate::joined;

/// Bytes of a chunk of a stream from a disk; whole blocks. One chunk is read ahead.
const PIECE: u64 = 4 * BLOCK;
/// Most bytes of a chunk that the kernel sends.
const SENT: u64 = 16 * BLOCK;

pub(super) struct Pieces {
    open: Arc<Open>,
    next: u64,
    end: u64,
    ahead: Option<JoinHandle<Result<Bytes>>>,
}

impl Pieces {
    pub(super) fn new(open: Arc<Open>, range: ByteRange) -> Self {
        Self { open, next: range.start, end: range.end, ahead: None }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        if let Some(bytes) = self.cached() {
            return Ok(Some(bytes));
        }
        let Some(piece) = self.ahead.take().or_else(|| self.begin()) else { return Ok(None) };
        let bytes = joined(piece.await)?;
        self.ahead = self.begin();
        Ok(Some(bytes))
    }

    /// The next chunk, without reading its bytes.
    pub(super) fn recent(&mut self) -> Option<FilePart> {
        if self.ahead.is_some() || self.next >= self.end {
            return None;
        }
        let end = ((self.next / SENT + 1) * SENT).min(self.end);
        let part = self.open.recent_part(ByteRange { start: self.next, end })?;
        self.next += part.end - part.start;
        Some(part)
    }

    /// The next chunk without a switch of threads, if it is in the page cache and sound.
    fn cached(&mut self) -> Option<Bytes> {
        if self.ahead.is_some() || self.next >= self.end {
            return None;
        }
        let end = ((self.next / CACHED_PIECE + 1) * CACHED_PIECE).min(self.end);
        let bytes = self.open.load_now(ByteRange { start: self.next, end })?;
        self.next = end;
        Some(bytes)
    }

    fn begin(&mut self) -> Option<JoinHandle<Result<Bytes>>> {
        if self.next >= self.end {
            return None;
        }
        let end = ((self.next / PIECE + 1) * PIECE).min(self.end);
        let range = ByteRange { start: self.next, end };
        self.next = end;
        let open = self.open.clone();
        Some(tokio::task::spawn_blocking(move || open.read(range)))
    }
}
