//! Which traces are chosen from the start, and which requests are slow.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use forebay_core::config::TraceConfig;
use forebay_core::request::RequestContext;

use crate::id_share::last_id_of;

/// The rules of the configuration.
#[derive(Debug)]
pub(super) struct Choice {
    /// Requests with ids up to this are sampled; 0: none.
    sampled_up_to: AtomicU64,
    slow_ms: AtomicU32,
}

impl Choice {
    pub(super) fn new(config: &TraceConfig) -> Self {
        let choice = Self { sampled_up_to: AtomicU64::new(0), slow_ms: AtomicU32::new(0) };
        choice.set(config);
        choice
    }

    /// Uses these rules from now on.
    pub(super) fn set(&self, config: &TraceConfig) {
        self.sampled_up_to.store(last_id_of(config.sample), Ordering::Relaxed);
        self.slow_ms.store(config.slow_ms, Ordering::Relaxed);
    }

    /// Whether the sender samples the request, or the configured share has it. The ids of requests are
    /// spread evenly, so that all nodes decide alike.
    pub(super) fn is_sampled(&self, about: &RequestContext) -> bool {
        let last = self.sampled_up_to.load(Ordering::Relaxed);
        about.trace.is_some_and(|sender| sender.is_sampled) || (last > 0 && about.id.0 <= last)
    }

    pub(super) fn is_slow(&self, took: Duration) -> bool {
        took >= Duration::from_millis(self.slow_ms.load(Ordering::Relaxed).into())
    }
}
