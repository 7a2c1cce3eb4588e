//! Reads a large object in several parallel ranges into existing memory.

use bytes::Bytes;
use forebay_core::buffers::Buffer;
use forebay_core::object::ObjectMeta;
use forebay_core::size::RangeSpec;
use forebay_core::{Bucket, Error as CoreError, ErrorCode};
use futures::{StreamExt, TryStreamExt, stream};

use crate::client::Client;
use crate::download::GetReply;
use crate::each::Pin;
use crate::error::{Error, Result};

/// How a read is divided.
#[derive(Clone, Copy, Debug)]
pub struct Ranges {
    /// Bytes of one range.
    pub size: u64,
    /// Number of parallel ranges; 1 means a single request for everything.
    pub parallel: usize,
}

impl Client {
    /// Reads an object, or a range of it, into `dest`; returns the number of bytes.
    ///
    /// If the data does not fit, the error is [`ErrorCode::InvalidArgument`] and nothing is
    /// written; if the object is not the pinned one, the error is [`ErrorCode::ObjectChanged`]. On
    /// a failure `dest` may hold some of the bytes.
    pub async fn get_into(
        &self,
        (bucket, name): (&Bucket, &str),
        range: Option<RangeSpec>,
        how: Ranges,
        pin: Option<&Pin>,
        dest: &mut [u8],
    ) -> Result<usize> {
        let room = dest.len() as u64;
        let fitting = |dest, length: u64| match part_of(dest, length) {
            Some(dest) => Ok(dest),
            None => {
                let uri = bucket.object_uri(name);
                let what = format!("{uri}: {length} bytes do not fit into a buffer of {room}");
                Err(Error::Api(CoreError::invalid(what)))
            }
        };
        if let Some(known) = Known::of(range, how, pin) {
            let dest = fitting(dest, known.end - known.start)?;
            self.fill_known(bucket, name, &known, how, dest).await?;
            return Ok(dest.len());
        }
        let Some((first, end)) = self.first_of(bucket, name, range, how).await? else {
            return Ok(0);
        };
        pin.map_or(Ok(()), |pin| pin.check(&first.meta, bucket, name))?;
        let dest = fitting(dest, end - first.range.start)?;
        self.fill(bucket, name, first, how, dest).await?;
        Ok(dest.len())
    }

    /// Reads an object, or a range of it, into newly allocated memory; see [`Self::get_into`].
    pub async fn get_in_ranges(
        &self,
        (bucket, name): (&Bucket, &str),
        range: Option<RangeSpec>,
        how: Ranges,
        pin: Option<&Pin>,
    ) -> Result<Bytes> {
        let room_for = |len: u64| {
            let room = usize::try_from(len).ok().and_then(Buffer::try_take);
            room.ok_or_else(|| no_memory(bucket, name, len))
        };
        if let Some(known) = Known::of(range, how, pin) {
            let mut dest = room_for(known.end - known.start)?;
            self.fill_known(bucket, name, &known, how, dest.bytes_mut()).await?;
            return Ok(dest.freeze());
        }
        let Some((first, end)) = self.first_of(bucket, name, range, how).await? else {
            return Ok(Bytes::new());
        };
        pin.map_or(Ok(()), |pin| pin.check(&first.meta, bucket, name))?;
        let mut dest = room_for(end - first.range.start)?;
        self.fill(bucket, name, first, how, dest.bytes_mut()).await?;
        Ok(dest.freeze())
    }

    /// Reads a range of an object whose size and identity are known: no part waits for another.
    async fn fill_known(
        &self,
        bucket: &Bucket,
        name: &str,
        known: &Known<'_>,
        how: Ranges,
        dest: &mut [u8],
    ) -> Result<()> {
        let size = usize::try_from(how.size.max(1)).unwrap_or(usize::MAX);
        let mut next = known.start;
        let mut parts = Vec::with_capacity(dest.len().div_ceil(size));
        for part in dest.chunks_mut(size) {
            let range = RangeSpec::From(next, Some(next + part.len() as u64 - 1));
            next += part.len() as u64;
            parts.push(async move {
                let reply = self.read(bucket, name, Some(range)).await?;
                known.pin.check(&reply.meta, bucket, name)?;
                reply.read_over(part).await
            });
        }
        stream::iter(parts).buffer_unordered(how.parallel).try_collect().await
    }

    /// Reads the first range, whose answer contains the size of the object, and returns where the
    /// last range ends. `None` if there is nothing to read.
    async fn first_of(
        &self,
        bucket: &Bucket,
        name: &str,
        range: Option<RangeSpec>,
        how: Ranges,
    ) -> Result<Option<(GetReply, u64)>> {
        let (start, last) = match range {
            None => (0, None),
            Some(RangeSpec::From(start, last)) => (start, last),
            // Only the target knows where a suffix starts.
            Some(RangeSpec::Suffix(_)) => {
                let reply = self.read(bucket, name, range).await?;
                let end = reply.range.end;
                return Ok(Some((reply, end)));
            }
        };
        if how.parallel <= 1 {
            let reply = self.read(bucket, name, range).await?;
            let end = reply.range.end;
            return Ok(Some((reply, end)));
        }
        let piece = start.saturating_add(how.size.max(1) - 1);
        let asked = RangeSpec::From(start, Some(last.map_or(piece, |last| last.min(piece))));
        match self.read(bucket, name, Some(asked)).await {
            Ok(reply) => {
                let size = reply.meta.size;
                let end = last.map_or(size, |last| size.min(last.saturating_add(1)));
                Ok(Some((reply, end)))
            }
            // An empty object has no satisfiable range.
            Err(Error::Api(e)) if e.code == ErrorCode::RangeNotSatisfiable && range.is_none() => {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Reads the rest of `first`, and the remainder of `dest` in parallel ranges.
    async fn fill(
        &self,
        bucket: &Bucket,
        name: &str,
        first: GetReply,
        how: Ranges,
        dest: &mut [u8],
    ) -> Result<()> {
        let started = usize::try_from(first.range.len()).unwrap_or(usize::MAX).min(dest.len());
        let meta = first.meta.clone();
        let mut next = first.range.start + started as u64;
        let (head, rest) = dest.split_at_mut(started);
        let size = usize::try_from(how.size.max(1)).unwrap_or(usize::MAX);
        let mut others = Vec::with_capacity(rest.len().div_ceil(size));
        for piece in rest.chunks_mut(size) {
            let start = next;
            next += piece.len() as u64;
            others.push(self.read_piece(bucket, name, &meta, start, piece));
        }
        let others = stream::iter(others)
            .buffer_unordered(how.parallel.saturating_sub(1).max(1))
            .try_collect::<()>();
        futures::try_join!(first.read_over(head), others).map(drop)
    }

    /// Reads the range that begins at `start` into `dest`, of the object that `meta` describes.
    async fn read_piece(
        &self,
        bucket: &Bucket,
        name: &str,
        meta: &ObjectMeta,
        start: u64,
        dest: &mut [u8],
    ) -> Result<()> {
        let wanted = RangeSpec::From(start, Some(start + dest.len() as u64 - 1));
        let reply = self.read(bucket, name, Some(wanted)).await?;
        if !is_same(&reply.meta, meta) {
            let what = format!("{} changed while it was read", bucket.object_uri(name));
            return Err(Error::Api(CoreError::new(ErrorCode::ObjectChanged, what)));
        }
        reply.read_over(dest).await
    }
}

/// A range whose size is known before the request, so that no answer is needed to learn it.
struct Known<'a> {
    start: u64,
    end: u64,
    pin: &'a Pin,
}

impl<'a> Known<'a> {
    /// `None` if a single request is wanted, or if the parts could come from two versions without
    /// notice.
    fn of(range: Option<RangeSpec>, how: Ranges, pin: Option<&'a Pin>) -> Option<Self> {
        let (Some(RangeSpec::From(start, Some(last))), Some(pin)) = (range, pin) else {
            return None;
        };
        let end = pin.size.min(last.saturating_add(1));
        let tells = !pin.version.is_empty() || !pin.checksum.is_empty();
        (how.parallel > 1 && tells && start < end).then_some(Self { start, end, pin })
    }
}

/// The error for an object that is larger than the available memory.
pub fn no_memory(bucket: &Bucket, name: &str, len: u64) -> Error {
    let uri = bucket.object_uri(name);
    let text = format!("{uri}: no memory for the {len} bytes that the answer announces");
    Error::Api(CoreError::internal(text).hint("read it in pieces, if it is really so large"))
}

/// The first `length` bytes of `dest`, if it has that many.
fn part_of(dest: &mut [u8], length: u64) -> Option<&mut [u8]> {
    usize::try_from(length).ok().and_then(|length| dest.get_mut(..length))
}

/// Whether the two may describe the same content; unknown properties are ignored.
fn is_same(one: &ObjectMeta, other: &ObjectMeta) -> bool {
    let fits = |a: &str, b: &str| a.is_empty() || b.is_empty() || a == b;
    one.size == other.size && fits(&one.version, &other.version) && fits(&one.etag, &other.etag)
}
