//! Appends to the log and syncs it.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::frames::Frames;
use super::room::{MAX_REUSE_GROUP_BYTES, Room};
use super::segment::Segment;
use super::{Item, Log, Position, locked};
use crate::disk::DiskFile;
use crate::format::{self, FORMAT, SEGMENT_HEADER, SegmentHeader};
use crate::identity::failed;
use crate::record::Spot;

/// Most bytes of the buffer that are kept from one append to the next.
const MAX_BUFFER: usize = 4 << 20;

/// The end of the log, where appends go.
pub(super) struct Head {
    /// Id of the next segment.
    next: u64,
    active: Option<Active>,
    room: Room,
    /// A group of the active segment was not synced.
    is_mixed: bool,
    /// The segment before was filled by synced groups alone.
    follows_synced: bool,
    /// Segments that get no more frames, and whose headers do not say yet where these end.
    left: Vec<Active>,
    buffer: Vec<u8>,
}

#[derive(Clone)]
struct Active {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
}

/// The pending work of the next sync.
#[derive(Default)]
pub(super) struct Unsynced {
    files: BTreeMap<u64, (Arc<Segment>, Arc<dyn DiskFile>)>,
    folder: bool,
}

/// The bytes written to one segment.
struct Written {
    active: Active,
    /// Length before and after.
    from: u64,
    to: u64,
}

impl Head {
    pub(super) fn new(next: u64) -> Self {
        Self {
            next,
            active: None,
            room: Room::default(),
            is_mixed: false,
            follows_synced: false,
            left: Vec::new(),
            buffer: Vec::new(),
        }
    }

    pub(super) fn begin_after(&mut self, segment: u64) {
        self.next = self.next.max(segment.saturating_add(1));
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn end(&self) -> Position {
        match &self.active {
            Some(Active { segment, .. }) => {
                Position { segment: segment.id(), offset: segment.len().max(SEGMENT_HEADER) }
            }
            None => Position { segment: self.next, offset: SEGMENT_HEADER },
        }
    }

    /// Ends the active segment: the next append begins a new one.
    pub(super) fn leave(&mut self) {
        self.end_room();
        self.left.extend(self.active.take());
    }

    /// Seals the segments that were left. Those of their frames that have to survive a power cut
    /// must be synced.
    fn seal_left(&mut self) {
        seal(self.left.drain(..));
    }

    /// Whether the next segment may overwrite a recycled one: only if all groups are synced at
    /// once.
    pub(super) fn is_for_spares(&self) -> bool {
        self.follows_synced && !self.is_mixed
    }

    /// Notes that a segment was removed.
    pub(super) fn forget(&mut self, segment: u64) {
        self.take_active(segment);
        self.left.retain(|left| left.segment.id() != segment);
    }

    /// The active segment, if it is this one. It is not active then.
    fn take_active(&mut self, segment: u64) -> Option<Active> {
        let active = self.active.take_if(|active| active.segment.id() == segment)?;
        self.room = Room::default();
        Some(active)
    }

    /// Preallocates for a small group, if that is worth it; otherwise the next append lets the file
    /// grow. `bytes`: an upper bound for the group. The bytes in the segment have been synced.
    fn prepare(&mut self, bytes: u64, segment_bytes: u64) {
        let Some(Active { segment, file }) = &self.active else { return };
        let len = segment.len();
        match self.room.prepare(&**file, len, bytes, segment_bytes) {
            Ok(true) => {}
            Ok(false) => self.end_room(),
            Err(e) => {
                tracing::debug!(path = %segment.path.display(), "no room was made: {e}");
                self.end_room();
            }
        }
    }

    /// Truncates the file behind its last frame.
    fn end_room(&mut self) {
        let was_in_use = self.room.end();
        let Some(Active { segment, file }) = &self.active else { return };
        if was_in_use && let Err(e) = file.set_len(segment.len()) {
            tracing::warn!(path = %segment.path.display(), "it is left for a new segment: {e}");
            self.left.extend(self.active.take());
        }
    }
}

impl Log {
    /// Appends all items in order and returns the spots of their records. They survive a crash of
    /// the process at once, and a power cut after the next [`Self::sync`].
    ///
    /// Only one thread at a time may call it. After an error none of the items count: the written
    /// bytes are truncated, and where that fails too a new segment is begun. `InvalidArgument`: a
    /// record is too long; [`format::check_entry`] detects that in advance.
    pub(crate) fn append(&self, items: &[Item]) -> Result<Vec<Spot>> {
        self.check_sound()?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut head = locked(&self.head);
        // Groups before this one are synced, if a power cut must not take them.
        head.seal_left();
        head.end_room();
        head.room = Room::default();
        head.is_mixed = true;
        self.append_to(&mut head, items, false)
    }

    /// [`Self::append`] for a group that is synced next, as all groups before it were: it may go to
    /// preallocated space ([`Room`]).
    pub(crate) fn append_to_sync(&self, items: &[Item]) -> Result<Vec<Spot>> {
        self.check_sound()?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut head = locked(&self.head);
        head.prepare(bound(items), self.segment_bytes);
        self.append_to(&mut head, items, true)
    }

    fn append_to(&self, head: &mut Head, items: &[Item], synced: bool) -> Result<Vec<Spot>> {
        let mut written = Vec::new();
        let locations = self.write(head, items, synced, &mut written);
        if head.buffer.capacity() > MAX_BUFFER {
            head.buffer = Vec::new();
        }
        match &locations {
            Ok(_) => written.iter().for_each(|w| self.publish(w)),
            Err(_) => written.iter().for_each(|w| cut_back(head, w)),
        }
        locations
    }

    /// Syncs the log: everything appended before survives a power cut. After an error the log takes
    /// no more changes, because the system may have dropped the bytes that it could not write.
    pub(crate) fn sync(&self) -> Result<()> {
        let _syncing = locked(&self.syncing);
        self.check_sound()?;
        let left = std::mem::take(&mut locked(&self.head).left);
        let Unsynced { files, folder } = std::mem::take(&mut *locked(&self.unsynced));
        let synced = files
            .values()
            .try_for_each(|(segment, file)| file.sync().map_err(failed("sync", &segment.path)));
        let synced = synced.and_then(|()| if folder { self.sync_folder() } else { Ok(()) });
        synced.inspect_err(|_| self.broken.store(true, Ordering::Release))?;
        // Only now: a sealed segment has all of its frames.
        seal(left);
        Ok(())
    }

    /// Closes the log when no more appends can arrive. The closed log shows that the process did
    /// not end during a write.
    pub(crate) fn close(&self) {
        self.give_up_spares();
        let is_synced = locked(&self.unsynced).files.is_empty();
        let mut head = locked(&self.head);
        // A group in preallocated space is never sealed before it is synced.
        let may_seal = is_synced || !head.room.is_in_use();
        if may_seal && self.check_sound().is_ok() {
            head.leave();
            head.seal_left();
        }
    }

    pub(super) fn sync_folder(&self) -> Result<()> {
        let synced = self.io.sync_dir(&self.folder).map_err(failed("sync", &self.folder));
        synced.inspect_err(|_| self.broken.store(true, Ordering::Release))
    }

    /// Creates the next segment now, empty and durable.
    pub(super) fn begin_next(&self, head: &mut Head) -> Result<()> {
        let active = self.create(head)?;
        let path = &active.segment.path;
        let header = active.segment.first_header();
        active.file.write_at(&header, 0).map_err(failed("write", path))?;
        active.file.sync().map_err(failed("sync", path))?;
        self.publish(&Written { active: active.clone(), from: 0, to: SEGMENT_HEADER });
        head.leave();
        head.active = Some(active);
        Ok(())
    }

    fn create(&self, head: &mut Head) -> Result<Active> {
        let segment = head.next;
        // Also when it fails: the name may be there then.
        head.next += 1;
        let (format, disk_id, salt) = (FORMAT, self.disk_id, rand::random());
        let header = SegmentHeader { format, segment, disk_id, salt };
        locked(&self.unsynced).folder = true;
        let (segment, file) = Segment::create(&*self.io, &self.folder, header)?;
        Ok(Active { segment: Arc::new(segment), file })
    }

    /// Makes the next segment of a recycled file, with space for frames of `bytes`.
    fn begin_over(&self, head: &mut Head, bytes: u64) -> Option<Active> {
        let is_useful = head.is_for_spares() && bytes <= MAX_REUSE_GROUP_BYTES;
        let spare = is_useful.then(|| self.spares.take(bytes))??;
        let id = head.next;
        head.next += 1;
        locked(&self.unsynced).folder = true;
        match spare.become_segment(&*self.io, &self.folder, id) {
            Ok((segment, file, len)) => {
                let active = Active { segment: Arc::new(segment), file };
                head.room = Room::over_old(len);
                self.publish(&Written { active: active.clone(), from: 0, to: SEGMENT_HEADER });
                Some(active)
            }
            Err(e) => {
                tracing::warn!("no segment was written over: {e}");
                spare.remove(&*self.io);
                None
            }
        }
    }

    fn write(
        &self,
        head: &mut Head,
        items: &[Item],
        synced: bool,
        written: &mut Vec<Written>,
    ) -> Result<Vec<Spot>> {
        let mut locations = Vec::with_capacity(items.len());
        while locations.len() < items.len() {
            let active = match head.active.take() {
                Some(active) => active,
                None => {
                    let left = bound(&items[locations.len()..]);
                    let over = if synced { self.begin_over(head, left) } else { None };
                    over.map_or_else(|| self.create(head), Ok)?
                }
            };
            head.active = Some(active.clone());
            let from = active.segment.len();
            let mut frames = Frames::begin(&mut head.buffer, &active.segment, from);
            let mut full = false;
            while let Some(item) = items.get(locations.len()) {
                match frames.push(locations.len(), item, self.segment_bytes)? {
                    Some(spot) => locations.push(spot),
                    None => {
                        full = true;
                        break;
                    }
                }
            }
            let to = frames.offset;
            let mut slices = frames.slices(items);
            let path = &active.segment.path;
            if !slices.is_empty() {
                let padding = head.room.padding(to);
                if !padding.is_empty() {
                    slices.push(IoSlice::new(padding));
                }
                let id = active.segment.id();
                let unsynced = (active.segment.clone(), active.file.clone());
                locked(&self.unsynced).files.insert(id, unsynced);
                written.push(Written { active: active.clone(), from, to });
                active.file.write_vectored_at(&slices, from).map_err(failed("write", path))?;
            }
            if full {
                // Preallocated space is not used: a group that does not fit the segment does not
                // fit that space either.
                head.left.extend(head.active.take());
                head.follows_synced = !std::mem::replace(&mut head.is_mixed, !synced);
            }
        }
        Ok(locations)
    }

    /// Makes the written bytes visible to readers.
    fn publish(&self, written: &Written) {
        let segment = &written.active.segment;
        segment.set_len(written.to);
        if written.from == 0 {
            self.segments.rcu(|map| {
                let mut map = BTreeMap::clone(map);
                map.insert(segment.id(), segment.clone());
                map
            });
            self.note_open(segment);
        }
    }
}

/// An upper bound for the frames of these items.
fn bound(items: &[Item]) -> u64 {
    items.iter().map(|i| format::frame_bound(&i.entry, i.payload.len() as u64)).sum()
}

/// Writes into the headers of these segments where their frames end.
fn seal(segments: impl IntoIterator<Item = Active>) {
    segments.into_iter().for_each(|Active { segment, file }| segment.seal(&*file));
}

fn cut_back(head: &mut Head, written: &Written) {
    let Written { active, from, .. } = written;
    head.room.end();
    if let Err(e) = active.file.set_len(*from) {
        let path = active.segment.path.display();
        tracing::warn!("what a failed write left in {path} stays there: {e}");
        let left = head.take_active(active.segment.id());
        head.left.extend(left);
    }
}
