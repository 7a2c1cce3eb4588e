//! Reads stored objects: whole blocks are read and checked, then cut to the requested range.

mod extent;
mod load;
mod pieces;

use std::sync::Arc;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::fast_http::Piece;
use futures::{Stream, stream};

pub(crate) use self::extent::OpenExtent;

use self::pieces::Pieces;
use super::blocking;
use super::record::Record;

/// An open object. It holds its bytes or files, so eviction and overwriting do not affect it.
#[derive(Clone)]
pub struct ObjectReader {
    shared: Arc<Open>,
}

struct Open {
    record: Record,
    body: Body,
}

/// The payload of an open object.
pub(crate) enum Body {
    /// Read together with its record, and checked.
    Memory(Bytes),
    /// Files, each with its block table behind its part of the payload.
    Files(Vec<OpenExtent>),
}

impl ObjectReader {
    pub(crate) fn new(record: Record, body: Body) -> Self {
        Self { shared: Arc::new(Open { record, body }) }
    }

    /// The record of the open commit.
    pub fn record(&self) -> &Record {
        &self.shared.record
    }

    /// The whole payload.
    pub async fn read_all(&self) -> Result<Bytes> {
        self.read(ByteRange::whole(self.shared.record.size)).await
    }

    /// The bytes of `range`, which must lie within the object.
    pub async fn read(&self, range: ByteRange) -> Result<Bytes> {
        let open = self.shared.clone();
        blocking(move || open.read(range)).await
    }

    /// The bytes of `range` in chunks of at most 256 KiB. After an error the stream ends.
    pub fn stream(&self, range: ByteRange) -> impl Stream<Item = Result<Bytes>> + Send + use<> {
        stream::try_unfold(self.pieces_of(range), |mut pieces| async move {
            Ok(pieces.next().await?.map(|bytes| (bytes, pieces)))
        })
    }

    /// As [`Self::stream`]; bytes that are in the page cache and have a valid check are returned as
    /// a part of their file.
    pub fn pieces(&self, range: ByteRange) -> impl Stream<Item = Result<Piece>> + Send + use<> {
        stream::try_unfold(self.pieces_of(range), |mut pieces| async move {
            if let Some(part) = pieces.recent() {
                return Ok(Some((Piece::File(part), pieces)));
            }
            Ok(pieces.next().await?.map(|bytes| (Piece::Bytes(bytes), pieces)))
        })
    }

    fn pieces_of(&self, range: ByteRange) -> Pieces {
        Pieces::new(self.shared.clone(), range)
    }

    /// Compares the blocks of `range` with their checksums; payloads in the log were compared when
    /// they were opened. Leaves the page cache as it is, and counts as no access.
    pub async fn check(&self, range: ByteRange) -> Result<()> {
        let open = self.shared.clone();
        blocking(move || open.load(range, true).map(drop)).await
    }

    /// The bytes of `range` without waiting and without checking them again: less than a block, in
    /// the page cache, of blocks with a valid check. `None`: use another read method.
    pub fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        self.shared.read_recent(range)
    }

    /// As [`Self::read_all`], for callers on the blocking pool.
    pub(crate) fn read_all_blocking(&self) -> Result<Bytes> {
        self.read_blocking(ByteRange::whole(self.shared.record.size))
    }

    /// As [`Self::read`], for callers on the blocking pool.
    pub fn read_blocking(&self, range: ByteRange) -> Result<Bytes> {
        self.shared.read(range)
    }
}

/// The error for a stored object whose bytes are damaged.
pub(crate) fn corrupt(record: &Record, what: &str) -> Error {
    let Record { name, bucket_id, generation, .. } = record;
    tracing::warn!(name, bucket_id, generation, "stored object is damaged: {what}");
    Error::new(ErrorCode::Corrupt, format!("stored object \"{name}\" is damaged: {what}"))
}
