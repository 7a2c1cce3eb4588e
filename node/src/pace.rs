//! Keeps this target within its share of a limit per second, of bytes or of calls.

use std::sync::Mutex;
use std::time::Duration;

use forebay_core::locks::MutexExt;
use tokio::time::{Instant, sleep_until};

/// The rate limit of one job, or of one bucket's backend.
pub struct Pace {
    /// 0: no limit.
    per_second: f64,
    /// When the units passed so far have used up their time.
    free_at: Mutex<Instant>,
}

impl Pace {
    /// `targets` share the limit; 0 means no limit.
    pub fn new(per_second: f64, targets: usize) -> Self {
        let per_second = per_second / targets.max(1) as f64;
        Self { per_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Returns when `n` more units may pass.
    pub async fn pass(&self, n: usize) {
        if let Some(turn) = self.turn(n, Instant::now(), None) {
            sleep_until(turn).await;
        }
    }

    /// As [`Self::pass`]; returns false at once if that would take longer than `wait`.
    pub async fn pass_within(&self, n: usize, wait: Duration) -> bool {
        let Some(turn) = self.turn(n, Instant::now(), Some(wait)) else { return false };
        sleep_until(turn).await;
        true
    }

    /// When `n` more units, requested now, may pass.
    fn turn(&self, n: usize, now: Instant, wait: Option<Duration>) -> Option<Instant> {
        if self.per_second <= 0.0 {
            return Some(now);
        }
        let takes = Duration::try_from_secs_f64(n as f64 / self.per_second);
        let mut free_at = self.free_at.locked();
        let turn = (*free_at).max(now);
        if wait.is_some_and(|wait| turn - now > wait) {
            return None;
        }
        *free_at = turn + takes.unwrap_or(Duration::from_secs(3600));
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_and_targets_share_it() {
        let pace = Pace::new(1000.0, 2);
        let now = Instant::now() + Duration::from_secs(1);
        let turn = |n, now| pace.turn(n, now, None).map(|turn| (turn - now).as_secs());
        let turns: Vec<_> = (0..3).map(|_| turn(500, now)).collect();
        assert_eq!(turns, [Some(0), Some(1), Some(2)], "the first goes at once");
        let impatient = pace.turn(500, now, Some(Duration::from_secs(2)));
        assert_eq!(impatient, None, "and costs nothing");
        assert_eq!(turn(500, now), Some(3));
        let later = now + Duration::from_secs(100);
        assert_eq!(turn(500, later), Some(0), "what was not used is lost");
    }

    #[tokio::test]
    async fn without_a_limit_nothing_waits() {
        Pace::new(0.0, 2).pass(usize::MAX).await;
        assert!(Pace::new(0.0, 2).pass_within(usize::MAX, Duration::ZERO).await);
    }
}
