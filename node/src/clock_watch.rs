//! The offset between this node's clock and the leading gateway's, measured with each report.

use std::time::Instant;

use forebay_core::clock_offset::{CLOCK_TOLERANCE_S, ClockOffset, ClockVerdict};
use forebay_core::date::format_utc;

use crate::clock::unix_ns;

/// When a report was sent, by both clocks.
pub(crate) struct SentAt {
    wall_ns: u64,
    at: Instant,
}

impl SentAt {
    pub(crate) fn now() -> Self {
        Self { wall_ns: unix_ns(), at: Instant::now() }
    }

    /// The offset of this clock from a peer whose reply, received now, carries the time `peer_ns`.
    pub(crate) fn offset(&self, peer_ns: u64) -> Option<ClockOffset> {
        let round_trip = u64::try_from(self.at.elapsed().as_nanos()).unwrap_or(u64::MAX);
        ClockOffset::measured(self.wall_ns, round_trip, peer_ns)
    }
}

/// The last measurement, and the verdict that was logged.
#[derive(Debug)]
pub(crate) struct ClockWatch {
    last: Option<ClockOffset>,
    logged: ClockVerdict,
}

impl Default for ClockWatch {
    fn default() -> Self {
        Self { last: None, logged: ClockVerdict::Ok }
    }
}

impl ClockWatch {
    pub(crate) fn last(&self) -> Option<ClockOffset> {
        self.last
    }

    /// Records a measurement. A wrong clock is logged once, and again only if it became worse or
    /// was right in between. Returns what was logged.
    pub(crate) fn note(&mut self, offset: Option<ClockOffset>) -> Option<ClockVerdict> {
        let offset = offset?;
        self.last = Some(offset);
        let verdict = offset.verdict();
        if verdict == ClockVerdict::Ok && self.logged != ClockVerdict::Ok {
            self.logged = verdict;
            tracing::info!(
                "the clock of this node is right again: {offset} of the leading gateway's"
            );
            return Some(verdict);
        }
        if verdict <= self.logged {
            return None;
        }
        self.logged = verdict;
        let here = unix_ns();
        let there = ClockOffset { offset_ms: offset.offset_ms.saturating_neg(), ..offset }.at(here);
        tracing::warn!(
            "the clock of this node is {offset} of the leading gateway's: {} here, {} there; more than \
             {CLOCK_TOLERANCE_S} s break redirects of clients: set the clocks (NTP)",
            format_utc(here),
            format_utc(there)
        );
        Some(verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_is_logged_once_and_again_when_it_gets_worse_or_was_right() {
        let mut watch = ClockWatch::default();
        let mut note = |s: i64| watch.note(Some(ClockOffset { offset_ms: s * 1000, error_ms: 1 }));
        assert_eq!(note(1), None);
        assert_eq!(note(-10), Some(ClockVerdict::Warn));
        assert_eq!(note(10), None);
        assert_eq!(note(60), Some(ClockVerdict::Fail));
        assert_eq!(note(10), None, "better, and still wrong");
        assert_eq!(note(60), None);
        assert_eq!(note(0), Some(ClockVerdict::Ok));
        assert_eq!(note(60), Some(ClockVerdict::Fail));
        assert_eq!(watch.note(None), None, "an older gateway says nothing");
        assert_eq!(watch.last().map(|offset| offset.offset_ms), Some(60_000));
    }
}
