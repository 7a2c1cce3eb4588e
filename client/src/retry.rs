//! When to try again: jittered exponential backoff until a deadline without progress.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use forebay_core::ErrorCode;

use crate::error::{Error, Result};

const FIRST_PAUSE: Duration = Duration::from_millis(40);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The tries of one request.
#[derive(Debug)]
pub(crate) struct Attempts {
    endpoint: String,
    deadline: Duration,
    /// When the current series of tries began; `None` after progress, until the next failure.
    since: Option<Instant>,
    failures: u32,
    /// Whether an earlier try may have been carried out unseen.
    pub(crate) ambiguous: bool,
    /// Whether a refused grant was renewed already: a second refusal is meant.
    pub(crate) regranted: Arc<AtomicBool>,
}

impl Attempts {
    pub(crate) fn new(endpoint: &str, deadline: Duration) -> Self {
        Self {
            endpoint: endpoint.to_owned(),
            deadline,
            since: Some(Instant::now()),
            failures: 0,
            ambiguous: false,
            regranted: Arc::default(),
        }
    }

    /// Something new arrived: the deadline starts over, at the next failure (a reader may take its
    /// time in between).
    pub(crate) fn progressed(&mut self) {
        self.since = None;
        self.failures = 0;
    }

    /// Waits before the next try, or returns the error to give up with.
    pub(crate) async fn again(&mut self, error: Error) -> Result<()> {
        if !error.is_transient() {
            return Err(error);
        }
        self.ambiguous |= error.is_ambiguous();
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = self.deadline.saturating_sub(since.elapsed());
        if left.is_zero() {
            return Err(Error::Timeout {
                endpoint: self.endpoint.clone(),
                after: self.deadline,
                last: Box::new(advised(error)),
            });
        }
        let pause = pause(self.failures, retry_after(&error), rand::random());
        self.failures += 1;
        tracing::debug!(%error, ?pause, "trying again");
        tokio::time::sleep(pause.min(left)).await;
        Ok(())
    }
}

fn retry_after(error: &Error) -> Option<Duration> {
    match error {
        Error::Api(e) => e.retry_after_s.map(|s| Duration::from_secs(s.into())),
        _ => None,
    }
}

/// The error, with what its user can change.
fn advised(error: Error) -> Error {
    match error {
        Error::Api(e) if e.code == ErrorCode::TooManyRequests && e.hint.is_none() => Error::Api(
            e.hint("lower `concurrency` or `num_workers`, or raise the client's `timeout`"),
        ),
        other => other,
    }
}

/// `jitter` in 0..1 spreads the pauses of many clients over half of their length.
fn pause(failures: u32, asked: Option<Duration>, jitter: f64) -> Duration {
    let grown = FIRST_PAUSE.saturating_mul(1 << failures.min(10)).min(LONGEST_PAUSE);
    match asked {
        Some(asked) => asked.max(grown).mul_f64(1.0 + jitter / 4.0),
        None => grown.mul_f64(0.5 + jitter / 2.0),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use forebay_core::Error as CoreError;

    #[test]
    fn pauses_grow_to_a_bound_and_respect_what_the_server_asks() {
        assert_eq!(pause(0, None, 1.0), FIRST_PAUSE);
        assert_eq!(pause(0, None, 0.0), FIRST_PAUSE / 2);
        assert_eq!(pause(99, None, 1.0), LONGEST_PAUSE);
        let three = Duration::from_secs(3);
        assert!(pause(0, Some(three), 0.0) >= three);
        assert!(pause(0, Some(three), 0.99) < three * 2);
    }

    #[tokio::test]
    async fn permanent_errors_return_at_once_and_transient_ones_until_the_deadline() {
        let mut tries = Attempts::new("http://h:1", Duration::from_millis(80));
        let gone = Error::Api(CoreError::new(ErrorCode::ObjectNotFound, "no"));
        assert_eq!(tries.again(gone).await.unwrap_err().code(), ErrorCode::ObjectNotFound);
        let mut count = 0;
        let last = loop {
            count += 1;
            if let Err(e) = tries.again(Error::broken("http://h:2", "reset")).await {
                break e;
            }
        };
        assert!(count > 1 && tries.ambiguous);
        assert!(last.to_string().contains("cluster at http://h:1 did not answer"), "{last}");
        assert_eq!(last.code(), ErrorCode::Timeout);
    }

    #[tokio::test]
    async fn the_last_of_many_refusals_says_what_to_change() {
        let busy = || Error::Api(CoreError::new(ErrorCode::TooManyRequests, "slow down"));
        let mut tries = Attempts::new("http://h:1", Duration::from_millis(80));
        let last = loop {
            if let Err(e) = tries.again(busy()).await {
                break e;
            }
        };
        assert_eq!(last.code(), ErrorCode::TooManyRequests);
        assert!(last.hint().is_some_and(|hint| hint.contains("concurrency")), "{last:?}");
    }
}
