//! Preallocated space for frames.
//!
//! To sync a file that grew, a file system also syncs its length and block map through its journal.
//! That takes as long again as the data, or longer. Bytes that overwrite zeros which were synced
//! before are synced alone. This writes every byte twice, so it is used for small groups that are
//! synced one after the other.
//!
//! A segment that overwrites a recycled one ([`super::spare`]) is preallocated as a whole, for
//! larger groups as well. The old bytes need not be zeros, because no old frame is valid in the new
//! segment.
//!
//! Overwritten pages may reach the disk in any order; a file that grows does not have its new
//! length before the data. So only groups that are synced next go into preallocated space: at most
//! one of them, the last, is not synced, and has [`unsynced_bytes`] bytes at most. A scan takes the
//! last bytes of a segment for such a group until the segment is sealed: until its header says where
//! the frames end.

use std::io::{self, IoSlice};

use crate::disk::DiskFile;
use crate::format::{ALIGN, TailContent};
use crate::page_cache::PAGE;

/// Most bytes of a small group. For a larger one syncing the data dominates.
pub(crate) const INLINE_MAX_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 64 << 10 };
/// Bytes that are preallocated at once; more of them delay the next sync.
const ROOM: u64 = 1 << 20;
/// Small groups in a row before space is preallocated: a single one gains nothing.
const STREAK: u32 = if cfg!(test) { 1 } else { 8 };
/// Most bytes of a group that overwrites a recycled segment; [`super::super::committer`] makes none
/// that are nearly as large.
pub(super) const MAX_REUSE_GROUP_BYTES: u64 = 4 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes at the end of the frames of which a crash may have kept any part.
pub(super) fn unsynced_bytes(tail: TailContent) -> u64 {
    match tail {
        TailContent::Zeros => INLINE_MAX_BYTES,
        TailContent::Recycled => MAX_REUSE_GROUP_BYTES,
    }
}

/// The bytes behind the last frame of a file of this length, for segments from before headers had a
/// state. Frames begin and end at multiples of [`ALIGN`]; such a file ends 2 bytes behind one if it
/// is recycled, and half of [`ALIGN`] behind one if it has zeros.
pub(super) fn tail_by_length(len: u64) -> Option<TailContent> {
    match len % ALIGN {
        0 => None,
        2 => Some(TailContent::Recycled),
        _ => Some(TailContent::Zeros),
    }
}

/// The preallocated space behind the last frame of the active segment.
#[derive(Default)]
pub(super) struct Room {
    /// End of the file; 0 while no preallocated space is in use.
    end: u64,
    streak: u32,
    /// The space has bytes of a recycled segment, not zeros.
    is_old: bool,
}

impl Room {
    /// The space of a segment that overwrites a recycled file of `len` bytes.
    pub(super) fn over_old(len: u64) -> Self {
        Self { end: len, streak: 0, is_old: true }
    }

    /// Zeros that follow frames which end at `at`, up to the next page. A partly written page that
    /// is not in memory has to be read first.
    pub(super) fn padding(&self, at: u64) -> &'static [u8] {
        let end = if self.is_old { at.next_multiple_of(PAGE).min(self.end) } else { at };
        &ZEROS[..end.saturating_sub(at) as usize]
    }

    /// Ensures space for a group of at most `bytes` at `at`, where the frames end. False if there
    /// is none: the file then grows. After an error some space may be there.
    pub(super) fn prepare(
        &mut self,
        file: &dyn DiskFile,
        at: u64,
        bytes: u64,
        segment_bytes: u64,
    ) -> io::Result<bool> {
        let needed = at + bytes;
        if self.is_old {
            return Ok(bytes <= MAX_REUSE_GROUP_BYTES && needed <= self.end);
        }
        self.streak = if bytes > INLINE_MAX_BYTES { 0 } else { self.streak.saturating_add(1) };
        if self.streak < STREAK || needed > segment_bytes {
            return Ok(false);
        }
        if needed <= self.end {
            return Ok(true);
        }
        let from = self.end.max(at);
        let end = needed.max((at + ROOM).min(segment_bytes)).next_multiple_of(ALIGN);
        // So that the caller truncates it again.
        self.end = end;
        let (whole, rest) =
            ((end - from) as usize / ZEROS.len(), (end - from) as usize % ZEROS.len());
        let mut zeros = vec![IoSlice::new(&ZEROS); whole];
        zeros.push(IoSlice::new(&ZEROS[..rest]));
        file.write_vectored_at(&zeros, from)?;
        Ok(true)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.end > 0
    }

    /// Ends its use. Returns whether it was in use: the file then has to be truncated.
    pub(super) fn end(&mut self) -> bool {
        let was_in_use = self.is_in_use();
        *self = Self { streak: if was_in_use { 0 } else { self.streak }, ..Self::default() };
        was_in_use
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::disk::{Disk, RealDisk};

    #[test]
    fn older_segments_have_their_state_in_their_length() {
        for len in [64, 72, 99_992] {
            assert_eq!(tail_by_length(len), None);
            assert_eq!(tail_by_length(len + 2), Some(TailContent::Recycled));
            assert_eq!(tail_by_length(len + 4), Some(TailContent::Zeros));
        }
    }

    #[test]
    fn a_large_group_ends_a_row_of_small_ones() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk.create(&dir.path().join("segment")).unwrap();
        let mut room = Room::default();
        for (bytes, row) in [
            (INLINE_MAX_BYTES + 8, 0),
            (INLINE_MAX_BYTES + 8, 0),
            (8, 1),
            (8, 2),
            (INLINE_MAX_BYTES + 8, 0),
        ] {
            room.prepare(&*file, 0, bytes, 1 << 24).unwrap();
            assert_eq!(room.streak, row, "after {bytes} bytes");
        }
    }
}
