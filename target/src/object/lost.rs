//! Objects whose bytes are damaged without another copy.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use forebay_core::locks::MutexExt;
use forebay_store::Record;

use super::Key;

/// Maximum number of lost objects whose names are remembered.
const REMEMBERED: usize = 1000;

/// Objects with permanently damaged bytes, by key, with the damaged commit.
#[derive(Debug, Default)]
pub(crate) struct Lost(Mutex<BTreeMap<(u64, String), u64>>);

impl Lost {
    pub(super) fn table(&self) -> MutexGuard<'_, BTreeMap<(u64, String), u64>> {
        self.0.locked()
    }

    /// Records an object; false if it was known.
    pub(super) fn note(&self, record: &Record) -> bool {
        let mut table = self.table();
        let key = (record.bucket_id, record.name.clone());
        if table.len() >= REMEMBERED && !table.contains_key(&key) {
            return true;
        }
        table.insert(key, record.generation) != Some(record.generation)
    }

    /// The object was written again or removed.
    pub(super) fn forget(&self, key: &Key) {
        let mut table = self.table();
        if !table.is_empty() {
            table.remove(&(key.bucket_id, key.name.to_string()));
        }
    }

    pub(super) fn forget_bucket(&self, bucket_id: u64) {
        self.table().retain(|(id, _), _| *id != bucket_id);
    }
}
