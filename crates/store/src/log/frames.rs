//! The frames of one write: heads and short payloads in one buffer, long payloads where they are.

use std::io::IoSlice;
use std::ops::Range;

use forebay_core::{Error, Result};

use super::Item;
use super::segment::Segment;
use crate::format::{self, ALIGN, Entry, SEGMENT_HEADER, SegmentHeader};
use crate::record::{Place, Spot};

/// Payloads of at most this many bytes are copied behind their heads: cheaper than one more part of
/// the write.
const COPIED: usize = 4096;

/// A part of one write; ranges are ranges of the buffer.
enum Part {
    Buffer(Range<usize>),
    Payload(usize),
}

/// Frames for one write.
pub(super) struct Frames<'a> {
    buffer: &'a mut Vec<u8>,
    parts: Vec<Part>,
    /// Start of the buffer bytes that are in no part yet.
    pending: usize,
    segment: SegmentHeader,
    /// Offset in the segment of the next frame.
    pub(super) offset: u64,
}

impl<'a> Frames<'a> {
    pub(super) fn begin(buffer: &'a mut Vec<u8>, segment: &Segment, len: u64) -> Self {
        buffer.clear();
        let header = segment.header;
        if len == 0 {
            buffer.extend_from_slice(&segment.first_header());
        }
        let offset = len.max(SEGMENT_HEADER);
        Self { buffer, parts: Vec::new(), pending: 0, segment: header, offset }
    }

    /// Adds an item. `None` if the segment ends before it.
    pub(super) fn push(
        &mut self,
        number: usize,
        item: &Item,
        segment_bytes: u64,
    ) -> Result<Option<Spot>> {
        let Item { entry, payload } = item;
        check_payload(entry, payload.len() as u64)?;
        let start = self.buffer.len();
        let spot = format::encode_head(self.buffer, &self.segment, self.offset, entry, payload)?;
        let size = u64::from(spot.head) + payload.len() as u64;
        let end = self.offset + size.next_multiple_of(ALIGN);
        // A frame that is longer than a segment gets a segment of its own.
        if end > segment_bytes && self.offset > SEGMENT_HEADER {
            self.buffer.truncate(start);
            return Ok(None);
        }
        if payload.len() <= COPIED {
            self.buffer.extend_from_slice(payload);
        } else {
            self.end_part();
            self.parts.push(Part::Payload(number));
        }
        let zeros = (end - self.offset - size) as usize;
        self.buffer.resize(self.buffer.len() + zeros, 0);
        self.offset = end;
        Ok(Some(spot))
    }

    fn end_part(&mut self) {
        let end = self.buffer.len();
        if self.pending < end {
            self.parts.push(Part::Buffer(self.pending..end));
            self.pending = end;
        }
    }

    pub(super) fn slices<'b>(mut self, items: &'b [Item]) -> Vec<IoSlice<'b>>
    where
        'a: 'b,
    {
        self.end_part();
        let buffer: &'b [u8] = self.buffer;
        let parts = self.parts.into_iter().map(|part| match part {
            Part::Buffer(range) => IoSlice::new(&buffer[range]),
            Part::Payload(number) => IoSlice::new(&items[number].payload),
        });
        parts.collect()
    }
}

/// Only a record whose place is the log has a payload in it, and then all of it.
fn check_payload(entry: &Entry, payload: u64) -> Result<()> {
    let expected = match entry {
        Entry::Put(record) if matches!(record.place, Place::Log(_)) => record.size,
        _ => 0,
    };
    if payload == expected {
        return Ok(());
    }
    let name = entry.name();
    Err(Error::internal(format!(
        "object \"{name}\": {payload} bytes for the log, {expected} expected"
    )))
}
