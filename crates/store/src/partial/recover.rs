//! Finds the partial objects of a disk again when it is opened.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use forebay_core::{Error, ErrorCode, Result};

use super::layout::{self, ENTRY, HEAD_START, PartialHead};
use super::{FILES, Known, SPACE, Validation};
use crate::format;
use crate::identity::failed;
use crate::shared::Shared;

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
    pub(super) fn read_head(&self, id: u64) -> Result<Option<(PartialHead, u64, u64)>> {
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
}
