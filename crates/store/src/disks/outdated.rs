//! Objects on a disk that comes back, which were written or removed while it was away. They are
//! dropped before readers see the disk.

use std::sync::Arc;

use forebay_core::erasure::Slice;
use forebay_core::{Result, history};

use super::Disks;
use crate::format;
use crate::index::{Index, Span};
use crate::record::Record;
use crate::volume::Volume;

impl Disks {
    /// Removes from a disk that comes back the objects that were written or removed on the other disks
    /// meanwhile.
    pub(super) fn drop_overtaken(&self, volume: &Arc<Volume>) -> Result<()> {
        let mut old = Vec::new();
        for other in self.online.load().iter() {
            for (key, removed) in other.shared().index.strays()? {
                let newest = other.shared().index.get(&key)?.map(|r| r.sequence).or(removed);
                let found = volume.shared().index.get(&key)?;
                old.extend(found.filter(|r| newest.is_some_and(|newest| r.sequence < newest)));
            }
        }
        drop_all(volume, &old, "overtaken")
    }

    /// Removes from a disk the copies, slices and older versions of objects for which some disk, also
    /// this one, has a later tombstone ([`history::tombstones`]).
    pub(super) fn drop_removed(&self, volume: &Arc<Volume>) -> Result<()> {
        let mut disks = Vec::clone(&self.online.load());
        disks.retain(|disk| disk.number() != volume.number());
        disks.push(volume.clone());
        let mut old = Vec::new();
        for disk in disks {
            old.extend(outdated(&volume.shared().index, &disk.shared().index)?);
        }
        drop_all(volume, &old, "removed while the disk was away")
    }
}

/// The records in one index whose object has a later tombstone in another one.
fn outdated(records: &Index, tombstones: &Index) -> Result<Vec<Record>> {
    let stored = records.buckets()?;
    let mut old = Vec::new();
    for id in tombstones.buckets()?.into_iter().filter(|id| history::is_tombstones(*id)) {
        let bucket = history::bucket_id(id);
        let is_form = |id: &u64| *id == bucket || Slice::of_id(*id).is_some();
        let of_bucket = stored.iter().copied().filter(|id| history::bucket_id(*id) == bucket);
        let (forms, versions) = (of_bucket.filter(is_form).collect(), vec![history::id(bucket)]);
        for tombstone in tombstones.scan(&Span { bucket_id: id, ..Span::default() }) {
            let tombstone = tombstone?;
            let is_older = history::is_of_older_version(&tombstone.meta.custom);
            for id in if is_older { &versions } else { &forms } {
                let found = records.get(&format::key(*id, &tombstone.name))?;
                old.extend(found.filter(|record| record.stamp() <= tombstone.stamp()));
            }
        }
    }
    Ok(old)
}

fn drop_all(volume: &Arc<Volume>, old: &[Record], why: &str) -> Result<()> {
    if !old.is_empty() {
        tracing::info!(disk = %volume.path().display(), objects = old.len(), "dropped: {why}");
    }
    volume.remove_all_blocking(old).map(drop)
}
