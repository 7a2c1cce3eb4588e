//! Forwards a change if ownership moved before all holders had it. The change is committed here,
//! and some readers may have seen it, so it must not be made again. It goes to where the object
//! belongs now, as a move of any copy does. It is acknowledged when all living holders have it, or
//! a later change, under a state in which that other target is the owner. Stamps keep it from
//! undoing writes at the new owner.

use super::command::{Command, LocalCopy, LookMode, ObsoleteForms, Removal};
use super::operation::all_done;
use super::replicate::{Change, REPLICATION_TIMEOUT, RETRY_PAUSE, not_retried};
use super::spread::Spread;
use super::steps::{LockGuard, Steps};
use crate::copies::Stamp;
use crate::erasure::Form;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;
use crate::state::ClusterState;
use crate::{native, placement, rebalance};

impl Steps {
    /// Replicates a change as [`Self::replicate`] does, and completes also if ownership moves
    /// meanwhile. The object's lock is released while another target is the owner, because that
    /// target may work on the object and wait for this one.
    pub(super) async fn replicate_and_ack(
        &self,
        change: Change,
        guard: LockGuard,
    ) -> Result<LockGuard> {
        let lost = match self.replicate_as_owner(change).await {
            Ok(()) => return Ok(guard),
            Err(e) if e.code == ErrorCode::WrongOwner => not_retried(e),
            Err(e) => return Err(e),
        };
        drop(guard);
        // The timeout is the same as for an owner.
        let forwarded =
            self.commands.timeout(REPLICATION_TIMEOUT, self.forward_until_done(change, &lost));
        forwarded.await.unwrap_or_else(|| Err(lost.clone()))?;
        let guard = self.lock().await?;
        let here = self.copy_here().await?;
        if here.is_none_or(|here| here.stamp <= change.stamp()) {
            self.complete_replication();
        }
        Ok(guard)
    }

    /// Forwards a change until it can be acknowledged; `lost` if it cannot be any more.
    async fn forward_until_done(&self, change: Change, lost: &Error) -> Result<()> {
        loop {
            self.wait_for_lease().await?;
            match self.forward(change).await {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(lost.clone()),
                Err(_) => self.sleep(RETRY_PAUSE).await,
            }
        }
    }

    /// Sends the change to where the object belongs by the current state. False if the change
    /// cannot be acknowledged, although it was made.
    async fn forward(&self, change: Change) -> Result<bool> {
        let state = self.state();
        let owner = placement::owner(&state, self.info(), self.name())?.id.clone();
        if owner == *self.me() {
            self.flush().await?;
            return Ok(change.is_write());
        }
        match change {
            Change::Written(copy) if self.info().erasure.is_some() => {
                return self.forward_forms(&state, &owner, copy).await.map(|()| true);
            }
            Change::Written(copy) => self.forward_copy(&state, &owner, copy).await?,
            Change::Removed(stamp) => self.keep_tombstone(&state, stamp).await?,
            Change::Completed(_) => return Ok(false),
        }
        let by = Some(owner.clone());
        let removal = Removal { stamp: change.stamp(), by, written: change.is_write() };
        let set = native::replica_set(&state, self.info(), self.name(), self.me());
        let sent = set.all.iter().map(|node| self.request_removal(&node.id, &removal));
        all_done(sent.collect()).await?;
        let (look, stamp) = (self.look_at(&owner, LookMode::Final).await?, change.stamp());
        match change {
            // If the object has changed since, nobody can decide which of several removals was applied.
            Change::Removed(_) => Ok(!look.is_after(stamp)),
            // A holder that refused the copy may have had a later change that went with it.
            _ if look.last_change() < Some(stamp) => Err(Error::unavailable(format!(
                "{} is not at its new owner yet",
                self.object.uri()
            ))),
            _ => Ok(true),
        }
    }

    /// Sends a copy to the holders that lack it.
    async fn forward_copy(
        &self,
        state: &ClusterState,
        owner: &NodeId,
        copy: LocalCopy,
    ) -> Result<()> {
        let mut others = rebalance::duty(state, self.info(), self.name(), self.me()).others;
        // The owner last: a version that it serves must survive its death.
        others.sort_by_key(|node| node.id == *owner);
        for to in others.into_iter().filter(|node| node.alive) {
            if self.is_needed_at(&to.id, copy.stamp).await? {
                self.send_misplaced(&to.id, copy, Form::Whole).await?;
            }
        }
        Ok(())
    }

    /// Brings the forms of a coded object to their places, and has older ones dropped by all targets
    /// that know the new owner.
    async fn forward_forms(
        &self,
        state: &ClusterState,
        owner: &NodeId,
        copy: LocalCopy,
    ) -> Result<()> {
        if let Spread::Newer(_) = self.spread(copy).await? {
            let text = format!("{} changes at its new owner", self.object.uri());
            return Err(Error::unavailable(text));
        }
        let set = native::replica_set(state, self.info(), self.name(), self.me());
        let forms = ObsoleteForms::Before(copy.stamp);
        let sent = set.all.iter().map(|node| {
            let by = Some(owner.clone());
            self.issue(Command::DropForms { to: node.id.clone(), forms, by })
        });
        all_done(sent.collect()).await
    }

    /// Writes a tombstone, unless no target can have an older copy.
    async fn keep_tombstone(&self, state: &ClusterState, stamp: Stamp) -> Result<()> {
        if self.is_quiescent(state) {
            return Ok(());
        }
        let _guard = self.lock().await?;
        if self.tombstone_here().await? < Some(stamp) {
            self.write_tombstone(stamp).await?;
        }
        Ok(())
    }
}
