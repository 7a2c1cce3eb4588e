//! The offset between the clocks of two nodes, and its consequences.
//!
//! A node measures its clock against the leading gateway's with every report. It cannot measure
//! each direction separately, so a measurement is accurate to half of the round trip.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::date::format_utc;
use crate::error::{Error, ErrorCode};
use crate::sign::REDIRECT_TTL_S;

/// Clocks that differ by more than this are reported, seconds.
pub const CLOCK_WARN_S: u64 = 5;
/// Clocks of nodes that differ by more than this break redirects of foreign clients, seconds.
pub const CLOCK_TOLERANCE_S: u64 = REDIRECT_TTL_S;

const MS: i128 = 1_000_000;

/// The clock of a node compared with the leading gateway's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Milliseconds by which the node's clock is ahead; negative: behind.
    pub offset_ms: i64,
    /// Milliseconds by which the measurement may be wrong.
    pub error_ms: u64,
}

/// The consequence of an offset between two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClockVerdict {
    Ok,
    /// More than [`CLOCK_WARN_S`].
    Warn,
    /// More than [`CLOCK_TOLERANCE_S`].
    Fail,
}

impl ClockOffset {
    /// The offset measured with a request that was sent at `sent_ns` by this node's clock and took
    /// `round_trip_ns`; `peer_ns` is the replying node's clock. `None` if that node does not report
    /// its clock.
    pub fn measured(sent_ns: u64, round_trip_ns: u64, peer_ns: u64) -> Option<Self> {
        let half = i128::from(round_trip_ns / 2);
        let offset = (i128::from(sent_ns) + half - i128::from(peer_ns)) / MS;
        let offset_ms = offset.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        (peer_ns != 0).then_some(Self { offset_ms, error_ms: (half / MS) as u64 })
    }

    /// The offset of this clock from `other`'s.
    pub fn from_other(self, other: Self) -> Self {
        let offset_ms = self.offset_ms.saturating_sub(other.offset_ms);
        Self { offset_ms, error_ms: self.error_ms.saturating_add(other.error_ms) }
    }

    /// The consequence of the offset, reduced by the measurement error.
    pub fn verdict(self) -> ClockVerdict {
        let apart_ms = self.offset_ms.unsigned_abs().saturating_sub(self.error_ms);
        if apart_ms > CLOCK_TOLERANCE_S * 1000 {
            ClockVerdict::Fail
        } else if apart_ms > CLOCK_WARN_S * 1000 {
            ClockVerdict::Warn
        } else {
            ClockVerdict::Ok
        }
    }

    pub fn seconds(self) -> f64 {
        self.offset_ms as f64 / 1000.0
    }

    /// This clock's time when the other clock shows `now_ns`.
    pub fn at(self, now_ns: u64) -> u64 {
        let at = i128::from(now_ns) + i128::from(self.offset_ms) * MS;
        at.clamp(0, u64::MAX.into()) as u64
    }
}

impl fmt::Display for ClockOffset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = if self.offset_ms < 0 { "behind" } else { "ahead" };
        let ms = self.offset_ms.unsigned_abs();
        if ms < 10_000 {
            write!(f, "{}.{:03} s {way}", ms / 1000, ms % 1000)
        } else {
            write!(f, "{} s {way}", ms / 1000)
        }
    }
}

/// The error for a proof that was signed with the cluster's secret but has expired or is not yet
/// valid: node `signer` signed `what` at `signed_s` by its clock, and the clock of `receiver` shows
/// `now_s`.
pub fn out_of_time(
    what: &str,
    signer: &str,
    signed_s: u64,
    receiver: &str,
    now_s: u64,
    allowed_s: u64,
) -> Error {
    let [signed, now] = [signed_s, now_s].map(|s| format_utc(s.saturating_mul(1_000_000_000)));
    let signer = if signer.is_empty() { "a node" } else { signer };
    let text = format!(
        "the clock of {receiver} says {now}, {what} was signed at {signed} by the clock of {signer}: \
         a difference of {} s is more than the {allowed_s} s allowed",
        signed_s.abs_diff(now_s)
    );
    Error::new(ErrorCode::AccessDenied, text).hint("set the clocks of all nodes (NTP)")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn an_offset_is_measured_to_half_of_the_round_trip() {
        let ahead = ClockOffset::measured(1_060 * S, 2 * S, 1_001 * S).unwrap();
        assert_eq!(ahead, ClockOffset { offset_ms: 60_000, error_ms: 1_000 });
        let behind = ClockOffset::measured(940 * S, 0, 1_000 * S).unwrap();
        assert_eq!((behind.offset_ms, behind.at(1_000 * S)), (-60_000, 940 * S));
        assert_eq!(ahead.from_other(behind).offset_ms, 120_000);
        assert_eq!(ClockOffset::measured(940 * S, 0, 0), None, "an older gateway has no clock");
        assert_eq!(
            (ahead.to_string(), behind.to_string()),
            ("60 s ahead".into(), "60 s behind".into())
        );
        let little = ClockOffset { offset_ms: 1_020, error_ms: 0 };
        assert_eq!(little.to_string(), "1.020 s ahead");
    }

    #[test]
    fn clocks_are_judged_by_what_is_certain_of_their_difference() {
        let verdict = |offset_ms, error_ms| ClockOffset { offset_ms, error_ms }.verdict();
        assert_eq!(verdict(5_000, 0), ClockVerdict::Ok);
        assert_eq!(verdict(-5_001, 0), ClockVerdict::Warn);
        assert_eq!(verdict(6_000, 1_000), ClockVerdict::Ok, "a slow reply is no wrong clock");
        assert_eq!(verdict(30_000, 0), ClockVerdict::Warn);
        assert_eq!(verdict(-30_001, 0), ClockVerdict::Fail);
        assert_eq!(verdict(i64::MIN, 0), ClockVerdict::Fail);
    }

    #[test]
    fn a_proof_that_is_out_of_time_names_both_clocks() {
        let e = out_of_time("the redirect", "gateway-1", 1_000, "target-02", 1_060, 30);
        assert_eq!(e.code, ErrorCode::AccessDenied);
        for part in ["1970-01-01T00:16:40Z", "1970-01-01T00:17:40Z", "of 60 s", "30 s allowed"] {
            assert!(e.message.contains(part), "{part}: {e}");
        }
        assert!(e.hint.unwrap().contains("NTP"));
    }
}
