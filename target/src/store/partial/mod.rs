//! Partial objects: those granules of a backend's object that were read so far.
//!
//! Nothing of this is ever synced. If anything is wrong with a granule, it counts as missing,
//! because the backend has all of it. A [`Partial`] is of one version of an object. It is removed
//! when the object is written, removed or dropped, and becomes an ordinary object when its last
//! granule arrived.

mod io;
mod layout;
mod store;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};

pub(crate) use self::layout::{GRANULE, PartialHead};

use self::layout::{ENTRY, HEAD_START};
use super::disk::{Disk, DiskFile};
use super::format;
use super::identity::failed;

use super::shared::Shared;

use super::blocking;
use super::index::Span;
use super::space::Reservation;
use super::work::Filling;

/// Most partial objects on one disk: bounds the memory they take while they are not read.
const MAX_PARTIAL_OBJECTS: usize = 65_536;
/// Space of the files themselves.
const FILES: u64 = 8 << 10;
/// Space of one granule and its entry.
const SPACE: u64 = GRANULE + ENTRY;

/// When the backend was last seen to have the stored version.
///
/// Not kept on the disk: after a start everything is compared with the backend once. A power cut
/// may bring back a partial object that was dropped shortly before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Validation {
    /// Version of the cluster's state at that time.
    pub(crate) epoch: u64,
    pub(crate) ns: u64,
}

/// The partial objects of one disk.
pub(crate) struct Partials {
    folder: PathBuf,
    /// By the object's key. Held while an entry appears or goes, never during I/O on payloads.
    known: Mutex<BTreeMap<Vec<u8>, Known>>,
}

struct Known {
    id: u64,
    head: Arc<PartialHead>,
    space: u64,
    atime_ns: u64,
    validation: Validation,
    open: Weak<Partial>,
}

/// An open partial object.
pub(crate) struct Partial {
    /// Weak, so that a long-lived reader does not keep a disk that left service.
    shared: Weak<Shared>,
    /// Number of its disk.
    disk: usize,
    id: u64,
    key: Vec<u8>,
    head: Arc<PartialHead>,
    head_len: u64,
    state: Mutex<State>,
}

/// The open files of a partial object.
#[derive(Clone)]
struct Files {
    payload: Arc<dyn DiskFile>,
    map: Arc<dyn DiskFile>,
}

struct State {
    /// `None` after it was dropped: an open file would keep its space.
    files: Option<Files>,
    /// Granules that are stored, with the index of their entry in the map.
    slots: HashMap<u32, u32>,
    next: u32,
    /// It was dropped, or became an object: nothing may be added any more.
    over: bool,
}

impl Partials {
    pub(crate) fn open(root: &Path, io: &dyn Disk) -> Result<Self> {
        let folder = root.join("partial");
        io.create_dir(&folder).map_err(failed("create folder", &folder))?;
        Ok(Self { folder, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Known>> {
        self.known.locked()
    }

    fn payload_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id:016x}"))
    }

    fn map_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id:016x}.map"))
    }

    fn unlink(&self, io: &dyn Disk, id: u64) {
        // The map first: a payload without a map is removed at the next start.
        for path in [self.map_path(id), self.payload_path(id)] {
            match io.unlink(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), "stays until restart: {e}");
                }
                _ => {}
            }
        }
    }

    /// Ids of the buckets that have partial objects on this disk.
    pub(crate) fn buckets(&self) -> Vec<u64> {
        let mut ids: Vec<_> = self.known().values().map(|known| known.head.bucket_id).collect();
        ids.dedup();
        ids
    }

    /// The partial objects of a span, at most `limit`, in the order of names.
    pub(crate) fn scan(&self, span: &Span, limit: usize) -> Vec<Arc<PartialHead>> {
        let key = |name: &str| format::key(span.bucket_id, name);
        let first = key(&span.prefix);
        let start = match &span.after {
            Some(after) if key(after) >= first => Bound::Excluded(key(after)),
            _ => Bound::Included(first.clone()),
        };
        let last = span.until.as_ref().map(|until| key(until));
        let known = self.known();
        let within = known.range((start, Bound::Unbounded)).take_while(|(key, _)| {
            key.starts_with(&first) && last.as_ref().is_none_or(|last| *key <= last)
        });
        within.take(limit).map(|(_, known)| known.head.clone()).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<PartialHead>> {
        self.known().values().map(|known| known.head.clone()).collect()
    }

    /// The head of the partial object of a key.
    pub(crate) fn head(&self, key: &[u8]) -> Option<Arc<PartialHead>> {
        self.known().get(key).map(|known| known.head.clone())
    }

    /// Records when the backend last had the stored version.
    pub(crate) fn validate(&self, key: &[u8], version: &str, validation: Validation) {
        if let Some(known) = self.known().get_mut(key).filter(|k| k.head.version == version) {
            known.validation = validation;
        }
    }

    /// Space that partial objects of a bucket take.
    pub(crate) fn space_of(&self, bucket_id: u64) -> u64 {
        let known = self.known();
        let of_bucket = known.range(format::key(bucket_id, "")..);
        let of_bucket = of_bucket.take_while(|(_, known)| known.head.bucket_id == bucket_id);
        of_bucket.map(|(_, known)| known.space).sum()
    }

    /// Whether dropping partial objects could free space.
    pub(crate) fn is_any(&self) -> bool {
        !self.known().is_empty()
    }

    /// Ends the use of everything that is open: the disk left service. Its partial objects are read
    /// again when it comes back.
    pub(crate) fn close(&self) {
        for open in self.known().values().filter_map(|known| known.open.upgrade()) {
            open.end();
        }
    }

    fn knows(&self, key: &[u8]) -> bool {
        self.known().contains_key(key)
    }
}

impl Shared {
    /// Loads the partial objects of the disk, and removes what a crash left. Reads heads only.
    pub(crate) fn recover_partials(&self) -> Result<()> {
        let folder = &self.partials.folder;
        let mut ids = HashMap::<u64, usize>::new();
        for name in self.io.list(folder).map_err(failed("list", folder))? {
            match u64::from_str_radix(name.strip_suffix(".map").unwrap_or(&name), 16) {
                Ok(id) => *ids.entry(id).or_default() += 1,
                Err(_) => tracing::warn!(name, "not a file of an object in part, left alone"),
            }
        }
        let mut ids: Vec<_> = ids.into_iter().collect();
        // Of several with one name the newest counts.
        ids.sort_unstable_by(|a, b| b.cmp(a));
        for (id, files) in ids {
            let found = if files == 2 { self.read_head(id) } else { Ok(None) };
            let found = found.unwrap_or_else(|e| {
                tracing::warn!(disk = %self.root.display(), id, "dropped: {e}");
                None
            });
            let Some((head, head_len, map_len)) = found else {
                self.partials.unlink(&*self.io, id);
                continue;
            };
            let key = format::key(head.bucket_id, &head.name);
            if self.partials.knows(&key) || self.index.get(&key)?.is_some() {
                self.partials.unlink(&*self.io, id);
                continue;
            }
            let entries = map_len.saturating_sub(head_len) / ENTRY;
            let space = FILES + entries.min(head.granules().into()) * SPACE;
            let (validation, open, head) = (Validation::default(), Weak::new(), Arc::new(head));
            let known = Known { id, atime_ns: head.made_ns, head, space, validation, open };
            self.partials.known().insert(key, known);
            self.room.set_aside(space, 0);
        }
        Ok(())
    }

    /// The head of a map, its length, and that of the map. `None` if the file is gone.
    fn read_head(&self, id: u64) -> Result<Option<(PartialHead, u64, u64)>> {
        let path = self.partials.map_path(id);
        let map = match self.io.open(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed("open", &path))?,
        };
        let mut start = [0; HEAD_START];
        map.read_exact_at(&mut start, 0).map_err(failed("read", &path))?;
        let mut bytes = vec![0; layout::head_len(&start)?];
        map.read_exact_at(&mut bytes, 0).map_err(failed("read", &path))?;
        let (of, head) = layout::decode_head(&bytes)?;
        if of != id {
            return Err(Error::new(ErrorCode::Corrupt, "its name is that of another one"));
        }
        let len = map.size().map_err(failed("measure", &path))?;
        Ok(Some((head, bytes.len() as u64, len)))
    }

    /// Drops the partial object of a key. Returns the space freed, if there was one.
    pub(crate) fn drop_partial(&self, key: &[u8]) -> Option<u64> {
        self.drop_partial_if(key, |_| true)
    }

    fn drop_partial_if(&self, key: &[u8], wanted: impl FnOnce(&Known) -> bool) -> Option<u64> {
        let mut table = self.partials.known();
        table.get(key).filter(|known| wanted(known))?;
        let known = table.remove(key)?;
        if let Some(open) = known.open.upgrade() {
            open.end();
        }
        drop(table);
        self.partials.unlink(&*self.io, known.id);
        self.room.set_aside(0, known.space);
        Some(known.space)
    }

    /// Drops all partial objects of a bucket.
    pub(crate) fn drop_partials_of(&self, bucket_id: u64) {
        let span = Span { bucket_id, ..Span::default() };
        for head in self.partials.scan(&span, usize::MAX) {
            self.drop_partial(&format::key(bucket_id, &head.name));
        }
    }

    /// Drops partial objects that were last used before `horizon_ns`, in the buckets for which
    /// `may_go` is true, the least recently used first, until `need` bytes are free. Returns the
    /// space that each of them freed.
    pub(crate) fn evict_partials(
        &self,
        need: u64,
        horizon_ns: u64,
        may_go: impl Fn(u64) -> bool,
    ) -> Vec<u64> {
        let mut old: Vec<_> = {
            let known = self.partials.known();
            let old = known.iter().filter(|(_, k)| k.atime_ns < horizon_ns);
            let old = old.filter(|(_, k)| may_go(k.head.bucket_id));
            old.map(|(key, k)| (k.atime_ns, k.id, key.clone())).collect()
        };
        old.sort_unstable();
        let (mut freed, mut dropped) = (0, Vec::new());
        for (atime_ns, id, key) in old {
            if freed >= need {
                break;
            }
            // Unless it was used since.
            let space = self.drop_partial_if(&key, |k| k.id == id && k.atime_ns == atime_ns);
            freed += space.unwrap_or(0);
            dropped.extend(space);
        }
        dropped
    }

    /// Accounts for space of a partial object that is not dropped yet.
    fn count_partial(&self, key: &[u8], id: u64, more: u64, less: u64) {
        let mut table = self.partials.known();
        let Some(known) = table.get_mut(key).filter(|k| k.id == id) else { return };
        known.space = (known.space + more).saturating_sub(less);
        drop(table);
        self.room.set_aside(more, less);
    }

    fn begin_partial(
        self: &Arc<Self>,
        head: PartialHead,
        validation: Validation,
    ) -> Result<Arc<Partial>> {
        self.check_alive()?;
        let id = self.next_sequence();
        let bytes = layout::encode_head(id, &head)?;
        let (payload, map) = (self.partials.payload_path(id), self.partials.map_path(id));
        let made = || -> Result<_> {
            let payload = self.io.create(&payload).map_err(failed("create", &payload))?;
            let file = self.io.create(&map).map_err(failed("create", &map))?;
            file.write_at(&bytes, 0).map_err(failed("write", &map))?;
            Ok((payload, file))
        };
        let (payload, map) = made().inspect_err(|_| self.partials.unlink(&*self.io, id))?;
        let (key, now_ns) = (format::key(head.bucket_id, &head.name), head.made_ns);
        let state = State::new(payload, map);
        let partial = Arc::new(Partial::new(self, id, head, bytes.len() as u64, state));
        self.drop_partial(&key);
        let (open, head) = (Arc::downgrade(&partial), partial.head.clone());
        let known = Known { id, head, space: FILES, atime_ns: now_ns, validation, open };
        let mut table = self.partials.known();
        self.check_in_use()?;
        let crowded = table.len() >= MAX_PARTIAL_OBJECTS;
        table.insert(key, known);
        drop(table);
        self.room.set_aside(FILES, 0);
        if crowded {
            self.evict_partials(1, now_ns, |_| true);
        }
        Ok(partial)
    }

    /// Opens the partial object of a key.
    fn open_partial(self: &Arc<Self>, key: &[u8]) -> Result<Option<Arc<Partial>>> {
        let id = match self.partials.known().get(key) {
            None => return Ok(None),
            Some(known) => match known.open.upgrade() {
                Some(open) => return Ok(Some(open)),
                None => known.id,
            },
        };
        let partial = match self.load_partial(id) {
            Ok(partial) => Arc::new(partial),
            Err(e) => {
                tracing::warn!(disk = %self.root.display(), id, "dropped: {e}");
                self.drop_partial_if(key, |k| k.id == id);
                return Ok(None);
            }
        };
        let mut table = self.partials.known();
        // Checked under the lock: a disk that leaves service closes the entries of this table
        // afterwards.
        self.check_in_use()?;
        let Some(known) = table.get_mut(key).filter(|k| k.id == id) else { return Ok(None) };
        // Another caller opened it meanwhile, and may have written already.
        if let Some(open) = known.open.upgrade() {
            return Ok(Some(open));
        }
        known.open = Arc::downgrade(&partial);
        let (before, now) = (known.space, FILES + partial.state().slots.len() as u64 * SPACE);
        known.space = now;
        drop(table);
        self.room.set_aside(now, before);
        Ok(Some(partial))
    }

    fn load_partial(self: &Arc<Self>, id: u64) -> Result<Partial> {
        let gone = || Error::new(ErrorCode::Corrupt, "its map is gone");
        let (head, head_len, map_len) = self.read_head(id)?.ok_or_else(gone)?;
        let path = self.partials.payload_path(id);
        let payload = self.io.open_write(&path).map_err(failed("open", &path))?;
        let path = self.partials.map_path(id);
        let map = self.io.open_write(&path).map_err(failed("open", &path))?;
        let entries = map_len.saturating_sub(head_len) / ENTRY;
        let mut state = State { next: entries as u32, ..State::new(payload, map.clone()) };
        io::each_entry(&*map, id, head_len, entries, |slot, granule| {
            if granule < head.granules() {
                state.slots.insert(granule, slot);
            }
        })
        .map_err(failed("read", &path))?;
        Ok(Partial::new(self, id, head, head_len, state))
    }
}

impl State {
    fn new(payload: Arc<dyn DiskFile>, map: Arc<dyn DiskFile>) -> Self {
        let files = Some(Files { payload, map });
        Self { files, slots: HashMap::new(), next: 0, over: false }
    }
}

impl Partial {
    fn new(shared: &Arc<Shared>, id: u64, head: PartialHead, head_len: u64, state: State) -> Self {
        let (disk, key) = (shared.number, format::key(head.bucket_id, &head.name));
        let (shared, state) = (Arc::downgrade(shared), Mutex::new(state));
        let head = Arc::new(head);
        Self { shared, disk, id, key, head, head_len, state }
    }

    /// Its disk, while that is in use.
    fn shared(&self) -> Result<Arc<Shared>> {
        self.shared.upgrade().ok_or_else(|| io::gone(&self.head.name))
    }

    /// Nothing can be read or added any more.
    fn end(&self) {
        let mut state = self.state();
        (state.over, state.files) = (true, None);
        state.slots.clear();
    }

    /// Changes the disk's entry of it, while the disk is in use and has one.
    fn with_known<T>(&self, f: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let shared = self.shared.upgrade()?;
        let mut table = shared.partials.known();
        table.get_mut(&self.key).filter(|k| k.id == self.id).map(f)
    }

    fn files(&self) -> Result<Files> {
        self.state().files.clone().ok_or_else(|| io::gone(&self.head.name))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    pub(crate) fn head(&self) -> &PartialHead {
        &self.head
    }

    /// Whether it was dropped, or became an object.
    pub(crate) fn is_over(&self) -> bool {
        self.state().over
    }

    pub(crate) fn has(&self, granule: u32) -> bool {
        self.state().slots.contains_key(&granule)
    }

    /// Whether every granule is stored.
    pub(crate) fn is_complete(&self) -> bool {
        self.state().slots.len() as u64 == u64::from(self.head.granules())
    }

    /// The longest run of granules from `from` on, up to `to`, that are all stored or all missing.
    /// Returns whether they are stored, and the first one behind the run.
    pub(crate) fn stretch(&self, from: u32, to: u32) -> (bool, u32) {
        let state = self.state();
        let here = state.slots.contains_key(&from);
        let end = (from + 1..to).find(|g| state.slots.contains_key(g) != here);
        (here, end.unwrap_or(to))
    }

    pub(crate) fn validation(&self) -> Validation {
        self.with_known(|known| known.validation).unwrap_or_default()
    }

    /// Records that the backend still has this version.
    pub(crate) fn validated(&self, validation: Validation) {
        self.with_known(|known| known.validation = validation);
    }

    /// Notes an access, for eviction.
    pub(crate) fn touch(&self, now_ns: u64) {
        self.with_known(|known| known.atime_ns = now_ns);
    }

    /// The bytes of `range`, checked. `Corrupt`: some of its granules are missing, or were damaged
    /// and are dropped now.
    pub(crate) async fn read(self: &Arc<Self>, range: ByteRange) -> Result<bytes::Bytes> {
        let me = self.clone();
        blocking(move || me.read_blocking(range)).await
    }

    /// Turns a complete partial object into a file of `work/`; readers continue. `None` if it is
    /// not complete, or was dropped. The space it took is reserved, where that is possible.
    fn take_complete(&self) -> Result<Option<(Filling, Vec<Reservation>)>> {
        let Some(table) = self.table()? else { return Ok(None) };
        let file = self.files()?.payload;
        let shared = self.shared()?;
        let space = {
            let mut known = shared.partials.known();
            if known.get(&self.key).is_none_or(|k| k.id != self.id) {
                return Ok(None);
            }
            self.state().over = true;
            known.remove(&self.key).map_or(0, |k| k.space)
        };
        let (from, to) = (shared.partials.payload_path(self.id), shared.work_path(self.id));
        let moved = shared.io.rename(&from, &to).map_err(failed("rename", &from));
        shared.partials.unlink(&*shared.io, self.id);
        shared.room.set_aside(0, space);
        moved?;
        let held = shared.room.try_reserve(space).into_iter().collect();
        Ok(Some((Filling::filled(&shared, self.id, file, self.head.size, table), held)))
    }
}
