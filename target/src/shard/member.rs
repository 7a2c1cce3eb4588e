//! Reading one member: by its place in a plain TAR, unpacked elsewhere.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::archive::{ArchiveFormat, Member, Packed, decompress, from_io, zip};
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;

use super::decoders::{Decoder, IDLE};
use super::source::{Anywhere, Forward};
use super::{Inner, Opened, ShardKey, Shards};
use crate::object::Stored;
use crate::store::blocking;

/// Members up to this many bytes are unpacked whole in one step.
const SMALL: u64 = 1 << 20;
/// Bytes of a piece of an unpacked stream,
const PIECE: u64 = 256 << 10;
/// and pieces that wait for a slow reader.
const AHEAD: usize = 2;

/// A member that can be read now.
pub(crate) struct MemberData {
    /// Bytes of its data.
    pub(crate) size: u64,
    result: &'static str,
    source: Source,
}

enum Source {
    Memory(Bytes),
    /// As it stands in the shard, from this byte on.
    Plain(Stored, u64),
    Packed(Box<Unpacking>),
}

/// A member that must be unpacked.
struct Unpacking {
    shards: Arc<Inner>,
    key: ShardKey,
    stored: Stored,
    member: Member,
    packed: Option<Packed>,
}

impl MemberData {
    /// How the shard was found, as the metrics call it. Who sends the bytes counts them, as for
    /// whole objects.
    pub(crate) fn result(&self) -> &'static str {
        self.result
    }

    /// All of it, in memory; for members that are known to be small.
    pub(crate) async fn read_all(self) -> Result<Bytes> {
        match self.source {
            Source::Memory(bytes) => Ok(bytes),
            Source::Plain(stored, start) => {
                let range = ByteRange { start, end: start + self.size };
                stored.reader.read(range).await.inspect_err(|e| stored.if_corrupt(e))
            }
            Source::Packed(unpacking) => {
                let whole = ByteRange::whole(self.size);
                let pieces: Vec<Bytes> = unpacking.stream(whole).try_collect().await?;
                Ok(pieces.concat().into())
            }
        }
    }

    /// The bytes in `range`, which must lie within the member, in pieces of at most a MiB.
    pub(crate) fn stream(self, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        match self.source {
            Source::Memory(bytes) => {
                let part = bytes.slice(range.start as usize..range.end as usize);
                futures::stream::iter((!part.is_empty()).then_some(Ok(part))).boxed()
            }
            Source::Plain(stored, start) => {
                let range = ByteRange { start: start + range.start, end: start + range.end };
                stored.reader.stream(range).inspect_err(move |e| stored.if_corrupt(e)).boxed()
            }
            Source::Packed(unpacking) => unpacking.stream(range),
        }
    }
}

impl Shards {
    /// Makes a member of an open shard readable.
    pub(super) async fn read(&self, opened: Opened, member: &Member) -> Result<MemberData> {
        let Opened { key, stored, index } = opened;
        let (size, result) = (member.size, stored.result());
        let data = |source| Ok(MemberData { size, result, source });
        if size == 0 && key.format != ArchiveFormat::Zip {
            return data(Source::Memory(Bytes::new()));
        }
        if key.format == ArchiveFormat::Tar {
            return data(Source::Plain(stored, member.offset));
        }
        let (shards, packed) = (self.0.clone(), index.packed(member));
        let unpacking = Unpacking { shards, key, stored, member: member.clone(), packed };
        if size > SMALL {
            return data(Source::Packed(Box::new(unpacking)));
        }
        let turn = match packed {
            Some(_) => None,
            None => Some(self.0.decoders.turn(key).await),
        };
        let bytes = blocking(move || {
            // Held to the end of the work, also when nobody waits for it any more.
            let _turn = turn;
            unpacking.whole()
        })
        .await?;
        data(Source::Memory(bytes))
    }
}

impl Unpacking {
    /// All of the data in memory.
    fn whole(self) -> Result<Bytes> {
        let mut all = Vec::with_capacity(self.member.size as usize);
        let range = ByteRange::whole(self.member.size);
        self.unpack(range, &mut |piece| {
            all.extend_from_slice(&piece);
            true
        })?;
        Ok(all.into())
    }

    fn stream(self: Box<Self>, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        let (sender, receiver) = mpsc::channel(AHEAD);
        tokio::task::spawn_blocking(move || {
            let pieces = sender.clone();
            let mut give = move |piece| pieces.blocking_send(Ok(piece)).is_ok();
            if let Err(e) = self.unpack(range, &mut give) {
                let _ = sender.blocking_send(Err(e));
            }
        });
        futures::stream::unfold(receiver, |mut r| async move { Some((r.recv().await?, r)) }).boxed()
    }

    /// Gives the bytes in `range` away, piece by piece, until they are not wanted any more.
    fn unpack(self, range: ByteRange, give: &mut dyn FnMut(Bytes) -> bool) -> Result<()> {
        let stored = self.stored.clone();
        let unpacked = match self.packed {
            Some(packed) => self.unpack_zip(&packed, range, give),
            None => self.unpack_tar(range, give),
        };
        unpacked.inspect_err(|e| stored.if_corrupt(e))
    }

    fn unpack_tar(self, range: ByteRange, give: &mut dyn FnMut(Bytes) -> bool) -> Result<()> {
        let (mut at, end) = (self.member.offset + range.start, self.member.offset + range.end);
        let decoders = &self.shards.decoders;
        let mut decoder = match decoders.take(self.key, at) {
            Some(decoder) => decoder,
            None => {
                let whole = ByteRange::whole(self.stored.record().size);
                let input = self.forward(whole);
                Decoder::new(decompress(self.key.format, input, &self.shards.limits)?)
            }
        };
        while at < end {
            let piece = decoder.read(at, end - at)?;
            at += piece.len() as u64;
            if !give(piece) {
                break;
            }
        }
        if decoders.park(self.key, decoder) {
            self.shards.clone().expire_decoders();
        }
        Ok(())
    }

    fn unpack_zip(
        self,
        packed: &Packed,
        range: ByteRange,
        give: &mut dyn FnMut(Bytes) -> bool,
    ) -> Result<()> {
        let source = Anywhere::new(self.stored.reader.clone(), self.shards.lifecycle.token());
        let place = zip::data_range(&source, &self.member, packed)?;
        let is_whole = range == ByteRange::whole(self.member.size);
        let (mut data, mut at): (Box<dyn Read + Send>, u64) = match zip::is_stored(packed) {
            // The store checks these bytes; for the archive's own checksum all must be read.
            true if !is_whole => {
                let part =
                    ByteRange { start: place.start + range.start, end: place.start + range.end };
                (Box::new(self.forward(part)), range.start)
            }
            _ => (zip::unpack(&self.member, packed, self.forward(place))?, 0),
        };
        loop {
            let mut piece = vec![0; (range.end - at).min(PIECE) as usize];
            // The last read of a whole member finds its end, and what is wrong with it there.
            if piece.is_empty() {
                if is_whole && data.read(&mut [0]).map_err(from_io)? > 0 {
                    return Err(Error::invalid("a member is longer than the directory says"));
                }
                return Ok(());
            }
            data.read_exact(&mut piece).map_err(from_io)?;
            let next = at + piece.len() as u64;
            let skipped = range.start.clamp(at, next) - at;
            at = next;
            let piece = Bytes::from(piece).slice(skipped as usize..);
            if !piece.is_empty() && !give(piece) {
                return Ok(());
            }
        }
    }

    fn forward(&self, range: ByteRange) -> Forward {
        Forward::new(self.stored.reader.clone(), self.shards.lifecycle.token(), range)
    }
}

impl Inner {
    /// Sees to it that waiting decoders go away some day.
    fn expire_decoders(self: Arc<Self>) {
        let stop = self.lifecycle.token();
        let lifecycle = self.lifecycle.clone();
        lifecycle.spawn(async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(IDLE) => {}
                    () = stop.cancelled() => return,
                }
                if !self.decoders.expire() {
                    return;
                }
            }
        });
    }
}
