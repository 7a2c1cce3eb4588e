//! Segments that were released and are kept to be written over by later ones.
//!
//! What goes into a new file takes new blocks and new pages, and to sync it the file's length and the places
//! of its blocks are synced as well, by the file system's journal. A file that is written over has all of
//! that: a synced group of 256 KiB takes half the time, and half of the CPU time or less.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::Result;

use super::segment::Segment;
use super::{locked, room};
use crate::store::disk::{Disk, DiskFile};
use crate::store::format::{SEGMENT_HEADER, SegmentHeader};

/// Spares that are kept at most: as many segments as one disk may fill while its dead ones wait to be found.
const MAX_RECYCLED_SEGMENTS: usize = 3;
/// Longest time for which they are kept when none is needed.
const RECYCLED_TTL: Duration = Duration::from_secs(300);

/// The spare segments of one log.
pub(super) struct Spares {
    /// Where their files are. Whatever is left in there by a process is removed by the next one.
    folder: PathBuf,
    kept: Mutex<Kept>,
}

struct Kept {
    spares: Vec<Spare>,
    /// When one was last kept or taken.
    used: Instant,
}

/// A segment that is gone from the log, and its file.
pub(super) struct Spare {
    /// Whoever still reads it holds it, too.
    segment: Arc<Segment>,
    path: PathBuf,
    bytes: u64,
}

impl Spares {
    pub(super) fn new(folder: PathBuf) -> Self {
        let kept = Kept { spares: Vec::new(), used: Instant::now() };
        Self { folder, kept: Mutex::new(kept) }
    }

    /// What a segment that is about to leave the log would be, if there is use for it. `usual`: where a
    /// segment ends.
    pub(super) fn offer(
        &self,
        segment: Arc<Segment>,
        file: &dyn DiskFile,
        usual: u64,
    ) -> Option<Spare> {
        let bytes = file.size().ok()?;
        // What stands behind a segment's end may be of any segment before it.
        let is_whole = bytes == segment.len() && (usual / 2..=usual).contains(&bytes);
        if !is_whole || locked(&self.kept).spares.len() >= MAX_RECYCLED_SEGMENTS {
            return None;
        }
        let path = self.folder.join(format!("{:016x}", segment.id()));
        Some(Spare { segment, path, bytes })
    }

    /// Keeps a spare whose file is at its path by now.
    pub(super) fn keep(&self, spare: Spare) {
        let mut kept = locked(&self.kept);
        kept.spares.push(spare);
        kept.used = Instant::now();
    }

    /// A spare that nobody reads any more, with a place for a group of `bytes`.
    pub(super) fn take(&self, bytes: u64) -> Option<Spare> {
        let mut kept = locked(&self.kept);
        let is_free = |spare: &mut Spare| {
            let fits = SEGMENT_HEADER + bytes <= room::len_over_old(spare.bytes);
            fits && Arc::get_mut(&mut spare.segment).is_some()
        };
        let found = kept.spares.iter_mut().position(is_free)?;
        kept.used = Instant::now();
        Some(kept.spares.remove(found))
    }

    /// Bytes of all files.
    pub(super) fn bytes(&self) -> u64 {
        locked(&self.kept).spares.iter().map(|spare| spare.bytes).sum()
    }

    /// Removes all, if they are to go whatever they are good for, or nobody has needed one for long.
    pub(super) fn give_up(&self, io: &dyn Disk, whatever: bool) -> u64 {
        let mut kept = locked(&self.kept);
        let spares = match whatever || kept.used.elapsed() > RECYCLED_TTL {
            true => std::mem::take(&mut kept.spares),
            false => Vec::new(),
        };
        drop(kept);
        spares.iter().map(|spare| if spare.remove(io) { spare.bytes } else { 0 }).sum()
    }
}

impl Spare {
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes it the segment of this id of a disk: segment, file, and the length that the file has.
    pub(super) fn become_segment(
        &self,
        io: &dyn Disk,
        folder: &Path,
        segment: u64,
    ) -> Result<(Segment, Arc<dyn DiskFile>, u64)> {
        let old = self.segment.header;
        let salted = || SegmentHeader { segment, salt: rand::random(), ..old };
        let mut header = salted();
        while header.takes_frames_of(&old) {
            header = salted();
        }
        let len = room::len_over_old(self.bytes);
        let (segment, file) = Segment::over(io, folder, header, &self.path, len)?;
        Ok((segment, file, len))
    }

    /// Whether it is gone.
    pub(super) fn remove(&self, io: &dyn Disk) -> bool {
        let removed = io.unlink(&self.path);
        if let Err(e) = &removed {
            tracing::warn!(path = %self.path.display(), "file stays until restart: {e}");
        }
        removed.is_ok()
    }
}
