//! The limit of a client's hedged requests.

use tokio::sync::{Semaphore, SemaphorePermit, TryAcquireError};

/// Maximum number of hedged requests of a client. If all targets are slow, more of them would make
/// the targets slower.
const MAX_HEDGED_REQUESTS: usize = 64;

/// Permits for hedged requests.
#[derive(Debug)]
pub(crate) struct HedgeLimit(Semaphore);

impl Default for HedgeLimit {
    fn default() -> Self {
        Self(Semaphore::new(MAX_HEDGED_REQUESTS))
    }
}

impl HedgeLimit {
    /// A permit for one hedged request; an error if there are too many of them.
    pub(crate) fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.0.try_acquire()
    }
}
