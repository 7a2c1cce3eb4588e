//! Which disks have, or should have, an object: the newest record of a key, older copies of it on
//! other disks, and the order in which disks take new objects.

use std::sync::Arc;

use forebay_core::{Result, placement};

use super::Disks;
use crate::format;
use crate::record::Record;
use crate::recover::Replayed;
use crate::volume::Volume;

impl Disks {
    /// The newest record of a key.
    pub(crate) fn find(&self, key: &[u8]) -> Result<Option<Record>> {
        let online = self.online.load();
        if let [only] = online.as_slice() {
            let found = only.get(key);
            // There is no other disk: the key is unknown while the index is rebuilt.
            return if found.is_err() && self.repair_if_damaged(only) { Ok(None) } else { found };
        }
        Ok(self.copies_in(&online, key)?.pop())
    }

    /// All records of a key, the newest last.
    pub(crate) fn copies(&self, key: &[u8]) -> Result<Vec<Record>> {
        self.copies_in(&self.online.load(), key)
    }

    fn copies_in(&self, online: &[Arc<Volume>], key: &[u8]) -> Result<Vec<Record>> {
        let mut copies = Vec::new();
        for volume in online {
            match volume.get(key) {
                Err(_) if self.repair_if_damaged(volume) => {}
                found => copies.extend(found?),
            }
        }
        copies.sort_by_key(|r| r.sequence);
        Ok(copies)
    }

    /// Whether a disk other than `volume` has this key, or may have it because it is not in use.
    pub(crate) fn is_elsewhere(&self, volume: &Volume, key: &[u8]) -> Result<bool> {
        if self.is_degraded() {
            return Ok(true);
        }
        for other in self.online.load().iter().filter(|v| v.number() != volume.number()) {
            if other.shared().index.get(key)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The disks that take objects, the one where this object belongs first.
    pub(crate) fn by_score(&self, bucket_id: u64, name: &str) -> Vec<Arc<Volume>> {
        let mut volumes = Vec::clone(&self.online.load());
        volumes.retain(|v| !v.shared().is_leaving());
        if volumes.len() > 1 {
            let digest = placement::object_digest(&format!("{bucket_id:016x}/"), name);
            volumes.sort_by_key(|v| std::cmp::Reverse(v.score(digest)));
        }
        volumes
    }

    /// Keys of which another disk may have an older copy, since the last call.
    pub(crate) fn take_strays(&self) -> Result<Vec<(Arc<Volume>, Vec<u8>)>> {
        let online = self.online();
        let replayed = std::mem::take(&mut self.lock().replayed);
        if online.len() < 2 {
            return Ok(Vec::new());
        }
        let mut found = Vec::new();
        for volume in online.iter() {
            let strays = volume.shared().index.strays()?;
            let mut keys: Vec<_> = strays.into_iter().map(|(key, _)| key).collect();
            for (_, learned) in replayed.iter().filter(|(number, _)| *number == volume.number()) {
                match learned {
                    Replayed::Keys(learned) => keys.extend(learned.iter().cloned()),
                    Replayed::All => {
                        for record in volume.records() {
                            let record = record?;
                            keys.push(format::key(record.bucket_id, &record.name));
                        }
                    }
                }
            }
            for key in keys {
                if self.is_elsewhere(volume, &key)?
                    || volume.shared().index.misplaced(&key)?.is_some()
                {
                    found.push((volume.clone(), key));
                }
            }
        }
        Ok(found)
    }

    /// Whether the records of this key prove that no disk that is away has an object of it.
    pub(crate) fn is_removed(&self, key: &[u8]) -> Result<bool> {
        for volume in self.online.load().iter() {
            if volume.shared().index.misplaced(key)?.flatten().is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
