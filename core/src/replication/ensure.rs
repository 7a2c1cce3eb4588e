//! Requests to the owner of an object to bring all its forms to their places.

use super::assemble::Assembled;
use super::command::Command;
use super::spread::Spread;
use super::steps::Steps;
use crate::copies::{Ensured, Stamp};
use crate::error::{Error, ErrorCode, Result};
use crate::placement;

impl Steps {
    /// Brings all forms of an object that this target owns to their places. `stamp`: that of a form
    /// at the target that requests it.
    pub(super) async fn ensure(&self, stamp: Stamp) -> Result<Ensured> {
        if !self.owns(&self.state()) {
            return Err(self.belongs_elsewhere());
        }
        self.flush().await?;
        let here = self.copy_here().await?;
        let Assembled { copy, removed } =
            match here.filter(|copy| copy.stamp >= stamp && self.is_authoritative(*copy)) {
                Some(copy) => Assembled { copy: Some(copy), removed: None },
                None => self.assemble_newest().await?,
            };
        let Some(copy) = copy else { return Ok(Ensured { removed, ..Ensured::default() }) };
        let state = self.state();
        if self.info().erasure.is_none() {
            self.relocate().await?;
        } else if let Spread::Newer(_) = self.spread(copy).await? {
            let text = format!("{} changes just now", self.object.uri());
            return Err(Error::unavailable(text).retry_after(1));
        }
        let all = self.forms(&state, copy.size).iter().all(|(node, _)| node.alive);
        Ok(Ensured { stamp: Some(copy.stamp), all, removed: None })
    }

    /// The same at the object's owner, which may be this target.
    pub(super) async fn ensured(&self, stamp: Stamp) -> Result<Ensured> {
        let owner = placement::owner(&self.state(), self.info(), self.name())?.id.clone();
        if owner == *self.me() {
            return Box::pin(self.ensure(stamp)).await;
        }
        self.issue(Command::Ensure { to: owner, stamp }).await.ensured()
    }

    /// The same; `None` if too few forms are left of the object. These stay: a retry would not change
    /// anything.
    pub(super) async fn ensured_unless_lost(&self, stamp: Stamp) -> Result<Option<Ensured>> {
        match self.ensured(stamp).await {
            Err(e) if e.code == ErrorCode::Corrupt => Ok(None),
            ensured => ensured.map(Some),
        }
    }
}
