//! Going through the log in order, past whatever is damaged.

use std::io;
use std::sync::Arc;

use forebay_core::Result;

use super::segment::Segment;
use super::{Log, Position};
use crate::store::disk::DiskFile;
use crate::store::format::{self, ALIGN, Entry, FIXED, Fixed, SEGMENT_HEADER};
use crate::store::identity::failed;

/// Bytes of one read.
const WINDOW: usize = 1 << 20;

/// What a scan comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// A sound frame: its record, with its place.
    Entry {
        at: Position,
        /// Bytes of the whole frame.
        len: u64,
        entry: Entry,
        /// Whether the payload is sound too, if that was asked for.
        payload_sound: Option<bool>,
    },
    /// Bytes that are no sound frame, up to the next one or the end of the segment.
    Damaged { at: Position, len: u64 },
}

impl Log {
    /// Frames from `from` on to what is the end when the scan comes there.
    ///
    /// `from` is a position that an earlier frame ended at; segments before it are left out, one
    /// that is gone is no matter. `Err` ends it: a file cannot be opened or its length not be told.
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

    /// All frames of one segment; nothing when it is gone.
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
                let window = Window { file, start: 0, bytes: Vec::new(), len };
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

/// What stands at `at`. `None`: the segment ends there.
fn next_found(
    segment: &Segment,
    window: &mut Window,
    at: u64,
    check_payload: bool,
) -> Option<Found> {
    if at >= window.len {
        return None;
    }
    let position = Position { segment: segment.id(), offset: at };
    if let Some((fixed, entry)) = frame(segment, window, at) {
        let payload = u64::from(fixed.payload);
        let sound = check_payload.then(|| payload_is_sound(window, at, fixed));
        debug_assert!(payload == 0 || matches!(entry, Entry::Put(_)));
        // The zeros behind the last frame may be cut off.
        let len = fixed.frame_bytes().min(window.len - at);
        return Some(Found::Entry { at: position, len, entry, payload_sound: sound });
    }
    let mut next = (at + 1).next_multiple_of(ALIGN);
    while next < window.len && frame(segment, window, next).is_none() {
        next += ALIGN;
    }
    Some(Found::Damaged { at: position, len: next.min(window.len) - at })
}

/// The frame that begins at `at`, if one with a sound head does and the segment has all of it.
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

/// A stretch of a file in memory.
struct Window {
    file: Arc<dyn DiskFile>,
    start: u64,
    bytes: Vec<u8>,
    /// Bytes of the file that count.
    len: u64,
}

impl Window {
    /// `want` bytes at `at`. `None`: the file ends before, or they cannot be read.
    fn get(&mut self, at: u64, want: usize) -> Option<&[u8]> {
        if at + want as u64 > self.len {
            return None;
        }
        let held = self.start..self.start + self.bytes.len() as u64;
        if !(held.start <= at && at + want as u64 <= held.end) {
            self.load(at, want);
        }
        let from = (at - self.start) as usize;
        self.bytes.get(from..from + want)
    }

    fn load(&mut self, at: u64, want: usize) {
        let most = (self.len - at).min(WINDOW.max(want) as u64) as usize;
        self.start = at;
        self.bytes.resize(most, 0);
        if self.file.read_exact_at(&mut self.bytes, at).is_err() {
            // One sector of the stretch may be the reason: try just what is wanted.
            self.bytes.truncate(want);
            if let Err(e) = self.file.read_exact_at(&mut self.bytes, at) {
                tracing::warn!(at, want, "a part of the log cannot be read: {e}");
                self.bytes.clear();
            }
        }
    }
}
