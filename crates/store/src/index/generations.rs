//! Entries of the index by generation: sidecars, and objects that may be evicted.

use std::ops::Bound;

use fjall::Keyspace;
use forebay_core::Result;

use super::{Index, number};

impl Index {
    /// Key of the object that this generation's sidecar belongs to.
    pub(crate) fn sidecar(&self, generation: u64) -> Result<Option<Vec<u8>>> {
        self.key_in(&self.sidecars, generation)
    }

    /// Records that a sidecar is kept for this generation, or is removed.
    pub(crate) fn set_sidecar(&self, generation: u64, key: Option<&[u8]>) -> Result<()> {
        self.step("index.companion")?;
        let id = generation.to_be_bytes();
        match key {
            Some(key) => self.sidecars.insert(id, key),
            None => self.sidecars.remove(id),
        }
        .map_err(|e| self.failed(&e))
    }

    /// Key of an object that may be evicted.
    pub(crate) fn resident(&self, generation: u64) -> Result<Option<Vec<u8>>> {
        self.key_in(&self.residents, generation)
    }

    /// At most `limit` objects that may be evicted, committed after `after`, the oldest first.
    pub(crate) fn residents(&self, after: u64, limit: usize) -> Result<Vec<(u64, Vec<u8>)>> {
        let from = (Bound::Excluded(after.to_be_bytes()), Bound::Unbounded);
        let mut out = Vec::new();
        for guard in self.residents.range::<[u8; 8], _>(from).take(limit) {
            let (id, key) = guard.into_inner().map_err(|e| self.failed(&e))?;
            out.extend(number(&id).map(|id| (id, key.to_vec())));
        }
        Ok(out)
    }

    fn key_in(&self, keyspace: &Keyspace, generation: u64) -> Result<Option<Vec<u8>>> {
        let key = keyspace.get(generation.to_be_bytes()).map_err(|e| self.failed(&e))?;
        Ok(key.map(|k| k.to_vec()))
    }
}
