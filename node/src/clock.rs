//! The two clocks: wall time for display, monotonic time for decisions.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Monotonic milliseconds; a trait so that tests can move time.
pub trait Clock: Send + Sync {
    fn now_ms(&self) -> u64;
}

/// The machine's monotonic clock, counted from when this value was made.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock(Instant);

impl Default for SystemClock {
    fn default() -> Self {
        Self(Instant::now())
    }
}

impl Clock for SystemClock {
    fn now_ms(&self) -> u64 {
        self.0.elapsed().as_millis() as u64
    }
}

fn unix() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Unix time in nanoseconds.
pub fn unix_ns() -> u64 {
    unix().as_nanos() as u64
}

/// Unix time in seconds.
pub fn unix_s() -> u64 {
    unix().as_secs()
}
