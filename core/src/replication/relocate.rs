//! Sends copies to where they belong, and drops them where they do not.

use super::Rule;
use super::command::{Command, LocalCopy, LookMode, Removal};
use super::steps::Steps;
use crate::copies::Stamp;
use crate::erasure::Form;
use crate::error::{Error, Result};
use crate::name::NodeId;
use crate::rebalance;

/// Above this many bytes the sender first looks whether the receiver needs the copy.
const LOOK_FIRST_BYTES: u64 = 256 << 10;
/// Cost of moving an object in addition to its bytes, in bytes: many small ones are work, too.
pub(super) const OBJECT_COST_BYTES: u64 = 16 << 10;

impl Steps {
    /// Moves a copy to where it belongs: sends it to the holders that lack it, and drops it here
    /// when it is safe there, unless it belongs here, too. Returns the bytes sent or dropped;
    /// `None` if there was nothing to do.
    pub(super) async fn relocate(&self) -> Result<Option<u64>> {
        if self.info().erasure.is_some() && !self.is_older_version() {
            return self.relocate_whole().await;
        }
        let state = self.state();
        let duty = rebalance::duty(&state, self.info(), self.name(), self.me());
        if duty.others.is_empty() {
            return Ok(None);
        }
        if let Some(dead) = duty.others.iter().find(|node| !node.alive && !duty.stays) {
            let uri = self.object.uri();
            let text = format!("{uri} belongs to target {}, which is down", dead.id);
            return Err(Error::unavailable(text));
        }
        let Some(copy) = self.final_copy_here().await? else { return Ok(None) };
        if !duty.stays && !self.keeps(Rule::SendBeforeRemoval) {
            self.drop_misplaced(copy).await?;
        }
        // All looks before the first send: one of them may find that the object was removed.
        let mut receivers = Vec::new();
        for to in duty.others.iter().filter(|node| node.alive) {
            if !self.info().has_copies() || self.is_needed_at(&to.id, copy.stamp).await? {
                receivers.push(to);
            }
        }
        if !receivers.is_empty() && !self.is_still_here(copy).await? {
            return Ok(None);
        }
        let mut bytes = None;
        for to in receivers {
            self.issue(Command::Pace { bytes: copy.size + OBJECT_COST_BYTES }).await.done()?;
            match self.info().has_copies() {
                true => self.send_misplaced(&to.id, copy, Form::Whole).await?,
                false => self.send_single(&to.id, copy).await?,
            }
            bytes = Some(bytes.unwrap_or(0) + copy.size);
        }
        if !duty.stays {
            bytes = Some(bytes.unwrap_or(copy.size));
            self.drop_misplaced(copy).await?;
        }
        Ok(bytes)
    }

    /// Sends the copy here to a target that requested it and where it belongs.
    pub(super) async fn send_on_request(&self, to: &NodeId, anew: bool) -> Result<()> {
        let state = self.state();
        let duty = rebalance::duty(&state, self.info(), self.name(), self.me());
        if !duty.others.iter().any(|node| node.id == *to && node.alive) {
            return Err(self.belongs_elsewhere());
        }
        let Some(copy) = self.final_copy_here().await? else { return Ok(()) };
        match anew {
            true => self.send_misplaced(to, copy, Form::Whole).await?,
            // The receiver may have removed the version.
            false if self.is_older_version() => {
                if self.is_needed_at(to, copy.stamp).await? {
                    self.send_misplaced(to, copy, Form::Whole).await?;
                }
            }
            false => self.send_single(to, copy).await?,
        }
        if !duty.stays && duty.others.len() == 1 && self.info().erasure.is_none() {
            self.drop_misplaced(copy).await?;
        }
        Ok(())
    }

    /// Whether a target has neither this copy nor a later change. A removal that it knows of is
    /// one, too; the copy here is removed then.
    pub(super) async fn is_needed_at(&self, to: &NodeId, stamp: Stamp) -> Result<bool> {
        let look = self.look_at(to, LookMode::Final).await?;
        let is_removed = |removed: &Stamp| *removed > stamp && look.there < Some(*removed);
        if let Some(removed) = look.removed.filter(is_removed) {
            self.remove_older_here(&Removal::of(removed)).await?;
        }
        Ok(!look.knows(stamp))
    }

    /// Returns when `to` has this form of the copy, or a newer one.
    pub(super) async fn send_misplaced(
        &self,
        to: &NodeId,
        copy: LocalCopy,
        form: Form,
    ) -> Result<()> {
        self.issue(Command::Send { to: to.clone(), copy, form, written: false }).await.done()
    }

    /// The same, if no look has shown whether the receiver needs the copy.
    async fn send_single(&self, to: &NodeId, copy: LocalCopy) -> Result<()> {
        if copy.size > LOOK_FIRST_BYTES && !self.is_needed_at(to, copy.stamp).await? {
            return Ok(());
        }
        self.send_misplaced(to, copy, Form::Whole).await
    }

    /// Drops a copy that is safe elsewhere, unless it was replaced meanwhile.
    pub(super) async fn drop_misplaced(&self, copy: LocalCopy) -> Result<()> {
        let _guard = self.lock().await?;
        if self.is_still_here(copy).await? {
            self.remove_here().await?;
        }
        Ok(())
    }

    /// Whether the copy was neither replaced nor removed.
    async fn is_still_here(&self, copy: LocalCopy) -> Result<bool> {
        Ok(self.copy_here().await?.is_some_and(|now| now.commit == copy.commit))
    }
}
