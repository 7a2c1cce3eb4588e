//! The log of one disk: every commit, change of durable metadata and removal, in order.
//!
//! It consists of segments, files that only grow. One thread appends; reads and scans run beside it
//! and take no lock. Module `format` defines the meaning of the bytes, and the index their effect.

mod append;
#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod fault_tests;
mod frames;
mod read;
mod room;
#[cfg(test)]
mod room_tests;
mod scan;
mod segment;
mod spare;
#[cfg(test)]
mod spare_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use arc_swap::ArcSwap;
use bytes::Bytes;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};

use self::append::{Head, Unsynced};
use self::segment::{Header, Segment};
use self::spare::Spares;
use super::disk::{Disk, DiskFile, open_files_limit};
use super::identity::failed;
use super::record::Spot;

pub(crate) use self::read::Frame;
pub use self::read::Taken;
#[allow(unused_imports)]
pub(crate) use self::scan::Found;
pub(crate) use super::format::Entry;
use super::format::{FIXED, SEGMENT_HEADER};

/// Positions in a segment fit 32 bits with a margin.
const MAX_SEGMENT: u64 = 2 << 30;
/// Files of segments that are kept open for readers: this part of what the process may open,
const OPEN_SHARE: u64 = 16;
/// and at most this many.
const MAX_OPEN: u64 = 4096;

/// A place between two frames, or before the first or behind the last one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) segment: u64,
    /// Bytes from the start of the segment.
    pub(crate) offset: u64,
}

impl From<Spot> for Position {
    fn from(spot: Spot) -> Self {
        Self { segment: spot.segment, offset: u64::from(spot.offset) }
    }
}

/// An item to append.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) entry: Entry,
    /// Empty unless the record's place is the log. The spot in the record is ignored.
    pub(crate) payload: Bytes,
}

/// The log of one disk.
pub(crate) struct Log {
    io: Arc<dyn Disk>,
    folder: PathBuf,
    disk_id: u64,
    segment_bytes: u64,
    /// Readers load the current map; only `append` and `remove` replace it.
    segments: ArcSwap<BTreeMap<u64, Arc<Segment>>>,
    spares: Spares,
    /// Segments whose headers are damaged, and how. They are left as they are.
    aside: Mutex<BTreeMap<u64, String>>,
    head: Mutex<Head>,
    unsynced: Mutex<Unsynced>,
    /// Held by a sync: another one must not take its work for done.
    syncing: Mutex<()>,
    /// Segments whose files are open, in the order of opening.
    open: Mutex<VecDeque<u64>>,
    max_open: usize,
    /// A sync failed: it is unknown which of the written bytes are on the disk.
    broken: AtomicBool,
}

impl Log {
    /// Opens the log in `folder`, an empty one when there is none, and checks the headers of its
    /// segments. Appends go to a new segment, which the first append creates.
    ///
    /// `segment_bytes` is where a segment ends. Files of released segments may wait in `spares`, whose
    /// files are removed when the disk is opened. `Unsupported`: another version wrote a segment.
    pub(crate) fn open(
        io: Arc<dyn Disk>,
        folder: PathBuf,
        spares: PathBuf,
        disk_id: u64,
        segment_bytes: u64,
    ) -> Result<Self> {
        io.create_dir(&folder).map_err(failed("create folder", &folder))?;
        let (mut segments, mut aside) = (BTreeMap::new(), BTreeMap::new());
        let mut next = 1;
        for name in io.list(&folder).map_err(failed("list", &folder))? {
            let path = folder.join(&name);
            let Some(id) = parse_name(&name) else {
                tracing::warn!(path = %path.display(), "not a segment of the log, left alone");
                continue;
            };
            next = next.max(id + 1);
            match Segment::inspect(&*io, &folder, id, disk_id)? {
                Header::Sound(segment) => {
                    segments.insert(id, Arc::new(segment));
                }
                // Created, and nothing was written to it.
                Header::Missing => io.unlink(&path).map_err(failed("remove", &path))?,
                Header::Damaged(why) => {
                    tracing::warn!("segment {} is set aside: {why}", path.display());
                    aside.insert(id, why);
                }
            }
        }
        Ok(Self {
            io,
            folder,
            disk_id,
            segment_bytes: segment_bytes.min(MAX_SEGMENT),
            segments: ArcSwap::from_pointee(segments),
            spares: Spares::new(spares),
            aside: Mutex::new(aside),
            head: Mutex::new(Head::new(next)),
            unsynced: Mutex::default(),
            syncing: Mutex::default(),
            open: Mutex::default(),
            max_open: (open_files_limit() / OPEN_SHARE).min(MAX_OPEN) as usize,
            broken: AtomicBool::new(false),
        })
    }

    /// Id and bytes of each readable segment, in order.
    pub(crate) fn segments(&self) -> Vec<(u64, u64)> {
        self.segments.load().values().map(|s| (s.id(), s.len())).collect()
    }

    /// Segments that cannot be read, in order, and why.
    pub(crate) fn damaged(&self) -> Vec<(u64, String)> {
        locked(&self.aside).clone().into_iter().collect()
    }

    /// Makes the next segment follow `segment`, even if files are left in the folder.
    pub(crate) fn begin_after(&self, segment: u64) {
        locked(&self.head).begin_after(segment);
    }

    /// Where the next frame will begin, unless a segment ends before it.
    pub(crate) fn end(&self) -> Position {
        locked(&self.head).end()
    }

    /// Ends the segment: the next append begins a new one.
    #[cfg(test)]
    pub(crate) fn seal(&self) {
        locked(&self.head).leave();
    }

    /// Removes a segment, readable or not, for good: it does not come back after a power cut.
    /// Readers that have it open continue. A missing segment is no error.
    ///
    /// `keep`: its file may be kept for a later segment, if there will be use for it. Otherwise the
    /// file is returned: the last close frees its space.
    pub(crate) fn remove(&self, segment: u64, keep: bool) -> Result<Option<Arc<dyn DiskFile>>> {
        self.check_sound()?;
        let mut head = locked(&self.head);
        // The greatest id stays in the folder, or it would be given again after a restart.
        if head.next() == segment.saturating_add(1) {
            self.begin_next(&mut head)?;
        }
        let path = self.folder.join(format!("{segment:016x}"));
        let known = self.segment(segment);
        let file =
            known.as_ref().and_then(|known| known.open(&*self.io).ok()).map(|(file, _)| file);
        let spare = known.zip(file.as_ref()).filter(|_| keep && head.is_for_spares());
        let spare = spare
            .and_then(|(known, file)| self.spares.offer(known, &**file, self.segment_bytes))
            // If it cannot be kept for any reason, the segment is removed.
            .filter(|spare| self.io.rename(&path, spare.path()).is_ok());
        if spare.is_none() {
            match self.io.unlink(&path) {
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                other => other.map_err(failed("remove", &path))?,
            }
        }
        head.forget(segment);
        self.segments.rcu(|map| {
            let mut map = BTreeMap::clone(map);
            map.remove(&segment);
            map
        });
        locked(&self.aside).remove(&segment);
        locked(&self.open).retain(|open| *open != segment);
        self.sync_folder()?;
        match spare {
            Some(spare) => {
                self.spares.keep(spare);
                Ok(None)
            }
            None => Ok(file),
        }
    }

    /// Bytes of recycled files.
    pub(crate) fn spare_bytes(&self) -> u64 {
        self.spares.bytes()
    }

    /// Removes recycled files. Returns the bytes freed.
    pub(crate) fn give_up_spares(&self) -> u64 {
        self.spares.give_up(&*self.io, true)
    }

    /// Removes recycled files if none was used for a while. Returns the bytes freed.
    pub(crate) fn give_up_old_spares(&self) -> u64 {
        self.spares.give_up(&*self.io, false)
    }

    /// Ends a segment that was in use when its process ended, and was read to `end`: preallocated
    /// space is removed.
    pub(crate) fn cut(&self, segment: u64, end: u64) -> Result<()> {
        let is_open = |segment: &Arc<Segment>| segment.tail().is_some() && end >= SEGMENT_HEADER;
        let Some(segment) = self.segment(segment).filter(is_open) else { return Ok(()) };
        let file = self.io.open_write(&segment.path).map_err(failed("open", &segment.path))?;
        segment.cut(&*file, end.min(segment.len())).map_err(failed("cut", &segment.path))
    }

    /// Segments from `first` on that were in use when their process ended, and the offset of their
    /// first frame.
    pub(crate) fn open_segments(&self, first: u64) -> BTreeMap<u64, u64> {
        let segments = self.segments.load();
        let open = segments.range(first..).filter(|(_, segment)| segment.tail().is_some());
        open.map(|(id, _)| (*id, SEGMENT_HEADER)).collect()
    }

    /// Invalidates a frame for ever.
    pub(crate) fn wipe(&self, at: Position) -> Result<()> {
        let Some(segment) = self.segment(at.segment) else { return Ok(()) };
        let file = self.io.open_write(&segment.path).map_err(failed("open", &segment.path))?;
        let wiped = file.write_at(&[0; FIXED], at.offset).and_then(|()| file.sync());
        wiped.map_err(failed("write", &segment.path))
    }

    fn segment(&self, segment: u64) -> Option<Arc<Segment>> {
        self.segments.load().get(&segment).cloned()
    }

    /// The file of a segment, for reading.
    fn file(&self, segment: &Segment) -> std::io::Result<Arc<dyn DiskFile>> {
        let (file, opened) = segment.open(&*self.io)?;
        if opened {
            self.note_open(segment);
        }
        Ok(file)
    }

    /// Closes another file when too many are open.
    fn note_open(&self, segment: &Segment) {
        let mut open = locked(&self.open);
        open.push_back(segment.id());
        if open.len() > self.max_open
            && let Some(oldest) = open.pop_front().and_then(|oldest| self.segment(oldest))
        {
            oldest.close();
        }
    }

    /// An error once a sync has failed.
    pub(crate) fn check_sound(&self) -> Result<()> {
        if self.broken.load(Ordering::Acquire) {
            let folder = self.folder.display();
            return Err(Error::internal(format!("log {folder} failed to sync before"))
                .hint("look at the kernel's log, replace the disk if it is failing"));
        }
        Ok(())
    }
}

/// Parses the id in a segment's file name.
fn parse_name(name: &str) -> Option<u64> {
    let id = u64::from_str_radix(name, 16).ok()?;
    (format!("{id:016x}") == name && id < u64::MAX).then_some(id)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.locked()
}
