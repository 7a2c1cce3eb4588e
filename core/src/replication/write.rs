//! Writes by clients.

use super::command::{Command, LocalCopy};
use super::read::MAX_OPENS;
use super::replicate::Change;
use super::steps::{LockGuard, Steps};
use crate::error::Result;
use crate::native::WriteHistory;

/// How an object is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// The object that is replaced is needed here for a precondition, although it may be on a former
    /// owner.
    pub fetch_first: bool,
    /// The write has a precondition, to be checked under the lock.
    pub conditional: bool,
}

impl Steps {
    /// Commits the payload as the newest version of the object and replicates it. Returns the copy
    /// when all living holders have it.
    pub(super) async fn write(&self, options: WriteOptions) -> Result<LocalCopy> {
        let (guard, was_here) = self.lock_for_write(options.fetch_first).await?;
        if options.conditional {
            self.issue(Command::CheckCondition).await.done()?;
        }
        let state = self.may_write().await?;
        let here = self.copy_here().await?;
        if here.is_none() && was_here {
            self.check_not_lost()?;
        }
        if here.is_none() && self.info().keeps_versions() {
            // It would not become an older version.
            self.check_absent()?;
        }
        let mut history = WriteHistory {
            here: here.map(|copy| copy.stamp).max(self.newest_slice_here().await?),
            unreplicated: self.unreplicated_delete().max(self.recent_removal()),
            tombstone: self.tombstone_here().await?,
            ..WriteHistory::default()
        };
        if history.here.is_none() {
            history.elsewhere = self.last_change_elsewhere(&state).await?;
        }
        let stamp = history.next(&state);
        self.issue(Command::Prepare { replaced: here, stamp }).await.done()?;
        self.begin_replication(None);
        let copy = self.commit(stamp).await?;
        drop(self.replicate_and_ack(Change::Written(copy), guard).await?);
        Ok(copy)
    }

    /// Locks the object. The replaced copy is here then, if it is needed. Also returns whether the
    /// object was here before the lock.
    pub(super) async fn lock_for_write(&self, fetch_first: bool) -> Result<(LockGuard, bool)> {
        for _ in 0..MAX_OPENS {
            let placed = self.state().targets_changed;
            let locked = match fetch_first || self.may_lack_replaced() {
                true => self.lock_newest().await?,
                false => (self.lock().await?, false),
            };
            // Meanwhile another target may have owned the object and written it: that version must
            // become an older one.
            if !self.info().keeps_versions() || self.state().targets_changed == placed {
                return Ok(locked);
            }
        }
        Err(self.keeps_changing())
    }

    /// Locks the object, with its newest copy here, for a removal that follows under this lock.
    pub(super) async fn lock_for_removal(&self) -> Result<()> {
        self.lock_for_write(true).await.map(|(guard, _)| guard.keep())
    }

    /// Changes the metadata of the object; `None` if there is no such object.
    pub(super) async fn update(&self) -> Result<Option<LocalCopy>> {
        let (guard, was_here) = self.lock_newest().await?;
        let state = self.may_write().await?;
        let Some(copy) = self.copy_here().await? else {
            // Removed since it was fetched, unless it was lost with a disk.
            return if was_here { self.check_not_lost().map(|()| None) } else { Ok(None) };
        };
        self.issue(Command::CheckCondition).await.done()?;
        let has_copies = self.info().has_copies();
        // Copies are compared by their stamps, so a change of metadata needs a new version, too.
        let stamp = if has_copies { copy.stamp.next(state.version) } else { copy.stamp };
        self.begin_replication(None);
        let updated = self.issue(Command::UpdateMetadata { copy, stamp }).await.copy()?;
        if let Some(updated) = updated.filter(|_| has_copies) {
            drop(self.replicate_and_ack(Change::Written(updated), guard).await?);
        }
        Ok(updated)
    }
}
