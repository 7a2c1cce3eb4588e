//! Appending to the log and making it last.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use forebay_core::Result;

use super::room::{MAX_REUSE_GROUP_BYTES, Room};
use super::segment::Segment;
use super::{Item, Log, Position, locked};
use crate::store::disk::DiskFile;
use crate::store::format::{self, ALIGN, Entry, SEGMENT_HEADER, SegmentHeader};
use crate::store::identity::failed;
use crate::store::record::{Place, Spot};

/// Payloads of at most this many bytes are copied behind their heads: cheaper than one more part.
const COPIED: usize = 4096;
/// Kept of the buffer from one append to the next.
const MAX_BUFFER: usize = 4 << 20;

/// Where the log grows.
pub(super) struct Head {
    /// Id of the next segment.
    next: u64,
    active: Option<Active>,
    room: Room,
    /// A group of the active segment was not synced.
    is_mixed: bool,
    /// The segment before was filled by synced groups alone.
    follows_synced: bool,
    buffer: Vec<u8>,
}

#[derive(Clone)]
struct Active {
    segment: Arc<Segment>,
    file: Arc<dyn DiskFile>,
}

/// What a sync has to do.
#[derive(Default)]
pub(super) struct Unsynced {
    files: BTreeMap<u64, (Arc<Segment>, Arc<dyn DiskFile>)>,
    folder: bool,
}

/// What one write consists of; ranges are of the buffer.
enum Part {
    Buffer(Range<usize>),
    Payload(usize),
}

/// What was written to one segment.
struct Written {
    active: Active,
    /// Length before and after.
    from: u64,
    to: u64,
}

impl Head {
    pub(super) fn new(next: u64) -> Self {
        let (room, buffer) = (Room::default(), Vec::new());
        Self { next, active: None, room, is_mixed: false, follows_synced: false, buffer }
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

    pub(super) fn seal(&mut self) {
        self.end_room();
        self.active = None;
    }

    /// Whether the next segment may be written over an old one: only what is synced at once may.
    pub(super) fn is_for_spares(&self) -> bool {
        self.follows_synced && !self.is_mixed
    }

    /// Notes that a segment was removed.
    pub(super) fn forget(&mut self, segment: u64) {
        if self.active.take_if(|active| active.segment.id() == segment).is_some() {
            self.room = Room::default();
        }
    }

    /// Makes room for a small group, if it is worth it; else what comes next lets the file grow.
    /// `bytes`: no fewer than the group takes. What is in the segment has been synced.
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

    /// Cuts the file behind its last frame.
    fn end_room(&mut self) {
        let was_in_use = self.room.end();
        let Some(Active { segment, file }) = &self.active else { return };
        if was_in_use && let Err(e) = file.set_len(segment.len()) {
            tracing::warn!(path = %segment.path.display(), "it is left for a new segment: {e}");
            self.active = None;
        }
    }
}

impl Log {
    /// Appends all items in order; their records get the spots that are returned. They survive the
    /// process, and a power cut after the next [`Self::sync`].
    ///
    /// One thread at a time. After an error nothing of it counts: what was written is cut off, and
    /// where that fails too the segment is left for a new one. `InvalidArgument`: a record is too
    /// long; [`format::check_entry`] tells before.
    pub(crate) fn append(&self, items: &[Item]) -> Result<Vec<Spot>> {
        self.check_sound()?;
        if items.is_empty() {
            return Ok(Vec::new());
        }
        let mut head = locked(&self.head);
        head.end_room();
        head.room = Room::default();
        head.is_mixed = true;
        self.append_to(&mut head, items, false)
    }

    /// [`Self::append`] for a group that is synced next, as all before it were: it may go to a room
    /// ([`Room`]).
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
        let location_cache = self.write(head, items, synced, &mut written);
        if head.buffer.capacity() > MAX_BUFFER {
            head.buffer = Vec::new();
        }
        match &location_cache {
            Ok(_) => written.iter().for_each(|w| self.publish(w)),
            Err(_) => written.iter().for_each(|w| cut_back(head, w)),
        }
        location_cache
    }

    /// Everything appended before survives a power cut when this returns. After an error the log
    /// takes no more changes: the system may have dropped what it could not write.
    pub(crate) fn sync(&self) -> Result<()> {
        let _syncing = locked(&self.syncing);
        self.check_sound()?;
        let Unsynced { files, folder } = std::mem::take(&mut *locked(&self.unsynced));
        let synced = files
            .values()
            .try_for_each(|(segment, file)| file.sync().map_err(failed("sync", &segment.path)));
        let synced = synced.and_then(|()| if folder { self.sync_folder() } else { Ok(()) });
        synced.inspect_err(|_| self.broken.store(true, Ordering::Release))
    }

    /// Ends the log in order, when nothing is to be appended any more: it can be told then that
    /// nobody died while writing.
    pub(crate) fn close(&self) {
        self.give_up_spares();
        let is_synced = locked(&self.unsynced).files.is_empty();
        if is_synced && self.check_sound().is_ok() {
            locked(&self.head).end_room();
        }
    }

    pub(super) fn sync_folder(&self) -> Result<()> {
        let synced = self.io.sync_dir(&self.folder).map_err(failed("sync", &self.folder));
        synced.inspect_err(|_| self.broken.store(true, Ordering::Release))
    }

    /// Makes the next segment now, empty and lasting.
    pub(super) fn begin_next(&self, head: &mut Head) -> Result<()> {
        let active = self.create(head)?;
        let path = &active.segment.path;
        let header = active.segment.header.encode();
        active.file.write_at(&header, 0).map_err(failed("write", path))?;
        active.file.sync().map_err(failed("sync", path))?;
        self.publish(&Written { active: active.clone(), from: 0, to: SEGMENT_HEADER });
        head.seal();
        head.active = Some(active);
        Ok(())
    }

    fn create(&self, head: &mut Head) -> Result<Active> {
        let segment = head.next;
        // Also when it fails: the name may be there then.
        head.next += 1;
        let header = SegmentHeader { segment, disk_id: self.disk_id, salt: rand::random() };
        locked(&self.unsynced).folder = true;
        let (segment, file) = Segment::create(&*self.io, &self.folder, header)?;
        Ok(Active { segment: Arc::new(segment), file })
    }

    /// The next segment in a file that was another one's, with room for frames of `bytes`.
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
        let mut location_cache = Vec::with_capacity(items.len());
        while location_cache.len() < items.len() {
            let active = match head.active.take() {
                Some(active) => active,
                None => {
                    let left = bound(&items[location_cache.len()..]);
                    let over = if synced { self.begin_over(head, left) } else { None };
                    over.map_or_else(|| self.create(head), Ok)?
                }
            };
            head.active = Some(active.clone());
            let from = active.segment.len();
            let mut batch = Batch::begin(&mut head.buffer, &active.segment, from);
            let mut full = false;
            while let Some(item) = items.get(location_cache.len()) {
                match batch.push(location_cache.len(), item, self.segment_bytes)? {
                    Some(spot) => location_cache.push(spot),
                    None => {
                        full = true;
                        break;
                    }
                }
            }
            let to = batch.offset;
            let mut slices = batch.slices(items);
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
                // No room is in use: what does not fit the segment does not fit one.
                head.active = None;
                head.follows_synced = !std::mem::replace(&mut head.is_mixed, !synced);
            }
        }
        Ok(location_cache)
    }

    /// Shows readers what was written.
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

/// No fewer bytes than the frames of these items take.
fn bound(items: &[Item]) -> u64 {
    items.iter().map(|i| format::frame_bound(&i.entry, i.payload.len() as u64)).sum()
}

fn cut_back(head: &mut Head, written: &Written) {
    let Written { active, from, .. } = written;
    head.room.end();
    if let Err(e) = active.file.set_len(*from) {
        let path = active.segment.path.display();
        tracing::warn!("what a failed write left in {path} stays there: {e}");
        head.forget(active.segment.id());
    }
}

/// Frames for one write.
struct Batch<'a> {
    buffer: &'a mut Vec<u8>,
    parts: Vec<Part>,
    /// Start of what of the buffer is in no part yet.
    pending: usize,
    segment: SegmentHeader,
    /// Where in the segment the next frame begins.
    offset: u64,
}

impl<'a> Batch<'a> {
    fn begin(buffer: &'a mut Vec<u8>, segment: &Segment, len: u64) -> Self {
        buffer.clear();
        let header = segment.header;
        if len == 0 {
            buffer.extend_from_slice(&header.encode());
        }
        let offset = len.max(SEGMENT_HEADER);
        Self { buffer, parts: Vec::new(), pending: 0, segment: header, offset }
    }

    /// Adds an item. `None`: the segment ends before it.
    fn push(&mut self, number: usize, item: &Item, segment_bytes: u64) -> Result<Option<Spot>> {
        let Item { entry, payload } = item;
        check_payload(entry, payload.len() as u64)?;
        let start = self.buffer.len();
        let spot = format::encode_head(self.buffer, &self.segment, self.offset, entry, payload)?;
        let size = u64::from(spot.head) + payload.len() as u64;
        let end = self.offset + size.next_multiple_of(ALIGN);
        // A frame that is longer than a segment has one alone.
        if end > segment_bytes && self.offset > SEGMENT_HEADER {
            self.buffer.truncate(start);
            return Ok(None);
        }
        if payload.len() <= COPIED {
            self.buffer.extend_from_slice(payload);
        } else {
            self.end_part();
            self.parts.push(Part::Payload(number));
        }
        let zeros = (end - self.offset - size) as usize;
        self.buffer.resize(self.buffer.len() + zeros, 0);
        self.offset = end;
        Ok(Some(spot))
    }

    fn end_part(&mut self) {
        let end = self.buffer.len();
        if self.pending < end {
            self.parts.push(Part::Buffer(self.pending..end));
            self.pending = end;
        }
    }

    fn slices<'b>(mut self, items: &'b [Item]) -> Vec<IoSlice<'b>>
    where
        'a: 'b,
    {
        self.end_part();
        let buffer: &'b [u8] = self.buffer;
        let parts = self.parts.into_iter().map(|part| match part {
            Part::Buffer(range) => IoSlice::new(&buffer[range]),
            Part::Payload(number) => IoSlice::new(&items[number].payload),
        });
        parts.collect()
    }
}

/// Only what the record says is in the log has a payload there, and all of it.
fn check_payload(entry: &Entry, payload: u64) -> Result<()> {
    let expected = match entry {
        Entry::Put(record) if matches!(record.place, Place::Log(_)) => record.size,
        _ => 0,
    };
    if payload == expected {
        return Ok(());
    }
    let name = entry.name();
    Err(forebay_core::Error::internal(format!(
        "object \"{name}\": {payload} bytes for the log, {expected} expected"
    )))
}
