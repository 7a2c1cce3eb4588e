//! Sections of a bucket's properties: how a section that is set changes the bucket.
//!
//! A section is a JSON object under a name, such as `{"copies": 3}` under `mirror`. The state stores
//! sections ([`BucketInfo::extra`]), as does the log with every bucket and with the defaults of the
//! cluster. So the names in this file are a stored format: they never change, and a log of any earlier
//! version gives the same buckets. They were chosen to be those of AIStore's bucket properties, which
//! is why the v1 front needs no table to map its names to them.

use serde_json::{Map, Value};

use super::{BucketInfo, Freshness};
use crate::erasure::Erasure;

impl BucketInfo {
    /// Sets values of a section; the others stay. A value with a meaning for Forebay changes the
    /// bucket's own properties, and [`Self::validate`] checks the result. All others are kept as set.
    /// `value` has the types of [`parse_of_bucket`](crate::settings::parse_of_bucket).
    pub fn set_section(&mut self, section: &str, value: Value) {
        merge(self.extra.entry(section.to_owned()).or_insert(Value::Null), value);
        self.apply_section(section);
    }

    /// Moves the supported values of a section of `extra` to the bucket's own properties.
    fn apply_section(&mut self, section: &str) {
        let backed = self.has_backend();
        let Some(Value::Object(set)) = self.extra.get_mut(section) else { return };
        match section {
            "checksum" => {
                let kind = set.remove("type");
                if let Some(kind) = kind.and_then(|k| k.as_str()?.parse().ok()) {
                    self.checksum = kind;
                }
            }
            "versioning" if backed => match set.remove("validate_warm_get") {
                Some(Value::Bool(true)) => self.freshness = Freshness::Always,
                Some(Value::Bool(false)) if self.freshness == Freshness::Always => {
                    self.freshness = Freshness::default();
                }
                _ => {}
            },
            // For a bucket with a backend, or while it is off, it is kept as set.
            "mirror" if !backed => {
                let enabled = set.get("enabled").and_then(Value::as_bool);
                let copies = set.get("copies").and_then(Value::as_u64);
                match (enabled, copies) {
                    (Some(false), _) => self.copies = 1,
                    (Some(true), copies) => self.copies = copies.unwrap_or(2).max(1) as u32,
                    (None, Some(copies)) if self.copies > 1 => self.copies = copies as u32,
                    (None, _) => {}
                }
            }
            "ec" if !backed => {
                self.erasure = with_erasure_section(self.erasure, set);
                return;
            }
            "lru" if backed => {
                if let Some(Value::Bool(enabled)) = set.remove("enabled") {
                    self.cache.pin = !enabled;
                }
            }
            _ => {}
        }
        if set.is_empty() {
            self.extra.remove(section);
        }
    }
}

/// The erasure coding of a native bucket after its `ec` section was set.
fn with_erasure_section(now: Option<Erasure>, set: &Map<String, Value>) -> Option<Erasure> {
    let mut erasure = now.unwrap_or_default();
    let slices = |key: &str| {
        let n = set.get(key).and_then(Value::as_u64)?;
        // Too large values are refused together with the bucket.
        Some(u8::try_from(n).unwrap_or(u8::MAX))
    };
    erasure.data = slices("data_slices").unwrap_or(erasure.data);
    erasure.parity = slices("parity_slices").unwrap_or(erasure.parity);
    if let Some(limit) = set.get("objsize_limit").and_then(Value::as_i64) {
        erasure.limit = u64::try_from(limit).unwrap_or(u64::MAX);
    }
    let is_on = set.get("enabled").and_then(Value::as_bool).unwrap_or(now.is_some());
    is_on.then_some(erasure)
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::name::{Bucket, Provider};

    fn native() -> BucketInfo {
        let bucket = Bucket::new(Provider::Ais, "b").expect("a valid name");
        BucketInfo::requested(bucket, None)
    }

    #[test]
    fn values_without_a_meaning_are_kept_and_merged() {
        let mut info = native();
        info.set_section("extra", json!({"aws": {"profile": "a"}, "custom": "x"}));
        info.set_section("extra", json!({"aws": {"max_pagesize": 5}}));
        let kept = json!({"aws": {"profile": "a", "max_pagesize": 5}, "custom": "x"});
        assert_eq!(info.extra["extra"], kept);
    }

    #[test]
    fn a_section_whose_values_all_have_a_meaning_is_not_kept() {
        let mut info = native();
        info.set_section("checksum", json!({"type": "md5"}));
        assert_eq!(info.checksum.as_str(), "md5");
        assert!(info.extra.is_empty());
        info.set_section("mirror", json!({"copies": 3, "enabled": true}));
        assert_eq!(info.copies, 3);
        assert!(info.extra.contains_key("mirror"), "a later change may turn it off, and on again");
    }
}
