//! Limits how many object requests one client has in flight: no limit until a node replies that
//! there are too many. Then the limit is halved, and grows slowly again while requests succeed
//! (additive increase, multiplicative decrease).

use std::sync::{Mutex, MutexGuard};

use forebay_core::ErrorCode;
use forebay_core::locks::MutexExt;
use tokio::sync::Notify;

/// A limit above this is dropped.
const FREE_AT: f64 = 256.0;

/// The requests that one client has in flight.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    out: usize,
    /// Maximum requests in flight, at least 1; `None` until a node complains.
    limit: Option<f64>,
    /// Incremented with each cut: a request sent before a cut does not cause another one.
    cuts: u64,
}

/// A permit for one request in flight. It must be ended, or dropped if the request is given up.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    pace: &'a Pace,
    cuts: u64,
}

impl Pace {
    /// Waits until one more request may be sent.
    pub(crate) async fn turn(&self) -> Turn<'_> {
        loop {
            // Registered before the check, so that a permit that is released in between is not
            // missed.
            let freed = self.freed.notified();
            {
                let mut state = self.state();
                if state.limit.is_none_or(|limit| state.out < limit as usize) {
                    state.out += 1;
                    return Turn { pace: self, cuts: state.cuts };
                }
            }
            freed.await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }
}

impl Turn<'_> {
    /// Ends the request with success, or with this failure.
    pub(crate) fn end(self, failure: Option<ErrorCode>) {
        let mut state = self.pace.state();
        match failure {
            Some(ErrorCode::TooManyRequests) if self.cuts == state.cuts => {
                let most = state.limit.map_or(state.out, |limit| state.out.min(limit as usize));
                let limit = (most / 2).max(1);
                tracing::debug!(limit, "asked to slow down");
                state.limit = Some(limit as f64);
                state.cuts += 1;
            }
            None => {
                state.limit = state.limit.map(|n| n + 1.0 / n).filter(|n| *n < FREE_AT);
            }
            Some(_) => {}
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.state();
        state.out -= 1;
        drop(state);
        // Two: the limit may have grown by one, too.
        self.pace.freed.notify_one();
        self.pace.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BUSY: Option<ErrorCode> = Some(ErrorCode::TooManyRequests);

    async fn turns(pace: &Pace, count: usize) -> Vec<Turn<'_>> {
        let mut turns = Vec::new();
        for _ in 0..count {
            turns.push(pace.turn().await);
        }
        turns
    }

    async fn is_full(pace: &Pace) -> bool {
        tokio::time::timeout(Duration::from_millis(20), pace.turn()).await.is_err()
    }

    #[tokio::test]
    async fn a_429_halves_what_is_out_once_and_successes_bring_it_back_slowly() {
        let pace = Pace::default();
        let mut first = turns(&pace, 16).await;
        for turn in first.drain(..4) {
            turn.end(BUSY);
        }
        assert_eq!(pace.state().limit, Some(8.0), "four refusals of one moment are one cut");
        drop(first);
        let mut second = turns(&pace, 8).await;
        assert!(is_full(&pace).await);
        for turn in second.drain(..) {
            turn.end(None);
        }
        let grown = pace.state().limit.unwrap_or_default();
        assert!((8.9..9.1).contains(&grown), "{grown}: one more for a round of successes");
        pace.turn().await.end(Some(ErrorCode::ObjectNotFound));
        assert_eq!(pace.state().limit, Some(grown));
    }

    #[tokio::test]
    async fn one_request_always_may_go_out_and_whoever_waits_gets_the_next_turn() {
        let pace = Pace::default();
        for _ in 0..5 {
            pace.turn().await.end(BUSY);
        }
        let only = pace.turn().await;
        assert!(is_full(&pace).await);
        let (waited, ()) = tokio::join!(pace.turn(), async { drop(only) });
        waited.end(None);
        assert_eq!(pace.state().out, 0);
    }

    #[tokio::test]
    async fn the_limit_goes_when_it_is_high_enough() {
        let pace = Pace::default();
        pace.state().limit = Some(FREE_AT - 0.001);
        pace.turn().await.end(None);
        assert_eq!(pace.state().limit, None);
    }
}
