//! Objects that are read at random: fetched to this target's disk first, then kept open while they
//! are read.

use std::sync::Arc;

use bytes::Bytes;
use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::fast_http::{FilePart, Piece, Pieces};
use forebay_node::metrics::CheckPath;
use forebay_store::{ObjectReader, Record, is_corrupt};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::runtime::Handle;

use super::Reads;
use super::heal::Healer;

/// An open object on this target's disk. If its bytes on the disk are damaged, reads get the same
/// bytes from another source.
#[derive(Clone)]
pub(crate) struct Stored {
    reader: ObjectReader,
    reads: Reads,
    healer: Arc<Healer>,
    result: &'static str,
}

impl Stored {
    pub(super) fn new(
        reads: &Reads,
        info: &BucketInfo,
        reader: ObjectReader,
        result: &'static str,
    ) -> Self {
        let healer = Arc::new(reads.healer(info, reader.record()));
        Self { reader, reads: reads.clone(), healer, result }
    }

    /// The open commit.
    pub(crate) fn record(&self) -> &Record {
        self.reader.record()
    }

    pub(crate) fn meta(&self) -> ObjectMeta {
        self.record().object_meta()
    }

    /// The name of this case in the metrics.
    pub(crate) fn result(&self) -> &'static str {
        self.result
    }

    /// The bytes of `range`, which must be within the object.
    pub(crate) async fn read(&self, range: ByteRange) -> Result<Bytes> {
        if let Some(bytes) = self.reader.read_recent(range) {
            return Ok(bytes);
        }
        match self.reader.read(range).await {
            Err(e) if is_corrupt(&e) => self.healer.read(e, range).await,
            done => self.counted(range, done),
        }
    }

    /// The bytes of `range` without waiting, if they were verified recently and are less than a
    /// block.
    pub(crate) fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        self.reader.read_recent(range)
    }

    /// As [`Self::read`], for callers on the blocking pool.
    pub(crate) fn read_blocking(&self, range: ByteRange) -> Result<Bytes> {
        match self.reader.read_blocking(range) {
            Err(e) if is_corrupt(&e) => match Handle::try_current() {
                Ok(runtime) => runtime.block_on(self.healer.read(e, range)),
                Err(_) => Err(e),
            },
            done => self.counted(range, done),
        }
    }

    /// The bytes of `range` in chunks of at most a MiB. After damage the rest comes from another
    /// source; fails with [`ErrorCode::ObjectChanged`] if that has another version by now.
    pub(crate) fn stream(&self, range: ByteRange) -> BodyStream {
        self.or_elsewhere(range, self.reader.stream(range).boxed(), |bytes| {
            (bytes.len() as u64, true)
        })
    }

    /// As [`Self::stream`]; recently verified bytes come as a range of their file.
    pub(crate) fn pieces(&self, range: ByteRange) -> Pieces {
        let pieces =
            self.or_elsewhere(range, self.reader.pieces(range).boxed(), |piece: &Piece| {
                (piece.len(), matches!(piece, Piece::Bytes(_)))
            });
        let (me, mut at) = (self.clone(), range.start);
        let with_instead = move |piece: Piece| {
            let start = at;
            at += piece.len();
            match piece {
                Piece::File(part) => me.with_instead(part, ByteRange { start, end: at }),
                bytes => bytes,
            }
        };
        pieces.map_ok(with_instead).boxed()
    }

    /// A range of a file, with a verified read as replacement if the page cache loses it before it
    /// is sent. `range`: its position in the object.
    fn with_instead(&self, part: FilePart, range: ByteRange) -> Piece {
        let (me, first) = (self.clone(), part.start);
        let instead = move |from: u64| {
            let rest = ByteRange { start: range.start + (from - first), end: range.end };
            me.stream(rest).map_ok(Piece::from).boxed()
        };
        Piece::File(FilePart { instead: Some(Box::new(instead)), ..part })
    }

    /// Items from the disk while they are sound, then from the other source. `look` returns the
    /// bytes of an item, and whether it was verified now.
    fn or_elsewhere<T: std::convert::From<Bytes> + Send + 'static>(
        &self,
        range: ByteRange,
        pieces: BoxStream<'static, Result<T>>,
        look: fn(&T) -> (u64, bool),
    ) -> BoxStream<'static, Result<T>> {
        let state = (self.clone(), range.start, From::Disk(pieces));
        futures::stream::try_unfold(state, move |(me, mut at, mut from)| async move {
            let piece = match &mut from {
                From::Disk(pieces) => match pieces.try_next().await {
                    Err(e) if is_corrupt(&e) => {
                        let rest = ByteRange { start: at, end: range.end };
                        let mut pieces = me.healer.stream(e, rest).await?;
                        let piece = pieces.try_next().await?.map(T::from);
                        from = From::Elsewhere(pieces);
                        piece
                    }
                    other => other?,
                },
                From::Elsewhere(pieces) => pieces.try_next().await?.map(T::from),
            };
            Ok(piece.map(|piece| {
                let (len, checked) = look(&piece);
                let range = ByteRange { start: at, end: at + len };
                if checked && matches!(from, From::Disk(_)) {
                    me.reads.count_checked(CheckPath::Read, me.record().size, range);
                }
                at = range.end;
                (piece, (me, at, from))
            }))
        })
        .boxed()
    }

    fn counted<T>(&self, range: ByteRange, done: Result<T>) -> Result<T> {
        if done.is_ok() {
            self.reads.count_checked(CheckPath::Read, self.record().size, range);
        }
        done
    }
}

/// The source of a stream's items.
enum From<T> {
    Disk(BoxStream<'static, Result<T>>),
    Elsewhere(BodyStream),
}

impl Reads {
    /// Opens an object here; fetches all of it first if it is not stored. Unlike a plain read this
    /// fails if there is no space for the object.
    pub(crate) async fn stored(&self, info: &BucketInfo, name: &str) -> Result<Stored> {
        let mut result = "hit";
        // Several attempts: a copy may vanish (evicted, replaced) between the look-up and the open.
        for _ in 0..4 {
            // An object that this call has fetched needs no second comparison with the backend.
            let record = match result {
                "hit" => self.fresh_record(info, name).await?,
                _ => self.store().get(info.id, name).await?,
            };
            let record = match record {
                Some(record) => record,
                None if info.has_backend() => {
                    if let Some((following, first)) = self.cold_cache().cold(info, name).await? {
                        result = if first { "miss" } else { "coalesced" };
                        self.cold_cache().fetch_to_the_end(&following);
                        following.finished().await?;
                    }
                    continue;
                }
                None => self
                    .replication()
                    .newest(info, name)
                    .await?
                    .ok_or_else(|| info.bucket.object_not_found(name))?,
            };
            self.store().touch(&record, unix_ns());
            match self.store().reader(&record).await {
                Ok(reader) => return Ok(Stored::new(self, info, reader, result)),
                Err(e) if e.code == ErrorCode::ObjectNotFound => result = "hit",
                Err(e) if is_corrupt(&e) => {
                    self.damaged(info, &record, CheckPath::Read, e).await?;
                    result = "hit";
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// Opens the commit that a look-up has found. `None`: it vanished or is damaged, and the caller
    /// must take another path.
    pub(crate) async fn open_found(&self, info: &BucketInfo, record: &Record) -> Option<Stored> {
        let reader = self.store().reader(record).await.ok()?;
        self.store().touch(record, unix_ns());
        Some(Stored::new(self, info, reader, "hit"))
    }

    /// The copy here, if it can be served without waiting.
    pub(crate) async fn present(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        self.fresh_record(info, name).await
    }

    /// A range of this commit, in one step. `None`: the commit vanished meanwhile.
    pub(crate) async fn part(
        &self,
        info: &BucketInfo,
        record: &Record,
        range: ByteRange,
    ) -> Result<Option<Bytes>> {
        self.store().touch(record, unix_ns());
        let read = match self.store().read_part(record, range).await {
            Ok(bytes) => {
                self.count_checked(CheckPath::Read, record.size, range);
                Ok(bytes)
            }
            Err(e) if is_corrupt(&e) => self.healer(info, record).read(e, range).await,
            Err(e) => Err(e),
        };
        match read {
            Ok(bytes) => Ok(Some(bytes)),
            Err(e) if matches!(e.code, ErrorCode::ObjectNotFound | ErrorCode::ObjectChanged) => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// The sidecar of this commit, if it has one.
    pub(crate) async fn sidecar(&self, record: &Record) -> Option<Vec<u8>> {
        self.store().sidecar(record).await.unwrap_or_else(|e| {
            tracing::warn!(name = record.name, "what is kept beside an object is not read: {e}");
            None
        })
    }

    /// Stores a sidecar of this commit; if that fails, it is made again when it is needed.
    pub(crate) async fn keep_sidecar(&self, record: &Record, bytes: Vec<u8>) {
        self.local().keep_sidecar(record, bytes).await;
    }
}
