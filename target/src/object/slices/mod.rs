//! Erasure coding: the slices of native objects on this target. Each lies in the store as an object of
//! its own, under an id that says which slice it is, with the metadata of the object that it is of; so
//! nothing that goes by a bucket's id sees it, and slices of different states of an object never mix.
//!
//! [`send`] makes slices of an object and [`take`] takes them; [`rebuild`] makes the object of them,
//! of the state that [`newest`] chooses where [`seek`] looked; [`repair`] has all that is due where it belongs.

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
use std::sync::{Mutex, MutexGuard, PoisonError};

use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::copies::{CopyHead, SliceLook, Stamp};
use forebay_core::erasure::Slice;
use forebay_core::object::ObjectMeta;
use forebay_core::{Error, Result, history};

use super::ObjectService;
use crate::store::{Record, RecordMeta};

pub(crate) use repair::ENSURE_PATH;
pub(crate) use take::READ_PATH;

/// What slices are summed with, whatever the bucket's objects are.
const SUM: ChecksumKind = ChecksumKind::Xxhash2;
/// Bytes of such a sum as it follows a slice on its way.
const SUM_LEN: u64 = 16;
/// Name of the pair of custom metadata that holds the metadata of the object that a slice is of.
const OBJECT: &str = "object";

/// Under which ids slices lie here, by bucket. None is forgotten before the target ends.
#[derive(Debug, Default)]
pub(super) struct SliceIds(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    /// The coming or going of a disk at which all were looked up.
    turn: Option<u64>,
    ids: BTreeMap<u64, BTreeSet<u64>>,
}

impl SliceIds {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, id: u64) {
        self.known().ids.entry(history::bucket_id(id)).or_default().insert(id);
    }
}

/// A slice that lies here.
#[derive(Clone, Debug)]
pub(super) struct SliceHere {
    pub(super) slice: Slice,
    pub(super) record: Record,
}

impl ObjectService {
    /// Whether slices of the bucket's objects may lie anywhere.
    pub(super) fn may_have_slices(&self, info: &BucketInfo) -> bool {
        info.erasure.is_some() || !info.has_backend() && !self.state().is_in_place(info)
    }

    /// The ids under which slices of a bucket may lie here.
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

    /// The slices of an object that lie here.
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

    /// The newest state of an object of which a slice lies here, as a record of the object.
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

    /// As others are told of them.
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

    /// Drops the slices here whose stamp is one of those. The caller has the object's lock.
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

/// What is recorded of a slice that comes with this head.
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

/// Metadata of the object that a slice is of. `None`: it is no slice of ours.
fn object_of(record: &Record) -> Option<ObjectMeta> {
    serde_json::from_str(record.meta.custom.get(OBJECT)?).ok()
}

/// What a slice tells of its object, as a record of that. Nothing can be read by it.
fn as_object(record: &Record) -> Option<Record> {
    let meta = object_of(record)?;
    let mut object = record.clone();
    object.bucket_id = history::bucket_id(record.bucket_id);
    object.size = meta.size;
    object.meta = RecordMeta::of_object(meta, record.meta.epoch, record.meta.class);
    Some(object)
}
