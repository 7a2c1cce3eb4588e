//! Finds objects in files that no record names, on a disk whose log lost records or never existed.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use bytes::Bytes;
use forebay_core::{Error, ErrorCode, Result};

use super::inspect::{Finding, inspect};
use super::{BATCH, Site};
use crate::apply::Applier;
use crate::format;
use crate::identity::failed;
use crate::index::Index;
use crate::log::{Entry, Found, Item, Position};
use crate::record::Record;
use crate::shared::object_path;
use crate::usage_counters::UsageCounters;

impl Site<'_> {
    /// Processes files under `objects/` that no record names. Those that are sound and newer than
    /// the log's records of their keys become objects again, the others are removed. On a sound
    /// disk there are none. They are the objects of a disk whose log lost records or never existed.
    pub(super) fn sweep_files(
        &self,
        index: &Index,
        usage_counters: &mut UsageCounters,
    ) -> Result<u64> {
        let mut named = HashSet::new();
        for record in index.all() {
            named.extend(record?.extents().iter().map(|e| e.id));
        }
        let mut newest: HashMap<Vec<u8>, Record> = HashMap::new();
        for id in self.object_files()? {
            if named.contains(&id) {
                continue;
            }
            let path = object_path(self.root, id);
            match inspect(&*self.io, &path, id)? {
                Finding::Object(record) => {
                    let key = format::key(record.bucket_id, &record.name);
                    let known = index.get(&key)?.map_or(0, |r| r.sequence);
                    let best = newest.get(&key).map_or(known, |r| r.sequence.max(known));
                    if record.sequence > best {
                        newest.insert(key, *record);
                    }
                }
                Finding::Torn => {}
                Finding::Damaged(e) if e.code == ErrorCode::Unsupported => return Err(e),
                Finding::Damaged(e) => self.set_aside(&path, &e)?,
            }
        }
        self.drop_removed(&mut newest)?;
        let kept: HashSet<u64> =
            newest.values().flat_map(|r| r.extents().iter().map(|e| e.id)).collect();
        let adopted = self.adopt(index, usage_counters, newest.into_values().collect())?;
        // Only now: after a crash before this point they are all found again.
        for id in self.object_files()? {
            if !named.contains(&id) && !kept.contains(&id) {
                let path = object_path(self.root, id);
                self.io.unlink(&path).map_err(failed("remove", &path))?;
            }
        }
        Ok(adopted)
    }

    /// Drops candidates that were removed or replaced since, according to the log.
    fn drop_removed(&self, candidates: &mut HashMap<Vec<u8>, Record>) -> Result<()> {
        if candidates.is_empty() {
            return Ok(());
        }
        for found in self.log.scan(Position::default(), false) {
            let Found::Entry { entry, payload_sound: None | Some(true), .. } = found? else {
                continue;
            };
            let (key, sequence) = match &entry {
                Entry::Put(r) => (format::key(r.bucket_id, &r.name), r.sequence),
                Entry::Remove { bucket_id, name, sequence } => {
                    (format::key(*bucket_id, name), *sequence)
                }
            };
            if candidates.get(&key).is_some_and(|c| c.sequence < sequence) {
                candidates.remove(&key);
            }
        }
        Ok(())
    }

    /// Writes records of files into the log.
    fn adopt(
        &self,
        index: &Index,
        usage_counters: &mut UsageCounters,
        mut records: Vec<Record>,
    ) -> Result<u64> {
        records.sort_by_key(|r| r.sequence);
        for chunk in records.chunks(BATCH) {
            let items: Vec<Item> = chunk
                .iter()
                .map(|r| Item { entry: Entry::Put(Box::new(r.clone())), payload: Bytes::new() })
                .collect();
            let locations = self.log.append(&items)?;
            self.log.sync()?;
            let mut applier = Applier::new(index, usage_counters);
            for (record, spot) in chunk.iter().zip(locations) {
                let mut record = record.clone();
                record.set_spot(spot);
                record.disk = self.number;
                let at = Position { segment: spot.segment, offset: u64::from(spot.offset) };
                applier.apply(at, record.frame_bytes(), Entry::Put(Box::new(record)))?;
            }
            applier.commit()?;
        }
        Ok(records.len() as u64)
    }

    fn object_files(&self) -> Result<Vec<u64>> {
        let objects = self.root.join("objects");
        let mut ids = Vec::new();
        for dir in self.io.list(&objects).map_err(failed("list", &objects))? {
            let dir = objects.join(dir);
            for name in self.io.list(&dir).map_err(failed("list", &dir))? {
                match u64::from_str_radix(&name, 16) {
                    Ok(id) => ids.push(id),
                    Err(_) => {
                        let path = dir.join(&name);
                        tracing::warn!(path = %path.display(), "not an object file, left alone");
                    }
                }
            }
        }
        Ok(ids)
    }

    fn set_aside(&self, path: &Path, why: &Error) -> Result<()> {
        let aside = self.root.join(".forebay").join("lost");
        self.io.create_dir(&aside).map_err(failed("create folder", &aside))?;
        let to = aside.join(path.file_name().unwrap_or_default());
        self.io.rename(path, &to).map_err(failed("rename", path))?;
        tracing::warn!(path = %path.display(), "damaged, moved to .forebay/lost: {why}");
        Ok(())
    }
}
