//! The commands of the engine that work on the disks of this target.

use forebay_core::copies::Stamp;
use forebay_core::locks::MutexExt;
use forebay_core::replication::{Answer, Command, LocalCopy, LocalSlice};
use forebay_core::{Error, ErrorCode, Result};
use forebay_store::Record;

use super::Replication;
use super::content::Content;
use super::slices::{SliceHere, as_object, object_of};
use super::work::Work;
use crate::object::versions::older;

impl Replication {
    pub(super) async fn execute_on_disk(
        &self,
        work: &Work<'_>,
        command: Command,
    ) -> Result<Answer> {
        let (info, id, name) = (work.info(), work.id(), work.name());
        match command {
            Command::GetCopy => {
                let record = self.store().get(id, name).await?;
                Ok(self.copy_answer(work, record))
            }
            Command::GetSlices => {
                let here = self.slices_here(info.id, name).await?;
                Ok(Answer::Slices(here.iter().filter_map(local_slice).collect()))
            }
            Command::GetTombstone => {
                let older = work.is_older_version();
                self.removal_of(info, name, older).await.map(Answer::Tombstone)
            }
            Command::Open(copy) => self.record_of(work, copy).await.map(|_| Answer::Done),
            Command::CheckCondition => self.check_condition(work).await,
            Command::Prepare { replaced, stamp } => self.prepare(work, replaced, stamp).await,
            Command::Receive => match &mut *work.content.lock().await {
                Content::Transfer(transfer) => {
                    self.receive_bytes(transfer).await.map(|()| Answer::Done)
                }
                _ => Err(nothing_to("receive")),
            },
            Command::Commit { stamp } => self.commit_content(work, stamp).await,
            Command::UpdateMetadata { copy, stamp } => {
                self.update_metadata(work, copy, stamp).await
            }
            Command::RemoveCopy => {
                let removed = self.store().remove(id, name).await?;
                Ok(self.copy_answer(work, removed))
            }
            Command::WriteTombstone { stamp } => {
                let older = work.is_older_version();
                self.write_tombstone(info, name, stamp, older).await.map(|()| Answer::Done)
            }
            Command::RemoveTombstone { stamp } => {
                self.discard_tombstone(info, name, stamp).await.map(|()| Answer::Done)
            }
            Command::CommitSlice { slice, .. } => match &mut *work.content.lock().await {
                Content::Transfer(transfer) => {
                    self.commit_slice(info, slice, transfer).await.map(|()| Answer::Done)
                }
                _ => Err(nothing_to("commit as a slice")),
            },
            Command::KeepSlice { copy, slice } => {
                let record = self.record_of(work, copy).await?;
                self.keep_slice(info, &record, slice).await.map(|()| Answer::Done)
            }
            Command::RemoveSlices { slices } => {
                self.remove_slices(work, &slices).await.map(|()| Answer::Done)
            }
            Command::Assemble { stamp, sources } => {
                let assembled = self.assemble(work, stamp, sources).await?;
                *work.content.lock().await = Content::Assembled(Some(Box::new(assembled)));
                Ok(Answer::Done)
            }
            Command::CommitAssembled { .. } => self.commit_assembled(work).await,
            Command::ListVersions => {
                let older = older(self.store(), info, name).await?;
                Ok(Answer::Versions(older.into_iter().map(|record| record.name).collect()))
            }
            Command::SendVersion { version, to } => {
                self.send_version(info, version, to).await.map(|()| Answer::Done)
            }
            other => Err(Error::internal(format!("{other:?} is no command for disks"))),
        }
    }

    /// The record of a commit. [`ErrorCode::ObjectNotFound`] if another one replaced it.
    pub(super) async fn record_of(&self, work: &Work<'_>, copy: LocalCopy) -> Result<Record> {
        let is_this = |record: &Record| record.generation == copy.commit;
        if let Some(seen) = work.seen.locked().clone().filter(is_this) {
            return Ok(seen);
        }
        let now = self.store().get(work.id(), work.name()).await?;
        let record = now.filter(is_this).ok_or_else(|| gone(work))?;
        *work.seen.locked() = Some(record.clone());
        Ok(record)
    }

    fn copy_answer(&self, work: &Work<'_>, record: Option<Record>) -> Answer {
        let copy = record.as_ref().map(|record| LocalCopy {
            stamp: record.stamp(),
            commit: record.generation,
            size: record.size,
            damaged: self.0.damaged.has(&work.key, record),
        });
        *work.seen.locked() = record;
        Answer::Copy(copy)
    }

    async fn check_condition(&self, work: &Work<'_>) -> Result<Answer> {
        let now = self.store().get(work.info().id, work.name()).await?;
        match &mut *work.content.lock().await {
            Content::Version(version) => version.check(now.as_ref()).await?,
            Content::Metadata(Some(change)) => {
                let now = now.ok_or_else(|| gone(work))?;
                (change.check)(&now)?;
            }
            _ => return Err(nothing_to("check")),
        }
        Ok(Answer::Done)
    }

    async fn prepare(
        &self,
        work: &Work<'_>,
        replaced: Option<LocalCopy>,
        stamp: Stamp,
    ) -> Result<Answer> {
        let replaced = match replaced {
            Some(copy) => Some(self.record_of(work, copy).await?),
            None => self.newest_in_slices(work.info(), work.name()).await?,
        };
        match &mut *work.content.lock().await {
            Content::Version(version) => version.prepare(replaced, stamp).await?,
            _ => return Err(nothing_to("prepare")),
        }
        Ok(Answer::Done)
    }

    async fn commit_content(&self, work: &Work<'_>, stamp: Stamp) -> Result<Answer> {
        let record = match &mut *work.content.lock().await {
            Content::Version(version) => version.commit().await?,
            Content::Transfer(transfer) => self.commit_copy(work.info(), transfer).await?,
            _ => return Err(nothing_to("commit")),
        };
        debug_assert_eq!(record.stamp(), stamp);
        *work.committed.locked() = Some(record.clone());
        self.local().lost.forget(&work.key);
        Ok(self.copy_answer(work, Some(record)))
    }

    async fn update_metadata(
        &self,
        work: &Work<'_>,
        copy: LocalCopy,
        stamp: Stamp,
    ) -> Result<Answer> {
        let record = self.record_of(work, copy).await?;
        let change = match &mut *work.content.lock().await {
            Content::Metadata(change) => change.take(),
            _ => None,
        };
        let change = change.ok_or_else(|| nothing_to("change"))?.change;
        let before = record.stamp();
        let updated = self.store().update(&record, move |meta| {
            change(meta);
            if stamp != before {
                (meta.epoch, meta.version) = (stamp.epoch, stamp.version.to_string());
            }
        });
        let updated = updated.await?;
        *work.committed.locked() = Some(updated.clone());
        Ok(self.copy_answer(work, Some(updated)))
    }

    async fn commit_assembled(&self, work: &Work<'_>) -> Result<Answer> {
        let assembled = match &mut *work.content.lock().await {
            Content::Assembled(assembled) => assembled.take(),
            _ => None,
        };
        let (file, meta) = *assembled.ok_or_else(|| nothing_to("commit"))?;
        let record = self.store().commit(file, meta).await?;
        self.local().lost.forget(&work.key);
        let uri = work.object.uri();
        tracing::info!(uri, bytes = record.size, "an object was assembled from slices");
        Ok(self.copy_answer(work, Some(record)))
    }

    async fn remove_slices(&self, work: &Work<'_>, slices: &[LocalSlice]) -> Result<()> {
        for here in self.slices_here(work.info().id, work.name()).await? {
            if local_slice(&here).is_some_and(|here| slices.contains(&here)) {
                self.store().discard(&here.record).await?;
            }
        }
        Ok(())
    }

    /// The newest version of which a slice is here, as a record of the object.
    async fn newest_in_slices(
        &self,
        info: &forebay_core::bucket::BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        if !self.may_have_slices(info) {
            return Ok(None);
        }
        let here = self.slices_here(info.id, name).await?;
        let newest = here.iter().max_by_key(|here| here.record.stamp());
        Ok(newest.and_then(|here| as_object(&here.record)))
    }
}

/// A slice as the engine knows it; `None` if its record cannot be read.
pub(super) fn local_slice(here: &SliceHere) -> Option<LocalSlice> {
    Some(LocalSlice {
        slice: here.slice,
        stamp: here.record.stamp(),
        commit: here.record.generation,
        size: object_of(&here.record)?.size,
    })
}

fn gone(work: &Work<'_>) -> Error {
    let text = format!("{} was replaced or removed", work.object.uri());
    Error::new(ErrorCode::ObjectNotFound, text)
}

fn nothing_to(what: &str) -> Error {
    Error::internal(format!("this operation has nothing to {what}"))
}
