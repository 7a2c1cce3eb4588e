//! The forms of an object on this target: the whole, and slices.

use super::command::{Command, LocalSlice, ObsoleteForms};
use super::steps::Steps;
use crate::copies::{CopyLook, SliceLook, Stamp};
use crate::error::Result;
use crate::name::NodeId;
use crate::native;

impl Steps {
    /// The slices of the object here.
    pub(super) async fn slices_here(&self) -> Result<Vec<LocalSlice>> {
        if self.is_older_version() || !self.engine.view.may_have_slices(self.info()) {
            return Ok(Vec::new());
        }
        self.issue(Command::GetSlices).await.slices()
    }

    /// The stamp of the newest version of which any form is here.
    pub(super) async fn newest_here(&self) -> Result<Option<Stamp>> {
        let whole = self.copy_here().await?.map(|copy| copy.stamp);
        Ok(self.newest_slice_here().await?.max(whole))
    }

    /// The stamp of the newest version of which a slice is here.
    pub(super) async fn newest_slice_here(&self) -> Result<Option<Stamp>> {
        Ok(self.slices_here().await?.iter().map(|here| here.stamp).max())
    }

    /// The state of the object here. `in_part`: an object that may be on a disk which is not in use
    /// counts as missing; otherwise that is an error.
    pub(super) async fn forms_here(&self, in_part: bool) -> Result<CopyLook> {
        let copy = self.copy_here().await?;
        if copy.is_none() && !in_part {
            self.check_absent()?;
        }
        let slices = self.slices_here().await?;
        Ok(CopyLook {
            there: copy.map(|copy| copy.stamp),
            damaged: copy.is_some_and(|copy| copy.damaged),
            removed: self.tombstone_here().await?,
            may_lack: self.info().erasure.is_some() && self.may_lack(),
            slices: slices.iter().map(|s| SliceLook { slice: s.slice, stamp: s.stamp }).collect(),
        })
    }

    /// Removes the slices here whose stamp is chosen. The caller holds the object's lock.
    pub(super) async fn remove_slices(&self, chosen: impl Fn(Stamp) -> bool) -> Result<()> {
        let mut slices = self.slices_here().await?;
        slices.retain(|here| chosen(here.stamp));
        if slices.is_empty() {
            return Ok(());
        }
        self.issue(Command::RemoveSlices { slices }).await.done()
    }

    /// Removes all forms here, at the removal of the object. The caller holds the object's lock.
    pub(super) async fn remove_forms(&self) -> Result<()> {
        self.remove_here().await?;
        self.remove_slices(|_| true).await
    }

    /// Handles a request to drop forms. `by`: the target that claims to write the object.
    pub(super) async fn drop_forms_here(
        &self,
        forms: ObsoleteForms,
        by: Option<&NodeId>,
    ) -> Result<()> {
        let _guard = self.lock().await?;
        if let Some(by) = by {
            native::check_writer(&self.state(), self.info(), self.name(), by)?;
        }
        match forms {
            ObsoleteForms::Before(stamp) => self.remove_before(stamp).await,
            ObsoleteForms::Unacknowledged(stamp) => self.remove_slices(|of| of == stamp).await,
        }
    }

    /// Removes the forms here that are older than a stamp. The caller holds the object's lock.
    pub(super) async fn remove_before(&self, stamp: Stamp) -> Result<()> {
        if self.copy_here().await?.is_some_and(|copy| copy.stamp < stamp) {
            self.remove_here().await?;
        }
        self.remove_slices(|of| of < stamp).await
    }
}
