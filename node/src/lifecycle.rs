//! Cancellation, task tracking and use of one process.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use forebay_core::config::NodeConfig;
use forebay_core::locks::MutexExt;
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
    reloads: Reloads,
}

/// The parts of the node that apply changed settings.
#[derive(Clone, Default)]
struct Reloads(Arc<Mutex<Vec<ApplySettings>>>);

type ApplySettings = Box<dyn Fn(&NodeConfig) + Send>;

impl fmt::Debug for Reloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reloads({})", self.0.locked().len())
    }
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

    /// Calls `apply` with the configuration whenever it was read again. `apply` must not block, and must
    /// hold nothing that has to be closed when the node stops.
    pub fn on_reload(&self, apply: impl Fn(&NodeConfig) + Send + 'static) {
        self.reloads.0.locked().push(Box::new(apply));
    }

    /// Makes the parts of the node use a configuration that was read again, as far as they can.
    pub fn reload(&self, config: &NodeConfig) {
        self.reloads.0.locked().iter().for_each(|apply| apply(config));
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
