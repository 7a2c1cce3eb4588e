//! Notifications to the cache about the copies on a disk. With them it need not read the index.

use forebay_core::placement;

use super::Record;

/// A copy that was added to a disk, or whose evictability changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub generation: u64,
    pub bucket_id: u64,
    /// Digest of bucket and name: the same when the object is stored again.
    pub key: u64,
    /// Space on the disk.
    pub stored: u64,
    /// A backend has the same content.
    pub evictable: bool,
    /// Last access, unix nanoseconds.
    pub atime_ns: u64,
}

impl Arrival {
    pub fn of(record: &Record) -> Self {
        Self {
            generation: record.generation,
            bucket_id: record.bucket_id,
            key: key_digest(record.bucket_id, &record.name),
            stored: record.stored_bytes(),
            evictable: record.evictable(),
            atime_ns: record.meta.atime_ns.max(record.meta.validated_ns),
        }
    }
}

/// A digest that identifies an object across removals and new copies of it.
pub fn key_digest(bucket_id: u64, name: &str) -> u64 {
    placement::mix(placement::digest(name) ^ placement::mix(bucket_id))
}

/// Receives each change after it was made. The thread that made it calls, so a call must be fast
/// and must not call the store.
pub trait Observer: Send + Sync {
    /// A copy was committed, or became (or ceased to be) evictable.
    fn inserted(&self, disk: usize, arrival: &Arrival);

    /// A copy was read. Called on the path of each GET: no lock, no allocation.
    fn accessed(&self, disk: usize, generation: u64);

    /// A copy was removed or replaced.
    fn removed(&self, disk: usize, generation: u64);

    /// The disk was taken out of use, with all objects on it.
    fn left(&self, disk: usize);
}
