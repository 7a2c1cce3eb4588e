//! Types of settings: parses a value from text or JSON, and produces its two forms, the canonical
//! text that is stored and the JSON that clients decode.

use serde_json::Value;

use crate::error::{Error, Result};
use crate::size::{ByteSize, parse_duration};

/// Names of the feature flags, from bit 0 on (§23.7).
pub const FEATURES: [&str; 28] = [
    "Enforce-IntraCluster-Access",
    "Skip-Loading-VersionChecksum-MD",
    "Do-not-Auto-Detect-FileShare",
    "S3-API-via-Root",
    "Fsync-PUT",
    "LZ4-Block-1MB",
    "LZ4-Frame-Checksum",
    "Do-not-Allow-Passing-FQN-to-ETL",
    "Ignore-LimitedCoexistence-Conflicts",
    "S3-Presigned-Request",
    "Do-not-Optimize-Listing-Virtual-Dirs",
    "Disable-Cold-GET",
    "Streaming-Cold-GET",
    "S3-Reverse-Proxy",
    "S3-Use-Path-Style",
    "Do-not-Delete-When-Rebalancing",
    "Do-not-Set-Control-Plane-ToS",
    "Trust-Crypto-Safe-Checksums",
    "S3-ListObjectVersions",
    "Enable-Detailed-Prom-Metrics",
    "Force-Container-CPU-Mem",
    "Resume-Interrupted-MPU",
    "Keep-Unknown-FQN",
    "Load-Balance-GET",
    "Count-Object-NotFound-Stats",
    "Enable-Go-Runtime-Metrics",
    "Dload-Allow-Private-Egress",
    "S3-Redirect-Rebuild",
];

/// The type of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Bool,
    /// A whole number within these bounds, both included.
    Int(i64, i64),
    Text,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `2s`, `2h0m`; not negative.
    Duration,
    /// `4GiB`.
    Size,
    /// A mask of [`FEATURES`], in decimal.
    Features,
    /// Any mask of 64 bits, in decimal.
    Mask,
}

impl Kind {
    /// The canonical text of a value given as text.
    pub fn read_text(self, text: &str) -> Result<String> {
        let text = text.trim();
        Ok(match self {
            Self::Bool => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "t" | "y" | "yes" | "on" => "true".into(),
                "false" | "0" | "f" | "n" | "no" | "off" => "false".into(),
                _ => return Err(Error::invalid(format!("\"{text}\" is neither true nor false"))),
            },
            Self::Int(least, most) => {
                let bad = || Error::invalid(format!("\"{text}\" is not a whole number"));
                let n: i64 = text.parse().map_err(|_| bad())?;
                if !(least..=most).contains(&n) {
                    return Err(Error::invalid(format!("{n} is not within [{least}, {most}]")));
                }
                n.to_string()
            }
            Self::Text => text.to_owned(),
            Self::Choice(words) => match words.iter().find(|w| **w == text) {
                Some(word) => (*word).to_owned(),
                None => {
                    return Err(Error::invalid(format!("\"{text}\" is not possible"))
                        .hint(format!("one of {}", words.join(", "))));
                }
            },
            Self::Duration => show_duration(duration_ns(text)?),
            Self::Size => show_size(ByteSize::parse(if text.is_empty() { "0" } else { text })?.0),
            Self::Features => read_features(text)?.to_string(),
            Self::Mask => match text.parse::<u64>() {
                Ok(mask) => mask.to_string(),
                Err(_) => return Err(Error::invalid(format!("\"{text}\" is not a mask of bits"))),
            },
        })
    }

    /// The canonical text of a value given as JSON. Numbers and booleans may be strings.
    pub fn read_json(self, value: &Value) -> Result<String> {
        match (self, value) {
            (_, Value::String(text)) => self.read_text(text),
            (Self::Bool, Value::Bool(b)) => Ok(b.to_string()),
            (Self::Int(..) | Self::Size | Self::Features | Self::Mask, Value::Number(n)) => {
                self.read_text(&n.to_string())
            }
            // Go encodes a bare duration in nanoseconds.
            (Self::Duration, Value::Number(n)) => match n.as_u64() {
                Some(ns) => Ok(show_duration(ns)),
                None => Err(Error::invalid(format!("{n} is not a duration"))),
            },
            _ => Err(Error::invalid(format!("{value} has the wrong type"))),
        }
    }

    /// The JSON form of canonical text.
    pub fn to_json(self, text: &str) -> Value {
        match self {
            Self::Bool => Value::Bool(text == "true"),
            Self::Int(..) => Value::from(text.parse::<i64>().unwrap_or_default()),
            _ => Value::from(text),
        }
    }
}

/// Parses a mask in decimal, or names of [`FEATURES`] joined by commas; `none` clears all.
pub fn read_features(text: &str) -> Result<u64> {
    let mask = match text {
        "" | "none" => 0,
        _ => match text.parse::<u64>() {
            Ok(mask) => mask,
            Err(_) => text.split(',').try_fold(0, |mask, name| {
                let name = name.trim();
                match FEATURES.iter().position(|f| f.eq_ignore_ascii_case(name)) {
                    Some(bit) => Ok(mask | 1 << bit),
                    None => Err(Error::invalid(format!("unknown feature flag \"{name}\""))),
                }
            })?,
        },
    };
    let unknown = mask >> FEATURES.len();
    if unknown != 0 {
        return Err(Error::invalid(format!("feature flags {mask} have unknown bits"))
            .hint(format!("there are {} flags, from bit 0 on", FEATURES.len())));
    }
    for (one, other) in
        [("Disable-Cold-GET", "Streaming-Cold-GET"), ("S3-Reverse-Proxy", "S3-Redirect-Rebuild")]
    {
        let has =
            |name| FEATURES.iter().position(|f| *f == name).is_some_and(|b| mask >> b & 1 == 1);
        if has(one) && has(other) {
            return Err(Error::invalid(format!(
                "feature flags \"{one}\" and \"{other}\" are mutually exclusive"
            )));
        }
    }
    Ok(mask)
}

/// Nanoseconds of a duration in text; `0` needs no unit.
fn duration_ns(text: &str) -> Result<u64> {
    if text.is_empty() || text == "0" {
        return Ok(0);
    }
    let too_long = |_| Error::invalid(format!("duration \"{text}\" is too long"));
    u64::try_from(parse_duration(text)?.as_nanos()).map_err(too_long)
}

/// Formats a duration as AIStore's clients do: `2h0m`, `10m`, `1m30s`, `100ms`.
fn show_duration(ns: u64) -> String {
    const SECOND: u64 = 1_000_000_000;
    if ns < SECOND {
        return match ns {
            0 => "0s".into(),
            ns if ns % 1_000_000 == 0 => format!("{}ms", ns / 1_000_000),
            ns if ns % 1_000 == 0 => format!("{}us", ns / 1_000),
            ns => format!("{ns}ns"),
        };
    }
    let (secs, rest) = (ns / SECOND, ns % SECOND);
    let (h, m, s) = (secs / 3600, secs / 60 % 60, secs % 60);
    let mut text = String::new();
    if h > 0 {
        text.push_str(&format!("{h}h"));
    }
    if h > 0 || m > 0 {
        text.push_str(&format!("{m}m"));
    }
    match (s, rest) {
        (0, 0) => {}
        (s, 0) => text.push_str(&format!("{s}s")),
        (s, rest) => {
            let rest = format!("{rest:09}");
            text.push_str(&format!("{s}.{}s", rest.trim_end_matches('0')));
        }
    }
    text
}

/// Formats a size in the largest exact unit: `1GiB`, `1536KiB`, `7B`.
fn show_size(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    for (shift, unit) in units {
        if bytes > 0 && bytes.trailing_zeros() >= shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn values_come_as_text_or_json_and_go_out_typed() {
        let read = |kind: Kind, v: Value| kind.read_json(&v).unwrap();
        assert_eq!(read(Kind::Bool, json!("True")), "true");
        assert_eq!(read(Kind::Int(0, 9), json!("7")), "7");
        assert_eq!(Kind::Int(0, 9).to_json("7"), json!(7));
        assert_eq!(read(Kind::Duration, json!("120m")), "2h0m");
        assert_eq!(read(Kind::Duration, json!(2_500_000_000u64)), "2.5s");
        assert_eq!(read(Kind::Size, json!("2gb")), "2GiB");
        assert_eq!(read(Kind::Size, json!(1536)), "1536B");
        assert_eq!(read(Kind::Features, json!("S3-API-via-Root,Fsync-PUT")), "24");
        assert_eq!(read(Kind::Features, json!("none")), "0");
        for (kind, bad) in [
            (Kind::Bool, json!("perhaps")),
            (Kind::Bool, json!(1)),
            (Kind::Int(0, 9), json!(10)),
            (Kind::Int(0, 9), json!(1.5)),
            (Kind::Duration, json!("soon")),
            (Kind::Duration, json!(-1)),
            (Kind::Choice(&["md5"]), json!("md6")),
            (Kind::Text, json!({})),
            (Kind::Features, json!("268435456")),
            (Kind::Features, json!("Fly")),
            (Kind::Features, json!((1 << 11) + (1 << 12))),
        ] {
            assert_eq!(kind.read_json(&bad).unwrap_err().code.status(), 400, "{kind:?} {bad}");
        }
    }

    proptest! {
        #[test]
        fn canonical_text_is_read_as_itself(ns in any::<u64>(), bytes in any::<u64>()) {
            let shown = show_duration(ns);
            prop_assert_eq!(Kind::Duration.read_text(&shown).unwrap(), shown);
            prop_assert_eq!(ByteSize::parse(&show_size(bytes)).unwrap().0, bytes);
        }
    }
}
