//! Warm reads, and the choice between warm and cold.

use bytes::Bytes;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::object::ObjectMeta;
use forebay_core::size::{ByteRange, RangeSpec};
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use forebay_node::metrics::CheckPath;
use forebay_store::{Access, Record, Ticket, Validation, is_corrupt};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::{Reads, Stored};
use crate::object::cold_cache::{Following, Parts, validation_of};

/// Objects up to this size are read whole in one step.
const SMALL: u64 = 1 << 20;

/// An object that can be read now.
pub(crate) enum Found {
    /// Already read from this target's disk, because it is small.
    Memory { meta: ObjectMeta, bytes: Bytes },
    /// On this target's disk.
    Stored { meta: ObjectMeta, stored: Stored },
    /// A fetch from the backend is in progress; `first`: for the request that started it.
    InFlight { following: Following, first: bool },
    /// Streamed from the backend: there is no space to keep it.
    PassThrough { meta: ObjectMeta, stream: BoxStream<'static, Result<Bytes>> },
    /// Cached in part; missing parts of a range come from the backend.
    Parts(Box<Parts>),
}

/// The result of a look-up without waiting.
pub(crate) enum HotRead {
    /// A small object that was in the page cache.
    Read(ObjectMeta, Bytes),
    /// A fresh copy that is not in memory, or too large for one step.
    Fresh(Box<Record>),
    Nothing,
}

impl Found {
    pub(crate) fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Memory { meta, .. }
            | Self::Stored { meta, .. }
            | Self::PassThrough { meta, .. } => meta,
            Self::InFlight { following, .. } => &following.meta,
            Self::Parts(parts) => &parts.meta,
        }
    }

    /// The name of this case in the metrics.
    pub(crate) fn result(&self) -> &'static str {
        match self {
            Self::Memory { .. } | Self::Stored { .. } => "hit",
            Self::InFlight { first: true, .. } | Self::PassThrough { .. } => "miss",
            Self::InFlight { first: false, .. } => "coalesced",
            Self::Parts(parts) => parts.result,
        }
    }

    /// The verified bytes in `range`, in chunks of at most a MiB.
    pub(crate) fn stream(self, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        match self {
            Self::Memory { bytes, .. } => {
                let part = bytes.slice(range.start as usize..range.end as usize);
                futures::stream::iter((!part.is_empty()).then_some(Ok(part))).boxed()
            }
            Self::Stored { stored, .. } => stored.stream(range),
            Self::InFlight { following, .. } => following.stream(range).boxed(),
            Self::PassThrough { stream, .. } => cut(stream, range),
            Self::Parts(parts) => parts.stream(range),
        }
    }

    /// The whole object in memory; only for objects that are known to be small.
    pub(crate) async fn read_all(self) -> Result<Bytes> {
        match self {
            Self::Memory { bytes, .. } => Ok(bytes),
            Self::Stored { stored, .. } => {
                Box::pin(stored.read(ByteRange::whole(stored.record().size))).await
            }
            Self::InFlight { following, .. } => Box::pin(following.read_all()).await,
            Self::PassThrough { .. } | Self::Parts(_) => {
                let mut all = bytes::BytesMut::new();
                let whole = ByteRange::whole(self.meta().size);
                let mut stream = self.stream(whole);
                while let Some(chunk) = stream.next().await {
                    all.extend_from_slice(&chunk?);
                }
                Ok(all.freeze())
            }
        }
    }
}

/// The part of a whole object's stream that is in `range`.
fn cut(
    stream: BoxStream<'static, Result<Bytes>>,
    range: ByteRange,
) -> BoxStream<'static, Result<Bytes>> {
    let mut at = 0u64;
    let cut = stream.map_ok(move |chunk| {
        let start = at;
        at += chunk.len() as u64;
        let from = range.start.clamp(start, at) - start;
        let to = range.end.clamp(start, at) - start;
        chunk.slice(from as usize..to as usize)
    });
    cut.try_filter(|chunk| std::future::ready(!chunk.is_empty())).boxed()
}

impl Reads {
    /// Finds an object: the copy here if it is fresh, else the backend's.
    pub(crate) async fn get(&self, info: &BucketInfo, name: &str) -> Result<Found> {
        self.get_range(info, name, None).await
    }

    /// As [`Self::get`], for a reader of a range: of a large object of a backend only the range is
    /// fetched.
    pub(crate) async fn get_range(
        &self,
        info: &BucketInfo,
        name: &str,
        range: Option<RangeSpec>,
    ) -> Result<Found> {
        match self.hot(info, name)? {
            HotRead::Read(meta, bytes) => Ok(Found::Memory { meta, bytes }),
            HotRead::Fresh(record) => self.get_after(info, name, range, Some(record)).await,
            HotRead::Nothing => self.get_after(info, name, range, None).await,
        }
    }

    /// As [`Self::get_range`], after a call of [`Self::hot`]: `fresh` is the copy that it found.
    pub(crate) async fn get_after(
        &self,
        info: &BucketInfo,
        name: &str,
        range: Option<RangeSpec>,
        fresh: Option<Box<Record>>,
    ) -> Result<Found> {
        // The future of reads that may wait is large; boxed, so that reads that need no wait do not
        // carry it.
        Box::pin(self.get_waiting(info, name, range, fresh)).await
    }

    /// Looks for a fresh copy, and reads it if that takes neither a change of threads nor a wait.
    pub(crate) fn hot(&self, info: &BucketInfo, name: &str) -> Result<HotRead> {
        let ticket = match self.store().known_now(info.id, name) {
            Ok((record, _)) if !self.is_fresh(info, &record) => return Ok(HotRead::Nothing),
            Ok((record, bytes)) => {
                self.noted(record.disk, &Access::of(&record), record.size, unix_ns());
                return Ok(HotRead::Read(record.into_object_meta(), bytes));
            }
            Err(ticket) => ticket,
        };
        let Some(record) = self.store().find(info.id, name)? else { return Ok(HotRead::Nothing) };
        if !self.is_fresh(info, &record) {
            return Ok(HotRead::Nothing);
        }
        Ok(match self.read_now(&record, Some(ticket)) {
            Some(bytes) => HotRead::Read(record.into_object_meta(), bytes),
            None => HotRead::Fresh(Box::new(record)),
        })
    }

    /// A small copy in the page cache. `None` for a damaged one: the slow path reads it again and
    /// handles the damage.
    fn read_now(&self, record: &Record, ticket: Option<Ticket>) -> Option<Bytes> {
        let bytes = self.store().read_now(record, ticket)?;
        self.noted(record.disk, &Access::of(record), record.size, unix_ns());
        Some(bytes)
    }

    async fn get_waiting(
        &self,
        info: &BucketInfo,
        name: &str,
        range: Option<RangeSpec>,
        mut fresh: Option<Box<Record>>,
    ) -> Result<Found> {
        // Several attempts: a copy may vanish (evicted, replaced) between the look-up and the open.
        for _ in 0..3 {
            let record = match fresh.take() {
                Some(record) => Some(*record),
                None => self.fresh_record(info, name).await?,
            };
            if let Some(record) = record {
                match self.open(info, &record).await {
                    Err(e) if e.code == ErrorCode::ObjectNotFound => continue,
                    found => return found,
                }
            }
            if !info.has_backend() {
                return match self.replication().newest(info, name).await? {
                    Some(record) => self.open(info, &record).await,
                    None => Err(info.bucket.object_not_found(name)),
                };
            }
            if !self.cold_cache().admits(info, name) {
                return self.pass_through(info, name).await;
            }
            if let Some(parts) = self.cold_cache().parts(info, name, range).await? {
                return Ok(Found::Parts(Box::new(parts)));
            }
            match self.cold_cache().cold(info, name).await {
                Ok(Some((following, first))) => return Ok(Found::InFlight { following, first }),
                Ok(None) => {}
                Err(e) if e.code == ErrorCode::OutOfSpace => {
                    return self.pass_through(info, name).await;
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::unavailable(format!("{} keeps changing", info.bucket.object_uri(name))))
    }

    /// The copy held here as it is, without asking another node.
    pub(crate) async fn get_local(&self, info: &BucketInfo, name: &str) -> Result<Found> {
        match self.store().get(info.id, name).await? {
            Some(record) => self.open(info, &record).await,
            None => Err(self.local().missing(info, name)),
        }
    }

    /// Opens the copy; `ObjectNotFound` if it vanished meanwhile, or was damaged and dropped.
    async fn open(&self, info: &BucketInfo, record: &Record) -> Result<Found> {
        if let Some(bytes) = self.read_now(record, None) {
            return Ok(Found::Memory { meta: record.object_meta(), bytes });
        }
        self.store().touch(record, unix_ns());
        let name = record.name.as_str();
        let reader = if record.size <= SMALL {
            // A later commit may be one that other targets do not have yet.
            let may_serve =
                |now: &Record| now.generation == record.generation || self.is_fresh(info, now);
            match self.store().read_small(info.id, name, SMALL).await {
                Ok(Some((reader, _))) if !may_serve(reader.record()) => {
                    return Err(info.bucket.object_not_found(name));
                }
                Ok(Some((reader, Some(bytes)))) => {
                    let size = reader.record().size;
                    self.count_checked(CheckPath::Read, size, ByteRange::whole(size));
                    return Ok(Found::Memory { meta: reader.record().object_meta(), bytes });
                }
                Ok(Some((reader, None))) => reader,
                Ok(None) => return Err(info.bucket.object_not_found(name)),
                Err(e) => return Err(self.unless_damaged(info, record, e).await),
            }
        } else {
            match self.store().reader(record).await {
                Ok(reader) => reader,
                Err(e) => return Err(self.unless_damaged(info, record, e).await),
            }
        };
        let meta = reader.record().object_meta();
        let stored = Stored::new(self, info, reader, "hit");
        Ok(Found::Stored { meta, stored })
    }

    /// The error of a failed read: `ObjectNotFound` if the copy was damaged and is dropped.
    async fn unless_damaged(&self, info: &BucketInfo, record: &Record, error: Error) -> Error {
        if !is_corrupt(&error) {
            return error;
        }
        match self.damaged(info, record, CheckPath::Read, error).await {
            Ok(()) => info.bucket.object_not_found(&record.name),
            Err(e) => e,
        }
    }

    /// Streams the object from the backend without keeping it.
    pub(in crate::object) async fn pass_through(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Found> {
        let (meta, stream) = self.cold_cache().pass_through(info, name).await?;
        Ok(Found::PassThrough { meta, stream })
    }

    /// The copy here if it is current, compared with the backend or other targets when that is due.
    /// `None`: there is no copy to serve.
    pub(super) async fn fresh_record(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        if info.has_backend() {
            return self.cold_cache().current_copy(info, name).await;
        }
        match self.store().get(info.id, name).await? {
            Some(record) if self.is_fresh(info, &record) => Ok(Some(record)),
            Some(_) => self.replication().newest(info, name).await,
            None => Ok(None),
        }
    }

    /// Whether the copy may be served without asking another node or a backend.
    pub(super) fn is_fresh(&self, info: &BucketInfo, record: &Record) -> bool {
        self.is_fresh_since(info, &record.name, validation_of(record))
    }

    /// As [`Self::is_fresh`], by the last comparison with the backend.
    pub(super) fn is_fresh_since(
        &self,
        info: &BucketInfo,
        name: &str,
        validated: Validation,
    ) -> bool {
        match info.has_backend() {
            true => self.cold_cache().is_fresh(info, name, validated),
            // Only the epoch of a stamp decides this.
            false => {
                let copy = Stamp { epoch: validated.epoch, version: 0 };
                self.replication().is_authoritative(info, name, copy)
            }
        }
    }
}
