//! An open partial object: which granules it has, when it was compared with the backend, and how it
//! becomes an ordinary object.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use forebay_core::Result;
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;

use super::io::gone;
use super::{Files, Known, Partial, PartialHead, State, Validation};
use crate::blocking;
use crate::disk::DiskFile;
use crate::format;
use crate::identity::failed;
use crate::shared::Shared;
use crate::space::Reservation;
use crate::work::Filling;

impl State {
    pub(super) fn new(payload: Arc<dyn DiskFile>, map: Arc<dyn DiskFile>) -> Self {
        let files = Some(Files { payload, map });
        Self { files, slots: HashMap::new(), next: 0, over: false }
    }
}

/// Bytes of these granules of an object.
pub(super) fn bytes_of(head: &PartialHead, slots: &HashMap<u32, u32>) -> u64 {
    slots.keys().map(|granule| head.granule_len(*granule)).sum()
}

impl Partial {
    pub(super) fn new(
        shared: &Arc<Shared>,
        id: u64,
        head: PartialHead,
        head_len: u64,
        state: State,
    ) -> Self {
        let (disk, key) = (shared.number, format::key(head.bucket_id, &head.name));
        let (shared, state) = (Arc::downgrade(shared), Mutex::new(state));
        let head = Arc::new(head);
        Self { shared, disk, id, key, head, head_len, state }
    }

    /// Its disk, while that is in use.
    pub(super) fn shared(&self) -> Result<Arc<Shared>> {
        self.shared.upgrade().ok_or_else(|| gone(&self.head.name))
    }

    /// Nothing can be read or added any more.
    pub(super) fn end(&self) {
        let mut state = self.state();
        (state.over, state.files) = (true, None);
        state.slots.clear();
    }

    /// Changes the disk's entry of it, while the disk is in use and has one.
    fn with_known<T>(&self, f: impl FnOnce(&mut Known) -> T) -> Option<T> {
        let shared = self.shared.upgrade()?;
        let mut table = shared.partials.known();
        table.get_mut(&self.key, self.id).map(f)
    }

    pub(super) fn files(&self) -> Result<Files> {
        self.state().files.clone().ok_or_else(|| gone(&self.head.name))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Which object and version it is.
    pub fn head(&self) -> &PartialHead {
        &self.head
    }

    /// Whether it was dropped, or became an object.
    pub fn is_over(&self) -> bool {
        self.state().over
    }

    /// Bytes of the stored granules.
    pub(super) fn stored_bytes(&self) -> u64 {
        bytes_of(&self.head, &self.state().slots)
    }

    /// Whether this granule is stored.
    pub fn has(&self, granule: u32) -> bool {
        self.state().slots.contains_key(&granule)
    }

    /// Whether every granule is stored.
    pub fn is_complete(&self) -> bool {
        self.state().slots.len() as u64 == u64::from(self.head.granules())
    }

    /// The longest run of granules from `from` on, up to `to`, that are all stored or all missing.
    /// Returns whether they are stored, and the first one behind the run.
    pub fn stretch(&self, from: u32, to: u32) -> (bool, u32) {
        let state = self.state();
        let here = state.slots.contains_key(&from);
        let end = (from + 1..to).find(|g| state.slots.contains_key(g) != here);
        (here, end.unwrap_or(to))
    }

    /// When the backend was last seen to have this version.
    pub fn validation(&self) -> Validation {
        self.with_known(|known| known.validation).unwrap_or_default()
    }

    /// Records that the backend still has this version.
    pub fn validated(&self, validation: Validation) {
        self.with_known(|known| known.validation = validation);
    }

    /// Notes an access, for eviction.
    pub fn touch(&self, now_ns: u64) {
        self.with_known(|known| known.atime_ns = now_ns);
    }

    /// The bytes of `range`, checked. `Corrupt`: some of its granules are missing, or were damaged
    /// and are dropped now.
    pub async fn read(self: &Arc<Self>, range: ByteRange) -> Result<bytes::Bytes> {
        let me = self.clone();
        blocking(move || me.read_blocking(range)).await
    }

    /// Turns a complete partial object into a file of `work/`; readers continue. `None` if it is
    /// not complete, or was dropped. The space it took is reserved, where that is possible.
    pub(super) fn take_complete(&self) -> Result<Option<(Filling, Vec<Reservation>)>> {
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
