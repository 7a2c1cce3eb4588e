//! Rules for a bucket's cached copies, which are properties of the bucket.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bucket::BucketInfo;
use crate::config::nearest;
use crate::error::{Error, Result};
use crate::size::parse_duration;

/// When data read from the backend is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Admission {
    /// At the first read.
    #[default]
    Always,
    /// At the second read within some time, so that data read only once is not cached.
    SecondMiss,
    /// Not at all: reads go to the backend.
    Never,
}

impl Admission {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Always => "always",
            Self::SecondMiss => "second-miss",
            Self::Never => "never",
        }
    }
}

/// Rules for the cached copies of one bucket; not used for native buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CacheRules {
    /// Copies are never evicted for space.
    pub pin: bool,
    /// Percent of each disk's budget that copies may take at most.
    pub share: u8,
    /// Percent of each disk's budget that the bucket keeps while others have more than theirs.
    #[serde(skip_serializing_if = "is_zero")]
    pub min_share: u8,
    /// Copies not read for this many seconds are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl: Option<u64>,
    pub admission: Admission,
}

impl Default for CacheRules {
    fn default() -> Self {
        Self { pin: false, share: 100, min_share: 0, ttl: None, admission: Admission::Always }
    }
}

const KEYS: [&str; 5] = ["pin", "share", "min_share", "ttl", "admission"];

fn is_zero(n: &u8) -> bool {
    *n == 0
}

impl CacheRules {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Applies a JSON object with some of the rules; the others stay. Nothing changes on an error.
    pub fn apply(&mut self, value: &Value) -> Result<()> {
        let Value::Object(given) = value else {
            return Err(Error::invalid("bucket property \"cache\" must be a JSON object")
                .hint("for example {\"pin\":true,\"share\":50}"));
        };
        let mut new = *self;
        for (key, value) in given {
            match key.as_str() {
                "pin" => new.pin = yes_or_no(value)?,
                "share" => new.share = percent("share", 1, value)?,
                "min_share" => new.min_share = percent("min_share", 0, value)?,
                "ttl" => new.ttl = ttl(value)?,
                "admission" => new.admission = admission(value)?,
                _ => {
                    let e = Error::invalid(format!("unknown bucket property \"cache.{key}\""));
                    return Err(match nearest(key, KEYS) {
                        Some(near) => e.hint(format!("did you mean \"{near}\"?")),
                        None => e.hint(format!("there are {}", KEYS.join(", "))),
                    });
                }
            }
        }
        new.validate()?;
        *self = new;
        Ok(())
    }

    /// Checks rules that involve several values.
    pub fn validate(&self) -> Result<()> {
        if !(1..=100).contains(&self.share) {
            return Err(bad("share", self.share, "a percent from 1 to 100"));
        }
        if self.min_share > self.share {
            return Err(bad("min_share", self.min_share, "at most cache.share"));
        }
        if self.pin && self.ttl.is_some() {
            return Err(Error::invalid("a pinned bucket cannot have a cache.ttl")
                .hint("set cache.ttl to never, or cache.pin to false"));
        }
        if self.pin && self.admission == Admission::Never {
            return Err(Error::invalid(
                "a pinned bucket cannot have cache.admission never: there would be nothing to keep",
            ));
        }
        Ok(())
    }
}

fn bad(key: &str, value: impl std::fmt::Display, wanted: &str) -> Error {
    Error::invalid(format!("invalid bucket property cache.{key} = {value}: it must be {wanted}"))
}

// Clients that only have strings send numbers and booleans as strings.

fn yes_or_no(value: &Value) -> Result<bool> {
    match value {
        Value::Bool(yes) => Ok(*yes),
        Value::String(text) => match text.as_str() {
            "true" | "yes" => Ok(true),
            "false" | "no" => Ok(false),
            _ => Err(bad("pin", value, "true or false")),
        },
        _ => Err(bad("pin", value, "true or false")),
    }
}

/// A percent from `least` to 100.
fn percent(key: &str, least: u8, value: &Value) -> Result<u8> {
    let number = match value {
        Value::Number(n) => n.as_u64(),
        Value::String(text) => text.trim_end_matches('%').trim().parse().ok(),
        _ => None,
    };
    number
        .and_then(|n| u8::try_from(n).ok())
        .filter(|n| (least..=100).contains(n))
        .ok_or_else(|| bad(key, value, &format!("a percent from {least} to 100")))
}

/// Refuses a bucket whose guaranteed part of the disks does not fit beside those of `others`.
pub fn check_min_shares(info: &BucketInfo, others: impl Iterator<Item = u8>) -> Result<()> {
    let others: u32 = others.map(u32::from).sum();
    let own = u32::from(info.cache.min_share);
    if own > 0 && own + others > 100 {
        let text = format!(
            "bucket \"{}\" cannot have cache.min_share = {own}: other buckets have {others} % already",
            info.bucket
        );
        let hint = format!("at most {} % are left", 100u32.saturating_sub(others));
        return Err(Error::invalid(text).hint(hint));
    }
    Ok(())
}

fn ttl(value: &Value) -> Result<Option<u64>> {
    let wrong = || bad("ttl", value, "seconds, a time such as \"12h\", or \"never\"");
    let seconds = match value {
        Value::Null => return Ok(None),
        Value::String(text) if text == "never" => return Ok(None),
        Value::Number(n) => n.as_u64().ok_or_else(wrong)?,
        Value::String(text) => match text.parse() {
            Ok(seconds) => seconds,
            Err(_) => parse_duration(text).map_err(|_| wrong())?.as_secs(),
        },
        _ => return Err(wrong()),
    };
    if seconds == 0 {
        return Err(wrong());
    }
    Ok(Some(seconds))
}

fn admission(value: &Value) -> Result<Admission> {
    Admission::deserialize(value)
        .map_err(|_| bad("admission", value, "\"always\", \"second-miss\" or \"never\""))
}

/// Formats a number of seconds for people: `90s`, `12h`, `1d12h`.
pub fn show_seconds(seconds: u64) -> String {
    let mut rest = Duration::from_secs(seconds).as_secs();
    let mut text = String::new();
    for (unit, size) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
        if rest >= size {
            text += &format!("{}{unit}", rest / size);
            rest %= size;
        }
    }
    if text.is_empty() { "0s".into() } else { text }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(value: &Value) -> Result<CacheRules> {
        let mut rules = CacheRules::default();
        rules.apply(value).map(|()| rules)
    }

    #[test]
    fn some_rules_are_set_and_the_others_stay() {
        let mut rules = applied(&json!({"share": 40, "ttl": "1d12h"})).unwrap();
        rules.apply(&json!({"admission": "second-miss"})).unwrap();
        let wanted = CacheRules {
            pin: false,
            share: 40,
            min_share: 0,
            ttl: Some(129_600),
            admission: Admission::SecondMiss,
        };
        assert_eq!(rules, wanted);
        rules.apply(&json!({"ttl": "never", "pin": true})).unwrap();
        assert_eq!(rules, CacheRules { pin: true, ttl: None, ..wanted });
    }

    #[test]
    fn texts_are_taken_where_a_client_has_nothing_else() {
        let rules = applied(&json!({"share": "25%", "ttl": "90", "pin": "no"})).unwrap();
        assert_eq!((rules.share, rules.ttl, rules.pin), (25, Some(90), false));
    }

    #[test]
    fn what_is_wrong_is_refused_by_name_and_changes_nothing() {
        for (value, words) in [
            (json!({"share": 0}), "cache.share = 0"),
            (json!({"share": 101}), "1 to 100"),
            (json!({"min_share": 8}), "at most cache.share"),
            (json!({"min_share": "some"}), "cache.min_share"),
            (json!({"ttl": 0}), "cache.ttl = 0"),
            (json!({"ttl": "soon"}), "12h"),
            (json!({"pin": 1}), "true or false"),
            (json!({"admission": "third"}), "second-miss"),
            (json!({"pin": true, "ttl": 9}), "pinned"),
            (json!({"pin": true, "admission": "never"}), "pinned"),
            (json!({"shares": 5}), "cache.shares"),
            (json!(true), "JSON object"),
        ] {
            let mut rules = CacheRules { share: 7, ..CacheRules::default() };
            let e = rules.apply(&value).unwrap_err();
            assert!(e.message.contains(words), "{value}: {e}");
            assert_eq!(rules.share, 7);
        }
        let e = applied(&json!({"shares": 5})).unwrap_err();
        assert_eq!(e.hint.as_deref(), Some("did you mean \"share\"?"));
    }

    #[test]
    fn a_state_from_before_has_the_defaults() {
        assert!(serde_json::from_str::<CacheRules>("{}").unwrap().is_default());
        let text = serde_json::to_string(&CacheRules::default()).unwrap();
        assert_eq!(text, r#"{"pin":false,"share":100,"admission":"always"}"#);
    }

    #[test]
    fn seconds_are_shown_as_they_are_written() {
        for text in ["1d12h", "90m", "45s", "2h1s"] {
            let seconds = parse_duration(text).unwrap().as_secs();
            assert_eq!(parse_duration(&show_seconds(seconds)).unwrap().as_secs(), seconds);
        }
        assert_eq!((show_seconds(129_600), show_seconds(0)), ("1d12h".into(), "0s".into()));
    }
}
