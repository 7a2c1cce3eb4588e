//! Times of access not yet written to the index: an access costs no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::format;
use super::record::Record;

/// With more entries than this it is time to write them down.
const PLENTY: usize = 100_000;
/// With more than this, further accesses are forgotten: a little worse eviction, no more memory.
const TOO_MANY: usize = 1_000_000;

/// Last accesses, by key.
#[derive(Default)]
pub(crate) struct Recency {
    touched: Mutex<HashMap<Vec<u8>, Touch>>,
}

/// An access to one commit of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch {
    pub(crate) generation: u64,
    pub(crate) atime_ns: u64,
}

impl Recency {
    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Touch>> {
        self.touched.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Notes an access; true when there are plenty of notes all at once.
    pub(crate) fn touch(&self, record: &Record, now_ns: u64) -> bool {
        let mut touched = self.lock();
        let touch = Touch { generation: record.generation, atime_ns: now_ns };
        if touched.len() < TOO_MANY {
            touched.insert(format::key(record.bucket_id, &record.name), touch);
        }
        touched.len() == PLENTY
    }

    /// Whether it is time to write the notes down.
    pub(crate) fn is_plenty(&self) -> bool {
        self.lock().len() >= PLENTY
    }

    /// Puts the latest known access into a record read from the index.
    pub(crate) fn refresh(&self, record: &mut Record) {
        let touched = self.lock();
        if touched.is_empty() {
            return;
        }
        if let Some(t) = touched.get(&format::key(record.bucket_id, &record.name))
            && t.generation == record.generation
        {
            record.meta.atime_ns = record.meta.atime_ns.max(t.atime_ns);
        }
    }

    pub(crate) fn forget(&self, key: &[u8]) {
        self.lock().remove(key);
    }

    /// Takes all notes, to be written down.
    pub(crate) fn take(&self) -> HashMap<Vec<u8>, Touch> {
        std::mem::take(&mut *self.lock())
    }
}
