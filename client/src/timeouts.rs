//! Timeouts for the bytes of an answer.

use std::time::Duration;

use crate::error::Error;

/// Bytes that count as progress. Fewer within the deadline count as none.
pub(crate) const PROGRESS_BYTES: u64 = 16 << 10;

/// Timeouts within one answer: for silence, and for bytes that arrive too slowly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadTimeouts {
    /// Longest silence.
    idle: Duration,
    /// Longest wait for [`PROGRESS_BYTES`], sum of all silences.
    limit: Duration,
    waited: Duration,
    bytes: u64,
}

impl ReadTimeouts {
    pub(crate) fn new(idle: Duration, limit: Duration) -> Self {
        Self { idle, limit, waited: Duration::ZERO, bytes: 0 }
    }

    pub(crate) fn with_idle(self, idle: Duration) -> Self {
        Self { idle, ..self }
    }

    pub(crate) fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    pub(crate) fn idle(&self) -> Duration {
        self.idle
    }

    /// Remaining time for the next bytes.
    pub(crate) fn left(&self) -> Duration {
        self.idle.min(self.limit.saturating_sub(self.waited))
    }

    /// Records bytes that arrived after a wait of this length.
    pub(crate) fn came(&mut self, bytes: u64, waited: Duration) {
        self.bytes += bytes;
        self.waited += waited;
        if self.bytes >= PROGRESS_BYTES {
            self.progressed();
        }
    }

    /// Counts the bytes so far as progress, however few they are.
    pub(crate) fn progressed(&mut self) {
        (self.bytes, self.waited) = (0, Duration::ZERO);
    }

    /// The error for a node whose bytes exceeded these timeouts.
    pub(crate) fn exhausted(&self, endpoint: &str) -> Error {
        let Self { idle, limit, bytes, .. } = self;
        Error::broken(
            endpoint,
            match self.left() < *idle && *bytes > 0 {
                true => format!("only {bytes} bytes in {} s", limit.as_secs_f32()),
                false => format!("no bytes for {} s", self.left().as_secs_f32()),
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn bytes_that_trickle_use_the_limit_up_and_enough_of_them_renew_it() {
        let mut timeouts = ReadTimeouts::new(2 * SECOND, 4 * SECOND);
        for left in [2, 2, 1, 0] {
            timeouts.came(1, SECOND);
            assert_eq!(timeouts.left(), left * SECOND);
        }
        assert!(timeouts.exhausted("http://h:1").to_string().contains("only 4 bytes in 4 s"));
        timeouts.came(PROGRESS_BYTES, SECOND);
        assert_eq!(timeouts.left(), 2 * SECOND);
        assert!(timeouts.exhausted("http://h:1").to_string().contains("no bytes for 2 s"));
    }
}
