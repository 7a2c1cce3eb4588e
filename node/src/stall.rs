//! Limits how long a client may delay the bytes of a request or of a reply.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use forebay_core::config::LimitsConfig;
use tokio::time::Sleep;

/// The minimum rate at which a client has to send a body and to read a reply.
#[derive(Clone, Copy, Debug)]
pub struct ClientPace {
    /// Longest time without a byte.
    pub timeout: Duration,
    /// Bytes per second, measured over the time that this node waited for the client.
    pub bytes_per_second: u64,
}

impl ClientPace {
    pub fn of(limits: &LimitsConfig) -> Self {
        Self {
            timeout: Duration::from_secs(limits.client_timeout_s.into()),
            bytes_per_second: limits.client_min_rate.0.max(1),
        }
    }

    /// The time that this many bytes earn.
    fn worth(self, bytes: u64) -> Duration {
        match bytes.checked_mul(1000) {
            Some(thousands) => Duration::from_millis(thousands / self.bytes_per_second),
            None => self.timeout,
        }
        .min(self.timeout)
    }
}

/// One direction of a connection. Only time in which this node waits for the client counts: each
/// byte earns some time, and at most [`ClientPace::timeout`] is saved up.
pub(crate) struct StallTimer {
    pace: ClientPace,
    /// Remaining time, without the current wait.
    left: Duration,
    since: Option<Instant>,
    /// Created at the first wait, and reset only when it fires or would fire too late.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl StallTimer {
    pub(crate) fn new(pace: ClientPace) -> Self {
        Self { pace, left: pace.timeout, since: None, alarm: None }
    }

    /// Records bytes that moved; the wait for the client ends.
    pub(crate) fn moved(&mut self, bytes: u64) {
        if let Some(since) = self.since.take() {
            self.left = self.left.saturating_sub(since.elapsed());
        }
        if self.left < self.pace.timeout {
            self.left = (self.left + self.pace.worth(bytes)).min(self.pace.timeout);
        }
    }

    /// Waits for the client. Ready when the client has used up its time.
    pub(crate) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let now = Instant::now();
        let deadline = *self.since.get_or_insert(now) + self.left;
        let rings = tokio::time::Instant::from_std(deadline);
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(rings)));
        if alarm.deadline() > rings {
            alarm.as_mut().reset(rings);
        }
        loop {
            ready!(alarm.as_mut().poll(cx));
            if Instant::now() >= deadline {
                return Poll::Ready(());
            }
            alarm.as_mut().reset(rings);
        }
    }

    /// Converts the outcome of a read or write of the connection: pending becomes an error when the
    /// client has used up its time, and bytes that moved earn time.
    pub(crate) fn watch<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Poll<io::Result<T>> {
        match polled {
            Poll::Ready(Ok(done)) => {
                self.moved(bytes(&done));
                Poll::Ready(Ok(done))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => {
                ready!(self.poll_stalled(cx));
                Poll::Ready(Err(self.error()))
            }
        }
    }

    /// The error for a client that used up its time.
    pub(crate) fn error(&self) -> io::Error {
        let ClientPace { timeout, bytes_per_second } = self.pace;
        let text = format!(
            "the client stalled: it has to move {bytes_per_second} bytes a second and may pause for \
             {} s (limits.client_min_rate, limits.client_timeout_s)",
            timeout.as_secs()
        );
        io::Error::new(io::ErrorKind::TimedOut, text)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    const PACE: ClientPace =
        ClientPace { timeout: Duration::from_millis(200), bytes_per_second: 1000 };

    /// Waits for the client for this long; false if its time ran out before.
    async fn waited(timer: &mut StallTimer, ms: u64) -> bool {
        let stalled = poll_fn(|cx| timer.poll_stalled(cx));
        tokio::time::timeout(Duration::from_millis(ms), stalled).await.is_err()
    }

    #[tokio::test]
    async fn a_client_that_sends_nothing_is_ended() {
        let mut timer = StallTimer::new(PACE);
        let started = Instant::now();
        poll_fn(|cx| timer.poll_stalled(cx)).await;
        assert!(started.elapsed() >= PACE.timeout);
        assert_eq!(timer.error().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_byte_now_and_then_does_not_hold_a_connection() {
        let mut timer = StallTimer::new(PACE);
        let started = Instant::now();
        while waited(&mut timer, 20).await {
            timer.moved(1);
            assert!(started.elapsed() < Duration::from_secs(10), "it must end");
        }
    }

    #[tokio::test]
    async fn a_client_at_the_least_rate_goes_on_and_saves_up_no_time() {
        let mut timer = StallTimer::new(PACE);
        for _ in 0..30 {
            timer.moved(100);
            assert!(waited(&mut timer, 20).await, "faster than it must be");
        }
        timer.moved(u64::MAX);
        assert!(!waited(&mut timer, 2000).await, "what was sent before buys one pause");
    }
}
