//! Properties of buckets as v1 clients set and read them: what means something here is taken, the
//! rest is kept and given back.

use forebay_core::bucket::BucketInfo;
use forebay_core::v1::action::lower_keys;
use forebay_core::v1::bucket::props_json;
use forebay_core::{Error, Result};
use serde_json::Value;

/// Keys of the properties that no client may set.
const FIXED: [&str; 6] = ["bid", "created", "provider", "backend", "force", "renamed"];

/// Properties with what clients have set laid over them.
pub(crate) fn shown(info: &BucketInfo) -> Value {
    let mut props = props_json(info);
    for (key, value) in &info.extra {
        overlay(&mut props, key, value);
    }
    props
}

/// Sets `key`; objects merge. A value of another type than the one there is left out, because
/// clients decode the whole into typed structures.
fn overlay(props: &mut Value, key: &str, value: &Value) {
    let Some(map) = props.as_object_mut() else { return };
    match (map.get_mut(key), value) {
        (Some(inner @ Value::Object(_)), Value::Object(over)) => {
            for (key, value) in over {
                overlay(inner, key, value);
            }
        }
        (Some(known), value) if std::mem::discriminant(known) == std::mem::discriminant(value) => {
            *known = value.clone();
        }
        (Some(_), _) => {}
        (None, value) => {
            map.insert(key.to_owned(), value.clone());
        }
    }
}

/// Takes a partial properties object into `info`.
pub(crate) fn apply(info: &mut BucketInfo, value: &Value) -> Result<()> {
    let props = match lower_keys(value.clone()) {
        Value::Null => return Ok(()),
        Value::Object(props) => props,
        _ => return Err(Error::invalid("bucket properties must be a JSON object")),
    };
    for (key, value) in props {
        let bad = |e: serde_json::Error| {
            Error::invalid(format!("invalid bucket property \"{key}\": {e}"))
        };
        match key.as_str() {
            "freshness" => info.freshness = serde_json::from_value(value).map_err(bad)?,
            "class" => info.class = serde_json::from_value(value).map_err(bad)?,
            "cache" => info.cache.apply(&value)?,
            key if FIXED.contains(&key) => {}
            key => {
                if key == "checksum"
                    && let Some(kind) = value.get("type").and_then(Value::as_str)
                {
                    info.checksum = kind.parse()?;
                }
                merge(info.extra.entry(key.to_owned()).or_insert(Value::Null), value);
            }
        }
    }
    // The kind has one home; a stale copy must not hide it.
    if let Some(Value::Object(checksum)) = info.extra.get_mut("checksum") {
        checksum.remove("type");
    }
    info.validate()
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

/// Forgets all that was set.
pub(crate) fn reset(info: &mut BucketInfo) {
    let fresh = BucketInfo::requested(info.bucket.clone(), info.backend.clone());
    *info = BucketInfo {
        id: info.id,
        created_ns: info.created_ns,
        created_version: info.created_version,
        ..fresh
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::Freshness;
    use forebay_core::checksum::ChecksumKind;
    use forebay_core::{Bucket, Provider};
    use serde_json::json;

    use super::*;

    fn info() -> BucketInfo {
        BucketInfo::requested(Bucket::new(Provider::Ais, "b").unwrap(), None)
    }

    #[test]
    fn what_is_set_is_read_back_and_the_rest_stays() {
        let mut info = info();
        let set = json!({"mirror": {"enabled": true}, "checksum": {"type": "md5"}, "features": "2",
            "freshness": {"age": 5}, "bid": "7", "mine": {"x": 1}});
        apply(&mut info, &set).unwrap();
        let props = shown(&info);
        assert_eq!(props["mirror"], json!({"copies": 2, "burst_buffer": 512, "enabled": true}));
        assert_eq!((&props["checksum"]["type"], &props["features"]), (&json!("md5"), &json!("2")));
        assert_eq!((&props["bid"], &props["mine"]["x"]), (&json!("0"), &json!(1)));
        assert_eq!(info.checksum, ChecksumKind::Md5);
        assert_eq!(info.freshness, Freshness::Age(5));
        apply(&mut info, &json!({"mirror": {"copies": 3}})).unwrap();
        assert_eq!(shown(&info)["mirror"]["enabled"], json!(true), "a later change merges");
        reset(&mut info);
        assert_eq!(shown(&info)["mirror"]["copies"], json!(2));
    }

    #[test]
    fn rules_of_the_cache_are_set_one_by_one_and_read_back() {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None);
        apply(&mut info, &json!({"cache": {"share": 30, "ttl": "2h"}})).unwrap();
        apply(&mut info, &json!({"cache": {"admission": "second-miss"}})).unwrap();
        let wanted = json!({"pin": false, "share": 30, "ttl": 7200, "admission": "second-miss"});
        assert_eq!(shown(&info)["cache"], wanted);
        assert_eq!(shown(&info)["freshness"], json!({"age": 600}));
        let e = apply(&mut info, &json!({"cache": {"share": 300}})).unwrap_err();
        assert!(e.message.contains("1 to 100"), "{e}");
        reset(&mut info);
        assert!(info.cache.is_default());
        let native = &mut self::info();
        assert!(apply(native, &json!({"cache": {"pin": true}})).is_err());
        assert_eq!(shown(&self::info()).get("cache"), None);
    }

    #[test]
    fn types_that_clients_decode_never_change() {
        let mut info = info();
        apply(&mut info, &json!({"features": 2, "mirror": "x"})).unwrap();
        let props = shown(&info);
        assert_eq!(props["features"], json!("0"));
        assert_eq!(props["mirror"]["copies"], json!(2));
        assert!(apply(&mut info, &json!({"checksum": {"type": "sum"}})).is_err());
        assert!(apply(&mut info, &json!([1])).is_err());
    }
}
