//! The role of this gateway: it leads, it follows a leader, or it waits for one.

use std::sync::Arc;

use tokio::sync::watch;

use super::members::Members;
use super::publish::Publisher;

/// The state that only the leading gateway has.
pub(crate) struct Lead {
    pub(crate) term: u64,
    pub(crate) members: Arc<Members>,
    pub(crate) publisher: Publisher,
}

#[derive(Clone)]
pub(crate) enum Leadership {
    Leading(Arc<Lead>),
    /// URL of the leader.
    Following(String),
    /// There is no leader, or this gateway does not know it.
    Waiting,
}

/// Watches the current role; cheap to clone.
#[derive(Clone)]
pub(crate) struct LeaderWatch(watch::Receiver<Leadership>);

impl LeaderWatch {
    pub(crate) fn channel() -> (watch::Sender<Leadership>, Self) {
        let (sender, receiver) = watch::channel(Leadership::Waiting);
        (sender, Self(receiver))
    }

    pub(crate) fn now(&self) -> Leadership {
        self.0.borrow().clone()
    }

    /// Waits for the next change; forever once no more will come.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending().await
        }
    }
}
