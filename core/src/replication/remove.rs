//! Removals by clients.

use super::command::LookMode;
use super::lookup::newest;
use super::replicate::Change;
use super::steps::{LockGuard, Steps};
use crate::error::Result;
use crate::native;

impl Steps {
    pub(super) async fn remove(&self) -> Result<bool> {
        let guard = self.lock().await?;
        self.remove_locked(guard).await.map(|(existed, _guard)| existed)
    }

    /// The same under the lock that the driver holds already; it keeps the lock.
    pub(super) async fn remove_under_lock(&self) -> Result<bool> {
        let (existed, guard) = self.remove_locked(self.held_lock()).await?;
        guard.keep();
        Ok(existed)
    }

    /// Removes the object wherever it is stored; returns whether it existed.
    async fn remove_locked(&self, guard: LockGuard) -> Result<(bool, LockGuard)> {
        let state = self.may_write().await?;
        let here = self.newest_here().await?;
        if here.is_none()
            && let Some(stamp) = self.unreplicated_delete()
        {
            self.replicate(Change::Removed(stamp)).await?;
        }
        let others = match here {
            Some(_) => self.lookup_peers(),
            None => self.candidate_holders()?,
        };
        if others.is_empty() && !self.info().has_copies() {
            return Ok((self.remove_here().await?.is_some(), guard));
        }
        let answers = self.look_at_all(others, LookMode::Final).await;
        let unanswered = self.unanswered(&answers);
        let (there, removed) = newest(&answers);
        let may_be_stale = match here {
            Some(stamp) => self.may_be_stale(&state, stamp),
            None => there.is_some_and(|(node, _)| self.may_be_older(node)),
        };
        // That copy may be removed already, and only the target that does not answer has that
        // information.
        if may_be_stale && let Some(e) = unanswered {
            return Err(e);
        }
        let there = there.map(|(_, stamp)| stamp);
        let gone = removed.max(self.tombstone_here().await?);
        if !native::is_there(here, there, gone) {
            if here.is_some() {
                // Removed while this target was away.
                self.remove_forms().await?;
            }
            // Unless that removal is final, a target that does not answer may have the object.
            let is_final = gone.is_some_and(|gone| self.is_last_word(&state, gone));
            return match unanswered.filter(|_| !is_final) {
                Some(e) => Err(e),
                None => {
                    self.propagate_delete(&answers, gone).await?;
                    self.check_not_hidden().map(|()| (false, guard))
                }
            };
        }
        let last = here.max(there).max(gone);
        let stamp = last.unwrap_or_default().next(state.version);
        let has_tombstone = !self.is_quiescent(&state);
        if has_tombstone {
            self.write_tombstone(stamp).await?;
        }
        self.begin_replication(Some(stamp));
        self.record_removal(stamp);
        self.remove_forms().await?;
        let guard = self.replicate_and_ack(Change::Removed(stamp), guard).await?;
        if !has_tombstone && !self.is_quiescent(&self.state()) {
            // A target died meanwhile and may have missed the removal.
            self.write_tombstone(stamp).await?;
        }
        Ok((true, guard))
    }
}
