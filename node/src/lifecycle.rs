//! Cancellation, task tracking and use of one process.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use forebay_core::{Error, Result};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::activity::Activity;
use crate::exchange::carried;

/// Every task of a node runs under one of these; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    token: CancellationToken,
    tracker: TaskTracker,
    going: CancellationToken,
    farewells: TaskTracker,
    activity: Activity,
    failure: Arc<OnceLock<Error>>,
}

impl Lifecycle {
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancelled when the node begins to stop.
    pub fn token(&self) -> CancellationToken {
        self.token.clone()
    }

    /// Cancelled shortly before [`Self::token`], when the process is asked to stop in good order: a
    /// component that hands over its work holds a [`Self::farewell`] until the handover is done.
    pub fn going(&self) -> CancellationToken {
        self.going.clone()
    }

    /// A guard: while it exists, [`Self::stop`] waits.
    pub fn farewell(&self) -> TaskTrackerToken {
        self.farewells.token()
    }

    /// Starts to stop the node after all farewells are dropped, at the latest after `within`.
    pub async fn stop(&self, within: Duration) {
        self.going.cancel();
        self.farewells.close();
        let _ = tokio::time::timeout(within, self.farewells.wait()).await;
        self.token.cancel();
    }

    /// Ends the process because of an error that it cannot repair; the first error counts.
    pub fn fail(&self, error: Error) {
        let _ = self.failure.set(error);
        self.token.cancel();
    }

    /// The error given to [`Self::fail`], which becomes the result of the process.
    pub fn outcome(&self) -> Result<()> {
        self.failure.get().cloned().map_or(Ok(()), Err)
    }

    /// The users of this process.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// A lifecycle for tasks that may end earlier than the node: they end when the child's token is
    /// cancelled, and with the node at the latest. [`Self::shutdown`] waits for them as well.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { token: self.token.child_token(), ..self.clone() }
    }

    /// Spawns a task that [`Self::shutdown`] waits for, and which works for the current request, if there
    /// is one. The task must watch [`Self::token`] or end
    /// by itself.
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.tracker.spawn(carried(future))
    }

    /// Asks every task to end and waits for them, at most `deadline`. Returns how many were still
    /// running then.
    pub async fn shutdown(&self, deadline: Duration) -> usize {
        self.token.cancel();
        self.tracker.close();
        let _ = tokio::time::timeout(deadline, self.tracker.wait()).await;
        self.tracker.len()
    }
}
