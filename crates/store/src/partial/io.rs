//! Reading and writing granules.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result};

use super::layout::{self, ENTRY, Sums};
use super::{Files, GRANULE, Partial, PartialHead, SPACE};
use crate::disk::DiskFile;
use crate::format::{BLOCK, TABLE_ENTRY};
use crate::identity::failed;
use crate::space::Reservation;
use crate::{Store, blocking};

/// Map entries read at once.
const BATCH: u64 = 16 << 10;

/// The granules that a map lists, each with the place of its last entry.
pub(super) fn read_slots(
    map: &dyn DiskFile,
    id: u64,
    head: &PartialHead,
    head_len: u64,
    map_len: u64,
) -> std::io::Result<HashMap<u32, u32>> {
    let (mut slots, granules) = (HashMap::new(), head.granules());
    let entries = map_len.saturating_sub(head_len) / ENTRY;
    each_entry(map, id, head_len, entries, |slot, granule| {
        if granule < granules {
            slots.insert(granule, slot);
        }
    })?;
    Ok(slots)
}

/// Calls `f` with the place and the granule of each sound entry of a map, in order.
fn each_entry(
    map: &dyn DiskFile,
    id: u64,
    head_len: u64,
    entries: u64,
    mut f: impl FnMut(u32, u32),
) -> std::io::Result<()> {
    let mut first = 0;
    while first < entries {
        let count = (entries - first).min(BATCH);
        let mut bytes = vec![0; (count * ENTRY) as usize];
        map.read_exact_at(&mut bytes, head_len + first * ENTRY)?;
        for (n, entry) in bytes.chunks(ENTRY as usize).enumerate() {
            if let Some((granule, _)) = layout::decode_entry(id, entry) {
                f(first as u32 + n as u32, granule);
            }
        }
        first += count;
    }
    Ok(())
}

impl Partial {
    fn entry_at(&self, slot: u32) -> u64 {
        self.head_len + u64::from(slot) * ENTRY
    }

    fn sums(&self, granule: u32) -> Option<Sums> {
        let slot = *self.state().slots.get(&granule)?;
        let mut entry = [0; ENTRY as usize];
        self.files().ok()?.map.read_exact_at(&mut entry, self.entry_at(slot)).ok()?;
        let (of, sums) = layout::decode_entry(self.id, &entry)?;
        (of == granule).then_some(sums)
    }

    /// The block table of the whole payload. `None` if a granule is missing or was damaged.
    pub(super) fn table(&self) -> Result<Option<Vec<u8>>> {
        let mut table = Vec::with_capacity(self.head.size.div_ceil(BLOCK) as usize * 4);
        for granule in 0..self.head.granules() {
            let Some(sums) = self.sums(granule) else {
                self.forget(granule);
                return Ok(None);
            };
            let blocks = self.head.granule_len(granule).div_ceil(BLOCK) as usize;
            sums[..blocks].iter().for_each(|sum| table.extend_from_slice(&sum.to_le_bytes()));
        }
        debug_assert_eq!(table.len() as u64, self.head.size.div_ceil(BLOCK) * TABLE_ENTRY);
        Ok(Some(table))
    }

    /// Accounts for space that was taken and freed, as long as the disk is in use.
    fn count(&self, more: u64, less: u64, bytes: i64) {
        if let Some(shared) = self.shared.upgrade() {
            shared.count_partial(&self.key, self.id, (more, less), bytes);
        }
    }

    /// Drops a damaged granule; it is fetched again.
    fn forget(&self, granule: u32) {
        if self.state().slots.remove(&granule).is_some() {
            self.count(0, SPACE, -(self.head.granule_len(granule) as i64));
        }
    }

    pub(super) fn read_blocking(&self, range: ByteRange) -> Result<Bytes> {
        let first = (range.start / GRANULE) as u32;
        let end = range.end.div_ceil(GRANULE) as u32;
        let from = u64::from(first) * GRANULE;
        let to = (u64::from(end) * GRANULE).min(self.head.size);
        if range.start >= range.end || range.end > self.head.size {
            return Ok(Bytes::new());
        }
        let mut bytes = vec![0; (to - from) as usize];
        let payload = self.files()?.payload;
        let whole = payload.read_exact_at(&mut bytes, from).is_ok();
        let mut bad = None;
        for (granule, part) in (first..end).zip(bytes.chunks_mut(GRANULE as usize)) {
            // If they cannot be read in one call, the damaged one among them has to be found.
            let at = u64::from(granule) * GRANULE;
            let read = whole || payload.read_exact_at(part, at).is_ok();
            if !read || self.sums(granule).is_none_or(|sums| layout::sums(part) != sums) {
                self.forget(granule);
                bad = bad.or(Some(granule));
            }
        }
        match bad {
            None => {
                let cut = (range.start - from) as usize..(range.end - from) as usize;
                Ok(Bytes::from(bytes).slice(cut))
            }
            Some(granule) => {
                let name = &self.head.name;
                tracing::warn!(name, id = self.id, granule, "a part of an object is damaged");
                let text = format!("granule {granule} of \"{name}\" is damaged or gone");
                Err(Error::new(ErrorCode::Corrupt, text))
            }
        }
    }

    fn keep(&self, granule: u32, bytes: &[u8]) -> Result<bool> {
        if bytes.len() as u64 != self.head.granule_len(granule) {
            return Err(Error::internal(format!("granule {granule} has {} bytes", bytes.len())));
        }
        let slot = {
            let mut state = self.state();
            if state.over {
                return Err(gone(&self.head.name));
            }
            if state.slots.contains_key(&granule) {
                return Ok(false);
            }
            state.next += 1;
            state.next - 1
        };
        let Files { payload, map } = self.files()?;
        let entry = layout::encode_entry(self.id, granule, &layout::sums(bytes));
        let written = payload.write_at(bytes, u64::from(granule) * GRANULE);
        let written = written.and_then(|()| map.write_at(&entry, self.entry_at(slot)));
        if let Err(e) = written {
            let shared = self.shared()?;
            let error = failed("write", &shared.partials.payload_path(self.id))(e);
            if error.code == ErrorCode::OutOfSpace {
                shared.room.note_full(bytes.len() as u64);
            }
            return Err(error);
        }
        let mut state = self.state();
        // Dropped meanwhile: the bytes were written to an unlinked file.
        if state.files.is_none() {
            return Err(gone(&self.head.name));
        }
        Ok(state.slots.insert(granule, slot).is_none())
    }
}

pub(super) fn gone(name: &str) -> Error {
    let text = format!("what is here in part of \"{name}\" was dropped meanwhile");
    Error::new(ErrorCode::ObjectNotFound, text)
}

/// Adds granules to a partial object. Their space is reserved. The added granules are accounted for
/// when the writer is dropped.
pub struct PartialWriter {
    partial: Arc<Partial>,
    kept: u64,
    kept_bytes: u64,
    _reservation: Reservation,
}

impl PartialWriter {
    /// Stores a granule. `ObjectNotFound`: the partial object was dropped.
    pub async fn keep(&mut self, granule: u32, bytes: Bytes) -> Result<()> {
        let partial = self.partial.clone();
        let len = bytes.len() as u64;
        if blocking(move || partial.keep(granule, &bytes)).await? {
            self.kept += 1;
            self.kept_bytes += len;
        }
        Ok(())
    }
}

impl Drop for PartialWriter {
    fn drop(&mut self) {
        self.partial.count(self.kept * SPACE, 0, self.kept_bytes as i64);
    }
}

impl Store {
    /// Reserves space for this many granules. If the disks are full it waits a little for eviction,
    /// then fails with [`ErrorCode::OutOfSpace`].
    pub async fn fill_partial(
        &self,
        partial: &Arc<Partial>,
        granules: u32,
    ) -> Result<PartialWriter> {
        let shared = partial.shared()?;
        shared.check_alive()?;
        let bytes = u64::from(granules) * SPACE;
        let reservation = shared.room.reserve(bytes, || shared.file_system_fits(bytes)).await?;
        let partial = partial.clone();
        Ok(PartialWriter { partial, kept: 0, kept_bytes: 0, _reservation: reservation })
    }
}
