//! Slices that are misplaced, damaged, or belong to an object that may lack other forms.

use super::Rule;
use super::command::{Command, LocalSlice, LookMode};
use super::steps::Steps;
use crate::copies::{Ensured, Stamp};
use crate::erasure::Form;
use crate::error::{Error, Result};
use crate::placement;
use crate::state::ClusterState;

impl Steps {
    /// Has the forms of the object brought to their places, and drops the slices here that do not
    /// belong here or are of an older version.
    pub(super) async fn relocate_slices(&self) -> Result<Option<u64>> {
        let mut bytes = None;
        for here in self.slices_here().await? {
            if let Some(dropped) = self.relocate_slice(here).await? {
                bytes = Some(bytes.unwrap_or(0) + dropped);
            }
        }
        Ok(bytes)
    }

    async fn relocate_slice(&self, here: LocalSlice) -> Result<Option<u64>> {
        let state = self.state();
        let is_due = self.is_due(&state, here);
        let forms = self.forms(&state, here.size);
        if is_due && forms.first().is_some_and(|(first, _)| !first.alive) {
            // The target with the whole is only away.
            return Ok(None);
        }
        if !is_due && !self.keeps(Rule::FormsStayUntilSafe) {
            return self.remove_slice(here).await.map(Some);
        }
        self.pace(0).await?;
        let Some(ensured) = self.ensured_unless_lost(here.stamp).await? else { return Ok(None) };
        if is_due && ensured.stamp == Some(here.stamp) {
            return Ok(None);
        }
        // An owner that missed no changes knows of no such object, but this target missed some: the
        // object was removed meanwhile, and nobody remembers when.
        let was_missed = ensured == Ensured::default() && self.is_stale(&self.state());
        let is_obsolete = ensured.stamp.max(ensured.removed) > Some(here.stamp)
            || ensured.removed == Some(here.stamp)
            || was_missed;
        let is_safe = ensured.all && ensured.stamp == Some(here.stamp);
        if is_obsolete || is_safe {
            return self.drop_misplaced_slice(here, is_obsolete).await;
        }
        if !self.slices_here().await?.contains(&here) {
            // The owner found that it is of a write that was never acknowledged.
            return Ok(Some(0));
        }
        let text = format!("a slice of {} stays: not all is in place yet", self.object.uri());
        Err(Error::unavailable(text))
    }

    /// Whether a slice of this size belongs here.
    fn is_due(&self, state: &ClusterState, here: LocalSlice) -> bool {
        let form = Form::Slice(here.slice);
        self.forms(state, here.size).iter().any(|(node, due)| node.id == *self.me() && *due == form)
    }

    /// Drops a slice that is obsolete, or does not belong here by the state at this moment: the owner
    /// may have a newer state than this target had, by which the slice counts as being in place.
    async fn drop_misplaced_slice(
        &self,
        here: LocalSlice,
        is_obsolete: bool,
    ) -> Result<Option<u64>> {
        if !is_obsolete && self.is_due(&self.state(), here) {
            return Err(self.belongs_elsewhere());
        }
        self.remove_slice(here).await.map(Some)
    }

    /// Removes a slice here; returns its bytes.
    async fn remove_slice(&self, here: LocalSlice) -> Result<u64> {
        let _guard = self.lock().await?;
        self.issue(Command::RemoveSlices { slices: vec![here] }).await.done()?;
        Ok(here.size / u64::from(here.slice.data))
    }

    /// Drops a damaged slice and has it made again, if its object is safe: the owner has the whole.
    pub(super) async fn repair_slice(&self, damaged: LocalSlice) -> Result<bool> {
        if !self.is_whole_at_owner(damaged.stamp).await? {
            return Ok(false);
        }
        self.remove_slice(damaged).await?;
        self.ensured(damaged.stamp).await?;
        Ok(true)
    }

    async fn is_whole_at_owner(&self, stamp: Stamp) -> Result<bool> {
        let owner = placement::owner(&self.state(), self.info(), self.name())?.id.clone();
        let look = match owner == *self.me() {
            true => self.look_here(LookMode::Final).await?,
            false => self.look_at(&owner, LookMode::Final).await?,
        };
        Ok(look.there >= Some(stamp) && !look.damaged)
    }
}
