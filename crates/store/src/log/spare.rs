//! Released segments that are kept, to be overwritten by later ones.
//!
//! A new file takes new blocks and new pages, and a sync of it also syncs its length and block map
//! through the file system's journal. A file that is overwritten has all of that: a synced group of
//! 256 KiB takes half the time, and half of the CPU time or less.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::Result;

use super::locked;
use super::segment::Segment;
use crate::disk::{Disk, DiskFile};
use crate::format::{FORMAT, SEGMENT_HEADER, SegmentHeader};

/// Most recycled segments that are kept: as many as one disk may fill before compaction finds its
/// dead ones.
const MAX_RECYCLED_SEGMENTS: usize = 3;
/// How long they are kept when none is needed.
const RECYCLED_TTL: Duration = Duration::from_secs(300);

/// The recycled segments of one log.
pub(super) struct Spares {
    /// Folder of their files. Files that a process leaves in it are removed by the next process.
    folder: PathBuf,
    kept: Mutex<Kept>,
}

struct Kept {
    spares: Vec<Spare>,
    /// When one was last added or taken.
    used: Instant,
}

/// A segment that was removed from the log, and its file.
pub(super) struct Spare {
    /// Held by its readers, too.
    segment: Arc<Segment>,
    path: PathBuf,
    bytes: u64,
}

impl Spares {
    pub(super) fn new(folder: PathBuf) -> Self {
        let kept = Kept { spares: Vec::new(), used: Instant::now() };
        Self { folder, kept: Mutex::new(kept) }
    }

    /// Offers a segment that is about to leave the log, if there is use for it. `usual`: size where
    /// a segment ends.
    pub(super) fn offer(
        &self,
        segment: Arc<Segment>,
        file: &dyn DiskFile,
        usual: u64,
    ) -> Option<Spare> {
        let bytes = file.size().ok()?;
        // The bytes behind a segment's end may be of any earlier segment of the file.
        let is_whole = bytes == segment.len() && (usual / 2..=usual).contains(&bytes);
        if !is_whole || locked(&self.kept).spares.len() >= MAX_RECYCLED_SEGMENTS {
            return None;
        }
        let path = self.folder.join(format!("{:016x}", segment.id()));
        Some(Spare { segment, path, bytes })
    }

    /// Adds a recycled segment whose file is already at its path.
    pub(super) fn keep(&self, spare: Spare) {
        let mut kept = locked(&self.kept);
        kept.spares.push(spare);
        kept.used = Instant::now();
    }

    /// Takes a recycled segment without readers and with space for a group of `bytes`.
    pub(super) fn take(&self, bytes: u64) -> Option<Spare> {
        let mut kept = locked(&self.kept);
        let is_free = |spare: &mut Spare| {
            let fits = SEGMENT_HEADER + bytes <= spare.bytes;
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

    /// Removes all of them if `whatever` is set, or if none was used for long.
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

    /// Makes it the segment of this id: returns the segment, its file, and the length of the file.
    pub(super) fn become_segment(
        &self,
        io: &dyn Disk,
        folder: &Path,
        segment: u64,
    ) -> Result<(Segment, Arc<dyn DiskFile>, u64)> {
        let old = self.segment.header;
        let salted = || SegmentHeader { format: FORMAT, segment, salt: rand::random(), ..old };
        let mut header = salted();
        while header.takes_frames_of(&old) {
            header = salted();
        }
        let (segment, file) = Segment::over(io, folder, header, &self.path)?;
        Ok((segment, file, self.bytes))
    }

    /// Removes its file. Returns whether it is gone.
    pub(super) fn remove(&self, io: &dyn Disk) -> bool {
        let removed = io.unlink(&self.path);
        if let Err(e) = &removed {
            tracing::warn!(path = %self.path.display(), "file stays until restart: {e}");
        }
        removed.is_ok()
    }
}
