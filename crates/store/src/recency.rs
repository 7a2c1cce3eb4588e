//! Access times that are not yet written to the index: an access costs no write.

use std::sync::{Mutex, MutexGuard};

use forebay_core::locks::MutexExt;
use forebay_core::placement;
use hashbrown::HashTable;

use super::format;
use super::record::Record;

/// Stripes, so that readers of different objects rarely contend.
const STRIPES: usize = 16;
/// With more entries than this in a stripe they should be written.
const FLUSH_ENTRIES: usize = 100_000 / STRIPES;
/// With more than this, further accesses are dropped: eviction is a little worse, memory is
/// bounded.
const TOO_MANY: usize = 1_000_000 / STRIPES;

/// Last accesses, by the generation that was read.
#[derive(Default)]
pub(crate) struct Recency {
    stripes: [Stripe; STRIPES],
}

/// Aligned, so that threads do not share cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<HashTable<Noted>>);

struct Noted {
    generation: u64,
    key: Box<[u8]>,
    atime_ns: u64,
}

/// A read of one commit of an object.
#[derive(Clone, Copy, Debug)]
pub struct Access<'a> {
    pub bucket_id: u64,
    pub name: &'a str,
    pub generation: u64,
    /// See [`Record::evictable`].
    pub evictable: bool,
}

impl<'a> Access<'a> {
    /// A read of the commit of this record.
    pub fn of(record: &'a Record) -> Self {
        let (bucket_id, name) = (record.bucket_id, record.name.as_str());
        Self { bucket_id, name, generation: record.generation, evictable: record.evictable() }
    }
}

/// An access that is to be written to the index.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) key: Box<[u8]>,
    pub(crate) generation: u64,
    pub(crate) atime_ns: u64,
}

impl Stripe {
    fn lock(&self) -> MutexGuard<'_, HashTable<Noted>> {
        self.0.locked()
    }
}

impl Recency {
    fn stripe(&self, generation: u64) -> &Stripe {
        // Generations count up, so their low bits spread evenly.
        &self.stripes[generation as usize % STRIPES]
    }

    /// Notes an access. Returns true when the number of notes just reached the limit for writing
    /// them.
    pub(crate) fn touch(&self, access: &Access<'_>, now_ns: u64) -> bool {
        let generation = access.generation;
        let mut table = self.stripe(generation).lock();
        let hash = placement::mix(generation);
        if let Some(noted) = table.find_mut(hash, |noted| noted.generation == generation) {
            noted.atime_ns = now_ns;
            return false;
        }
        if table.len() < TOO_MANY {
            let key = format::key(access.bucket_id, access.name).into();
            let noted = Noted { generation, key, atime_ns: now_ns };
            table.insert_unique(hash, noted, |noted| placement::mix(noted.generation));
        }
        table.len() == FLUSH_ENTRIES
    }

    /// Whether the notes should be written now.
    pub(crate) fn is_due(&self) -> bool {
        self.stripes.iter().any(|stripe| stripe.lock().len() >= FLUSH_ENTRIES)
    }

    /// Puts the latest noted access time into a record.
    pub(crate) fn refresh(&self, record: &mut Record) {
        let generation = record.generation;
        let table = self.stripe(generation).lock();
        let hash = placement::mix(generation);
        if let Some(noted) = table.find(hash, |noted| noted.generation == generation) {
            record.meta.atime_ns = record.meta.atime_ns.max(noted.atime_ns);
        }
    }

    pub(crate) fn forget(&self, generation: u64) {
        let mut table = self.stripe(generation).lock();
        let hash = placement::mix(generation);
        if let Ok(noted) = table.find_entry(hash, |noted| noted.generation == generation) {
            noted.remove();
        }
    }

    /// Takes all notes, to be written to the index.
    pub(crate) fn take(&self) -> Vec<Touch> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            let table = std::mem::take(&mut *stripe.lock());
            all.extend(table.into_iter().map(|noted| Touch {
                key: noted.key,
                generation: noted.generation,
                atime_ns: noted.atime_ns,
            }));
        }
        all
    }
}
