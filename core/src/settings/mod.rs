//! The cluster's settings, which AIStore's clients read and change as its configuration.
//!
//! The log of commands and the state store changes by the names of settings and the canonical text of
//! values, so names are a stored format: one is never renamed or removed.
//!
//! Only values that differ from the defaults are stored, so that a default which a later version
//! changes takes effect. Settings with an effect here are read through the methods of
//! [`ClusterSettings`]; the others are checked, stored and shown.

mod effect;
mod kind;
mod schema;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use self::effect::{
    NO_EFFECT_HEADER, no_effect_value, refuse_clouds, without_effect, without_effect_of_bucket,
};
pub use self::kind::{FEATURES, Kind, read_features};
pub use self::schema::{SETTINGS, Setting, find, find_of_buckets};
use self::schema::{is_of_buckets, names_of_buckets};
use crate::checksum::ChecksumKind;
use crate::config::nearest;
use crate::error::{Error, Result};

/// S3 is served at `/`, not at `/s3` alone.
pub const S3_API_VIA_ROOT: u64 = 1 << 3;
/// Downloads may reach addresses of private networks.
pub const DOWNLOAD_PRIVATE: u64 = 1 << 26;

/// Settings by name, in the canonical text of their kind.
pub type Change = BTreeMap<String, String>;

/// The changed settings, with a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterSettings {
    /// Values that differ from the default.
    #[serde(default)]
    changed: Change,
    /// Incremented with each change; 1 before the first.
    #[serde(default)]
    version: u64,
    /// Unix nanoseconds of the last change; 0 before the first.
    #[serde(default)]
    updated_ns: u64,
}

impl ClusterSettings {
    /// Whether nothing was ever changed.
    pub fn is_untouched(&self) -> bool {
        *self == Self::default()
    }

    pub fn version(&self) -> u64 {
        self.version + 1
    }

    pub fn updated_ns(&self) -> u64 {
        self.updated_ns
    }

    /// Applies a change from [`parse`] or [`parse_pairs`]; `reset` drops all other changes.
    pub fn apply(&mut self, change: &Change, reset: bool, now_ns: u64) -> Result<()> {
        let mut changed = if reset { Change::new() } else { self.changed.clone() };
        for (name, value) in change {
            let Some(setting) = find(name) else { return Err(unknown(name)) };
            if value == setting.default {
                changed.remove(name);
            } else {
                changed.insert(name.clone(), value.clone());
            }
        }
        let new = Self { changed, version: self.version + 1, updated_ns: now_ns };
        new.check()?;
        *self = new;
        Ok(())
    }

    /// Checks rules that involve several settings.
    fn check(&self) -> Result<()> {
        let rising: [(&str, &[&str]); 2] = [
            ("space", &["cleanupwm", "lowwm", "highwm", "out_of_space"]),
            ("disk", &["disk_util_low_wm", "disk_util_high_wm", "disk_util_max_wm"]),
        ];
        for (section, names) in rising {
            let values: Vec<i64> = names
                .iter()
                .map(|n| self.text(&format!("{section}.{n}")).parse().unwrap_or_default())
                .collect();
            if !values.is_sorted_by(|a, b| a < b) {
                return Err(Error::invalid(format!(
                    "invalid {section} configuration: expecting {}, got {values:?}",
                    names.join(" < ")
                )));
            }
        }
        Ok(())
    }

    /// The value of a setting; empty if there is none of that name.
    pub fn text(&self, name: &str) -> &str {
        let changed = self.changed.get(name).map(String::as_str);
        changed.or_else(|| find(name).map(|s| s.default)).unwrap_or_default()
    }

    /// The mask of feature flags.
    pub fn features(&self) -> u64 {
        read_features(self.text("features")).unwrap_or_default()
    }

    /// Whether all bits of `mask` are set among the feature flags.
    pub fn has(&self, mask: u64) -> bool {
        self.features() & mask == mask
    }

    /// The kind of checksum of new buckets.
    pub fn checksum(&self) -> ChecksumKind {
        self.text("checksum.type").parse().unwrap_or_default()
    }

    /// The changed defaults of new buckets, as bucket properties.
    pub fn bucket_defaults(&self) -> Value {
        let of_buckets = self.changed.iter().filter(|(name, _)| is_of_buckets(name));
        let mut props = Map::new();
        for (name, value) in of_buckets {
            if let Some(setting) = find(name) {
                put(&mut props, name, setting.kind.to_json(value));
            }
        }
        Value::Object(props)
    }

    /// All settings, nested as clients read them.
    pub fn to_json(&self) -> Map<String, Value> {
        let mut document = Map::new();
        for setting in SETTINGS {
            let text = self.text(setting.name);
            if !(setting.optional && text.is_empty()) {
                put(&mut document, setting.name, setting.kind.to_json(text));
            }
        }
        document
    }
}

fn put(document: &mut Map<String, Value>, name: &str, value: Value) {
    match name.split_once('.') {
        None => {
            document.insert(name.to_owned(), value);
        }
        Some((section, rest)) => {
            let inner = document.entry(section).or_insert_with(|| Value::Object(Map::new()));
            if let Value::Object(inner) = inner {
                put(inner, rest, value);
            }
        }
    }
}

/// Parses a partial document. Names are case-insensitive; `null` means "unchanged".
pub fn parse(document: &Value) -> Result<Change> {
    let Value::Object(_) = document else {
        return Err(Error::invalid("a configuration must be a JSON object"));
    };
    let mut change = Change::new();
    collect(document, "", find, &mut change)?;
    Ok(change)
}

type Find = fn(&str) -> Option<&'static Setting>;

fn collect(value: &Value, name: &str, find: Find, change: &mut Change) -> Result<()> {
    match value {
        Value::Null => Ok(()),
        Value::Object(map) if find(name).is_none() => {
            for (key, value) in map {
                let key = key.to_ascii_lowercase();
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                collect(value, &name, find, change)?;
            }
            Ok(())
        }
        value => {
            let setting = find(name).ok_or_else(|| unknown(name))?;
            let text = setting.kind.read_json(value).map_err(|e| bad(name, e))?;
            take(setting, text, change)
        }
    }
}

/// Parses one section of a partial document of a bucket's properties; typed and nested.
pub fn parse_of_bucket(section: &str, value: &Value) -> Result<Value> {
    let mut change = Change::new();
    collect(value, section, find_of_buckets, &mut change).map_err(|e| {
        if find_of_buckets(section).is_none() && !names_of_buckets().any(|n| n.starts_with(section))
        {
            let error = Error::invalid(format!("unknown bucket property \"{section}\""));
            let near = nearest(section, names_of_buckets().filter_map(|n| n.split('.').next()));
            return match near {
                Some(near) => error.hint(format!("did you mean \"{near}\"?")),
                None => error,
            };
        }
        e
    })?;
    let mut document = Map::new();
    for (name, text) in &change {
        if let Some(setting) = find_of_buckets(name) {
            put(&mut document, name, setting.kind.to_json(text));
        }
    }
    Ok(document.remove(section).unwrap_or(Value::Null))
}

/// Parses names with dots and their values, as the command line sends them.
pub fn parse_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Change> {
    let mut change = Change::new();
    for (name, value) in pairs {
        let setting = find(name).ok_or_else(|| unknown(name))?;
        let text = setting.kind.read_text(value).map_err(|e| bad(name, e))?;
        take(setting, text, &mut change)?;
    }
    Ok(change)
}

fn take(setting: &Setting, text: String, change: &mut Change) -> Result<()> {
    // Clients send whole sections back, which may include unchanged fixed settings.
    if setting.fixed && text != setting.default && !setting.name.starts_with("proxy.") {
        return Err(Error::invalid(format!("\"{}\" cannot be changed", setting.name)));
    }
    if !setting.fixed {
        change.insert(setting.name.to_owned(), text);
    }
    Ok(())
}

fn bad(name: &str, error: Error) -> Error {
    Error { message: format!("invalid value of \"{name}\": {}", error.message), ..error }
}

fn unknown(name: &str) -> Error {
    let error = Error::invalid(format!("unknown property \"{name}\""));
    match nearest(name, SETTINGS.iter().map(|s| s.name)) {
        Some(near) => error.hint(format!("did you mean \"{near}\"?")),
        None => error,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(settings: &mut ClusterSettings, value: Value) -> Result<()> {
        settings.apply(&parse(&value)?, false, 7)
    }

    #[test]
    fn what_is_set_is_read_back_and_a_reset_forgets_it() {
        let mut s = ClusterSettings::default();
        assert_eq!((s.checksum(), s.features(), s.version()), (ChecksumKind::Xxhash2, 0, 1));
        set(&mut s, json!({"features": "8", "Checksum": {"type": "md5"}, "log": null})).unwrap();
        set(&mut s, json!({"timeout": {"max_keepalive": "90s"}})).unwrap();
        assert_eq!((s.checksum(), s.version(), s.updated_ns()), (ChecksumKind::Md5, 3, 7));
        assert!(s.has(S3_API_VIA_ROOT) && !s.has(DOWNLOAD_PRIVATE));
        let shown = Value::Object(s.to_json());
        assert_eq!(shown["timeout"]["max_keepalive"], "1m30s");
        assert_eq!(
            shown["checksum"],
            json!({"type": "md5", "validate_cold_get": true,
            "validate_warm_get": false, "validate_obj_move": false, "enable_read_range": false})
        );
        assert_eq!(s.bucket_defaults(), json!({"checksum": {"type": "md5"}}));
        s.apply(&Change::new(), true, 9).unwrap();
        assert_eq!((s.checksum(), s.version()), (ChecksumKind::Xxhash2, 4));
    }

    #[test]
    fn types_of_the_document_are_those_that_clients_decode() {
        let shown = Value::Object(ClusterSettings::default().to_json());
        assert_eq!(shown["features"], json!("0"));
        assert_eq!(shown["mirror"], json!({"copies": 2, "burst_buffer": 512, "enabled": false}));
        assert_eq!(shown["memsys"]["min_free"], json!("2GiB"));
        assert_eq!(shown["keepalivetracker"]["proxy"]["factor"], json!(3));
        assert_eq!(shown["rate_limit"]["backend"].get("per_op_max_tokens"), None);
    }

    #[test]
    fn the_whole_document_may_be_sent_back() {
        let mut s = ClusterSettings::default();
        set(&mut s, Value::Object(ClusterSettings::default().to_json())).unwrap();
        assert!(s.changed.is_empty());
    }

    #[test]
    fn pairs_are_read_by_the_same_rules() {
        let change = parse_pairs([("checksum.type", "md5"), ("lru.enabled", "no")]).unwrap();
        let wanted = [("checksum.type", "md5"), ("lru.enabled", "false")];
        assert_eq!(change, wanted.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(parse_pairs([("checksum.typ", "md5")]).unwrap_err().hint.unwrap().contains("type"));
    }

    #[test]
    fn what_cannot_be_is_refused_and_changes_nothing() {
        let mut s = ClusterSettings::default();
        for bad in [
            json!({"nothing": 1}),
            json!({"checksum": {"type": "sum"}}),
            json!({"checksum": "md5"}),
            json!({"features": "x"}),
            json!({"features": {"a": 1}}),
            json!({"space": {"lowwm": 95}}),
            json!({"net": {"l4": {"proto": "udp"}}}),
            json!({"mirror": {"copies": {}}}),
            json!([]),
        ] {
            let e = set(&mut s, bad.clone()).unwrap_err();
            assert_eq!(e.code.status(), 400, "{bad}: {e}");
        }
        assert!(s.is_untouched());
    }
}
