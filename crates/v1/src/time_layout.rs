//! Formats times in a Go layout from the caller: the moment `Mon Jan 2 15:04:05 2006` in the wanted
//! form (§6.1, `time_format`).

use forebay_core::date;

/// The placeholders of a layout. If one is the start of another, the longer one comes first.
const TOKENS: [&str; 29] = [
    "January",
    "Jan",
    "Monday",
    "Mon",
    "MST",
    "2006",
    "-07:00:00",
    "-07:00",
    "-0700",
    "-07",
    "Z07:00",
    "Z0700",
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "002",
    "15",
    "_2",
    "PM",
    "pm",
    "1",
    "2",
    "3",
    "4",
    "5",
    "__2",
];

/// Formats unix nanoseconds in UTC by a Go layout. Other text is copied.
pub fn format_layout(layout: &str, unix_ns: u64) -> String {
    let (at, nanos) = (date::utc(unix_ns), unix_ns % 1_000_000_000);
    let (year, month, day) = (at.year(), at.month(), at.day());
    let (hour, minute, second) = (at.hour(), at.minute(), at.second());
    let half = if hour % 12 == 0 { 12 } else { hour % 12 };
    let name = |format: &str| at.strftime(format).to_string();
    let mut text = String::with_capacity(layout.len() + 8);
    let mut rest = layout;
    while let Some(first) = rest.chars().next() {
        if let Some((digits, padded, len)) = fraction(rest, &text) {
            let all = format!("{nanos:09}");
            let kept = &all[..digits];
            let kept = if padded { kept } else { kept.trim_end_matches('0') };
            if !kept.is_empty() {
                text.push(first);
                text.push_str(kept);
            }
            rest = &rest[len..];
            continue;
        }
        let Some(token) = token(rest) else {
            text.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let part = match token {
            "January" => name("%B"),
            "Jan" => name("%b"),
            "Monday" => name("%A"),
            "Mon" => name("%a"),
            "MST" => "UTC".to_owned(),
            "2006" => format!("{year:04}"),
            "06" => format!("{:02}", year % 100),
            "01" => format!("{month:02}"),
            "1" => month.to_string(),
            "02" => format!("{day:02}"),
            "_2" => format!("{day:>2}"),
            "2" => day.to_string(),
            "15" => format!("{hour:02}"),
            "03" => format!("{half:02}"),
            "3" => half.to_string(),
            "04" => format!("{minute:02}"),
            "4" => minute.to_string(),
            "05" => format!("{second:02}"),
            "5" => second.to_string(),
            "PM" => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            "pm" => if hour < 12 { "am" } else { "pm" }.to_owned(),
            "-07:00:00" => "+00:00:00".to_owned(),
            "-07:00" => "+00:00".to_owned(),
            "-0700" => "+0000".to_owned(),
            "-07" => "+00".to_owned(),
            "Z07:00" | "Z0700" => "Z".to_owned(),
            day_of_year => {
                let day = at.day_of_year();
                if day_of_year == "002" { format!("{day:03}") } else { format!("{day:>3}") }
            }
        };
        text.push_str(&part);
        rest = &rest[token.len()..];
    }
    text
}

/// The longest placeholder at the start of the layout.
fn token(rest: &str) -> Option<&'static str> {
    TOKENS.iter().copied().filter(|t| rest.starts_with(t)).max_by_key(|t| t.len())
}

/// `.000` or `,999` after the seconds: digits, whether trailing zeros stay, and its length.
fn fraction(rest: &str, before: &str) -> Option<(usize, bool, usize)> {
    let body = rest.strip_prefix(['.', ','])?;
    let kind = body.chars().next().filter(|c| matches!(c, '0' | '9'))?;
    let digits = body.chars().take_while(|c| *c == kind).count();
    let ends = !body[digits..].starts_with(|c: char| c.is_ascii_digit());
    (ends && digits <= 9 && before.ends_with(|c: char| c.is_ascii_digit())).then_some((
        digits,
        kind == '0',
        digits + 1,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_of_go_give_what_go_gives() {
        let ns = 1_795_233_111_030_862_741; // 2026-11-21 03:51:51.030862741 UTC, a Saturday
        for (layout, wanted) in [
            ("02 Jan 06 15:04 MST", "21 Nov 26 03:51 UTC"),
            ("2006-01-02T15:04:05Z07:00", "2026-11-21T03:51:51Z"),
            ("2006-01-02T15:04:05.999999999Z07:00", "2026-11-21T03:51:51.030862741Z"),
            ("Mon Jan _2 15:04:05 2006", "Sat Nov 21 03:51:51 2026"),
            ("Monday, 02-Jan-06 15:04:05 MST", "Saturday, 21-Nov-26 03:51:51 UTC"),
            ("Mon, 02 Jan 2006 15:04:05 -0700", "Sat, 21 Nov 2026 03:51:51 +0000"),
            ("3:04PM", "3:51AM"),
            ("Jan _2 15:04:05.000", "Nov 21 03:51:51.030"),
            ("15:04:05.99", "03:51:51.03"),
            ("05.9", "51"),
            ("2006/002", "2026/325"),
            ("at é", "at é"),
            ("", ""),
        ] {
            assert_eq!(format_layout(layout, ns), wanted, "{layout}");
        }
    }
}
