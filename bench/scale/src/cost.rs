//! CPU time of the calling thread: the cost of a call, independent of other load on the machine.

use std::fs;
use std::time::{Duration, Instant};

/// Nanoseconds that this thread has run, by Linux's count.
fn ran() -> Option<u64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The clock that the figures are measured with.
pub(crate) fn clock() -> &'static str {
    if ran().is_some() { "CPU time of one thread" } else { "time on the wall" }
}

/// A moment on that clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begin {
    ran: Option<u64>,
    wall: Instant,
}

impl Begin {
    pub(crate) fn now() -> Self {
        Self { ran: ran(), wall: Instant::now() }
    }

    pub(crate) fn elapsed(self) -> Duration {
        match (self.ran, ran()) {
            (Some(begin), Some(end)) => Duration::from_nanos(end.saturating_sub(begin)),
            _ => self.wall.elapsed(),
        }
    }
}

/// Seconds per call, averaged over a quarter of a second of calls, because the clock advances in
/// steps of some milliseconds.
pub(crate) fn each<T, E>(mut call: impl FnMut() -> Result<T, E>) -> Result<f64, E> {
    let (begin, mut calls) = (Begin::now(), 0_u32);
    loop {
        std::hint::black_box(call()?);
        calls += 1;
        let elapsed = begin.elapsed();
        if elapsed > Duration::from_millis(250) {
            return Ok(elapsed.as_secs_f64() / f64::from(calls));
        }
    }
}
