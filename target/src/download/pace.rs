//! Keeps one job's bytes on this target within its share of a limit.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// One job's pace.
pub(super) struct Pace {
    /// 0: none.
    bytes_per_second: f64,
    /// When what has been let through so far has had its time.
    free_at: Mutex<Instant>,
}

impl Pace {
    /// `targets` share the limit.
    pub(super) fn new(bytes_per_hour: u64, targets: usize) -> Self {
        let bytes_per_second = bytes_per_hour as f64 / 3600.0 / targets.max(1) as f64;
        Self { bytes_per_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Returns when so many more bytes may pass.
    pub(super) async fn pass(&self, bytes: usize) {
        if self.bytes_per_second <= 0.0 {
            return;
        }
        sleep_until(self.turn(bytes, Instant::now())).await;
    }

    /// When so many more bytes may pass, which are asked for now.
    fn turn(&self, bytes: usize, now: Instant) -> Instant {
        let takes = Duration::try_from_secs_f64(bytes as f64 / self.bytes_per_second);
        let mut free_at = self.free_at.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (*free_at).max(now);
        *free_at = turn + takes.unwrap_or(Duration::from_secs(3600));
        turn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_take_their_time_and_targets_share_it() {
        let pace = Pace::new(3600 * 1000, 2);
        let now = Instant::now() + Duration::from_secs(1);
        let turns: Vec<_> = (0..3).map(|_| (pace.turn(500, now) - now).as_secs()).collect();
        assert_eq!(turns, [0, 1, 2], "the first goes at once");
        let later = now + Duration::from_secs(100);
        assert_eq!(pace.turn(500, later), later, "what was not used is lost");
    }

    #[tokio::test]
    async fn without_a_limit_nothing_waits() {
        Pace::new(0, 2).pass(usize::MAX).await;
    }
}
