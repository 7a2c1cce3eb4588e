//! The rate of log lines about failed requests. Past it, a summary with counts replaces the lines.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::locks::MutexExt;

const SECOND: Duration = Duration::from_secs(1);
/// Time after the first line that was left out until their number is logged.
const SUMMARY_AFTER: Duration = Duration::from_secs(10);

/// Decides which failed requests have a line of their own.
#[derive(Debug)]
pub(super) struct FailureLog {
    /// 0: all of them.
    per_s: AtomicU32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The current second, and the number of lines in it.
    second: Option<(Instant, u32)>,
    /// Numbers of requests that had no line, by operation and status.
    left_out: BTreeMap<(&'static str, u16), u64>,
}

impl State {
    /// Whether a request has a line; otherwise it is counted. Also returns whether it is the first
    /// one that is counted.
    fn admits(&mut self, per_s: u32, kind: (&'static str, u16), now: Instant) -> (bool, bool) {
        let second = self.second.filter(|(began, _)| now.duration_since(*began) < SECOND);
        let (began, lines) = second.unwrap_or((now, 0));
        if per_s == 0 || lines < per_s {
            self.second = Some((began, lines.saturating_add(1)));
            return (true, false);
        }
        let is_first = self.left_out.is_empty();
        *self.left_out.entry(kind).or_default() += 1;
        (false, is_first)
    }

    /// The number of requests that had no line, and their kinds; they are counted anew.
    fn summary(&mut self) -> (u64, String) {
        let left_out = std::mem::take(&mut self.left_out);
        let mut kinds = String::new();
        for ((operation, status), count) in &left_out {
            let comma = if kinds.is_empty() { "" } else { ", " };
            let _ = write!(kinds, "{comma}{count} x {operation} {status}");
        }
        (left_out.values().sum(), kinds)
    }
}

impl FailureLog {
    pub(super) fn new(per_s: u32) -> Self {
        Self { per_s: AtomicU32::new(per_s), state: Mutex::default() }
    }

    /// Changes the rate.
    pub(super) fn set(&self, per_s: u32) {
        self.per_s.store(per_s, Ordering::Relaxed);
    }

    /// Whether a failed request has a line of its own.
    pub(super) fn admits(self: &Arc<Self>, operation: &'static str, status: u16) -> bool {
        let per_s = self.per_s.load(Ordering::Relaxed);
        let mut state = self.state.locked();
        let (is_admitted, is_first) = state.admits(per_s, (operation, status), Instant::now());
        drop(state);
        if is_first && let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let log = self.clone();
            runtime.spawn(async move {
                tokio::time::sleep(SUMMARY_AFTER).await;
                let (count, kinds) = log.state.locked().summary();
                let seconds = SUMMARY_AFTER.as_secs();
                tracing::warn!(
                    count,
                    kinds,
                    seconds,
                    "failed requests without a line of their own"
                );
            });
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_past_the_rate_are_counted_by_kind() {
        let (mut state, now) = (State::default(), Instant::now());
        let get = ("get", 404);
        assert_eq!(state.admits(2, get, now), (true, false));
        assert_eq!(state.admits(2, get, now), (true, false));
        assert_eq!(state.admits(2, get, now), (false, true));
        assert_eq!(state.admits(2, ("put", 503), now), (false, false));
        assert_eq!(state.admits(2, get, now), (false, false));
        assert_eq!(state.admits(2, get, now + SECOND), (true, false));
        assert_eq!(state.summary(), (3, "2 x get 404, 1 x put 503".to_owned()));
        assert_eq!(state.summary().0, 0);
    }

    #[test]
    fn without_a_rate_every_request_has_a_line() {
        let (mut state, now) = (State::default(), Instant::now());
        assert!((0..1_000).all(|_| state.admits(0, ("get", 404), now).0));
    }
}
