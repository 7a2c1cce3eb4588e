//! Which traces are chosen from the start, and which requests are slow.

use std::time::Duration;

use forebay_core::config::TraceConfig;
use forebay_core::request::RequestContext;

/// The rules of the configuration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice {
    /// Requests with ids up to this are sampled.
    sampled_up_to: Option<u64>,
    slow: Duration,
}

impl Choice {
    pub(super) fn new(config: &TraceConfig) -> Self {
        let share = config.sample.clamp(0.0, 1.0);
        // A float of `u64::MAX` rounds up to 2^64, and the conversion saturates.
        let sampled_up_to = (share > 0.0).then_some((share * u64::MAX as f64) as u64);
        Self { sampled_up_to, slow: Duration::from_millis(config.slow_ms.into()) }
    }

    /// Whether the sender samples the request, or the configured share has it. The ids of requests are
    /// spread evenly, so that all nodes decide alike.
    pub(super) fn is_sampled(&self, about: &RequestContext) -> bool {
        about.trace.is_some_and(|sender| sender.is_sampled)
            || self.sampled_up_to.is_some_and(|last| about.id.0 <= last)
    }

    pub(super) fn is_slow(&self, took: Duration) -> bool {
        took >= self.slow
    }
}
