//! Writes of native objects: the place of a write among the changes of its object, and its commit
//! with its replication.

use forebay_core::Result;
use forebay_core::bucket::BucketInfo;
use forebay_core::copies::Stamp;
use forebay_core::native::WriteHistory;

use super::Replication;
use super::neighbor::News;
use crate::object::Key;
use crate::object::lock::KeyGuard;
use crate::store::Record;

/// The next version of an object.
pub(in crate::object) struct NextVersion {
    pub(in crate::object) stamp: Stamp,
    /// The version that it replaces. Of an object in slices only the metadata may be here.
    pub(in crate::object) replaced: Option<Record>,
}

impl Replication {
    /// The copy here if it is the newest one, or the newest one from another target. `None`: there
    /// is no copy here, or it was removed elsewhere.
    pub(in crate::object) async fn current_copy(
        &self,
        info: &BucketInfo,
        record: Record,
    ) -> Result<Option<Record>> {
        if self.knows_all(info, &record.name) {
            return Ok(Some(record));
        }
        Box::pin(self.newest_copy(info, record)).await
    }

    /// Fetches an object that a former owner may have, before its writer takes the lock.
    pub(in crate::object) async fn take_over(&self, info: &BucketInfo, name: &str) -> Result<()> {
        if info.has_backend() {
            return Ok(());
        }
        let here = match self.store().get(info.id, name).await? {
            Some(record) => self.current_copy(info, record).await?,
            None => None,
        };
        if here.is_none() {
            self.adopt_from_neighbor(info, name).await?;
        }
        Ok(())
    }

    /// The version that a write under the object's lock makes. An error if the object belongs to
    /// another target by now.
    pub(in crate::object) async fn next_version(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<NextVersion> {
        let state = self.may_write(info, name).await?;
        let mut replaced = self.store().get(info.id, name).await?;
        if replaced.is_none() {
            replaced = self.told_by_slices(info, name).await?;
        }
        let mut history = WriteHistory {
            here: replaced.as_ref().map(Record::stamp),
            unreplicated: self.untold_removal(info, name),
            tombstone: self.tombstone(info, name).await?,
            ..WriteHistory::default()
        };
        if replaced.is_none() {
            history.elsewhere = self.last_elsewhere(&state, info, name).await?;
        }
        Ok(NextVersion { stamp: history.next(&state), replaced })
    }

    /// Commits a new version and replicates it. Returns when all living holders have it; the
    /// object's lock may have been released and taken again meanwhile.
    pub(in crate::object) async fn commit(
        &self,
        info: &BucketInfo,
        name: &str,
        guard: KeyGuard,
        commit: impl Future<Output = Result<Record>>,
    ) -> Result<(Record, KeyGuard)> {
        self.unsettle(info, name, None);
        let record = commit.await?;
        self.local().lost.forget(&Key::new(info, name));
        let guard = self.acknowledge(info, name, News::Written(&record), guard).await?;
        Ok((record, guard))
    }
}
