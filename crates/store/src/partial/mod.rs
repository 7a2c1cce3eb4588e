//! Partial objects: those granules of a backend's object that were read so far.
//!
//! Nothing of this is ever synced. If anything is wrong with a granule, it counts as missing,
//! because the backend has all of it. A [`Partial`] is of one version of an object. It is removed
//! when the object is written, removed or dropped, and becomes an ordinary object when its last
//! granule arrived.

mod evict;
mod io;
mod layout;
mod object;
mod open;
mod recover;
mod store;
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use forebay_core::Result;
use forebay_core::locks::MutexExt;

pub use self::io::PartialWriter;
pub use self::layout::{GRANULE, PartialHead};

use self::layout::ENTRY;
use self::table::Table;
use super::bucket_counts::PartialCounts;
use super::disk::{Disk, DiskFile};
use super::format;
use super::identity::failed;
use super::index::Span;
use super::shared::Shared;

/// Most partial objects on one disk: bounds the memory they take while they are not read.
const MAX_PARTIAL_OBJECTS: usize = 65_536;
/// Space of the files themselves.
const FILES: u64 = 8 << 10;
/// Space of one granule and its entry.
const SPACE: u64 = GRANULE + ENTRY;

/// When the backend was last seen to have the stored version.
///
/// Not kept on the disk: after a start everything is compared with the backend once. A power cut
/// may bring back a partial object that was dropped shortly before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Validation {
    /// Version of the cluster's state at that time.
    pub epoch: u64,
    pub ns: u64,
}

/// The partial objects of one disk.
pub(crate) struct Partials {
    folder: PathBuf,
    /// By the object's key. Held while an entry appears or goes, never during I/O on payloads.
    known: Mutex<Table>,
}

struct Known {
    id: u64,
    head: Arc<PartialHead>,
    space: u64,
    /// Bytes of its stored granules.
    bytes: u64,
    atime_ns: u64,
    validation: Validation,
    open: Weak<Partial>,
}

/// An open partial object.
pub struct Partial {
    /// Weak, so that a long-lived reader does not keep a disk that left service.
    shared: Weak<Shared>,
    /// Number of its disk.
    disk: usize,
    id: u64,
    key: Vec<u8>,
    head: Arc<PartialHead>,
    head_len: u64,
    state: Mutex<State>,
}

/// The open files of a partial object.
#[derive(Clone)]
struct Files {
    payload: Arc<dyn DiskFile>,
    map: Arc<dyn DiskFile>,
}

struct State {
    /// `None` after it was dropped: an open file would keep its space.
    files: Option<Files>,
    /// Granules that are stored, with the index of their entry in the map.
    slots: HashMap<u32, u32>,
    next: u32,
    /// It was dropped, or became an object: nothing may be added any more.
    over: bool,
}

impl Partials {
    pub(crate) fn open(root: &Path, io: &dyn Disk) -> Result<Self> {
        let folder = root.join("partial");
        io.create_dir(&folder).map_err(failed("create folder", &folder))?;
        Ok(Self { folder, known: Mutex::default() })
    }

    fn known(&self) -> MutexGuard<'_, Table> {
        self.known.locked()
    }

    fn payload_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id:016x}"))
    }

    fn map_path(&self, id: u64) -> PathBuf {
        self.folder.join(format!("{id:016x}.map"))
    }

    fn unlink(&self, io: &dyn Disk, id: u64) {
        // The map first: a payload without a map is removed at the next start.
        for path in [self.map_path(id), self.payload_path(id)] {
            match io.unlink(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    tracing::warn!(path = %path.display(), "stays until restart: {e}");
                }
                _ => {}
            }
        }
    }

    /// Ids of the buckets that have partial objects on this disk.
    pub(crate) fn buckets(&self) -> Vec<u64> {
        self.known().counts().keys().copied().collect()
    }

    /// The counters of one bucket. Granules that are being fetched count when their writer is
    /// dropped.
    pub(crate) fn counts_of(&self, bucket_id: u64) -> PartialCounts {
        self.known().counts_of(bucket_id)
    }

    /// The counters of all buckets that have partial objects on this disk.
    pub(crate) fn counts(&self) -> BTreeMap<u64, PartialCounts> {
        self.known().counts().clone()
    }

    /// The partial objects of a span, at most `limit`, in the order of names.
    pub(crate) fn scan(&self, span: &Span, limit: usize) -> Vec<Arc<PartialHead>> {
        let key = |name: &str| format::key(span.bucket_id, name);
        let first = key(&span.prefix);
        let start = match &span.after {
            Some(after) if key(after) >= first => Bound::Excluded(key(after)),
            _ => Bound::Included(first.clone()),
        };
        let last = span.until.as_ref().map(|until| key(until));
        let known = self.known();
        let within = known.range((start, Bound::Unbounded)).take_while(|(key, _)| {
            key.starts_with(&first) && last.as_ref().is_none_or(|last| *key <= last)
        });
        within.take(limit).map(|(_, known)| known.head.clone()).collect()
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<PartialHead>> {
        self.known().values().map(|known| known.head.clone()).collect()
    }

    /// The head of the partial object of a key.
    pub(crate) fn head(&self, key: &[u8]) -> Option<Arc<PartialHead>> {
        self.known().get(key).map(|known| known.head.clone())
    }

    /// Records when the backend last had the stored version.
    pub(crate) fn validate(&self, key: &[u8], version: &str, validation: Validation) {
        if let Some(known) = self.known().current_mut(key).filter(|k| k.head.version == version) {
            known.validation = validation;
        }
    }

    /// Space that partial objects of a bucket take.
    pub(crate) fn space_of(&self, bucket_id: u64) -> u64 {
        let known = self.known();
        let of_bucket = known.range(format::key(bucket_id, "")..);
        let of_bucket = of_bucket.take_while(|(_, known)| known.head.bucket_id == bucket_id);
        of_bucket.map(|(_, known)| known.space).sum()
    }

    /// Whether dropping partial objects could free space.
    pub(crate) fn is_any(&self) -> bool {
        !self.known().is_empty()
    }

    /// Ends the use of everything that is open: the disk left service. Its partial objects are read
    /// again when it comes back.
    pub(crate) fn close(&self) {
        for open in self.known().values().filter_map(|known| known.open.upgrade()) {
            open.end();
        }
    }

    fn knows(&self, key: &[u8]) -> bool {
        self.known().contains_key(key)
    }
}
