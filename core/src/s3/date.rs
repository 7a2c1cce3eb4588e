//! The time formats that S3 uses: HTTP dates, ISO 8601 with milliseconds, and SigV4's.

use crate::v1::cluster::format_http_date;

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";
const DAY_S: u64 = 86_400;

/// `Sat, 21 Nov 2026 03:51:51 GMT`, from unix nanoseconds.
pub fn format_http(unix_ns: u64) -> String {
    format_http_date(unix_ns)
}

/// `2026-11-21T03:51:51.530Z`, from unix nanoseconds.
pub fn format_iso(unix_ns: u64) -> String {
    let (secs, ms) = (unix_ns / 1_000_000_000, unix_ns / 1_000_000 % 1000);
    let (y, m, d) = civil(secs / DAY_S);
    let (hour, minute, second) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    format!("{y:04}-{m:02}-{d:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// `2026-11-21T03:51:51Z`, from unix nanoseconds.
pub fn format_utc(unix_ns: u64) -> String {
    let mut text = format_iso(unix_ns);
    text.replace_range(text.len() - 5.., "Z");
    text
}

/// `20261121T035151Z`, from unix seconds.
pub fn format_amz(unix_s: u64) -> String {
    let (y, m, d) = civil(unix_s / DAY_S);
    let (hour, minute, second) = (unix_s / 3600 % 24, unix_s / 60 % 60, unix_s % 60);
    format!("{y:04}{m:02}{d:02}T{hour:02}{minute:02}{second:02}Z")
}

/// Unix seconds of an HTTP date, `GMT` or with an offset such as `+0000`.
pub fn parse_http(text: &str) -> Option<u64> {
    let text = text.trim();
    let mut parts = text.split_once(',').map_or(text, |(_, rest)| rest).split_ascii_whitespace();
    let day = number(parts.next()?, 1..=2)?;
    let month = parts.next().filter(|m| m.len() == 3 && m.is_ascii())?;
    let month = MONTHS.find(month).filter(|at| at % 3 == 0)? as u64 / 3 + 1;
    let year = number(parts.next()?, 4..=4)?;
    let mut clock = parts.next()?.split(':').map(|n| number(n, 2..=2));
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    let zone = parts.next()?;
    if parts.next().is_some() || clock.next().is_some() {
        return None;
    }
    let at = seconds(year, month, day, hour, minute, second)?;
    match zone {
        "GMT" | "UTC" | "Z" => Some(at),
        _ => {
            let offset = number(zone.get(1..)?, 4..=4)?;
            let offset = offset / 100 * 3600 + offset % 100 * 60;
            match zone.as_bytes()[0] {
                b'+' => at.checked_sub(offset),
                b'-' => at.checked_add(offset),
                _ => None,
            }
        }
    }
}

/// Unix seconds of `2026-11-21T03:51:51[.530]Z`; fractions are dropped.
pub fn parse_iso(text: &str) -> Option<u64> {
    let text = text.trim();
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (date, clock) = text.split_once('T')?;
    let mut date = date.split('-');
    let (y, m, d) = (date.next()?, date.next()?, date.next()?);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let mut clock = clock.split(':');
    let (hour, minute, second) = (clock.next()?, clock.next()?, clock.next()?);
    number(fraction, 1..=9)?;
    if date.next().is_some() || clock.next().is_some() {
        return None;
    }
    let two = |n| number(n, 2..=2);
    seconds(number(y, 4..=4)?, two(m)?, two(d)?, two(hour)?, two(minute)?, two(second)?)
}

/// Unix seconds of `20261121T035151Z`.
pub fn parse_amz(text: &str) -> Option<u64> {
    if text.len() != 16 || !text.is_ascii() || &text[8..9] != "T" || &text[15..] != "Z" {
        return None;
    }
    let two = |at: usize| number(&text[at..at + 2], 2..=2);
    seconds(number(&text[..4], 4..=4)?, two(4)?, two(6)?, two(9)?, two(11)?, two(13)?)
}

fn number(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<u64> {
    let digits = length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

fn seconds(y: u64, m: u64, d: u64, hour: u64, minute: u64, second: u64) -> Option<u64> {
    let ok = (1970..10_000).contains(&y)
        && (1..=12).contains(&m)
        && (1..=31).contains(&d)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !ok {
        return None;
    }
    // Days since 1970-01-01, counting years from March so that a leap day comes last.
    let (y, m) = if m > 2 { (y, m - 3) } else { (y - 1, m + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + d - 1 - 719_468;
    Some(days * DAY_S + hour * 3600 + minute * 60 + second)
}

/// Year, month and day of a day since 1970-01-01.
fn civil(days: u64) -> (u64, u64, u64) {
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let (d, m) = (doy - (153 * mp + 2) / 5 + 1, if mp < 10 { mp + 3 } else { mp - 9 });
    (yoe + era * 400 + u64::from(m <= 2), m, d)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_forms_are_those_of_aws() {
        let at = 1_369_353_600;
        assert_eq!(format_amz(at), "20130524T000000Z");
        assert_eq!(format_iso(at * 1_000_000_000 + 7_999_999), "2013-05-24T00:00:00.007Z");
        assert_eq!(format_http(at * 1_000_000_000), "Fri, 24 May 2013 00:00:00 GMT");
        for text in [
            "Fri, 24 May 2013 00:00:00 GMT",
            "Fri, 24 May 2013 02:00:00 +0200",
            "24 May 2013 00:00:00 -0000",
        ] {
            assert_eq!(parse_http(text), Some(at), "{text}");
        }
        assert_eq!(parse_iso("2013-05-24T00:00:00.123Z"), Some(at));
    }

    proptest! {
        #[test]
        fn every_form_is_read_back(at in 0u64..253_402_300_800) {
            prop_assert_eq!(parse_amz(&format_amz(at)), Some(at));
            if at < u64::MAX / 1_000_000_000 {
                prop_assert_eq!(parse_iso(&format_iso(at * 1_000_000_000)), Some(at));
                prop_assert_eq!(parse_http(&format_http(at * 1_000_000_000)), Some(at));
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
