//! Scans the log in order and skips damaged stretches.

use std::io;
use std::sync::Arc;

use forebay_core::Result;

use super::room::unsynced_bytes;
use super::segment::Segment;
use super::{Log, Position};
use crate::disk::DiskFile;
use crate::format::{self, ALIGN, Entry, FIXED, Fixed, SEGMENT_HEADER, TailContent};
use crate::identity::failed;

/// Bytes of one read.
const WINDOW: u64 = 1 << 20;
/// Bytes of one read where a disk fails: unreadable bytes are lost in units of this.
const PAGE: u64 = 4096;

/// Bytes of one read towards the beginning of a file.
const BACKWARDS: u64 = 64 << 10;

/// An item that a scan found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sound frame: its record, with its place.
    Entry {
        at: Position,
        /// Bytes of the whole frame.
        len: u64,
        entry: Entry,
        /// Whether the payload is sound too, if that check was requested. Also false where the
        /// payload is not sound because the process ended before it was written.
        payload_sound: Option<bool>,
    },
    /// Bytes that are no sound frame, up to the next one or the end of the segment. Preallocated
    /// space behind the last frame is not part of it.
    Damaged { at: Position, len: u64 },
}

impl Log {
    /// Frames from `from` on, a position where a frame begins or the log ended. Segments that begin
    /// after the start of the scan, or are removed meanwhile, are left out.
    ///
    /// `Err`: the file of a segment cannot be opened; the scan continues with the next one.
    pub(crate) fn scan(
        &self,
        from: Position,
        check_payload: bool,
    ) -> impl Iterator<Item = Result<Found>> + '_ {
        let segments = self.segments.load_full();
        let ids: Vec<u64> = segments.range(from.segment..).map(|(id, _)| *id).collect();
        ids.into_iter().flat_map(move |id| {
            let start = if id == from.segment { from.offset } else { 0 };
            self.scan_from(id, start, check_payload)
        })
    }

    /// All frames of one segment; none when it was removed.
    pub(crate) fn scan_segment(
        &self,
        segment: u64,
        check_payload: bool,
    ) -> impl Iterator<Item = Result<Found>> + '_ {
        self.scan_from(segment, 0, check_payload)
    }

    fn scan_from(&self, segment: u64, from: u64, check_payload: bool) -> SegmentScan {
        let Some(segment) = self.segment(segment) else { return SegmentScan::Ended };
        match self.file(&segment) {
            Ok(file) => {
                let (len, at) = (segment.len(), from.max(SEGMENT_HEADER));
                let mut window = Window::new(file, len);
                if let Some(tail) = segment.tail() {
                    let end = match tail {
                        TailContent::Zeros => blank_from(&*window.file, len),
                        TailContent::Recycled => frames_end(&segment, &mut window, at),
                    };
                    window.end_at(end, tail);
                }
                SegmentScan::Running { segment, window, at, check_payload }
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => SegmentScan::Ended,
            Err(e) => SegmentScan::Failed(failed("open", &segment.path)(e)),
        }
    }
}

enum SegmentScan {
    Running { segment: Arc<Segment>, window: Window, at: u64, check_payload: bool },
    Failed(forebay_core::Error),
    Ended,
}

impl Iterator for SegmentScan {
    type Item = Result<Found>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Ended => None,
            Self::Failed(_) => match std::mem::replace(self, Self::Ended) {
                Self::Failed(e) => Some(Err(e)),
                _ => None,
            },
            Self::Running { segment, window, at, check_payload } => {
                let found = next_found(segment, window, *at, *check_payload)?;
                let (Found::Entry { len, .. } | Found::Damaged { len, .. }) = &found;
                *at += len;
                Some(Ok(found))
            }
        }
    }
}

/// The item at `at`. `None` at the end of the segment.
fn next_found(
    segment: &Segment,
    window: &mut Window,
    at: u64,
    check_payload: bool,
) -> Option<Found> {
    if at >= window.blank {
        return None;
    }
    let position = Position { segment: segment.id(), offset: at };
    if let Some((fixed, entry)) = frame(segment, window, at) {
        let is_sound =
            (check_payload || at >= window.torn).then(|| payload_is_sound(window, at, fixed));
        let sound = is_sound.filter(|sound| check_payload || !sound);
        // The zeros behind the last frame may be truncated.
        let len = fixed.frame_bytes().min(window.len - at);
        return Some(Found::Entry { at: position, len, entry, payload_sound: sound });
    }
    let mut next = window.seek(at);
    while next < window.blank && frame(segment, window, next).is_none() {
        next = window.seek(next);
    }
    Some(Found::Damaged { at: position, len: next.min(window.len) - at })
}

/// Where the last sound frame from `at` on ends. Bytes of a recycled segment fail their checksum
/// here.
fn frames_end(segment: &Segment, window: &mut Window, mut at: u64) -> u64 {
    let mut end = at;
    while let Some(found) = next_found(segment, window, at, false) {
        let (Found::Entry { len, .. } | Found::Damaged { len, .. }) = &found;
        at += len;
        if matches!(found, Found::Entry { .. }) {
            end = at;
        }
    }
    end
}

/// The frame that begins at `at`, if its head is sound and the segment has all of it.
fn frame(segment: &Segment, window: &mut Window, at: u64) -> Option<(Fixed, Entry)> {
    let fixed = Fixed::decode(window.get(at, FIXED)?)?;
    let end = at + u64::from(fixed.head) + u64::from(fixed.payload);
    if end > window.len {
        return None;
    }
    let head = window.get(at, fixed.head as usize)?;
    let entry = format::decode_head(head, &segment.header, at).ok()?;
    Some((fixed, entry))
}

fn payload_is_sound(window: &mut Window, at: u64, fixed: Fixed) -> bool {
    let (head, payload) = (fixed.head as usize, fixed.payload as usize);
    let Some(frame) = window.get(at, head + payload) else { return false };
    let (head, payload) = frame.split_at(head);
    format::bad_block(payload, format::split_table(head, payload.len() as u64)).is_none()
}

/// Offset from which a file of `len` bytes has only zeros. Unreadable bytes do not count as zeros.
fn blank_from(file: &dyn DiskFile, len: u64) -> u64 {
    let (mut end, mut bytes) = (len, vec![0; BACKWARDS as usize]);
    while end > 0 {
        let start = end.saturating_sub(BACKWARDS);
        let part = &mut bytes[..(end - start) as usize];
        if file.read_exact_at(part, start).is_err() {
            return end;
        }
        if let Some(last) = part.iter().rposition(|byte| *byte != 0) {
            return start + last as u64 + 1;
        }
        end = start;
    }
    0
}

/// A stretch of a file in memory.
struct Window {
    file: Arc<dyn DiskFile>,
    /// Bytes of the file that count.
    len: u64,
    /// No frame begins from here on.
    blank: u64,
    /// A frame that begins here or later may be torn: it was being written when the process ended.
    torn: u64,
    start: u64,
    bytes: Vec<u8>,
    /// A large read failed: up to this offset the file is read in pages.
    careful: u64,
    /// End of the last page that could not be read.
    unreadable: u64,
}

impl Window {
    fn new(file: Arc<dyn DiskFile>, len: u64) -> Self {
        let (blank, torn, bytes) = (len, u64::MAX, Vec::new());
        Self { file, len, blank, torn, start: 0, bytes, careful: 0, unreadable: 0 }
    }

    /// Sets the end of the frames.
    fn end_at(&mut self, end: u64, tail: TailContent) {
        self.blank = end;
        self.torn = end.saturating_sub(unsynced_bytes(tail));
    }

    /// The next offset behind `at` where a frame may begin; `blank` or more if there is none.
    fn seek(&mut self, at: u64) -> u64 {
        let mut next = (at + 1).next_multiple_of(ALIGN);
        while next < self.blank {
            next = next.max(self.unreadable);
            if self.get(next, FIXED).is_none() {
                // The file ends, or these bytes cannot be read.
                next = self.unreadable.max(next + ALIGN);
                continue;
            }
            let rest = &self.bytes[(next - self.start) as usize..];
            match rest.chunks_exact(ALIGN as usize).position(format::may_begin_frame) {
                Some(found) => return next + found as u64 * ALIGN,
                None => next += (rest.len() as u64 / ALIGN).max(1) * ALIGN,
            }
        }
        next
    }

    /// `want` bytes at `at`. `None` if the file ends before, or they cannot be read.
    fn get(&mut self, at: u64, want: usize) -> Option<&[u8]> {
        if at + want as u64 > self.len {
            return None;
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if !(held.start <= at && at + want as u64 <= held.end) {
            self.load(at, want as u64);
        }
        let from = (at - self.start) as usize;
        self.bytes.get(from..from + want)
    }

    fn load(&mut self, at: u64, want: u64) {
        self.start = at;
        let rest = self.len - at;
        if at >= self.careful {
            let most = rest.min(want.max(WINDOW));
            match self.read(at, most) {
                Ok(()) => return,
                Err(_) => self.careful = at + most,
            }
        }
        if let Err(e) = self.read(at, rest.min(want.max(PAGE - at % PAGE))) {
            tracing::warn!(at, want, "a part of the log cannot be read: {e}");
            self.bytes.clear();
            self.unreadable = (at + 1).next_multiple_of(PAGE);
        }
    }

    fn read(&mut self, at: u64, len: u64) -> io::Result<()> {
        self.bytes.resize(len as usize, 0);
        self.file.read_exact_at(&mut self.bytes, at)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::IoSlice;
    use std::ops::Range;
    use std::sync::Mutex;

    use super::super::tests::{open, put};
    use super::*;
    use crate::disk::{Disk, RealDisk};

    /// A file of which a part cannot be read.
    struct Failing {
        file: Arc<dyn DiskFile>,
        bad: Range<u64>,
        failed: Mutex<u64>,
    }

    impl DiskFile for Failing {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
            if offset < self.bad.end && offset + buf.len() as u64 > self.bad.start {
                *self.failed.lock().unwrap() += 1;
                return Err(io::Error::other("bad sector"));
            }
            self.file.read_at(buf, offset)
        }

        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn write_vectored_at(&self, _: &[IoSlice<'_>], _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn set_len(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }

        fn read_now_at(&self, _: &mut [u8], _: u64) -> io::Result<Option<usize>> {
            unreachable!()
        }

        fn sync(&self) -> io::Result<()> {
            unreachable!()
        }

        fn size(&self) -> io::Result<u64> {
            self.file.size()
        }
    }

    #[test]
    fn a_bad_sector_costs_the_frames_on_it_and_few_tries() {
        let dir = tempfile::TempDir::new().unwrap();
        let log = open(dir.path(), 1 << 30);
        let items: Vec<_> = (1..200).map(|i| put("name", i, 1000)).collect();
        let locations = log.append(&items).unwrap();
        let segment = log.segment(locations[0].segment).unwrap();
        let bad = 40_960..49_152;
        let file = RealDisk.open(&segment.path).unwrap();
        let failing = Arc::new(Failing { file, bad: bad.clone(), failed: Mutex::new(0) });
        let window = Window::new(failing.clone(), segment.len());
        let at = SEGMENT_HEADER;
        let scan = SegmentScan::Running { segment, window, at, check_payload: true };
        let sound = |found: Found| match found {
            Found::Entry { entry, payload_sound: Some(true), .. } => Some(entry.sequence()),
            _ => None,
        };
        let found: Vec<_> = scan.filter_map(|found| sound(found.unwrap())).collect();
        let spared = items.iter().zip(&locations).filter(|(item, spot)| {
            let start = u64::from(spot.offset);
            let end = start + u64::from(spot.head) + item.payload.len() as u64;
            end <= bad.start || start >= bad.end
        });
        let spared: Vec<_> = spared.map(|(item, _)| item.entry.sequence()).collect();
        assert_eq!(found, spared);
        assert!(*failing.failed.lock().unwrap() < 12, "{}", failing.failed.lock().unwrap());
    }
}
