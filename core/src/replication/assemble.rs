//! Brings the newest version of a coded object here whole: from a target that has the whole, or
//! assembled from slices.

use super::available::{FormLook, slices_of};
use super::command::{Command, LocalCopy, LookMode, Removal, SliceSource};
use super::steps::Steps;
use crate::copies::Stamp;
use crate::error::{Error, Result};

/// The result of bringing an object here.
#[derive(Default)]
pub(super) struct Assembled {
    pub(super) copy: Option<LocalCopy>,
    /// Its last removal, as far as known.
    pub(super) removed: Option<Stamp>,
}

impl Steps {
    /// Brings the newest version of the object here, for a reader. `None` if no target that may have
    /// one has any.
    pub(super) async fn fetch_newest_version(&self) -> Result<Option<LocalCopy>> {
        match self.assemble_newest().await?.copy {
            // A former owner may find a write that its successor does not know.
            Some(_) if !self.owns(&self.state()) => Err(self.belongs_elsewhere()),
            // It may be a write that began meanwhile.
            Some(copy) => self.replicated_copy(copy).await,
            None => Ok(None),
        }
    }

    /// The same, with the last removal.
    pub(super) async fn assemble_newest(&self) -> Result<Assembled> {
        let mut found = self.find_forms().await?;
        let removed = found.removed;
        let Some(stamp) = found.newest.stamp else {
            if let Some(removed) = removed {
                self.remove_older_here(&Removal::of(removed)).await?;
            }
            return Ok(Assembled { copy: self.copy_here().await?, removed });
        };
        if let Some(numbers) = found.newest.too_few {
            return Err(self.too_few(&found, numbers));
        }
        let mut failed = None;
        for from in &found.newest.whole {
            let fetched = match from == self.me() {
                true => self.copy_here().await,
                false => self.try_fetch(from, false).await,
            };
            match fetched {
                Ok(Some(copy)) => return Ok(Assembled { copy: Some(copy), removed }),
                Ok(None) => failed = Some(self.is_being_moved()),
                Err(e) => failed = Some(e),
            }
        }
        let sources = std::mem::take(&mut found.newest.slices);
        if let Some(e) = failed.filter(|_| sources.is_empty()) {
            return Err(e);
        }
        let copy = self.assemble(stamp, sources, None).await?;
        Ok(Assembled { copy: Some(copy), removed })
    }

    /// Assembles one version here from its slices, and commits it. `replaces`: the damaged copy that
    /// it replaces.
    async fn assemble(
        &self,
        stamp: Stamp,
        sources: Vec<SliceSource>,
        replaces: Option<LocalCopy>,
    ) -> Result<LocalCopy> {
        if let Some(copy) = self.copy_as_new(stamp, replaces).await? {
            return Ok(copy);
        }
        let others = || sources.iter().filter(|source| source.target != *self.me());
        let witness = others().next().map(|source| source.target.clone());
        self.issue(Command::Assemble { stamp, sources }).await.done()?;

        let _guard = self.lock().await?;
        if let Some(copy) = self.copy_as_new(stamp, replaces).await? {
            return Ok(copy);
        }
        if self.tombstone_here().await?.max(self.unreplicated_delete()) >= Some(stamp) {
            return Err(self.was_removed());
        }
        if self.is_quiescent(&self.state()) {
            // There are no tombstones now; a removal removes the slices, so a missing one shows it.
            let look = match &witness {
                Some(target) => self.look_at(target, LookMode::Immediate).await?,
                None => self.forms_here(true).await?,
            };
            if !look.slices.iter().any(|here| here.stamp == stamp) {
                return Err(self.was_removed());
            }
        }
        let committed = self.issue(Command::CommitAssembled { stamp }).await.copy()?;
        committed.ok_or_else(|| Error::internal("a commit returned no copy"))
    }

    /// The copy here, if it is as new as the version to assemble.
    async fn copy_as_new(
        &self,
        stamp: Stamp,
        replaces: Option<LocalCopy>,
    ) -> Result<Option<LocalCopy>> {
        let is_replaced = |now: &LocalCopy| replaces.is_none_or(|old| now.commit != old.commit);
        let now = self.copy_here().await?;
        Ok(now.filter(|now| now.stamp > stamp || now.stamp == stamp && is_replaced(now)))
    }

    fn was_removed(&self) -> Error {
        Error::unavailable(format!("{} was removed just now", self.object.uri())).retry_after(1)
    }

    /// Replaces a damaged whole by one that is assembled from slices; false if that is not possible.
    pub(super) async fn assemble_damaged(&self, damaged: LocalCopy) -> Result<bool> {
        if !self.engine.view.may_have_slices(self.info()) {
            return Ok(false);
        }
        let mut looks: Vec<FormLook> = vec![(self.me().clone(), self.forms_here(true).await?)];
        let others = self.form_holders(&self.state()).into_iter().filter(|node| node.alive);
        let answers = self.look_at_all(others.collect(), LookMode::Final).await;
        looks.extend(answers.into_iter().filter_map(|(node, look)| Some((node.id, look.ok()?))));
        let (sources, _) = slices_of(&looks, damaged.stamp);
        if sources.is_empty() {
            return Ok(false);
        }
        let assembled = self.assemble(damaged.stamp, sources, Some(damaged)).await;
        Ok(assembled.is_ok_and(|copy| copy.commit != damaged.commit))
    }
}
