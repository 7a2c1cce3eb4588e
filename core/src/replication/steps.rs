//! The context of an operation: its object, the engine, and single commands as functions.

use std::sync::Arc;
use std::time::Duration;

use super::command::{Command, LocalCopy, LookMode, Removal};
use super::operation::{Commands, Pending};
use super::{Object, Replication, Rule};
use crate::bucket::BucketInfo;
use crate::copies::{CopyLook, Stamp};
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::native;
use crate::state::{ClusterState, Node};

/// One operation, as its steps see it.
#[derive(Clone)]
pub(super) struct Steps {
    pub(super) engine: Replication,
    pub(super) object: Object,
    pub(super) commands: Commands,
}

/// The object's lock, which is released when this value is dropped.
#[must_use]
pub(super) struct LockGuard(Option<Commands>);

impl LockGuard {
    /// Leaves the lock to the driver, beyond the end of the operation.
    pub(super) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if let Some(commands) = &self.0 {
            commands.push(Command::Unlock);
        }
    }
}

/// The present, read without waiting.
impl Steps {
    pub(super) fn me(&self) -> &NodeId {
        &self.engine.me
    }

    pub(super) fn info(&self) -> &BucketInfo {
        &self.object.info
    }

    pub(super) fn name(&self) -> &str {
        &self.object.name
    }

    pub(super) fn is_older_version(&self) -> bool {
        self.object.is_older_version()
    }

    pub(super) fn now(&self) -> Duration {
        self.engine.view.now()
    }

    pub(super) fn state(&self) -> Arc<ClusterState> {
        self.engine.view.state()
    }

    /// Whether the rule is kept; see [`Rule`].
    pub(super) fn keeps(&self, rule: Rule) -> bool {
        self.engine.keeps(rule)
    }

    /// Whether this target may have missed changes of objects that have copies.
    pub(super) fn is_stale(&self, state: &ClusterState) -> bool {
        native::lags(state, self.me())
    }

    /// Whether the copy here may be older than what another target has.
    pub(super) fn may_be_stale(&self, state: &ClusterState, copy: Stamp) -> bool {
        native::may_be_stale(state, self.info(), self.me(), copy, self.complete_version())
    }

    pub(super) fn complete_version(&self) -> u64 {
        self.engine.view.complete_version()
    }

    pub(super) fn is_pending(&self) -> bool {
        self.info().has_copies() && self.engine.pending.has(self.info(), self.name())
    }

    /// Whether the copy here is known to be the newest without a lookup.
    pub(super) fn is_authoritative(&self, copy: LocalCopy) -> bool {
        self.engine.is_authoritative(self.info(), self.name(), copy.stamp)
    }

    /// An error if the object, which was not found, may be on a disk that is not in use.
    pub(super) fn check_absent(&self) -> Result<()> {
        if !self.keeps(Rule::DisksThatAreAwayMayHaveObjects) {
            return Ok(());
        }
        self.engine.view.check_absent(&self.object)
    }

    /// Whether no target can have an older version of an object without the owner's knowledge.
    pub(super) fn is_quiescent(&self, state: &ClusterState) -> bool {
        state.is_quiescent() && self.engine.view.check_disks().is_ok()
    }

    /// Whether a removal that is recorded here is certainly the last change of the object. A later
    /// write may be on a disk that is not in use or was lost.
    pub(super) fn is_last_word(&self, state: &ClusterState, gone: Stamp) -> bool {
        !self.may_lack() && native::is_last_word(state, self.info(), gone, self.me())
    }

    /// Whether a copy that belongs here may be only on another target.
    pub(super) fn may_lack(&self) -> bool {
        let is_away = self.keeps(Rule::DisksThatAreAwayMayHaveObjects)
            && self.engine.view.check_disks().is_err();
        is_away || self.has_lost_objects()
    }

    pub(super) fn has_lost_objects(&self) -> bool {
        self.keeps(Rule::LossesAreRemembered) && self.engine.view.has_lost_objects()
    }
}

/// Single commands.
impl Steps {
    pub(super) fn issue(&self, command: Command) -> Pending {
        self.commands.issue(command)
    }

    pub(super) async fn sleep(&self, time: Duration) {
        self.issue(Command::Sleep(time)).await;
    }

    /// Waits for the object's lock.
    pub(super) async fn lock(&self) -> Result<LockGuard> {
        self.issue(Command::Lock).await.done()?;
        Ok(LockGuard(Some(self.commands.clone())))
    }

    /// The lock that the driver holds since before the operation.
    pub(super) fn held_lock(&self) -> LockGuard {
        LockGuard(Some(self.commands.clone()))
    }

    /// An error if this target had no contact to a leading gateway for so long that other targets
    /// may answer for its objects.
    pub(super) async fn wait_for_lease(&self) -> Result<()> {
        if self.engine.view.has_lease() {
            return Ok(());
        }
        self.issue(Command::WaitForLease).await.done()
    }

    /// The committed copy here.
    pub(super) async fn copy_here(&self) -> Result<Option<LocalCopy>> {
        self.issue(Command::GetCopy).await.copy()
    }

    /// The copy here, after changes in progress have ended.
    pub(super) async fn final_copy_here(&self) -> Result<Option<LocalCopy>> {
        let _guard = self.lock().await?;
        self.copy_here().await
    }

    /// The stamp of the object's last removal, as far as it is still needed.
    pub(super) async fn tombstone_here(&self) -> Result<Option<Stamp>> {
        self.issue(Command::GetTombstone).await.tombstone()
    }

    /// Removes the copy here; returns the removed one.
    pub(super) async fn remove_here(&self) -> Result<Option<LocalCopy>> {
        self.issue(Command::RemoveCopy).await.copy()
    }

    pub(super) async fn commit(&self, stamp: Stamp) -> Result<LocalCopy> {
        let committed = self.issue(Command::Commit { stamp }).await.copy()?;
        committed.ok_or_else(|| Error::internal("a commit returned no copy"))
    }

    /// Writes a tombstone; the caller holds the object's lock.
    pub(super) async fn write_tombstone(&self, stamp: Stamp) -> Result<()> {
        self.issue(Command::WriteTombstone { stamp }).await.done()
    }

    pub(super) async fn look_at(&self, to: &NodeId, mode: LookMode) -> Result<CopyLook> {
        self.issue(Command::Look { to: to.clone(), mode }).await.look()
    }

    pub(super) fn request_removal(&self, to: &NodeId, removal: &Removal) -> Pending {
        self.issue(Command::RemoveOlder { to: to.clone(), removal: removal.clone() })
    }

    /// Sends looks to other targets; returns their answers. A target that is dead gets none.
    pub(super) async fn look_at_all(&self, others: Vec<Node>, mode: LookMode) -> Vec<LookAnswer> {
        let asked: Vec<_> = others
            .into_iter()
            .map(|node| {
                let to = node.id.clone();
                let look = node.alive.then(|| self.issue(Command::Look { to, mode }));
                (node, look)
            })
            .collect();
        let mut answers = Vec::with_capacity(asked.len());
        for (node, look) in asked {
            let answer = match look {
                Some(look) => look.await.look(),
                None => Err(Error::unavailable("it is down")),
            };
            answers.push((node, answer));
        }
        answers
    }

    pub(super) fn belongs_elsewhere(&self) -> Error {
        native::belongs_elsewhere(self.info(), self.name())
    }
}

/// Another target's answer to a look.
pub(super) type LookAnswer = (Node, Result<CopyLook>);
