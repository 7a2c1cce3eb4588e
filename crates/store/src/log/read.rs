//! Reading one record and its payload.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::buffers::Buffer;
use forebay_core::{Error, ErrorCode, Result};

use super::segment::Segment;
use super::{Log, locked};
use crate::disk::DiskFile;
use crate::format::{self, ALIGN, Commit, Entry, FIXED, Fixed, MAX_HEAD, MAX_PAYLOAD};
use crate::identity::failed;
use crate::record::{Place, Record, Spot};

/// Frames closer to each other are read at once, which costs less than two reads,
const NEAR: u64 = 4 << 10;
/// up to this many bytes.
const SPAN: u64 = 256 << 10;

/// A frame to be read, with its payload, and the object that it has to belong to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub(crate) segment: u64,
    pub(crate) offset: u32,
    /// Bytes of head and payload.
    pub(crate) len: u64,
    pub(crate) bucket_id: u64,
    pub(crate) name: &'a str,
    /// `None` for any commit.
    pub(crate) generation: Option<u64>,
    /// The record is returned as well.
    pub(crate) with_record: bool,
}

impl<'a> Frame<'a> {
    /// `None` if the log has only the record.
    pub(crate) fn of(record: &'a Record) -> Option<Self> {
        let Place::Log(spot) = &record.place else { return None };
        Some(Self {
            segment: spot.segment,
            offset: spot.offset,
            len: u64::from(spot.head) + record.size,
            bucket_id: record.bucket_id,
            name: &record.name,
            generation: Some(record.generation),
            with_record: false,
        })
    }

    fn start(&self) -> u64 {
        u64::from(self.offset)
    }

    /// Where the next frame may begin.
    fn end(&self) -> u64 {
        (self.start() + self.len).next_multiple_of(ALIGN)
    }

    fn is_of(&self, record: &Record) -> bool {
        (self.bucket_id, self.name) == (record.bucket_id, record.name.as_str())
            && self.generation.is_none_or(|generation| generation == record.generation)
    }
}

/// The content of a frame that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub commit: Commit,
    pub payload: Bytes,
    pub(crate) record: Option<Box<Record>>,
}

impl Log {
    /// Record and payload of the frame at `spot`, with every byte checked. `size` is that of the
    /// payload.
    ///
    /// `None`: the segment is gone. `Corrupt`: the frame is damaged, or is of another object.
    pub(crate) fn read(&self, spot: &Spot, size: u64) -> Result<Option<(Record, Bytes)>> {
        let Some(segment) = self.segment(spot.segment) else { return self.missing(spot) };
        let file = match self.file(&segment) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(failed("open", &segment.path))?,
        };
        let mut frame = buffer(&segment, spot, size)?;
        file.read_exact_at(frame.bytes_mut(), u64::from(spot.offset)).map_err(|e| {
            match e.kind() {
                io::ErrorKind::UnexpectedEof => corrupt(&segment, spot, "it is cut off"),
                // An unreadable sector is as lost as a flipped bit.
                _ => corrupt(&segment, spot, &format!("it cannot be read: {e}")),
            }
        })?;
        check(&segment, spot, size, frame).map(Some)
    }

    /// As [`Self::read`] if everything is in memory; for threads that must not wait. `None` if it
    /// is not, or if the frame is not the expected one; `read` then returns the reason. Also `None`
    /// if only a later version can read the payload.
    pub(crate) fn read_now(&self, frame: &Frame<'_>) -> Option<(Record, Bytes)> {
        let segment = self.segment(frame.segment)?;
        let file = segment.opened()?;
        let mut bytes = Buffer::take(checked_len(frame.len)?);
        if !filled_now(&file, bytes.bytes_mut(), frame.start()) {
            return None;
        }
        let head = Fixed::decode(bytes.as_ref())?.head;
        let spot = Spot { segment: frame.segment, offset: frame.offset, head };
        let size = frame.len.checked_sub(u64::from(head))?;
        let (record, payload) = check(&segment, &spot, size, bytes).ok()?;
        let is_readable = record.meta.extensions.unknown_required().is_none();
        (is_readable && frame.is_of(&record)).then_some((record, payload))
    }

    /// The payloads of frames, given in the order of their positions. Neighbours are read in one
    /// call. `None`: as from [`Self::read_now`].
    pub(crate) fn payloads_now(&self, frames: &[Frame<'_>]) -> Vec<Option<Taken>> {
        let mut payloads = Vec::with_capacity(frames.len());
        let mut rest = frames;
        while let Some(first) = rest.first() {
            let is_near = |pair: &[Frame<'_>]| {
                pair[0].segment == pair[1].segment
                    && pair[1].start() <= pair[0].end() + NEAR
                    && pair[1].end() - first.start() <= SPAN
            };
            let count = 1 + rest.windows(2).take_while(|pair| is_near(pair)).count();
            let (together, others) = rest.split_at(count);
            match self.span_now(together, &mut payloads) {
                Some(()) => {}
                None if count == 1 => payloads.push(None),
                None => together.iter().for_each(|frame| {
                    if self.span_now(std::slice::from_ref(frame), &mut payloads).is_none() {
                        payloads.push(None);
                    }
                }),
            }
            rest = others;
        }
        payloads
    }

    /// Appends the payloads of neighbouring frames in one segment. `None` if not all of them are in
    /// memory.
    fn span_now(&self, frames: &[Frame<'_>], out: &mut Vec<Option<Taken>>) -> Option<()> {
        let (first, last) = (frames.first()?, frames.last()?);
        let segment = self.segment(first.segment)?;
        let file = segment.opened()?;
        let start = first.start();
        let len = (last.start() + last.len).checked_sub(start).and_then(checked_len)?;
        let mut span = Buffer::take(len);
        if !filled_now(&file, span.bytes_mut(), start) {
            return None;
        }
        let span = span.freeze();
        let useful: u64 = frames.iter().map(|frame| frame.len).sum();
        let is_sparse = useful * 2 < span.len() as u64;
        let take = |frame: &Frame<'_>| {
            let at = usize::try_from(frame.start().checked_sub(start)?).ok()?;
            let bytes = span.get(at..at.checked_add(usize::try_from(frame.len).ok()?)?)?;
            let (bucket_id, name) = (frame.bucket_id, frame.name);
            let opened =
                format::open_frame(bytes, &segment.header, frame.start(), bucket_id, name)?;
            let (commit, payload) = (opened.commit, opened.payload);
            let is_wanted = frame.generation.is_none_or(|wanted| wanted == commit.generation);
            // A part of the buffer keeps all of the span in memory.
            let share = || match is_sparse {
                true => Bytes::copy_from_slice(payload),
                false => span.slice_ref(payload),
            };
            let record = frame.with_record.then(|| opened.record().map(Box::new)).flatten();
            is_wanted.then(|| Taken { commit, payload: share(), record })
        };
        out.extend(frames.iter().map(take));
        Some(())
    }

    fn missing<T>(&self, spot: &Spot) -> Result<Option<T>> {
        match locked(&self.aside).get(&spot.segment) {
            Some(why) => Err(Error::new(
                ErrorCode::Corrupt,
                format!("segment {:016x} of the log is damaged: {why}", spot.segment),
            )),
            None => Ok(None),
        }
    }
}

/// A short read would have to wait for the rest. [`Log::read`] reports a failed one.
fn filled_now(file: &Arc<dyn DiskFile>, buf: &mut [u8], offset: u64) -> bool {
    matches!(file.read_now_at(buf, offset), Ok(Some(n)) if n == buf.len())
}

/// Bytes of frames that may be read in one go.
fn checked_len(len: u64) -> Option<usize> {
    let most = (MAX_HEAD as u64 + MAX_PAYLOAD).max(SPAN);
    (FIXED as u64..=most).contains(&len).then_some(len as usize)
}

/// Allocates for head and payload.
fn buffer(segment: &Segment, spot: &Spot, size: u64) -> Result<Buffer> {
    let head = spot.head as usize;
    if size > MAX_PAYLOAD || !(FIXED..=MAX_HEAD).contains(&head) {
        return Err(corrupt(segment, spot, "it cannot have this length"));
    }
    Ok(Buffer::take(head + size as usize))
}

fn check(segment: &Segment, spot: &Spot, size: u64, frame: Buffer) -> Result<(Record, Bytes)> {
    let (head, payload) = frame.as_ref().split_at(spot.head as usize);
    let entry = format::decode_head(head, &segment.header, u64::from(spot.offset));
    let record = match entry.map_err(|e| corrupt(segment, spot, &e.message))? {
        Entry::Put(record) if record.size == size && record.place.is_log() => *record,
        _ => return Err(corrupt(segment, spot, "another record stands there")),
    };
    if let Some(block) = format::bad_block(payload, format::split_table(head, size)) {
        let name = &record.name;
        let what = format!("block {block} of object \"{name}\" fails its checksum");
        return Err(corrupt(segment, spot, &what));
    }
    let head = head.len();
    Ok((record, frame.freeze().slice(head..)))
}

fn corrupt(segment: &Segment, spot: &Spot, what: &str) -> Error {
    let (path, offset) = (segment.path.display(), spot.offset);
    tracing::warn!(%path, offset, "a frame of the log is damaged: {what}");
    Error::new(ErrorCode::Corrupt, format!("frame at {offset} of {path} is damaged: {what}"))
}
