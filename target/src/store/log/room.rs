//! Room for frames that is made ready before they come.
//!
//! To sync a file that grew, a file system syncs its length and the places of its blocks as well, by
//! its journal: that takes as long again as the data, or longer. What is written over zeros that were
//! synced before is synced alone. It costs a second writing of every byte, so it is for small groups
//! that are synced one after the other.
//!
//! What is written over something may reach the disk in any order of its pages; a file that grows
//! does not have its new length before the data. So only such groups go into a room: at most one of
//! them, the last, is not synced, and has [`SMALL`] bytes at most. A file with a room has a length
//! that no file has that ends with a frame, by which a scan knows that it may hold half a group.

use std::io::{self, IoSlice};

use crate::store::disk::DiskFile;
use crate::store::format::ALIGN;

/// Most bytes of a small group: of a larger one the data take longer to sync than all else.
pub(crate) const SMALL: u64 = if cfg!(test) { 1 << 20 } else { 64 << 10 };
/// Bytes that are made ready at once; more of them hold the next sync up.
const ROOM: u64 = 1 << 20;
/// Small groups in a row before room is made: a single one has nothing of it.
const STREAK: u32 = if cfg!(test) { 1 } else { 8 };
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Whether a segment of this length has a room: frames begin and end at multiples of [`ALIGN`].
pub(super) fn is_with_room(len: u64) -> bool {
    !len.is_multiple_of(ALIGN)
}

/// The room behind the last frame of the segment that grows.
#[derive(Default)]
pub(super) struct Room {
    /// Where the file ends; 0 while no room is in use.
    end: u64,
    streak: u32,
}

impl Room {
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
        self.streak = if bytes > SMALL { 0 } else { self.streak.saturating_add(1) };
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
        *self = Self { end: 0, streak: if was_in_use { 0 } else { self.streak } };
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
        for (bytes, row) in [(SMALL + 8, 0), (SMALL + 8, 0), (8, 1), (8, 2), (SMALL + 8, 0)] {
            room.prepare(&*file, 0, bytes, 1 << 24).unwrap();
            assert_eq!(room.streak, row, "after {bytes} bytes");
        }
    }
}
