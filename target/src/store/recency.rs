//! Times of access not yet written to the index: an access costs no write.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use super::format;
use super::record::Record;

/// Readers of different objects rarely wait for one another.
const STRIPES: usize = 16;
/// With more entries than this in a stripe it is time to write them down.
const PLENTY: usize = 100_000 / STRIPES;
/// With more than this, further accesses are forgotten: a little worse eviction, no more memory.
const TOO_MANY: usize = 1_000_000 / STRIPES;

/// Last accesses, by the generation that was read.
#[derive(Default)]
pub(crate) struct Recency {
    stripes: [Stripe; STRIPES],
}

/// Apart from its neighbours, so that threads do not share cache lines.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(Mutex<HashMap<u64, Noted>>);

struct Noted {
    key: Box<[u8]>,
    atime_ns: u64,
}

/// An access to one commit of an object.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    pub(crate) key: Box<[u8]>,
    pub(crate) generation: u64,
    pub(crate) atime_ns: u64,
}

impl Stripe {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Noted>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Recency {
    fn stripe(&self, generation: u64) -> &Stripe {
        // Generations count up, so their low bits spread evenly.
        &self.stripes[generation as usize % STRIPES]
    }

    /// Notes an access; true when there are plenty of notes all at once.
    pub(crate) fn touch(&self, record: &Record, now_ns: u64) -> bool {
        let mut noted = self.stripe(record.generation).lock();
        if let Some(noted) = noted.get_mut(&record.generation) {
            noted.atime_ns = now_ns;
            return false;
        }
        if noted.len() < TOO_MANY {
            let key = format::key(record.bucket_id, &record.name).into();
            noted.insert(record.generation, Noted { key, atime_ns: now_ns });
        }
        noted.len() == PLENTY
    }

    /// Whether it is time to write the notes down.
    pub(crate) fn is_plenty(&self) -> bool {
        self.stripes.iter().any(|stripe| stripe.lock().len() >= PLENTY)
    }

    /// Puts the latest known access into a record read from the index.
    pub(crate) fn refresh(&self, record: &mut Record) {
        if let Some(noted) = self.stripe(record.generation).lock().get(&record.generation) {
            record.meta.atime_ns = record.meta.atime_ns.max(noted.atime_ns);
        }
    }

    pub(crate) fn forget(&self, generation: u64) {
        self.stripe(generation).lock().remove(&generation);
    }

    /// Takes all notes, to be written down.
    pub(crate) fn take(&self) -> Vec<Touch> {
        let mut all = Vec::new();
        for stripe in &self.stripes {
            let noted = std::mem::take(&mut *stripe.lock());
            all.extend(noted.into_iter().map(|(generation, Noted { key, atime_ns })| Touch {
                key,
                generation,
                atime_ns,
            }));
        }
        all
    }
}
