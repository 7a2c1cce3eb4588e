//! Reading one record and its payload.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::buffers::Buffer;
use forebay_core::{Error, ErrorCode, Result};

use super::segment::Segment;
use super::{Log, locked};
use crate::store::disk::DiskFile;
use crate::store::format::{self, Entry, FIXED, MAX_HEAD, MAX_PAYLOAD};
use crate::store::identity::failed;
use crate::store::record::{Place, Record, Spot};

/// Frames closer to each other come by one read, which costs less than two,
const NEAR: u64 = 1 << 10;
/// of so many bytes.
const SPAN: u64 = 256 << 10;

/// Nothing was read: the disk would have to be waited for.
pub(crate) type WouldBlock = ();

impl Log {
    /// Record and payload that stand at `spot`, every byte checked. `size` is the payload's.
    ///
    /// `None`: the segment is gone. `Corrupt`: they are damaged, or others stand there.
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

    /// As [`Self::read`] if everything is in memory; meant for threads that must not wait.
    pub(crate) fn read_now(
        &self,
        spot: &Spot,
        size: u64,
    ) -> Result<std::result::Result<Option<(Record, Bytes)>, WouldBlock>> {
        let Some(segment) = self.segment(spot.segment) else { return self.missing(spot).map(Ok) };
        let Some(file) = segment.opened() else { return Ok(Err(())) };
        let mut frame = buffer(&segment, spot, size)?;
        if !filled_now(&file, frame.bytes_mut(), u64::from(spot.offset)) {
            return Ok(Err(()));
        }
        check(&segment, spot, size, frame).map(|found| Ok(Some(found)))
    }

    /// The payloads of commits that lie in the log, in the order of their places and in one call for
    /// those that are neighbours. `None`: it is not in memory, or not what its record says, which
    /// [`Self::read`] judges.
    pub(crate) fn payloads_now(&self, records: &[&Record]) -> Vec<Option<Bytes>> {
        let end = |r: &Record| u64::from(r.spot().offset) + r.frame_bytes();
        let mut payloads = Vec::with_capacity(records.len());
        let mut rest = records;
        while let Some(first) = rest.first() {
            if !first.place.is_log() {
                payloads.push(None);
                rest = &rest[1..];
                continue;
            }
            let start = u64::from(first.spot().offset);
            let is_near = |pair: &[&Record]| {
                pair[1].place.is_log()
                    && pair[0].spot().segment == pair[1].spot().segment
                    && u64::from(pair[1].spot().offset) <= end(pair[0]) + NEAR
                    && end(pair[1]) - start <= SPAN
            };
            let count = 1 + rest.windows(2).take_while(|pair| is_near(pair)).count();
            let (together, others) = rest.split_at(count);
            match self.span_now(together) {
                Some(span) => payloads.extend(span),
                None if count == 1 => payloads.push(None),
                None => {
                    let each = |record| self.span_now(&[record]).and_then(|mut span| span.pop()?);
                    payloads.extend(together.iter().copied().map(each));
                }
            }
            rest = others;
        }
        payloads
    }

    /// Neighbours in one segment. `None`: not all of them are in memory.
    fn span_now(&self, records: &[&Record]) -> Option<Vec<Option<Bytes>>> {
        let (first, last) = (records.first()?, records.last()?);
        let segment = self.segment(first.spot().segment)?;
        let file = segment.opened()?;
        let start = u64::from(first.spot().offset);
        let payload_end = u64::from(last.spot().offset) + u64::from(last.spot().head) + last.size;
        let mut span = Buffer::take(usize::try_from(payload_end.checked_sub(start)?).ok()?);
        if !filled_now(&file, span.bytes_mut(), start) {
            return None;
        }
        let span = span.freeze();
        let useful: u64 = records.iter().map(|record| record.size).sum();
        let is_sparse = useful * 2 < span.len() as u64;
        let payload = |record: &&Record| {
            let Place::Log(spot) = &record.place else { return None };
            let offset = u64::from(spot.offset);
            let at = usize::try_from(offset.checked_sub(start)?).ok()?;
            let (head, payload) = (at + spot.head as usize, record.size as usize);
            let bytes = span.get(head..head.checked_add(payload)?)?;
            let head = &span[at..head];
            let is_sound = format::is_head_of(head, &segment.header, offset, record)
                && format::bad_block(bytes, format::split_table(head, record.size)).is_none();
            // A part keeps all of the span in memory.
            let share =
                || if is_sparse { Bytes::copy_from_slice(bytes) } else { span.slice_ref(bytes) };
            is_sound.then(share)
        };
        Some(records.iter().map(payload).collect())
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

/// A short read is one that would wait for the rest; a failed one is for [`Log::read`] to judge.
fn filled_now(file: &Arc<dyn DiskFile>, buf: &mut [u8], offset: u64) -> bool {
    matches!(file.read_now_at(buf, offset), Ok(Some(n)) if n == buf.len())
}

/// Room for head and payload.
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
