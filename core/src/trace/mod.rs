//! Traces: the ids of a trace and of its spans, and the header that carries them between processes.
//! Format: W3C Trace Context, version 00 (<https://www.w3.org/TR/trace-context/#traceparent-header>).

mod causes;
mod report;
mod span;

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::causes::causes;
pub use self::report::{
    ChoiceReason, INTERNAL_TRACES_PATH, MARKS_PATH, TraceKey, TraceMark, TraceMarks, TraceReply,
    TraceSummary, TracesReply, merged, summaries,
};
pub use self::span::{Span, SpanKind};
use crate::request::RequestId;

/// The header of a request with the span that caused it.
pub const TRACEPARENT_HEADER: &str = "traceparent";

/// Length of the header's value in version 00.
const TRACEPARENT_LEN: usize = 55;
/// The flag of a trace that its first sender records.
const SAMPLED: u8 = 1;

/// The id of a trace: not zero; printed as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TraceId(u128);

/// The id of a span: not zero; printed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(u64);

impl TraceId {
    /// The id of this number; `None` for zero.
    pub fn new(number: u128) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// The id of the trace of a request that came without one. All nodes derive the same.
    pub fn of_request(id: RequestId) -> Self {
        // The finalizer of SplitMix64 spreads the id over the other half.
        let mut high = id.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        high = (high ^ (high >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        high = (high ^ (high >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        high ^= high >> 31;
        // An id is not zero.
        Self(u128::from(high | 1) << 64 | u128::from(id.0))
    }

    /// Parses the printed form; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 32 && is_hex(text);
        is_id.then(|| u128::from_str_radix(text, 16).ok().and_then(Self::new))?
    }

    /// The bytes of the id, as OTLP has them.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }
}

impl SpanId {
    /// The largest id.
    pub const MAX: Self = Self(u64::MAX);

    /// The id of this number; `None` for zero.
    pub fn new(number: u64) -> Option<Self> {
        (number != 0).then_some(Self(number))
    }

    /// Parses the printed form; `None` if it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let is_id = text.len() == 16 && is_hex(text);
        is_id.then(|| u64::from_str_radix(text, 16).ok().and_then(Self::new))?
    }

    /// The bytes of the id, as OTLP has them.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Both ids in JSON are their printed form.
macro_rules! as_text {
    ($id:ident) => {
        impl Serialize for $id {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $id {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let no_id = || serde::de::Error::custom("not the id of a trace or a span");
                Self::parse(&text).ok_or_else(no_id)
            }
        }
    };
}

as_text!(TraceId);
as_text!(SpanId);

/// The span that causes a request, as the header carries it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether the sender records the trace.
    pub is_sampled: bool,
}

impl TraceContext {
    /// Parses a header's value. `None` for a value that the standard forbids: a request with it is
    /// treated like one without.
    pub fn parse(value: &str) -> Option<Self> {
        let head = value.get(..TRACEPARENT_LEN)?;
        let mut fields = head.split('-');
        let mut next = |len: usize| fields.next().filter(|field| field.len() == len);
        let (version, trace, span, flags) = (next(2)?, next(32)?, next(16)?, next(2)?);
        let hex = |text: &str| is_hex(text).then(|| u8::from_str_radix(text, 16).ok())?;
        let (version, flags) = (hex(version)?, hex(flags)?);
        let rest = &value[TRACEPARENT_LEN..];
        // Later versions may add fields.
        let is_whole = rest.is_empty() || version > 0 && rest.starts_with('-');
        if version == 0xFF || !is_whole {
            return None;
        }
        let (trace, span) = (TraceId::parse(trace)?, SpanId::parse(span)?);
        Some(Self { trace, span, is_sampled: flags & SAMPLED != 0 })
    }

    /// The value of the header.
    pub fn to_header(self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }
}

/// Whether all characters are hexadecimal digits in lower case, the only ones of the standard.
fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_parsed_and_written_as_the_standard_says() {
        let context = TraceContext::parse(GOOD).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.to_header(), GOOD);
        assert_eq!(context.trace.to_bytes()[..2], [0x4b, 0xf9]);
        assert_eq!(context.span.to_bytes()[..2], [0x00, 0xf0]);
    }

    #[test]
    fn a_later_version_may_have_more_fields() {
        let later = format!("01{}-what-follows", &GOOD[2..]);
        assert_eq!(TraceContext::parse(&later), TraceContext::parse(GOOD));
    }

    #[test]
    fn what_the_standard_forbids_is_no_context() {
        for bad in [
            "",
            "00",
            &GOOD[..54],
            &format!("{GOOD}-x"),
            &format!("{GOOD}x"),
            &GOOD.to_uppercase(),
            &GOOD.replacen("00", "ff", 1),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-+1",
            "00-é",
        ] {
            assert_eq!(TraceContext::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn requests_without_a_trace_have_different_ones_that_end_with_their_id() {
        let ids = [0, 1, 2, u64::MAX].map(|id| TraceId::of_request(RequestId(id)));
        assert!(ids.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(ids[1].to_string().ends_with("0000000000000001"));
        assert_eq!(ids[1], TraceId::of_request(RequestId(1)));
    }

    proptest! {
        #[test]
        fn every_context_comes_back(trace in 1u128.., span in 1u64.., is_sampled: bool) {
            let (trace, span) = (TraceId::new(trace).unwrap(), SpanId::new(span).unwrap());
            let context = TraceContext { trace, span, is_sampled };
            prop_assert_eq!(TraceContext::parse(&context.to_header()), Some(context));
        }

        #[test]
        fn no_value_panics(value in "\\PC{0,80}") {
            let _ = TraceContext::parse(&value);
        }
    }
}
