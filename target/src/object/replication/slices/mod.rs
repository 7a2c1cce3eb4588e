//! Erasure coding: the slices of native objects on this target. Each slice is a record of its own
//! in the store, under an id that encodes the slice, with the metadata of its object. Code that
//! uses a bucket's id does not find it, and slices of different versions of an object never mix.
//!
//! [`encode`] makes slices of an object and [`decode`] makes the object of slices. When that happens
//! is decided by the replication engine.

mod coder;
mod decode;
mod encode;
mod list;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

use forebay_clouds::BodyStream;
use forebay_core::bucket::BucketInfo;
use forebay_core::checksum::{Checksum, ChecksumKind};
use forebay_core::copies::requests::SliceRequest;
use forebay_core::copies::{CopyHead, SliceLook};
use forebay_core::erasure::{PLACES, Slice};
use forebay_core::locks::MutexExt;
use forebay_core::object::ObjectMeta;
use forebay_core::size::ByteRange;
use forebay_core::{Error, ErrorCode, Result, history};
use forebay_store::{Record, RecordMeta, WorkFile};
use futures::StreamExt;

use super::Replication;

pub(super) use coder::Layout;
pub(super) use encode::SliceSend;

/// Path of reads of slices.
const READ_PATH: &str = "/internal/v1/copy/slice";

/// The checksum of slices, whatever the bucket's checksum is.
pub(super) const SLICE_CHECKSUM: ChecksumKind = ChecksumKind::Xxhash2;
/// Bytes of this checksum, which follows a slice in its transfer.
pub(super) const SLICE_CHECKSUM_LEN: u64 = 16;
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

    /// The place for one more version of a slice. The oldest one stays: a newer one may not be on
    /// all holders yet.
    pub(super) async fn free_place(&self, bucket_id: u64, name: &str, slice: Slice) -> Result<u8> {
        let mut oldest = None;
        for place in 0..PLACES {
            let stamp =
                self.store().get(slice.id(bucket_id, place), name).await?.map(|r| r.stamp());
            if let Some(stamp) = stamp
                && oldest.is_none_or(|(old, _)| stamp < old)
            {
                oldest = Some((stamp, place));
            }
        }
        Ok(oldest.map_or(0, |(_, place)| (place + 1) % PLACES))
    }

    /// Commits a slice, with its checksum and the id under which it is stored.
    pub(super) async fn store_slice(
        &self,
        info: &BucketInfo,
        head: &CopyHead,
        (sum, id): (Checksum, u64),
        file: WorkFile,
    ) -> Result<()> {
        let meta = slice_meta(info, head, sum)?;
        self.0.slice_ids.note(id);
        self.store().commit(file, meta).await.map(drop)
    }

    /// A slice that is stored here, of the version in the request, and its metadata.
    pub(crate) async fn read_slice(
        &self,
        info: &BucketInfo,
        request: &SliceRequest,
    ) -> Result<(CopyHead, u64, BodyStream)> {
        let uri = info.bucket.object_uri(&request.name);
        let none =
            || Error::new(ErrorCode::ObjectNotFound, format!("there is no such slice of {uri}"));
        let slice = request.slice;
        let here = self.slices_here(info.id, &request.name).await?;
        let here = here
            .into_iter()
            .find(|here| here.slice == slice && here.record.stamp() == request.stamp);
        let record = here.ok_or_else(none)?.record;
        let head = CopyHead {
            meta: object_of(&record).ok_or_else(none)?,
            epoch: record.meta.epoch,
            from: Some(self.me().clone()),
            slice: Some(slice),
            slice_sum: record.meta.checksum.clone(),
            ..CopyHead::default()
        };
        let reader = self.store().reader(&record).await?;
        Ok((head, record.size, reader.stream(ByteRange::whole(record.size)).boxed()))
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
pub(super) fn object_of(record: &Record) -> Option<ObjectMeta> {
    serde_json::from_str(record.meta.custom.get(OBJECT)?).ok()
}

/// The object of a slice as a record, by the slice's metadata. Its bytes cannot be read.
pub(super) fn as_object(record: &Record) -> Option<Record> {
    let meta = object_of(record)?;
    let mut object = record.clone();
    object.bucket_id = history::bucket_id(record.bucket_id);
    object.size = meta.size;
    object.meta = RecordMeta::of_object(meta, record.meta.epoch, record.meta.class);
    Some(object)
}
