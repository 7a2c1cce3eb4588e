//! Creates partial objects and opens existing ones.

use std::sync::Arc;

use forebay_core::{Error, ErrorCode, Result};

use super::io::read_slots;
use super::layout::{self, ENTRY, PartialHead};
use super::recover::FoundHead;
use super::{FILES, Known, MAX_PARTIAL_OBJECTS, Partial, SPACE, State, Validation};
use crate::format;
use crate::identity::failed;
use crate::shared::Shared;

impl Shared {
    pub(super) fn begin_partial(
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
        let (space, bytes, atime_ns) = (FILES, 0, now_ns);
        let known = Known { id, head, space, bytes, atime_ns, validation, open };
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
    pub(super) fn open_partial(self: &Arc<Self>, key: &[u8]) -> Result<Option<Arc<Partial>>> {
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
        let Some(known) = table.get_mut(key, id) else { return Ok(None) };
        // Another caller opened it meanwhile, and may have written already.
        if let Some(open) = known.open.upgrade() {
            return Ok(Some(open));
        }
        known.open = Arc::downgrade(&partial);
        let (before, now) = (known.space, FILES + partial.state().slots.len() as u64 * SPACE);
        known.space = now;
        let bytes = partial.stored_bytes().wrapping_sub(known.bytes) as i64;
        table.change_bytes(key, id, bytes);
        drop(table);
        self.room.set_aside(now, before);
        Ok(Some(partial))
    }

    fn load_partial(self: &Arc<Self>, id: u64) -> Result<Partial> {
        let gone = || Error::new(ErrorCode::Corrupt, "its map is gone");
        let FoundHead { head, head_len, map_len, .. } = self.read_head(id)?.ok_or_else(gone)?;
        let path = self.partials.payload_path(id);
        let payload = self.io.open_write(&path).map_err(failed("open", &path))?;
        let path = self.partials.map_path(id);
        let map = self.io.open_write(&path).map_err(failed("open", &path))?;
        let entries = map_len.saturating_sub(head_len) / ENTRY;
        let slots =
            read_slots(&*map, id, &head, head_len, map_len).map_err(failed("read", &path))?;
        let state = State { next: entries as u32, slots, ..State::new(payload, map) };
        Ok(Partial::new(self, id, head, head_len, state))
    }
}
