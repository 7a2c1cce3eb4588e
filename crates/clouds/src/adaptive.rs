//! Adapts the number of calls in flight to a backend by its replies.
//!
//! A call that is rejected because there are too many reduces the limit by a share of itself. From
//! then on the limit grows with time, as TCP's CUBIC does: quickly to just below its old value,
//! slowly around it, and quickly again above it.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::error::{Error, ErrorCode};
use forebay_core::locks::MutexExt;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until, timeout_at};

/// Factor of the limit after a rejection.
const LEFT: f64 = 0.7;
/// Growth in calls per cubic second: from one call to 64 takes less than ten seconds.
const GROWTH: f64 = 0.15;

/// The limit of one bucket's backend.
pub(crate) struct Adaptive {
    most: usize,
    turns: Arc<Semaphore>,
    state: Mutex<State>,
}

struct State {
    /// Permits that exist, free or taken.
    size: usize,
    /// Taken permits that are not returned after use.
    debt: usize,
    cut: Option<Cut>,
    /// The backend asked for a pause until then.
    closed_until: Option<Instant>,
}

#[derive(Clone, Copy)]
struct Cut {
    at: Instant,
    /// The limit before the cut.
    peak: f64,
}

/// Permission for one call; the call ends when it is dropped.
pub(crate) struct Turn {
    of: Arc<Adaptive>,
    permit: Option<OwnedSemaphorePermit>,
    began: Instant,
}

impl Adaptive {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        let state = State { size: most, debt: 0, cut: None, closed_until: None };
        Self { most, turns: Arc::new(Semaphore::new(most)), state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.locked()
    }

    /// Waits for a permit, at most for `wait`.
    pub(crate) async fn turn(self: &Arc<Self>, wait: Duration) -> Option<Turn> {
        let until = Instant::now() + wait;
        self.adjust(&mut self.lock(), Instant::now());
        let permit = match timeout_at(until, Arc::clone(&self.turns).acquire_owned()).await {
            Ok(Ok(permit)) => permit,
            _ => return None,
        };
        let mut turn = Turn { of: Arc::clone(self), permit: Some(permit), began: Instant::now() };
        loop {
            let closed = self.lock().closed_until.filter(|at| *at > Instant::now());
            let Some(closed) = closed else { break };
            if closed > until {
                return None;
            }
            sleep_until(closed).await;
        }
        turn.began = Instant::now();
        Some(turn)
    }

    /// Calls that may be in flight now.
    pub(crate) fn limit(&self, now: Instant) -> usize {
        self.adjust(&mut self.lock(), now);
        self.lock().size
    }

    /// Adds or removes permits until there are as many as the limit.
    fn adjust(&self, state: &mut State, now: Instant) {
        let Some(cut) = state.cut else { return };
        let limit = limit_after(cut, now, self.most);
        if limit >= state.size {
            let more = limit - state.size;
            let paid = more.min(state.debt);
            state.debt -= paid;
            self.turns.add_permits(more - paid);
        } else {
            let fewer = state.size - limit;
            state.debt += fewer - self.turns.forget_permits(fewer);
        }
        state.size = limit;
        if limit == self.most {
            state.cut = None;
        }
    }

    /// Handles the rejection of a call that began at `began`.
    fn refused(&self, began: Instant, now: Instant, after: Option<Duration>) {
        let mut state = self.lock();
        if let Some(after) = after {
            let until = now + after;
            state.closed_until = Some(state.closed_until.map_or(until, |at| at.max(until)));
        }
        // Calls that started before the cut say nothing about the present limit.
        if state.cut.is_some_and(|cut| began < cut.at) {
            return;
        }
        self.adjust(&mut state, now);
        let in_flight = (state.size + state.debt).saturating_sub(self.turns.available_permits());
        let peak = state.size.min(in_flight).max(1) as f64;
        state.cut = Some(Cut { at: now, peak });
        self.adjust(&mut state, now);
    }
}

/// The limit at some time after it was cut.
fn limit_after(cut: Cut, now: Instant, most: usize) -> usize {
    let passed = now.saturating_duration_since(cut.at).as_secs_f64();
    let back = (cut.peak * (1.0 - LEFT) / GROWTH).cbrt();
    let limit = GROWTH * (passed - back).powi(3) + cut.peak;
    (limit as usize).clamp(1, most)
}

impl Turn {
    /// Records how the call ended.
    pub(crate) fn ended(&self, error: Option<&Error>) {
        let now = Instant::now();
        if let Some(e) = error
            && is_refusal(e)
        {
            let after = e.retry_after_s.map(|s| Duration::from_secs(s.into()));
            self.of.refused(self.began, now, after);
        }
    }

    fn give_back(&mut self, now: Instant) {
        let Some(permit) = self.permit.take() else { return };
        let mut state = self.of.lock();
        if state.debt > 0 {
            state.debt -= 1;
            permit.forget();
        } else {
            drop(permit);
        }
        // Waiting calls are woken only here when the limit has grown.
        self.of.adjust(&mut state, now);
    }
}

/// Whether a backend rejected a call because there are too many, and not because it failed.
fn is_refusal(error: &Error) -> bool {
    error.code == ErrorCode::TooManyRequests
        || (error.code == ErrorCode::Unavailable && error.retry_after_s.is_some())
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.give_back(Instant::now());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn busy() -> Error {
        Error::new(ErrorCode::TooManyRequests, "slow down")
    }

    async fn turns(of: &Arc<Adaptive>, n: usize) -> Vec<Turn> {
        let mut turns = Vec::new();
        for _ in 0..n {
            turns.push(of.turn(Duration::from_millis(1)).await.unwrap());
        }
        turns
    }

    #[tokio::test]
    async fn a_refusal_cuts_the_limit_once_and_calls_wait_for_it() {
        let of = Arc::new(Adaptive::new(64));
        let mut held = turns(&of, 64).await;
        for turn in &held {
            turn.ended(Some(&busy()));
        }
        assert_eq!(of.limit(Instant::now()), 44, "64 refusals of one moment are one");
        held.truncate(44);
        assert!(of.turn(Duration::from_millis(1)).await.is_none());
        held.pop();
        assert!(of.turn(Duration::from_millis(1)).await.is_some());
    }

    #[tokio::test]
    async fn what_was_not_in_flight_does_not_count() {
        let of = Arc::new(Adaptive::new(64));
        let held = turns(&of, 10).await;
        held[0].ended(Some(&busy()));
        assert_eq!(of.limit(Instant::now()), 7);
    }

    #[tokio::test]
    async fn after_the_last_refusal_it_is_back_within_ten_seconds() {
        for in_flight in [1, 5, 20, 64] {
            let of = Arc::new(Adaptive::new(64));
            let held = turns(&of, in_flight).await;
            held[0].ended(Some(&busy()));
            drop(held);
            let soon = Instant::now() + Duration::from_secs(10);
            assert!(of.limit(soon) >= 58, "from {in_flight}: {}", of.limit(soon));
        }
    }

    #[tokio::test]
    async fn the_limit_settles_at_what_the_backend_takes() {
        // A backend that takes eight calls at once and 100 ms for each, over a minute.
        let of = Arc::new(Adaptive::new(64));
        let (mut done, mut refused) = (0, 0);
        let mut held: Vec<(Instant, Turn)> = Vec::new();
        let start = Instant::now();
        for step in 0..12_000 {
            let now = start + Duration::from_millis(5 * step);
            let before = held.len();
            for (until, turn) in &mut held {
                if *until <= now {
                    turn.give_back(now);
                }
            }
            held.retain(|(until, _)| *until > now);
            done += before - held.len();
            of.limit(now);
            while let Ok(permit) = Arc::clone(&of.turns).try_acquire_owned() {
                let mut turn = Turn { of: of.clone(), permit: Some(permit), began: now };
                if held.len() < 8 {
                    held.push((now + Duration::from_millis(100), turn));
                } else {
                    refused += 1;
                    of.refused(now, now, None);
                    turn.give_back(now);
                }
            }
        }
        assert!(done > 3500, "{done} of 4800 were possible");
        assert!(refused * 10 < done, "{refused} refused, {done} done");
    }

    #[tokio::test]
    async fn a_backend_that_asks_for_peace_gets_it() {
        let of = Arc::new(Adaptive::new(4));
        let first = of.turn(Duration::from_secs(1)).await.unwrap();
        first.ended(Some(&busy().retry_after(1)));
        drop(first);
        let start = Instant::now();
        assert!(of.turn(Duration::from_millis(500)).await.is_none(), "nobody waits in vain");
        assert!(start.elapsed() < Duration::from_millis(500));
        assert!(of.turn(Duration::from_secs(9)).await.is_some());
        assert!(start.elapsed() >= Duration::from_millis(990));
    }

    #[tokio::test]
    async fn other_failures_leave_the_limit_alone() {
        let of = Arc::new(Adaptive::new(8));
        let held = turns(&of, 8).await;
        held[0].ended(Some(&Error::new(ErrorCode::Unavailable, "reset")));
        held[1].ended(Some(&Error::new(ErrorCode::ObjectNotFound, "no")));
        held[2].ended(None);
        assert_eq!(of.limit(Instant::now()), 8);
    }
}
