//! Finds the partial objects of a disk again when it is opened.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use forebay_core::{Error, ErrorCode, Result};

use super::io::read_slots;
use super::layout::{self, HEAD_START, PartialHead};
use super::object::bytes_of;
use super::{FILES, Known, SPACE, Validation};
use crate::disk::DiskFile;
use crate::format;
use crate::identity::failed;
use crate::shared::Shared;

/// A head that was read from a map.
pub(super) struct FoundHead {
    pub(super) head: PartialHead,
    pub(super) head_len: u64,
    pub(super) map_len: u64,
    map: Arc<dyn DiskFile>,
}

impl Shared {
    /// Loads the partial objects of the disk, and removes what a crash left. Reads maps, which
    /// have a ten-thousandth of the payload, so that the counters of buckets are exact.
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
            let found = if files == 2 { self.read_map(id) } else { Ok(None) };
            let found = found.unwrap_or_else(|e| {
                tracing::warn!(disk = %self.root.display(), id, "dropped: {e}");
                None
            });
            let Some((head, slots)) = found else {
                self.partials.unlink(&*self.io, id);
                continue;
            };
            let key = format::key(head.bucket_id, &head.name);
            if self.partials.knows(&key) || self.index.get(&key)?.is_some() {
                self.partials.unlink(&*self.io, id);
                continue;
            }
            let space = FILES + slots.len() as u64 * SPACE;
            let bytes = bytes_of(&head, &slots);
            let (validation, open, head) = (Validation::default(), Weak::new(), Arc::new(head));
            let known = Known { id, atime_ns: head.made_ns, head, space, bytes, validation, open };
            self.partials.known().insert(key, known);
            self.room.set_aside(space, 0);
        }
        Ok(())
    }

    /// The head of a map, and the granules that it lists. `None` if the file is gone.
    fn read_map(&self, id: u64) -> Result<Option<(PartialHead, HashMap<u32, u32>)>> {
        let Some(FoundHead { head, head_len, map_len, map }) = self.read_head(id)? else {
            return Ok(None);
        };
        let slots = read_slots(&*map, id, &head, head_len, map_len);
        let slots = slots.map_err(failed("read", &self.partials.map_path(id)))?;
        Ok(Some((head, slots)))
    }

    /// The head of a map. `None` if the file is gone.
    pub(super) fn read_head(&self, id: u64) -> Result<Option<FoundHead>> {
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
        let map_len = map.size().map_err(failed("measure", &path))?;
        Ok(Some(FoundHead { head, head_len: bytes.len() as u64, map_len, map }))
    }
}
