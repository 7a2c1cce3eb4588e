//! Reading one record and its payload.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::{Error, ErrorCode, Result};

use super::segment::Segment;
use super::{Log, locked};
use crate::store::disk::DiskFile;
use crate::store::format::{self, Entry, FIXED, MAX_HEAD, MAX_PAYLOAD};
use crate::store::identity::failed;
use crate::store::record::{Record, Spot};

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
        file.read_exact_at(&mut frame, u64::from(spot.offset)).map_err(|e| match e.kind() {
            io::ErrorKind::UnexpectedEof => corrupt(&segment, spot, "it is cut off"),
            // An unreadable sector is as lost as a flipped bit.
            _ => corrupt(&segment, spot, &format!("it cannot be read: {e}")),
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
        if !filled_now(&file, &mut frame, u64::from(spot.offset)) {
            return Ok(Err(()));
        }
        check(&segment, spot, size, frame).map(|found| Ok(Some(found)))
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
fn buffer(segment: &Segment, spot: &Spot, size: u64) -> Result<Vec<u8>> {
    let head = spot.head as usize;
    if size > MAX_PAYLOAD || !(FIXED..=MAX_HEAD).contains(&head) {
        return Err(corrupt(segment, spot, "it cannot have this length"));
    }
    Ok(vec![0; head + size as usize])
}

fn check(segment: &Segment, spot: &Spot, size: u64, frame: Vec<u8>) -> Result<(Record, Bytes)> {
    let (head, payload) = frame.split_at(spot.head as usize);
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
    Ok((record, Bytes::from(frame).slice(head..)))
}

fn corrupt(segment: &Segment, spot: &Spot, what: &str) -> Error {
    let (path, offset) = (segment.path.display(), spot.offset);
    tracing::warn!(%path, offset, "a frame of the log is damaged: {what}");
    Error::new(ErrorCode::Corrupt, format!("frame at {offset} of {path} is damaged: {what}"))
}
