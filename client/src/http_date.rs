//! HTTP's date form, read.

const MONTHS: &str = "JanFebMarAprMayJunJulAugSepOctNovDec";

/// Unix nanoseconds of `Sat, 21 Nov 2026 03:51:51 GMT`.
pub(crate) fn parse_ns(text: &str) -> Option<u64> {
    let mut parts = text.split_once(", ")?.1.split(' ');
    let day: u64 = parts.next()?.parse().ok()?;
    let month = MONTHS.find(parts.next().filter(|m| m.len() == 3)?)? as u64 / 3 + 1;
    let year: u64 = parts.next()?.parse().ok().filter(|y| (1970..10_000).contains(y))?;
    let mut clock = parts.next()?.split(':').map(|n| n.parse::<u64>().ok());
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next()??);
    if parts.next() != Some("GMT") || !(1..=31).contains(&day) || hour > 23 || minute > 59 {
        return None;
    }
    // Days since 1970-01-01, counting years from March so that a leap day comes last.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = y * 365 + y / 4 - y / 100 + y / 400 + (m * 153 + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + hour * 3600 + minute * 60 + second) * 1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::v1::cluster::format_http_date;

    #[test]
    fn what_the_nodes_write_is_read_back() {
        for seconds in [0, 1, 951_782_400, 1_795_233_111, 4_102_444_799] {
            let ns = seconds * 1_000_000_000;
            assert_eq!(parse_ns(&format_http_date(ns)), Some(ns));
        }
        for bad in ["", "yesterday", "Sat, 21 Foo 2026 03:51:51 GMT", "Sat, 21 Nov 2026 03:51 GMT"]
        {
            assert_eq!(parse_ns(bad), None, "{bad}");
        }
    }
}
