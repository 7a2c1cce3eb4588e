//! Reads one member: by its offset in a plain TAR, decompressed in other formats.

use std::io::Read;
use std::sync::Arc;

use bytes::Bytes;
use forebay_archive::{Member, Packed, ShardIndex, decompress, from_io, zip};
use forebay_core::bucket::BucketInfo;
use forebay_core::shard::ArchiveFormat;
use forebay_core::size::ByteRange;
use forebay_core::{Error, Result};
use forebay_store::blocking;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::decoders::{Decoder, IDLE};
use super::source::{Anywhere, Forward};
use super::{Inner, Opened, ShardKey, Shards};
use crate::object::{Scratch, Stored};

/// Members up to this many bytes are decompressed as a whole.
const INLINE_MEMBER_BYTES: u64 = 1 << 20;
/// Bytes of a chunk of a decompressed stream.
const PIECE: u64 = 256 << 10;

/// A member that can be read now.
pub(crate) struct MemberData {
    /// Bytes of its data.
    pub(crate) size: u64,
    result: &'static str,
    source: Source,
}

enum Source {
    Memory(Bytes),
    /// In the shard itself, from this byte on.
    Plain(Stored, u64),
    /// The same in the file to which a compressed shard was decompressed.
    Unpacked(Arc<Scratch>, u64),
    Packed(Box<Unpacking>),
}

/// A member that must be decompressed.
struct Unpacking {
    shards: Arc<Inner>,
    key: ShardKey,
    stored: Stored,
    member: Member,
    packed: Option<Packed>,
}

impl MemberData {
    /// How the shard was found, as in the metrics. The sender of the bytes counts them, as for
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
                stored.read(range).await
            }
            Source::Unpacked(scratch, start) => {
                scratch.read(ByteRange { start, end: start + self.size }).await
            }
            Source::Packed(unpacking) => {
                let whole = ByteRange::whole(self.size);
                let pieces: Vec<Bytes> = unpacking.stream(whole).try_collect().await?;
                Ok(pieces.concat().into())
            }
        }
    }

    /// The bytes in `range`, which must be within the member, in chunks of at most a MiB.
    pub(crate) fn stream(self, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        match self.source {
            Source::Memory(bytes) => {
                let part = bytes.slice(range.start as usize..range.end as usize);
                futures::stream::iter((!part.is_empty()).then_some(Ok(part))).boxed()
            }
            Source::Plain(stored, start) => {
                let range = ByteRange { start: start + range.start, end: start + range.end };
                stored.stream(range)
            }
            Source::Unpacked(scratch, start) => {
                let end = start + range.end;
                futures::stream::try_unfold(
                    (scratch, start + range.start),
                    move |(s, at)| async move {
                        let next = (at + PIECE).min(end);
                        if next == at {
                            return Ok(None);
                        }
                        let piece = s.read(ByteRange { start: at, end: next }).await?;
                        Ok(Some((piece, (s, next))))
                    },
                )
                .boxed()
            }
            Source::Packed(unpacking) => unpacking.stream(range),
        }
    }
}

impl Shards {
    /// The usual case in one step: a small member of a plain TAR on this target, whose index is in
    /// memory. `None` in any other case.
    pub(super) async fn small_member(
        &self,
        info: &BucketInfo,
        name: &str,
        mime: Option<ArchiveFormat>,
        place: impl FnOnce(&ShardIndex) -> Option<(u64, u64)>,
    ) -> Result<Option<MemberData>> {
        if mime.or_else(|| ArchiveFormat::from_name(name)) != Some(ArchiveFormat::Tar) {
            return Ok(None);
        }
        let Some(record) = self.0.objects.reads().present(info, name).await? else {
            return Ok(None);
        };
        let key = ShardKey::of(&record, ArchiveFormat::Tar);
        // The content may have another format than the name implies.
        let index = self.0.indexes.get(&key).filter(|index| index.format == ArchiveFormat::Tar);
        let Some((offset, size)) = index.and_then(|index| place(&index)) else {
            return Ok(None);
        };
        if size > INLINE_MEMBER_BYTES {
            return Ok(None);
        }
        let range = ByteRange { start: offset, end: offset + size };
        let bytes = self.0.objects.reads().part(info, &record, range).await?;
        let data = |b| MemberData { size, result: "hit", source: Source::Memory(b) };
        Ok(bytes.map(data))
    }

    /// Makes a member of an open shard readable.
    pub(super) async fn read(&self, opened: Opened, member: &Member) -> Result<MemberData> {
        member.check_readable()?;
        let Opened { key, stored, index } = opened;
        let (size, result) = (member.size, stored.result());
        let data = |source| Ok(MemberData { size, result, source });
        if size == 0 && key.format != ArchiveFormat::Zip {
            return data(Source::Memory(Bytes::new()));
        }
        if key.format == ArchiveFormat::Tar {
            return data(Source::Plain(stored, member.offset));
        }
        if let Some(scratch) = self.0.unpacked.get(&key) {
            return data(Source::Unpacked(scratch, member.offset));
        }
        let (shards, packed) = (self.0.clone(), index.packed(member));
        let unpacking = Unpacking { shards, key, stored, member: member.clone(), packed };
        if size > INLINE_MEMBER_BYTES {
            return data(Source::Packed(Box::new(unpacking)));
        }
        let turn = match packed {
            Some(_) => None,
            None => Some(self.0.decoders.turn(key).await),
        };
        let bytes = blocking(move || {
            // Held until the work ends, even if the caller has gone away.
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
        let whole = ByteRange::whole(self.member.size);
        let mut unpacker = Unpacker::new(Box::new(self), whole);
        while let Some(piece) = unpacker.step()? {
            all.extend_from_slice(&piece);
        }
        Ok(all.into())
    }

    /// The bytes in `range`. Each chunk is decompressed when it is requested: a slow reader holds
    /// no thread.
    fn stream(self: Box<Self>, range: ByteRange) -> BoxStream<'static, Result<Bytes>> {
        futures::stream::try_unfold(Unpacker::new(self, range), |mut unpacker| {
            blocking(move || Ok(unpacker.step()?.map(|piece| (piece, unpacker))))
        })
        .boxed()
    }

    fn forward(&self, range: ByteRange) -> Forward {
        Forward::new(self.stored.clone(), self.shards.lifecycle.token(), range)
    }
}

/// Reads a member from its archive. Its steps block.
struct Unpacker {
    what: Box<Unpacking>,
    /// The requested range of the member,
    range: ByteRange,
    /// and the current position.
    at: u64,
    input: Option<Input>,
}

enum Input {
    Tar(Decoder),
    Zip(Box<dyn Read + Send>),
}

impl Unpacker {
    fn new(what: Box<Unpacking>, range: ByteRange) -> Self {
        Self { what, range, at: range.start, input: None }
    }

    /// The next chunk; `None` after the last one.
    fn step(&mut self) -> Result<Option<Bytes>> {
        let input = match self.input.take() {
            Some(input) => input,
            None => self.open()?,
        };
        let left = self.range.end.saturating_sub(self.at);
        match input {
            Input::Tar(decoder) if left == 0 => {
                if self.what.shards.decoders.park(self.what.key, decoder) {
                    self.what.shards.clone().expire_decoders();
                }
                Ok(None)
            }
            Input::Tar(mut decoder) => {
                let piece = decoder.read(self.what.member.offset + self.at, left)?;
                self.at += piece.len() as u64;
                self.input = Some(Input::Tar(decoder));
                Ok(Some(piece))
            }
            Input::Zip(mut data) if left == 0 => {
                // At the end of a whole member its checksum is compared.
                if self.is_whole() && data.read(&mut [0]).map_err(from_io)? > 0 {
                    return Err(Error::invalid("a member is longer than the directory says"));
                }
                Ok(None)
            }
            Input::Zip(mut data) => {
                let mut piece = vec![0; left.min(PIECE) as usize];
                data.read_exact(&mut piece).map_err(from_io)?;
                self.at += piece.len() as u64;
                self.input = Some(Input::Zip(data));
                Ok(Some(piece.into()))
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.range == ByteRange::whole(self.what.member.size)
    }

    fn open(&self) -> Result<Input> {
        let what = &self.what;
        let Some(packed) = what.packed else {
            let first = what.member.offset + self.range.start;
            if let Some(decoder) = what.shards.decoders.take(what.key, first) {
                return Ok(Input::Tar(decoder));
            }
            let input = what.forward(ByteRange::whole(what.stored.record().size));
            let limits = &what.shards.limits;
            return Ok(Input::Tar(Decoder::new(decompress(what.key.format, input, limits)?)));
        };
        let source = Anywhere::new(what.stored.clone(), what.shards.lifecycle.token());
        let place = zip::data_range(&source, &what.member, &packed)?;
        // The store checks these bytes; the archive's own checksum requires all of them to be read.
        if zip::is_stored(&packed) && !self.is_whole() {
            let ByteRange { start, end } = self.range;
            let part = ByteRange { start: place.start + start, end: place.start + end };
            return Ok(Input::Zip(Box::new(what.forward(part))));
        }
        let mut data = zip::unpack(&what.member, &packed, what.forward(place))?;
        let skipped = std::io::copy(&mut (&mut data).take(self.range.start), &mut std::io::sink());
        skipped.map_err(from_io)?;
        Ok(Input::Zip(data))
    }
}

impl Inner {
    /// Starts the removal of parked decoders after their time.
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
