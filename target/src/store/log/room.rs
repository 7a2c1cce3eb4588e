//! Room for frames that is made ready before they come.
//!
//! To sync a file that grew, a file system syncs its length and the places of its blocks as well, by
//! its journal: that takes as long again as the data, or longer. What is written over zeros that were
//! synced before is synced alone. It costs a second writing of every byte, so it is for small groups
//! that are synced one after the other.
//!
//! A segment that takes the place of an old one ([`super::spare`]) is a room as a whole, for larger
//! groups, too: what was there need not be zeros, as no frame of it passes for one of the new segment.
//!
//! What is written over something may reach the disk in any order of its pages; a file that grows
//! does not have its new length before the data. So only groups that are synced next go into a room: at
//! most one of them, the last, is not synced, and has [`Behind::unsynced`] bytes at most. A file with a
//! room has a length that no file has that ends with a frame, by which a scan knows that it may hold
//! half a group.

use std::io::{self, IoSlice};

use crate::store::disk::DiskFile;
use crate::store::format::ALIGN;
use crate::store::page_cache::PAGE;

/// Most bytes of a small group: of a larger one the data take longer to sync than all else.
pub(crate) const INLINE_MAX_BYTES: u64 = if cfg!(test) { 1 << 20 } else { 64 << 10 };
/// Bytes that are made ready at once; more of them hold the next sync up.
const ROOM: u64 = 1 << 20;
/// Small groups in a row before room is made: a single one has nothing of it.
const STREAK: u32 = if cfg!(test) { 1 } else { 8 };
/// Most bytes of a group that goes over an old segment; [`super::super::committer`] makes none that
/// are nearly as large.
pub(super) const MAX_REUSE_GROUP_BYTES: u64 = 4 << 20;
/// A file over an old segment ends so many bytes behind a multiple of [`ALIGN`], one with zeros half of it.
const OLD_MARK: u64 = 2;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What stands behind the last frame of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Behind {
    Nothing,
    Zeros,
    /// What a segment held that is gone.
    Old,
}

impl Behind {
    /// The length of a file says it: frames begin and end at multiples of [`ALIGN`].
    pub(super) fn in_file_of(len: u64) -> Self {
        match len % ALIGN {
            0 => Self::Nothing,
            OLD_MARK => Self::Old,
            _ => Self::Zeros,
        }
    }

    /// The last bytes of frames of which a crash may have kept any part.
    pub(super) fn unsynced(self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Zeros => INLINE_MAX_BYTES,
            Self::Old => MAX_REUSE_GROUP_BYTES,
        }
    }
}

/// Whether a segment of this length has a room.
pub(super) fn is_with_room(len: u64) -> bool {
    Behind::in_file_of(len) != Behind::Nothing
}

/// The length that a file of `len` bytes has when it becomes a segment over an old one.
pub(super) fn len_over_old(len: u64) -> u64 {
    (len / ALIGN * ALIGN).saturating_sub(ALIGN) + OLD_MARK
}

/// The room behind the last frame of the segment that grows.
#[derive(Default)]
pub(super) struct Room {
    /// Where the file ends; 0 while no room is in use.
    end: u64,
    streak: u32,
    /// It is what an old segment left.
    is_old: bool,
}

impl Room {
    /// The room of a segment whose file, of `len` bytes, was another one's.
    pub(super) fn over_old(len: u64) -> Self {
        Self { end: len, streak: 0, is_old: true }
    }

    /// Zeros that follow frames which end at `at`, up to the next page. A page that is written in part has to
    /// be read before, where it is not in memory.
    pub(super) fn padding(&self, at: u64) -> &'static [u8] {
        let end = if self.is_old { at.next_multiple_of(PAGE).min(self.end) } else { at };
        &ZEROS[..end.saturating_sub(at) as usize]
    }

    /// Sees to room for a group of at most `bytes` at `at`, where the frames end. False: there is
    /// none, and the file is to grow. After an error some may be there.
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
        let end = needed.max((at + ROOM).min(segment_bytes)).next_multiple_of(ALIGN) + ALIGN / 2;
        // So that the caller cuts it off again.
        self.end = end;
        let (whole, rest) =
            ((end - from) as usize / ZEROS.len(), (end - from) as usize % ZEROS.len());
        let mut zeros = vec![IoSlice::new(&ZEROS); whole];
        zeros.push(IoSlice::new(&ZEROS[..rest]));
        file.write_vectored_at(&zeros, from)?;
        Ok(true)
    }

    /// Ends its use; whether it was in use, and the file is to be cut.
    pub(super) fn end(&mut self) -> bool {
        let was_in_use = self.end > 0;
        *self = Self { streak: if was_in_use { 0 } else { self.streak }, ..Self::default() };
        was_in_use
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::store::disk::{Disk, RealDisk};

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
