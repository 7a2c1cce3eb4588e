//! Dates and times in the forms of the protocols, all in UTC; the calendar is `jiff`'s.

use std::ops::RangeInclusive;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::Offset;

const NS_PER_S: u64 = 1_000_000_000;
const HTTP: DateTimeParser = DateTimeParser::new().relaxed_weekday(true);

/// Date and time of unix nanoseconds.
pub fn utc(unix_ns: u64) -> DateTime {
    // 2⁶⁴ ns end in the year 2554.
    let at = Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or(Timestamp::MAX);
    Offset::UTC.to_datetime(at)
}

/// Unix seconds of a date and time; `None` before 1970.
pub(crate) fn unix_seconds(at: DateTime) -> Option<u64> {
    u64::try_from(Offset::UTC.to_timestamp(at).ok()?.as_second()).ok()
}

/// `2026-11-21 03:51:51` of unix nanoseconds.
pub fn format_time(unix_ns: u64) -> String {
    utc(unix_ns).strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// RFC 3339 with nanoseconds, such as `2026-11-21T03:51:51.530862741Z`. 0 becomes the year 1, Go's
/// zero time.
pub fn format_rfc3339(unix_ns: u64) -> String {
    if unix_ns == 0 {
        return "0001-01-01T00:00:00Z".into();
    }
    let text = utc(unix_ns).strftime("%Y-%m-%dT%H:%M:%S");
    format!("{text}.{:09}Z", unix_ns % NS_PER_S)
}

/// `21 Nov 26 03:51 UTC` of unix nanoseconds: the default time format of AIStore's listings.
pub fn format_rfc822(unix_ns: u64) -> String {
    utc(unix_ns).strftime("%d %b %y %H:%M UTC").to_string()
}

/// `Sat, 21 Nov 2026 03:51:51 GMT` of unix nanoseconds: HTTP's form (RFC 9110).
pub fn format_http(unix_ns: u64) -> String {
    utc(unix_ns).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// `2026-11-21T03:51:51.530Z` of unix nanoseconds.
pub fn format_iso(unix_ns: u64) -> String {
    let text = utc(unix_ns).strftime("%Y-%m-%dT%H:%M:%S");
    format!("{text}.{:03}Z", unix_ns / 1_000_000 % 1000)
}

/// `2026-11-21T03:51:51Z` of unix nanoseconds.
pub fn format_utc(unix_ns: u64) -> String {
    utc(unix_ns).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// `20261121T035151Z` of unix seconds: the form of SigV4. A time past the year 9999 becomes the last
/// of it.
pub fn format_amz(unix_s: u64) -> String {
    let at = i64::try_from(unix_s).ok().and_then(|s| Timestamp::from_second(s).ok());
    let at = Offset::UTC.to_datetime(at.unwrap_or(Timestamp::MAX));
    at.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// Unix seconds of an HTTP date, in `GMT` or with an offset such as `+0000`. The weekday may be missing
/// or wrong.
pub fn parse_http(text: &str) -> Option<u64> {
    let text = text.trim();
    let zone = text.rfind(' ').map_or("", |space| &text[space + 1..]);
    let at = match zone {
        // RFC 2822 knows neither.
        "UTC" | "Z" => HTTP.parse_timestamp(format!("{}GMT", &text[..text.len() - zone.len()])),
        _ => HTTP.parse_timestamp(text),
    };
    u64::try_from(at.ok()?.as_second()).ok()
}

/// Unix nanoseconds of an HTTP date; `None` for one past the year 2554, too.
pub fn parse_http_ns(text: &str) -> Option<u64> {
    parse_http(text)?.checked_mul(NS_PER_S)
}

/// Unix seconds of `2026-11-21T03:51:51[.530]Z`; parts of a second are dropped.
pub fn parse_iso(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    digits(fraction, 1..=9)?;
    parse("%Y-%m-%dT%H:%M:%S", "0000-00-00T00:00:00", whole)
}

/// Unix seconds of `20261121T035151Z`.
pub fn parse_amz(text: &str) -> Option<u64> {
    parse("%Y%m%dT%H%M%SZ", "00000000T000000Z", text)
}

/// Unix seconds of a text in a format. The text must look like `shape`, where 0 is any digit, since
/// the format alone would take fewer digits and signs, too.
fn parse(format: &str, shape: &str, text: &str) -> Option<u64> {
    let fits = |(byte, like): (u8, u8)| byte == like || like == b'0' && byte.is_ascii_digit();
    if text.len() != shape.len() || !text.bytes().zip(shape.bytes()).all(fits) {
        return None;
    }
    unix_seconds(DateTime::strptime(format, text).ok()?)
}

fn digits(text: &str, length: RangeInclusive<usize>) -> Option<()> {
    (length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())).then_some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The seconds of a timestamp end a day before the year 10,000.
    const LAST_S: u64 = 253_402_207_200;

    #[test]
    fn the_forms_are_those_of_go_and_of_http() {
        let ns = 1_795_233_111_530_862_741;
        assert_eq!(format_time(ns), "2026-11-21 03:51:51");
        assert_eq!(format_rfc3339(ns), "2026-11-21T03:51:51.530862741Z");
        assert_eq!(format_rfc822(ns), "21 Nov 26 03:51 UTC");
        assert_eq!(format_http(ns), "Sat, 21 Nov 2026 03:51:51 GMT");
        assert_eq!(format_utc(ns), "2026-11-21T03:51:51Z");
        assert_eq!(format_time(951_782_400_000_000_000), "2000-02-29 00:00:00");
        assert_eq!(format_rfc3339(0), "0001-01-01T00:00:00Z");
        assert_eq!(format_rfc3339(5), "1970-01-01T00:00:00.000000005Z");
    }

    #[test]
    fn the_forms_are_those_of_aws() {
        let at = 1_369_353_600;
        assert_eq!(format_amz(at), "20130524T000000Z");
        assert_eq!(format_iso(at * NS_PER_S + 7_999_999), "2013-05-24T00:00:00.007Z");
        assert_eq!(format_http(at * NS_PER_S), "Fri, 24 May 2013 00:00:00 GMT");
        for text in [
            "Fri, 24 May 2013 00:00:00 GMT",
            "Mon, 24 May 2013 00:00:00 GMT",
            "Fri, 24 May 2013 00:00:00 UTC",
            "Fri, 24 May 2013 00:00:00 Z",
            "Fri, 24 May 2013 02:00:00 +0200",
            "24 May 2013 00:00:00 -0000",
        ] {
            assert_eq!(parse_http(text), Some(at), "{text}");
        }
        assert_eq!(parse_iso("2013-05-24T00:00:00.123Z"), Some(at));
        assert_eq!(parse_iso("2013-05-24T00:00:00+00:00"), Some(at));
    }

    #[test]
    fn other_texts_are_no_dates() {
        assert_eq!(parse_http_ns("Sat, 21 Nov 9026 03:51:51 GMT"), None);
        for text in
            ["", "yesterday", "Sat, 21 Foo 2026 03:51:51 GMT", "Sat, 21 Nov 1926 03:51:51 GMT"]
        {
            assert_eq!(parse_http(text), None, "{text}");
        }
        for text in [
            "2013-05-24",
            "2013-05-24T00:00Z",
            "2013-05-24T00:00:00",
            "2013-05-24T00:00:00.Z",
            "2013-05-24T00:00:00.1234567890Z",
            "2013-05-24T00:00:00+02:00",
            "-013-05-24T00:00:00Z",
            "2013-02-30T00:00:00Z",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(parse_iso(text), None, "{text}");
        }
        for text in ["20130524T000000", "2013052 T000000Z", "20130524T0000000", "20131324T000000Z"]
        {
            assert_eq!(parse_amz(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_past_all_calendars_is_the_last_one() {
        assert!(format_amz(u64::MAX).starts_with("9999"));
        assert!(format_time(u64::MAX).starts_with("2554"));
    }

    proptest! {
        #[test]
        fn every_form_is_read_back(at in 0..LAST_S) {
            prop_assert_eq!(parse_amz(&format_amz(at)), Some(at));
            if let Some(ns) = at.checked_mul(NS_PER_S) {
                prop_assert_eq!(parse_iso(&format_iso(ns)), Some(at));
                prop_assert_eq!(parse_http(&format_http(ns)), Some(at));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,40}", near in "[0-9TZ:+, -]{0,32}") {
            for text in [text, near] {
                let _ = (parse_amz(&text), parse_iso(&text), parse_http(&text));
            }
        }
    }
}
