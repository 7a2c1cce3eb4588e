//! Fetches copies that were lost with a disk, or whose bytes are damaged, from the other targets that
//! have them.

use std::time::Duration;

use super::command::{LocalCopy, LookMode};
use super::steps::Steps;
use crate::copies::Stamp;
use crate::error::Result;
use crate::name::NodeId;
use crate::rebalance;
use crate::state::Node;

/// Timeout of the repair from one target, before the next one is tried.
const REPAIR_TIMEOUT: Duration = Duration::from_secs(60);

impl Steps {
    /// Fetches a copy that was lost with a disk. `None`: it does not belong here, is here already,
    /// or was removed.
    pub(super) async fn restore(&self) -> Result<Option<LocalCopy>> {
        if self.info().erasure.is_some() {
            return self.restore_form().await;
        }
        let belongs = rebalance::duty(&self.state(), self.info(), self.name(), self.me()).stays;
        if !self.info().has_copies() || !belongs || self.copy_here().await?.is_some() {
            return Ok(None);
        }
        self.fetch_newest().await
    }

    /// Has the forms of a coded object brought to their places, if none of it is here.
    async fn restore_form(&self) -> Result<Option<LocalCopy>> {
        let belongs = rebalance::duty(&self.state(), self.info(), self.name(), self.me()).stays;
        if belongs && self.newest_here().await?.is_none() {
            self.ensured(Stamp::default()).await?;
        }
        self.copy_here().await
    }

    /// Replaces a damaged copy by another target's. While this runs, the driver returns the damaged
    /// commit as damaged: then a copy of the same stamp is accepted.
    pub(super) async fn repair(&self, damaged: LocalCopy) -> Result<bool> {
        if !self.info().has_copies() {
            return Ok(false);
        }
        if self.is_replaced(damaged).await? {
            return Ok(true);
        }
        for from in self.sound_holders(damaged).await {
            // An error of one target does not matter while there are others.
            let fetched = self.commands.timeout(REPAIR_TIMEOUT, self.try_fetch(&from, true)).await;
            if matches!(fetched, Some(Ok(Some(_)))) && self.is_replaced(damaged).await? {
                return Ok(true);
            }
        }
        self.assemble_damaged(damaged).await
    }

    /// The other targets whose copy is as new as this one.
    async fn sound_holders(&self, copy: LocalCopy) -> Vec<NodeId> {
        let state = self.state();
        let others = rebalance::duty(&state, self.info(), self.name(), self.me()).others;
        let alive: Vec<Node> = others.into_iter().filter(|node| node.alive).cloned().collect();
        let answers = self.look_at_all(alive, LookMode::Final).await;
        let looks = answers.into_iter().filter_map(|(node, look)| Some((node.id, look.ok()?)));
        let sound = looks.filter(|(_, look)| !look.damaged && look.there >= Some(copy.stamp));
        sound.map(|(id, _)| id).collect()
    }

    async fn is_replaced(&self, damaged: LocalCopy) -> Result<bool> {
        Ok(self.copy_here().await?.is_some_and(|now| now.commit != damaged.commit))
    }
}
