//! Erasure coding: the slices of native objects on this target. Each slice is a record of its own
//! in the store, under an id that encodes the slice, with the metadata of its object. Code that
//! uses a bucket's id does not find it, and slices of different versions of an object never mix.
//!
//! [`send`] makes slices of an object and [`take`] accepts them. [`rebuild`] decodes the object
//! from them, in the version that [`newest`] chooses from what [`seek`] found. [`repair`] restores
//! missing forms of an object.

mod coder;
mod list;
mod newest;
mod rebuild;
mod repair;
mod seek;
mod send;
mod take;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::copies::{CopyHead, SliceLook, Stamp};
use forebay_core::erasure::Slice;
use forebay_core::locks::MutexExt;
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, Result, history};

use super::Replication;
use crate::store::{Record, RecordMeta};

pub(crate) use take::READ_PATH;

/// The checksum of slices, whatever the bucket's checksum is.
const SUM: ChecksumKind = ChecksumKind::Xxhash2;
/// Bytes of this checksum, which follows a slice in its transfer.
const SUM_LEN: u64 = 16;
/// Key of the custom metadata with the metadata of a slice's object.
const OBJECT: &str = "object";

/// The ids under which slices are stored here, by bucket. None is removed before the process ends.
#[derive(Debug, Default)]
pub(super) struct SliceIds(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The generation of disks at which all ids were looked up.
    turn: Option<u64>,
    ids: BTreeMap<u64, BTreeSet<u64>>,
}

impl SliceIds {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.locked()
    }

    fn note(&self, id: u64) {
        self.known().ids.entry(history::bucket_id(id)).or_default().insert(id);
    }
}

/// A slice that is stored here.
#[derive(Clone, Debug)]
pub(super) struct SliceHere {
    pub(super) slice: Slice,
    pub(super) record: Record,
}

impl Replication {
    /// Whether slices of the bucket's objects may exist.
    pub(super) fn may_have_slices(&self, info: &BucketInfo) -> bool {
        info.erasure.is_some() || !info.has_backend() && !self.state().is_in_place(info)
    }

    /// The ids under which slices of a bucket may be stored here.
    pub(crate) async fn slice_ids(&self, bucket_id: u64) -> Result<Vec<u64>> {
        let turn = *self.store().disk_turns().borrow();
        if self.0.slice_ids.known().turn != Some(turn) {
            let all = self.store().buckets().await?;
            let mut known = self.0.slice_ids.known();
            for id in all.into_iter().filter(|id| Slice::of_id(*id).is_some()) {
                known.ids.entry(history::bucket_id(id)).or_default().insert(id);
            }
            known.turn = Some(turn);
        }
        let known = self.0.slice_ids.known();
        Ok(known.ids.get(&bucket_id).into_iter().flatten().copied().collect())
    }

    /// The slices of an object that are stored here.
    pub(super) async fn slices_here(&self, bucket_id: u64, name: &str) -> Result<Vec<SliceHere>> {
        let mut here = Vec::new();
        for id in self.slice_ids(bucket_id).await? {
            if let (Some((slice, _)), Some(record)) =
                (Slice::of_id(id), self.store().get(id, name).await?)
            {
                here.push(SliceHere { slice, record });
            }
        }
        Ok(here)
    }

    /// The newest version of an object of which a slice is stored here, as a record of the object.
    pub(super) async fn told_by_slices(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        if !self.may_have_slices(info) {
            return Ok(None);
        }
        let here = self.slices_here(info.id, name).await?;
        let newest = here.iter().max_by_key(|here| here.record.stamp());
        Ok(newest.and_then(|here| as_object(&here.record)))
    }

    /// The slices here, in the form for other targets.
    pub(super) async fn look_at_slices(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Vec<SliceLook>> {
        if !self.may_have_slices(info) {
            return Ok(Vec::new());
        }
        let here = self.slices_here(info.id, name).await?;
        let look = |s: &SliceHere| SliceLook { slice: s.slice, stamp: s.record.stamp() };
        Ok(here.iter().map(look).collect())
    }

    /// Drops the slices here whose stamp is chosen. The caller holds the object's lock.
    pub(super) async fn drop_slices(
        &self,
        info: &BucketInfo,
        name: &str,
        which: impl Fn(Stamp) -> bool,
    ) -> Result<()> {
        for here in self.slices_here(info.id, name).await? {
            if which(here.record.stamp()) {
                self.store().discard(&here.record).await?;
            }
        }
        Ok(())
    }
}

/// The record of a slice that arrives with this head.
fn slice_meta(info: &BucketInfo, head: &CopyHead, sum: Checksum) -> Result<RecordMeta> {
    let object = serde_json::to_string(&head.meta)
        .map_err(|e| Error::internal(format!("an object's metadata cannot be kept: {e}")))?;
    Ok(RecordMeta {
        checksum: Some(sum),
        version: head.meta.version.clone(),
        epoch: head.epoch,
        class: info.class,
        atime_ns: head.meta.atime_ns,
        mtime_ns: head.meta.mtime_ns,
        custom: [(OBJECT.to_owned(), object)].into(),
        ..RecordMeta::default()
    })
}

/// Metadata of the object that a slice belongs to. `None`: it is not a valid slice.
fn object_of(record: &Record) -> Option<ObjectMeta> {
    serde_json::from_str(record.meta.custom.get(OBJECT)?).ok()
}

/// The object of a slice as a record, by the slice's metadata. Its bytes cannot be read.
fn as_object(record: &Record) -> Option<Record> {
    let meta = object_of(record)?;
    let mut object = record.clone();
    object.bucket_id = history::bucket_id(record.bucket_id);
    object.size = meta.size;
    object.meta = RecordMeta::of_object(meta, record.meta.epoch, record.meta.class);
    Some(object)
}
