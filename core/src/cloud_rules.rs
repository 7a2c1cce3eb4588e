//! Rules for calls to a bucket's backend: retries, timeouts, rates and budgets. They are properties
//! of a bucket, and a request may override some of them.

use std::time::Duration;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::config::nearest;
use crate::error::{Error, Result};
use crate::size::{ByteSize, parse_duration};

/// Header of a request with its rules for retries to a backend: `attempts=3,first_pause_ms=500`.
pub const RETRY_HEADER: &str = "forebay-cloud-retry";
/// Header value that accepts no cached listing of any age.
pub const FRESH_LISTING: &str = "list_max_age_ms=0";

/// One rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloudRule {
    /// Number of calls, including the first.
    Attempts,
    /// Pause before the second call.
    FirstPauseMs,
    /// Factor from one pause to the next.
    Multiplier,
    /// Maximum pause, unless the backend asks for a longer one.
    LongestPauseMs,
    /// No call starts later than this after the first.
    DeadlineMs,
    /// Share of a pause that is random.
    Jitter,
    /// A call without an answer for this long has failed. The connections themselves time out after
    /// 30 s.
    AnswerMs,
    /// A body without a byte for this long is broken.
    StallMs,
    /// Maximum calls in flight per target; reduced while the backend reports that there are too
    /// many.
    Concurrency,
    /// Calls per second that the whole cluster starts.
    RequestsPerSecond,
    /// Bytes per second that the whole cluster reads.
    BytesPerSecond,
    /// Larger objects are fetched in several parallel ranges.
    RangesAbove,
    /// Maximum age of a listing of the backend; writes by the cluster are included in any case.
    ListMaxAgeMs,
    /// Composes small cold Google objects in the cloud, to read them with one request.
    Compose,
}

/// Whether small objects are composed in the cloud, which writes temporary objects there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compose {
    #[default]
    Off,
    On,
    /// Even if deleted objects are billed.
    Force,
}

/// The unit of a number.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    Number,
    Milliseconds,
    Bytes,
    /// Written as a decimal, stored in thousandths.
    Ratio,
    /// One of these words.
    Word(&'static [&'static str]),
}

struct Key {
    /// Name as a property of buckets.
    full: &'static str,
    unit: Unit,
    least: u64,
    most: u64,
    /// Whether a request may set it.
    of_requests: bool,
}

const DAY_MS: u64 = 86_400_000;

const fn key(full: &'static str, unit: Unit, least: u64, most: u64, of_requests: bool) -> Key {
    Key { full, unit, least, most, of_requests }
}

/// In the order of [`CloudRule`].
static KEYS: [Key; 14] = [
    key("cloud.attempts", Unit::Number, 1, 100, true),
    key("cloud.first_pause_ms", Unit::Milliseconds, 1, DAY_MS, true),
    key("cloud.multiplier", Unit::Ratio, 1_000, 10_000, true),
    key("cloud.longest_pause_ms", Unit::Milliseconds, 1, DAY_MS, true),
    key("cloud.deadline_ms", Unit::Milliseconds, 1, DAY_MS, true),
    key("cloud.jitter", Unit::Ratio, 0, 1_000, true),
    key("cloud.answer_ms", Unit::Milliseconds, 1, 30_000, true),
    key("cloud.stall_ms", Unit::Milliseconds, 1, DAY_MS, true),
    key("cloud.concurrency", Unit::Number, 1, 4096, false),
    key("cloud.requests_per_second", Unit::Number, 1, 1_000_000, false),
    key("cloud.bytes_per_second", Unit::Bytes, 1 << 10, 1 << 50, false),
    key("cloud.ranges_above", Unit::Bytes, 1 << 20, 1 << 60, false),
    key("cloud.list_max_age_ms", Unit::Milliseconds, 0, 30 * DAY_MS, true),
    key("cloud.compose", Unit::Word(&["off", "on", "force"]), 0, 2, false),
];

/// Rules that were set; for the others, the defaults of the targets apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Map<String, Value>", try_from = "Map<String, Value>")]
pub struct CloudRules([Option<u64>; KEYS.len()]);

impl CloudRules {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Names of all rules.
    pub fn names() -> impl Iterator<Item = &'static str> {
        KEYS.iter().map(Key::name)
    }

    pub fn number(&self, rule: CloudRule) -> Option<u64> {
        self.0[rule as usize]
    }

    pub fn time(&self, rule: CloudRule) -> Option<Duration> {
        self.number(rule).map(Duration::from_millis)
    }

    pub fn ratio(&self, rule: CloudRule) -> Option<f64> {
        self.number(rule).map(|thousandths| thousandths as f64 / 1000.0)
    }

    pub fn compose(&self) -> Compose {
        match self.number(CloudRule::Compose) {
            Some(1) => Compose::On,
            Some(2) => Compose::Force,
            _ => Compose::Off,
        }
    }

    #[must_use]
    pub fn with(mut self, rule: CloudRule, value: u64) -> Self {
        self.0[rule as usize] = Some(value);
        self
    }

    /// These rules, overridden by those that `over` sets.
    #[must_use]
    pub fn overlaid(mut self, over: &Self) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(over.0) {
            *mine = theirs.or(*mine);
        }
        self
    }

    /// Applies a JSON object with some of the rules; `null` resets a rule to its default. Nothing
    /// changes on an error.
    pub fn apply(&mut self, value: &Value) -> Result<()> {
        let Value::Object(given) = value else {
            return Err(Error::invalid("bucket property \"cloud\" must be a JSON object")
                .hint("for example {\"attempts\":3,\"concurrency\":16}"));
        };
        let mut new = *self;
        for (name, value) in given {
            let place = place(name)?;
            new.0[place] = match value {
                Value::Null => None,
                Value::String(text) if text == "default" => None,
                value => Some(KEYS[place].read(value)?),
            };
        }
        *self = new;
        Ok(())
    }

    /// These rules, overridden by those in a request's headers.
    pub fn with_request_rules(&self, headers: &HeaderMap) -> Result<Self> {
        let Some(value) = headers.get(RETRY_HEADER) else { return Ok(*self) };
        let text = value.to_str().map_err(|_| {
            Error::invalid(format!("{RETRY_HEADER} is not a text of visible characters"))
        })?;
        Ok(self.overlaid(&Self::parse_header(text)?))
    }

    /// Parses the value of [`RETRY_HEADER`].
    pub fn parse_header(text: &str) -> Result<Self> {
        let mut rules = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let refused =
                |e: Error| Error { message: format!("{RETRY_HEADER}: {}", e.message), ..e };
            let Some((name, value)) = pair.split_once('=') else {
                return Err(refused(Error::invalid(format!("\"{pair}\" is not NAME=VALUE"))));
            };
            let place = place(name.trim()).map_err(refused)?;
            let key = &KEYS[place];
            if !key.of_requests {
                let text = format!("{} is a property of buckets", key.full);
                return Err(refused(Error::invalid(text)));
            }
            let value = key.read(&Value::String(value.trim().to_owned())).map_err(refused)?;
            rules.0[place] = Some(value);
        }
        Ok(rules)
    }

    /// The rules that a request may set, as the value of [`RETRY_HEADER`]; `None` if none are set.
    pub fn to_header(&self) -> Option<String> {
        let set = self.shown().filter(|(key, _)| key.of_requests);
        let text = set.map(|(key, value)| format!("{}={value}", key.name())).collect::<Vec<_>>();
        (!text.is_empty()).then(|| text.join(","))
    }

    /// Every rule that is set, by property name, formatted for people.
    pub fn lines(&self) -> impl Iterator<Item = (&'static str, String)> {
        self.shown().map(|(key, value)| match (key.unit, value.as_u64()) {
            (Unit::Bytes, Some(bytes)) => (key.full, ByteSize(bytes).to_string()),
            (Unit::Word(_), _) => (key.full, value.as_str().unwrap_or_default().to_owned()),
            _ => (key.full, value.to_string()),
        })
    }

    fn shown(&self) -> impl Iterator<Item = (&'static Key, Value)> {
        KEYS.iter().zip(self.0).filter_map(|(key, value)| Some((key, key.shown(value?))))
    }
}

impl From<CloudRules> for Map<String, Value> {
    fn from(rules: CloudRules) -> Self {
        rules.shown().map(|(key, value)| (key.name().to_owned(), value)).collect()
    }
}

impl TryFrom<Map<String, Value>> for CloudRules {
    type Error = Error;

    fn try_from(map: Map<String, Value>) -> Result<Self> {
        // A newer version may have more rules.
        let known = map.into_iter().filter(|(name, _)| place(name).is_ok()).collect();
        let mut rules = Self::default();
        rules.apply(&Value::Object(known))?;
        Ok(rules)
    }
}

fn place(name: &str) -> Result<usize> {
    KEYS.iter().position(|key| key.name() == name).ok_or_else(|| {
        let e = Error::invalid(format!("unknown rule cloud.{name}"));
        match nearest(name, KEYS.each_ref().map(Key::name)) {
            Some(near) => e.hint(format!("did you mean \"{near}\"?")),
            None => {
                e.hint(format!("there are {}", CloudRules::names().collect::<Vec<_>>().join(", ")))
            }
        }
    })
}

impl Key {
    fn name(&self) -> &'static str {
        self.full.trim_start_matches("cloud.")
    }

    /// Clients that only have strings send numbers as strings; people add units.
    fn read(&self, value: &Value) -> Result<u64> {
        let read = match (self.unit, value) {
            (Unit::Ratio, value) => {
                let text = value.as_str().map(str::parse::<f64>);
                let ratio = text.map_or_else(|| value.as_f64(), |read| read.ok());
                ratio.filter(|r| (0.0..1e6).contains(r)).map(|r| (r * 1000.0).round() as u64)
            }
            (Unit::Word(words), value) => {
                let place = value.as_str().and_then(|text| words.iter().position(|w| *w == text));
                place.map(|place| place as u64)
            }
            (_, Value::Number(n)) => n.as_u64(),
            (unit, Value::String(text)) => text.parse().ok().or_else(|| match unit {
                Unit::Milliseconds => {
                    let time = parse_duration(text).ok()?;
                    u64::try_from(time.as_millis()).ok()
                }
                Unit::Bytes => ByteSize::parse(text).ok().map(|size| size.0),
                Unit::Number | Unit::Ratio | Unit::Word(_) => None,
            }),
            _ => None,
        };
        let fits = read.filter(|n| (self.least..=self.most).contains(n));
        fits.ok_or_else(|| {
            let bounds = match self.unit {
                Unit::Word(words) => format!("one of {}", words.join(", ")),
                _ => format!("from {} to {}", self.shown(self.least), self.shown(self.most)),
            };
            Error::invalid(format!("invalid rule {} = {value}: it must be {bounds}", self.full))
        })
    }

    fn shown(&self, value: u64) -> Value {
        match self.unit {
            Unit::Ratio => Value::from(value as f64 / 1000.0),
            Unit::Word(words) => words.get(value as usize).copied().unwrap_or_default().into(),
            _ => Value::from(value),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_rule_stands_at_its_place() {
        assert_eq!(KEYS[CloudRule::Attempts as usize].name(), "attempts");
        assert_eq!(KEYS[CloudRule::Jitter as usize].name(), "jitter");
        assert_eq!(KEYS[CloudRule::StallMs as usize].name(), "stall_ms");
        assert_eq!(KEYS[CloudRule::RangesAbove as usize].name(), "ranges_above");
        assert_eq!(KEYS[CloudRule::ListMaxAgeMs as usize].name(), "list_max_age_ms");
        assert_eq!(KEYS[CloudRule::Compose as usize].name(), "compose");
    }

    #[test]
    fn a_fresh_listing_has_no_age() {
        let rules = CloudRules::parse_header(FRESH_LISTING).unwrap();
        assert_eq!(rules.time(CloudRule::ListMaxAgeMs), Some(Duration::ZERO));
    }

    #[test]
    fn some_rules_are_set_and_the_others_stay() {
        let mut rules = CloudRules::default();
        rules.apply(&json!({"attempts": 3, "multiplier": 1.5, "ranges_above": "32MiB"})).unwrap();
        rules.apply(&json!({"deadline_ms": "2m", "attempts": null})).unwrap();
        assert_eq!(rules.number(CloudRule::Attempts), None);
        assert_eq!(rules.ratio(CloudRule::Multiplier), Some(1.5));
        assert_eq!(rules.time(CloudRule::DeadlineMs), Some(Duration::from_secs(120)));
        assert_eq!(rules.number(CloudRule::RangesAbove), Some(32 << 20));
        let text = serde_json::to_string(&rules).unwrap();
        assert_eq!(serde_json::from_str::<CloudRules>(&text).unwrap(), rules);
    }

    #[test]
    fn a_rule_of_words_is_written_by_them() {
        let mut rules = CloudRules::default();
        assert_eq!(rules.compose(), Compose::Off);
        for (word, compose) in [("on", Compose::On), ("force", Compose::Force)] {
            rules.apply(&json!({ "compose": word })).unwrap();
            assert_eq!(rules.compose(), compose);
            let text = serde_json::to_string(&rules).unwrap();
            assert_eq!(serde_json::from_str::<CloudRules>(&text).unwrap(), rules);
            assert_eq!(rules.lines().next(), Some(("cloud.compose", word.to_owned())));
        }
        let e = rules.apply(&json!({"compose": 1})).unwrap_err();
        assert!(e.message.contains("one of off, on, force"), "{e}");
    }

    #[test]
    fn what_is_wrong_is_refused_by_name_and_changes_nothing() {
        for (value, words) in [
            (json!({"attempts": 0}), "cloud.attempts = 0"),
            (json!({"jitter": 1.5}), "from 0.0 to 1.0"),
            (json!({"deadline_ms": "soon"}), "cloud.deadline_ms"),
            (json!({"concurrency": -1}), "from 1 to 4096"),
            (json!({"concurency": 1}), "cloud.concurency"),
            (json!(7), "JSON object"),
        ] {
            let mut rules = CloudRules::default().with(CloudRule::Concurrency, 9);
            let e = rules.apply(&value).unwrap_err();
            assert!(e.message.contains(words), "{value}: {e}");
            assert_eq!(rules.number(CloudRule::Concurrency), Some(9));
        }
    }

    #[test]
    fn a_request_header_sets_retry_rules_only() {
        let header = "attempts=3, first_pause_ms=250,multiplier=1.2,jitter=0";
        let rules = CloudRules::parse_header(header).unwrap();
        assert_eq!(rules.time(CloudRule::FirstPauseMs), Some(Duration::from_millis(250)));
        assert_eq!(rules.ratio(CloudRule::Jitter), Some(0.0));
        let again = rules.to_header().unwrap();
        assert_eq!(CloudRules::parse_header(&again).unwrap(), rules);
        for bad in ["concurrency=9", "attempts", "attempts=no", "tries=3"] {
            let e = CloudRules::parse_header(bad).unwrap_err();
            assert!(e.message.starts_with(RETRY_HEADER), "{e}");
        }
        assert!(CloudRules::parse_header("").unwrap().is_default());
        assert_eq!(CloudRules::default().with(CloudRule::Concurrency, 9).to_header(), None);
    }

    #[test]
    fn what_a_request_says_stands_over_what_its_bucket_has() {
        let bucket = CloudRules::default().with(CloudRule::Attempts, 9).with(CloudRule::StallMs, 5);
        let request = CloudRules::default().with(CloudRule::Attempts, 2);
        let both = bucket.overlaid(&request);
        assert_eq!(both.number(CloudRule::Attempts), Some(2));
        assert_eq!(both.number(CloudRule::StallMs), Some(5));
    }
}
