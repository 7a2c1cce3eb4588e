//! Older versions of objects: their owner gathers them while objects move, and removes single ones
//! for good. Their look, receipt and move are those of objects.
//!
//! A version is on the target that owned its object when the version was replaced, until the
//! rebalance moves it.

use super::Rule;
use super::command::{Answer, Command, Removal};
use super::read::MAX_OPENS;
use super::steps::Steps;
use crate::copies::Stamp;
use crate::error::{Error, ErrorCode, Result};
use crate::name::NodeId;
use crate::{native, rebalance};

impl Steps {
    /// Whether the object that becomes an older version by a write may be on a former owner: the write
    /// would supersede it there.
    pub(super) fn may_lack_replaced(&self) -> bool {
        self.info().keeps_versions()
            && !self.state().is_in_place(self.info())
            && self.keeps(Rule::ReplacedVersionsAreFetched)
    }

    /// Fetches all older versions of the object. An error if a target, or a disk here, that may have
    /// some is unavailable.
    pub(super) async fn gather_versions(&self) -> Result<()> {
        if !self.keeps(Rule::VersionsAreGathered) {
            return Ok(());
        }
        let state = self.state();
        let others =
            native::who_may_have_versions(&state, self.info(), self.name(), self.me()).into_iter();
        let requests: Vec<_> = others
            .map(|node| {
                let fetch = Command::FetchVersions { from: node.id.clone() };
                (&node.id, node.alive.then(|| self.issue(fetch)))
            })
            .collect();
        let mut failed = None;
        for (id, request) in requests {
            let sent = match request {
                Some(request) => request.await.done(),
                None => Err(Error::unavailable("it is down")),
            };
            // A target without that bucket has nothing of the object.
            let error = sent.err().filter(|e| e.code != ErrorCode::BucketNotFound);
            failed = failed.or(error.map(|e| (id, e)));
        }
        if let Some((id, e)) = failed {
            let (uri, e) = (self.object.uri(), e.message);
            let text = format!(
                "versions of {uri} may lie with target {id}, which does not send them: {e}"
            );
            return Err(Error::unavailable(text));
        }
        // Any of them may be on a disk that is not in use.
        self.engine.view.check_disks()
    }

    /// Locks the object with its newest copy and its older versions here. Returns why one of these may
    /// be missing.
    pub(super) async fn lock_with_versions(&self) -> Result<Option<Error>> {
        for _ in 0..MAX_OPENS {
            let placed = self.state().targets_changed;
            let missing = self.gather_versions().await.err();
            let (guard, _) = self.lock_for_write(true).await?;
            // Else another target may have owned the object since, and archived a version there.
            if self.state().targets_changed == placed {
                guard.keep();
                return Ok(missing);
            }
        }
        Err(self.keeps_changing())
    }

    /// Sends the older versions of the object here to its owner, which requests them.
    pub(super) async fn hand_over_versions(&self, to: &NodeId) -> Result<()> {
        let state = self.state();
        let duty = rebalance::duty(&state, self.info(), self.name(), self.me());
        if !duty.others.iter().any(|node| node.id == *to && node.alive) {
            return Err(self.belongs_elsewhere());
        }
        self.engine.view.check_disks()?;
        for version in self.issue(Command::ListVersions).await.versions()? {
            self.issue(Command::SendVersion { version, to: to.clone() }).await.done()?;
        }
        Ok(())
    }

    /// Removes this version for good. All living targets that may have it remove it first; a tombstone
    /// keeps others from restoring it.
    pub(super) async fn remove_version(&self, found: Stamp) -> Result<()> {
        let _guard = self.lock().await?;
        let state = self.may_write().await?;
        if !self.keeps(Rule::VersionRemovalsReachAllTargets) {
            return self.remove_here().await.map(drop);
        }
        let stamp = found.next(state.version);
        let has_tombstone = !self.is_quiescent(&state);
        if has_tombstone {
            self.write_tombstone(stamp).await?;
        }
        self.record_removal(stamp);
        let removal = Removal { by: Some(self.me().clone()), ..Removal::of(stamp) };
        let others = native::replica_set(&state, self.info(), self.name(), self.me()).all;
        let requests: Vec<_> = others
            .iter()
            .map(|node| (&node.id, self.request_removal(&node.id, &removal)))
            .collect();
        for (id, request) in requests {
            match request.await {
                // The tombstone reaches that target when it is back.
                Answer::Died => {}
                answer => answer.done().map_err(|e| self.version_stays(id, e))?,
            }
        }
        self.remove_here().await?;
        if !has_tombstone && !self.is_quiescent(&self.state()) {
            // A target died meanwhile and may have missed the removal.
            self.write_tombstone(stamp).await?;
        }
        Ok(())
    }

    fn version_stays(&self, id: &NodeId, e: Error) -> Error {
        match e.code {
            ErrorCode::WrongOwner | ErrorCode::Unavailable => e,
            _ => {
                let uri = self.object.uri();
                let text = format!("target {id} does not remove a version of {uri}: {e}");
                Error::unavailable(text)
            }
        }
    }

    /// Whether the version is here, or was removed: it is written only once.
    pub(super) async fn is_version_known(&self) -> Result<bool> {
        Ok(self.copy_here().await?.is_some() || self.tombstone_here().await?.is_some())
    }
}
