//! Lookups on other targets. While objects move, an object may still be on a former owner; and a
//! target that was away may have missed writes of objects with copies. Then this target looks at
//! the other targets' copies before it answers for an object.

use std::ops::ControlFlow::{self, Break, Continue};

use super::command::{Command, LocalCopy, LookMode, Removal};
use super::steps::{LookAnswer, Steps};
use crate::copies::{CopyLook, Stamp};
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;
use crate::state::{ClusterState, Node};
use crate::{native, rebalance};

/// Attempts to find an object that moves between the look and the fetch.
const MAX_LOOKUPS: usize = 5;

/// The other targets' state of an object.
pub(super) struct RemoteState {
    /// The node with the newest copy, and the stamp of that copy.
    pub(super) newest: Option<(Node, Stamp)>,
    /// The stamp of the last removal.
    pub(super) removed: Option<Stamp>,
    /// Some target has fragments of it.
    is_fragmented: bool,
}

impl Steps {
    /// The other targets that may have newer information about the object.
    pub(super) fn lookup_peers(&self) -> Vec<Node> {
        let state = self.state();
        let peers = native::lookup_peers(&state, self.info(), self.name(), self.me());
        peers.into_iter().cloned().collect()
    }

    /// The other targets that may have an object which is missing here. An object with copies may
    /// be missing because a disk is not in use or was lost; then these are the other holders. An
    /// error if only a disk that is not in use could have it.
    pub(super) fn candidate_holders(&self) -> Result<Vec<Node>> {
        let mut others = self.lookup_peers();
        if self.info().has_copies() && others.is_empty() && self.may_lack() {
            let state = self.state();
            let all = native::who_has_copies(&state, self.info(), self.name(), self.me());
            others = all.into_iter().cloned().collect();
        }
        if !self.info().has_copies() || others.is_empty() {
            self.check_absent()?;
            self.check_not_lost()?;
        }
        Ok(others)
    }

    /// An error if the newest version of an object may be on a disk of this target that is not in use,
    /// or was lost with one, and no other target is sure to have it.
    pub(super) fn check_not_hidden(&self) -> Result<()> {
        let (state, info) = (self.state(), self.info());
        let is_complete_elsewhere = info.has_copies()
            && state.is_in_place(info)
            && !native::who_has_copies(&state, info, self.name(), self.me()).is_empty();
        if is_complete_elsewhere || !self.may_lack() {
            return Ok(());
        }
        self.check_absent()?;
        self.check_not_lost()
    }

    /// An error for a missing object, if its copy may have been lost and no other target can answer
    /// for it.
    pub(super) fn check_not_lost(&self) -> Result<()> {
        if !self.info().has_copies() || !self.has_lost_objects() {
            return Ok(());
        }
        let uri = self.object.uri();
        let text =
            format!("{uri} may have been on a disk that was lost, and no other target can answer");
        Err(Error::unavailable(text).retry_after(1))
    }

    /// Fetches an object from another target. `None` only if all candidates were asked.
    pub(super) async fn fetch_newest(&self) -> Result<Option<LocalCopy>> {
        if self.info().has_copies() {
            self.wait_for_lease().await?;
            self.flush().await?;
        }
        if self.info().erasure.is_some() || self.newest_slice_here().await?.is_some() {
            return Box::pin(self.fetch_newest_version()).await;
        }
        for _ in 0..MAX_LOOKUPS {
            if let Break(found) = self.look_and_fetch().await? {
                return Ok(found);
            }
        }
        Err(self.is_being_moved())
    }

    /// The copy to serve now; `Continue` if the object moved, or was removed, between the look and
    /// its fetch.
    async fn look_and_fetch(&self) -> Result<ControlFlow<Option<LocalCopy>>> {
        let others = self.candidate_holders()?;
        let gone = self.tombstone_here().await?;
        if others.is_empty() || gone.is_some_and(|gone| self.is_last_word(&self.state(), gone)) {
            // It may have arrived just before the rebalance was complete.
            return self.copy_here().await.map(Break);
        }
        let answers = self.look_at_all(others, LookMode::Final).await;
        if is_fragmented(&answers) {
            return Box::pin(self.fetch_newest_version()).await.map(Break);
        }
        let (newest, removed) = newest(&answers);
        let removed = removed.max(gone);
        let newest = newest.filter(|(_, stamp)| removed.is_none_or(|r| r < *stamp));
        match (newest, self.unanswered(&answers)) {
            (Some((node, _)), Some(e)) if self.may_be_older(node) => Err(e),
            (Some((node, _)), _) => {
                if self.may_be_older(node) {
                    self.check_not_hidden()?;
                }
                let fetched = self.try_fetch(&node.id, false).await?;
                Ok(fetched.map_or(Continue(()), |copy| Break(Some(copy))))
            }
            (None, Some(e)) => Err(e),
            (None, None) => {
                self.propagate_delete(&answers, removed).await?;
                let copy = self.copy_here().await?;
                if copy.is_none() {
                    self.check_not_hidden()?;
                }
                Ok(Break(copy))
            }
        }
    }

    /// Removes older copies on targets that missed a removal because the removing target gave up;
    /// listings would show them otherwise.
    pub(super) async fn propagate_delete(
        &self,
        answers: &[LookAnswer],
        removed: Option<Stamp>,
    ) -> Result<()> {
        let Some(stamp) = removed else { return Ok(()) };
        for (node, look) in answers {
            let newest = look.as_ref().ok().and_then(CopyLook::newest);
            if newest.is_some_and(|newest| newest < stamp) {
                self.request_removal(&node.id, &Removal::of(stamp)).await.done()?;
            }
        }
        Ok(())
    }

    /// The newest version of an object that has a copy here, if other targets may have a newer one.
    pub(super) async fn newest_copy(&self, copy: LocalCopy) -> Result<Option<LocalCopy>> {
        self.wait_for_lease().await?;
        let Some(copy) = self.replicated_copy(copy).await? else { return Ok(None) };
        if self.info().erasure.is_some() {
            let is_stale = self.is_stale(&self.state());
            return if is_stale {
                Box::pin(self.fetch_newest_version()).await
            } else {
                Ok(Some(copy))
            };
        }
        let remote = self.newest_elsewhere(self.lookup_peers(), LookMode::Final).await?;
        let RemoteState { newest, removed, is_fragmented } = remote;
        if is_fragmented {
            return Box::pin(self.fetch_newest_version()).await;
        }
        let is_overwritten = |removed| newest.as_ref().is_some_and(|(_, stamp)| *stamp >= removed);
        if let Some(removed) = removed.filter(|r| *r > copy.stamp && !is_overwritten(*r)) {
            self.remove_older_here(&Removal::of(removed)).await?;
            return Ok(None);
        }
        match newest.filter(|(_, stamp)| *stamp > copy.stamp) {
            Some((node, _)) => match self.try_fetch(&node.id, false).await? {
                Some(copy) => Ok(Some(copy)),
                None => self.fetch_newest().await,
            },
            None => Ok(Some(copy)),
        }
    }

    /// The other targets' state of an object; an error if one does not respond.
    pub(super) async fn newest_elsewhere(
        &self,
        others: Vec<Node>,
        mode: LookMode,
    ) -> Result<RemoteState> {
        let answers = self.look_at_all(others, mode).await;
        if let Some(e) = self.unanswered(&answers) {
            return Err(e);
        }
        let (newest, removed) = newest(&answers);
        let newest = newest.map(|(node, stamp)| (node.clone(), stamp));
        Ok(RemoteState { newest, removed, is_fragmented: is_fragmented(&answers) })
    }

    /// The last change of a missing object, from the other holders, if its copy may have been lost:
    /// a write that counted as the first one would be older than theirs. The caller holds its lock.
    pub(super) async fn last_change_elsewhere(
        &self,
        state: &ClusterState,
    ) -> Result<Option<Stamp>> {
        // Not subject to `Rule::LossesAreRemembered`, which is about reads.
        if !self.info().has_copies() || !self.engine.view.has_lost_objects() {
            return Ok(None);
        }
        let others = rebalance::metadata_holders(state, self.info(), self.name(), self.me());
        let others = others.into_iter().filter(|node| node.alive).cloned().collect();
        // A copy on an unused disk of another holder is found to be older when that disk is back.
        let remote = self.newest_elsewhere(others, LookMode::FinalInPart).await?;
        Ok(remote.newest.map(|(_, stamp)| stamp).max(remote.removed))
    }

    /// Whether the newest change that other targets know of is a removal after `copy`.
    pub(super) async fn is_removed_elsewhere(&self, copy: Stamp) -> Result<bool> {
        let remote = self.newest_elsewhere(self.lookup_peers(), LookMode::Final).await?;
        let newest = remote.newest.map(|(_, stamp)| stamp);
        if remote.removed > newest.max(Some(copy)) {
            return Ok(true);
        }
        // The copy here may be removed meanwhile, and then the tombstones.
        Ok(newest.is_none() && self.newest_here().await?.is_none())
    }

    /// Requests a copy of the object from a target. `anew`: even if it is no newer than the copy
    /// here. `None` if the object moved, or was removed, meanwhile: the caller looks again.
    pub(super) async fn try_fetch(&self, from: &NodeId, anew: bool) -> Result<Option<LocalCopy>> {
        match self.issue(Command::Fetch { from: from.clone(), anew }).await.done() {
            // The copy arrived and was not accepted any more.
            Err(e) if e.code == ErrorCode::Conflict => Ok(None),
            Err(e) => Err(e),
            Ok(()) => self.copy_here().await,
        }
    }

    /// Whether a copy on this node may be older than another target's.
    pub(super) fn may_be_older(&self, holder: &Node) -> bool {
        let complete = self.complete_version();
        native::may_have_missed_changes(&self.state(), self.info(), &holder.id, complete)
    }

    pub(super) fn is_being_moved(&self) -> Error {
        let text = format!("{} is being moved", self.object.uri());
        Error::unavailable(text).retry_after(1)
    }

    /// The error if no target has an object and one did not answer.
    pub(super) fn unanswered(&self, answers: &[LookAnswer]) -> Option<Error> {
        // A target without that bucket has nothing of the object.
        let (node, e) = answers.iter().find_map(|(node, answer)| {
            let e = answer.as_ref().err().filter(|e| e.code != ErrorCode::BucketNotFound)?;
            Some((node, e))
        })?;
        Some(Error::unavailable(format!(
            "{} may lie with target {}, which does not answer: {}",
            self.object.uri(),
            node.id,
            e.message
        )))
    }
}

/// The newest copy that was found, and the last removal.
pub(super) fn newest(answers: &[LookAnswer]) -> (Option<(&Node, Stamp)>, Option<Stamp>) {
    let looks = || answers.iter().filter_map(|(node, answer)| Some((node, answer.as_ref().ok()?)));
    let copies = looks().filter_map(|(node, look)| Some((node, look.newest()?)));
    let removed = looks().filter_map(|(_, look)| look.removed).max();
    (copies.max_by_key(|(node, stamp)| (*stamp, !node.lagging)), removed)
}

/// Whether a target has fragments of an object.
fn is_fragmented(answers: &[LookAnswer]) -> bool {
    answers.iter().any(|(_, answer)| answer.as_ref().is_ok_and(|look| !look.slices.is_empty()))
}
