//! One open file of an object, and which of its blocks have a valid check.

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use bytes::Bytes;
use forebay_core::buffers::Buffer;
use forebay_core::size::ByteRange;
use forebay_node::fast_http::FilePart;

use crate::checked::{Checked, Marks};
use crate::disk::DiskFile;
use crate::format::BLOCK;

/// A file with a part of a payload.
pub(crate) struct OpenExtent {
    pub(super) file: Arc<dyn DiskFile>,
    /// Bytes of payload.
    pub(super) size: u64,
    /// The file's id, and the check times of its disk.
    checked: Option<(u64, Arc<Checked>)>,
    /// Set by the first read of a part.
    marks: OnceLock<Option<Arc<Marks>>>,
}

impl OpenExtent {
    /// `checked`: the file's id and the check times of its disk, where they are kept.
    pub(crate) fn new(
        file: Arc<dyn DiskFile>,
        size: u64,
        checked: Option<(u64, Arc<Checked>)>,
    ) -> Self {
        Self { file, size, checked, marks: OnceLock::new() }
    }

    pub(super) fn marks(&self) -> Option<&Marks> {
        let marks = self.marks.get_or_init(|| {
            let (id, checked) = self.checked.as_ref()?;
            checked.marks(*id, self.size, self.file.changed_ns().ok()?)
        });
        marks.as_deref()
    }

    /// Makes all checks until now invalid: the disk returned damaged bytes.
    pub(super) fn distrust(&self) {
        if let Some(marks) = self.marks() {
            marks.lose();
        }
    }

    /// The check times, if all blocks of a range have a valid check.
    fn recent(&self, range: ByteRange) -> Option<&Marks> {
        let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
        self.marks().filter(|marks| marks.cover(blocks))
    }

    /// As much of a range of the file, from its first byte on, as has a valid check, if it is in
    /// the page cache.
    pub(super) fn recent_part(&self, range: ByteRange) -> Option<FilePart> {
        let marks = self.marks()?;
        let first = range.start / BLOCK;
        let covered = marks.covered(first..range.end.div_ceil(BLOCK));
        let (start, end) = (range.start, range.end.min((first + covered) * BLOCK));
        if start >= end {
            return None;
        }
        match self.file.clone().resident(start, end - start) {
            Ok(Some(file)) => {
                Some(FilePart { file, start, end, seen: Instant::now(), instead: None })
            }
            Ok(None) => {
                marks.lose();
                None
            }
            // The system cannot report it.
            Err(_) => None,
        }
    }

    /// The bytes of a range of at most a block, if they are in the page cache and their blocks have
    /// a valid check.
    pub(super) fn read_recent(&self, range: ByteRange) -> Option<Bytes> {
        let marks = self.recent(range)?;
        let mut buffer = Buffer::take(range.len() as usize);
        match self.file.read_now_at(buffer.bytes_mut(), range.start) {
            Ok(Some(n)) if n as u64 == range.len() => Some(buffer.freeze()),
            _ => {
                marks.lose();
                None
            }
        }
    }
}

/// The file that has all of `range`, and the range within it.
pub(super) fn of_one(extents: &[OpenExtent], range: ByteRange) -> Option<(&OpenExtent, ByteRange)> {
    let mut base = 0;
    let extent = extents.iter().find(|extent| {
        let is_in = range.start < base + extent.size;
        base += if is_in { 0 } else { extent.size };
        is_in
    })?;
    let ends_in = range.end - base <= extent.size;
    ends_in.then_some((extent, ByteRange { start: range.start - base, end: range.end - base }))
}
