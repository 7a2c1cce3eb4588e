//! Tombstones: records of removals, while another target may still have an older copy of the
//! object. A copy that arrives later and is older than the tombstone of its name is dropped. Once
//! the rebalance is complete and all targets are available, there are no such copies, and
//! tombstones are dropped.

use super::command::{Command, Removal};
use super::steps::Steps;
use crate::error::Result;
use crate::{native, rebalance};

impl Steps {
    /// Sends a removal that was recorded here to the holders of the object.
    pub(super) async fn relocate_tombstone(&self) -> Result<()> {
        let state = self.state();
        let Some(stamp) = self.tombstone_here().await? else { return Ok(()) };
        let others = rebalance::duty(&state, self.info(), self.name(), self.me()).others;
        for to in others.into_iter().filter(|node| node.alive) {
            self.request_removal(&to.id, &Removal::of(stamp)).await.done()?;
        }
        Ok(())
    }

    /// Removes the tombstone if it is no longer needed in the quiescent cluster of this version;
    /// later tombstones may be needed.
    pub(super) async fn drop_tombstone(&self, version: u64) -> Result<()> {
        if self.engine.view.check_disks().is_err() {
            // An older copy may be on the disk that is not in use. The driver starts this operation
            // again when the disk is back.
            return Ok(());
        }
        let _guard = self.lock().await?;
        match self.tombstone_here().await? {
            Some(stamp) if native::may_forget(stamp, version) => {
                self.issue(Command::RemoveTombstone { stamp }).await.done()
            }
            _ => Ok(()),
        }
    }
}
