//! The operations on native objects that clients and jobs of this target start.

use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::locks::MutexExt;
use forebay_core::replication::{LocalCopy, LocalSlice, Operation, WriteOptions};
use forebay_core::{Error, ErrorCode, Result, history, native};
use std::sync::Arc;

use forebay_core::state::ClusterState;
use forebay_node::pace::Pace;
use forebay_store::Record;

use super::Replication;
use super::content::{Content, MetadataChange, NewVersion};
use super::work::Work;
use crate::object::lock::KeyGuard;

impl Replication {
    /// Whether a copy here with this stamp is known to be the newest without asking other targets, so
    /// that it may be served.
    pub(in crate::object) fn is_authoritative(
        &self,
        info: &BucketInfo,
        name: &str,
        copy: Stamp,
    ) -> bool {
        self.engine().is_authoritative(info, name, copy)
    }

    /// For a hedged read, when the owner does not respond: an error unless this target may serve
    /// its copy; then the client waits for the owner.
    pub(crate) fn check_hedged(&self, info: &BucketInfo, name: &str) -> Result<()> {
        if self.engine().may_hedge(info, name) && self.store().find(info.id, name)?.is_some() {
            return Ok(());
        }
        let uri = info.bucket.object_uri(name);
        Err(Error::unavailable(format!("this target does not stand in for the owner of {uri}")))
    }

    /// An error if this target had no contact to a leading gateway for so long that other targets
    /// may answer for its objects.
    pub(super) async fn leased(&self) -> Result<()> {
        self.local().maps.leased().await
    }

    /// The newest version of an object, which is here then. `None`: there is no such object. An
    /// error if a target that may have a newer version does not respond.
    pub(in crate::object) async fn newest(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Option<Record>> {
        let work = Work::new(info, name);
        let reading = self.engine().read(work.object.clone());
        self.record_after(&work, reading).await
    }

    /// The record of the copy that an operation has brought here or found.
    async fn record_after(
        &self,
        work: &Work<'_>,
        operation: Operation<Result<Option<LocalCopy>>>,
    ) -> Result<Option<Record>> {
        match self.drive(work, operation).await? {
            Some(copy) => self.record_of(work, copy).await.map(Some),
            None => Ok(None),
        }
    }

    /// Fetches an object that a former owner may have, before its writer takes the lock.
    pub(in crate::object) async fn fetch_newest(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<()> {
        if info.has_backend() {
            return Ok(());
        }
        self.newest(info, name).await.map(drop)
    }

    /// Commits a new version of an object and replicates it; returns when all living holders have
    /// it.
    pub(in crate::object) async fn write(
        &self,
        info: &BucketInfo,
        name: &str,
        version: &mut dyn NewVersion,
        options: WriteOptions,
    ) -> Result<Record> {
        let work = Work::with_content(info, name, Content::Version(version));
        let writing = self.engine().write(work.object.clone(), options);
        let copy = self.drive(&work, writing).await?;
        self.committed(&work, copy)
    }

    /// The record that an operation has committed. Another one may have replaced it by now.
    fn committed(&self, work: &Work<'_>, copy: LocalCopy) -> Result<Record> {
        let committed = work.committed.locked().take();
        let committed = committed.filter(|record| record.generation == copy.commit);
        committed.ok_or_else(|| Error::internal("a write ended without its record"))
    }

    /// Changes the metadata of an object; `None` if there is no such object.
    pub(in crate::object) async fn update(
        &self,
        info: &BucketInfo,
        name: &str,
        change: MetadataChange,
    ) -> Result<Option<Record>> {
        let work = Work::with_content(info, name, Content::Metadata(Some(change)));
        let updating = self.engine().update(work.object.clone());
        match self.drive(&work, updating).await? {
            Some(copy) => self.committed(&work, copy).map(Some),
            None => Ok(None),
        }
    }

    /// Removes an object wherever it is stored; returns whether it existed. `guard` is the object's
    /// lock, which is held after a success, too.
    pub(in crate::object) async fn remove(
        &self,
        info: &BucketInfo,
        name: &str,
        guard: KeyGuard,
    ) -> Result<(bool, KeyGuard)> {
        let work = Work::new(info, name);
        let removing = self.engine().remove_under_lock(work.object.clone());
        let (existed, guard) = self.drive_locked(&work, removing, Some(guard)).await;
        let existed = existed?;
        Ok((existed, kept_lock(guard)?))
    }

    /// Replaces a damaged copy by another target's, or from slices. False if that is not possible;
    /// then the damaged one stays as it is.
    pub(super) async fn repair(&self, info: &BucketInfo, damaged: &Record) -> Result<bool> {
        let work = Work::new(info, &damaged.name);
        let copy = LocalCopy {
            stamp: damaged.stamp(),
            commit: damaged.generation,
            size: damaged.size,
            damaged: true,
        };
        self.drive(&work, self.engine().repair(work.object.clone(), copy)).await
    }

    /// Drops a damaged slice here and has it made again, if its object is safe. False: it stays as
    /// it is.
    pub(in crate::object) async fn repair_damaged_slice(
        &self,
        info: &BucketInfo,
        damaged: &Record,
    ) -> Result<bool> {
        let here = self.slices_here(info.id, &damaged.name).await?;
        let here = here.iter().find(|here| here.record.generation == damaged.generation);
        let Some(slice) = here.and_then(super::disk_commands::local_slice) else {
            return Ok(false);
        };
        self.repair_slice(info, &damaged.name, slice).await
    }

    async fn repair_slice(&self, info: &BucketInfo, name: &str, slice: LocalSlice) -> Result<bool> {
        let work = Work::new(info, name);
        self.drive(&work, self.engine().repair_slice(work.object.clone(), slice)).await
    }

    /// Fetches a copy, or has a slice made, that was lost with a disk. Returns its record, if one is
    /// here then.
    pub(super) async fn restore(&self, info: &BucketInfo, name: &str) -> Result<Option<Record>> {
        let work = Work::new(info, name);
        let restoring = self.engine().restore(work.object.clone());
        self.record_after(&work, restoring).await
    }

    /// Moves a copy to where it belongs. Returns the bytes sent or dropped; `None` if there was
    /// nothing to do.
    pub(crate) async fn relocate(
        &self,
        info: &BucketInfo,
        name: &str,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let work = Work::new(info, name).paced(pace);
        self.drive(&work, self.engine().relocate(work.object.clone())).await
    }

    /// Has the forms of an object of which slices are here brought to their places, and drops the
    /// slices that do not belong here. Returns as [`Self::relocate`].
    pub(crate) async fn relocate_slices(
        &self,
        info: &BucketInfo,
        name: &str,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let work = Work::new(info, name).paced(pace);
        self.drive(&work, self.engine().relocate_slices(work.object.clone())).await
    }

    /// Moves an older version, by its name in the history, to where its object belongs. Returns as
    /// [`Self::relocate`].
    pub(crate) async fn relocate_version(
        &self,
        info: &BucketInfo,
        name: &str,
        pace: &Pace,
    ) -> Result<Option<u64>> {
        let work = Work::stored(info, name, true).paced(pace);
        self.drive(&work, self.engine().relocate(work.object.clone())).await
    }

    /// Fetches all older versions of an object. An error if a target, or a disk, that may have some
    /// is unavailable.
    pub(in crate::object) async fn gather_versions(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<()> {
        let work = Work::new(info, name);
        self.drive(&work, self.engine().gather_versions(work.object.clone())).await
    }

    /// Locks an object with its newest copy here, which a former owner may have had.
    pub(in crate::object) async fn lock_newest(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<KeyGuard> {
        let work = Work::new(info, name);
        if info.has_backend() {
            return Ok(self.local().locks.lock(&work.key).await);
        }
        let locking = self.engine().lock_newest(work.object.clone());
        let (locked, guard) = self.drive_locked(&work, locking, None).await;
        locked.and_then(|()| kept_lock(guard))
    }

    /// The same, with the older versions of the object here. Also returns why one of them may be
    /// missing.
    pub(in crate::object) async fn lock_with_versions(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<(KeyGuard, Option<Error>)> {
        if info.has_backend() {
            return Ok((self.lock_newest(info, name).await?, None));
        }
        let work = Work::new(info, name);
        let locking = self.engine().lock_with_versions(work.object.clone());
        let (missing, guard) = self.drive_locked(&work, locking, None).await;
        let missing = missing?;
        Ok((kept_lock(guard)?, missing))
    }

    /// Removes a version for good that this target, the owner, has found; `older` is its name in the
    /// history. The caller holds the object's lock.
    pub(in crate::object) async fn forget_version(
        &self,
        info: &BucketInfo,
        older: &str,
        found: &Record,
    ) -> Result<()> {
        let work = Work::stored(info, older, true);
        let removing = self.engine().remove_version(work.object.clone(), found.stamp());
        self.drive(&work, removing).await
    }

    /// Whether the newest change that other targets know of an object is its removal, after `copy`
    /// was written.
    pub(super) async fn is_removed_elsewhere(
        &self,
        info: &BucketInfo,
        name: &str,
        copy: Stamp,
    ) -> Result<bool> {
        let work = Work::new(info, name);
        self.drive(&work, self.engine().is_removed_elsewhere(work.object.clone(), copy)).await
    }

    /// The state under which an older version of an object is written or removed. An error if the
    /// object belongs to another target, or that is possible. The caller holds the object's lock.
    pub(in crate::object) async fn may_write(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<Arc<ClusterState>> {
        if !info.has_backend() {
            self.leased().await?;
        }
        let state = self.state();
        let known = state.bucket(&info.bucket).ok();
        let known = known.filter(|bucket| bucket.id == history::bucket_id(info.id));
        let Some(info) = known.filter(|bucket| !bucket.has_backend()) else { return Ok(state) };
        if native::writes(&state, info, name, self.me())? {
            return Ok(state);
        }
        Err(Error { code: ErrorCode::WrongOwner, ..native::belongs_elsewhere(info, name) })
    }
}

/// The lock that an operation has left to its driver.
fn kept_lock(guard: Option<KeyGuard>) -> Result<KeyGuard> {
    guard.ok_or_else(|| Error::internal("an operation ended without its lock"))
}
