//! Reads by clients.

use super::command::{Command, LocalCopy};
use super::steps::{LockGuard, Steps};
use crate::error::{Error, ErrorCode, Result};

/// Attempts to open a copy that is replaced between its lookup and its opening.
pub(super) const MAX_OPENS: usize = 3;

impl Steps {
    /// Opens the newest copy for a reader; `None` if there is no such object.
    ///
    /// Only the commit that was looked up is opened: a later one may be a pending change.
    pub(super) async fn read(&self) -> Result<Option<LocalCopy>> {
        for _ in 0..MAX_OPENS {
            let Some(copy) = self.current_or_fetched().await? else { return Ok(None) };
            match self.issue(Command::Open(copy)).await.done() {
                Err(e) if e.code == ErrorCode::ObjectNotFound => {}
                opened => return opened.map(|()| Some(copy)),
            }
        }
        Err(self.keeps_changing())
    }

    /// The same at the second holder, for a client whose request the owner does not answer. An
    /// error if this target may not serve its copy; then the client waits for the owner.
    pub(super) async fn hedged_read(&self) -> Result<Option<LocalCopy>> {
        let may_hedge = self.engine.may_hedge(self.info(), self.name());
        if may_hedge && self.copy_here().await?.is_some() {
            return self.read().await;
        }
        let text = format!("this target does not stand in for the owner of {}", self.object.uri());
        Err(Error::unavailable(text))
    }

    /// The copy here, if it is the newest one or a newer one arrives; `None` if there is no copy
    /// here, or it was removed elsewhere.
    pub(super) async fn current_copy(&self) -> Result<Option<LocalCopy>> {
        match self.copy_here().await? {
            Some(copy) if !self.is_authoritative(copy) => self.newest_copy(copy).await,
            copy => Ok(copy),
        }
    }

    /// Locks the object, with the newest copy here. A target that stands in for the first holder of a
    /// coded object may drop the whole between the fetch and the lock, when all forms are in place.
    /// Also returns whether the object was here before the lock.
    pub(super) async fn lock_newest(&self) -> Result<(LockGuard, bool)> {
        for _ in 0..MAX_OPENS {
            let was_here = self.current_or_fetched().await?.is_some();
            let guard = self.lock().await?;
            if self.newest_slice_here().await?.is_none() || self.copy_here().await?.is_some() {
                return Ok((guard, was_here));
            }
        }
        Err(self.keeps_changing())
    }

    pub(super) fn keeps_changing(&self) -> Error {
        Error::unavailable(format!("{} keeps changing", self.object.uri()))
    }

    /// The newest copy, fetched if it is not here: a former owner may have it. `None` if there is no
    /// such object.
    async fn current_or_fetched(&self) -> Result<Option<LocalCopy>> {
        match self.current_copy().await? {
            Some(copy) => Ok(Some(copy)),
            None => self.fetch_newest().await,
        }
    }
}
