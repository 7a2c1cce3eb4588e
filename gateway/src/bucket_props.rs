//! Properties of buckets as v1 clients set and read them. Properties without an effect here are
//! stored and returned, and the answer to the change names them.

use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::{ACCESS, check_mask};
use forebay_core::quota;
use forebay_core::rate;
use forebay_core::settings;
use forebay_core::state::ClusterState;
use forebay_core::{Error, Result};
use forebay_v1::action::lower_keys;
use forebay_v1::bucket::{props_json, take_place};
use serde_json::Value;

/// Keys of properties that no client may set; clients send them as part of whole documents.
const FIXED: [&str; 6] = ["bid", "created", "provider", "force", "renamed", "name"];

/// The properties, overlaid with everything that clients have set.
pub(crate) fn shown(info: &BucketInfo) -> Value {
    let mut props = props_json(info);
    for (key, value) in &info.extra {
        overlay(&mut props, key, value);
    }
    props
}

/// Names of properties that differ between two states of a bucket and have no effect here.
pub(crate) fn without_effect(before: &BucketInfo, after: &BucketInfo) -> Vec<String> {
    settings::without_effect_of_bucket(&shown(before), &shown(after), after.has_backend())
}

/// Sets `key`; objects merge. A value of another type than the existing one is ignored, because
/// clients decode the whole document into typed structures.
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

/// Applies a partial properties object to `info`.
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
            "cloud" => info.cloud.apply(&value)?,
            quota::SECTION => info.set_quota(&value)?,
            rate::SECTION => info.set_rates(&value)?,
            "backend_bck" => no_backend_bucket(&value)?,
            "backend" => info.set_place(&value)?,
            "ec" if info.has_backend() && is_on(&value) => {
                return Err(Error::invalid(format!(
                    "bucket \"{}\" has a backend, which keeps its objects: they are not erasure coded",
                    info.bucket
                )));
            }
            key if FIXED.contains(&key) => {}
            key => {
                let mut value = settings::parse_of_bucket(key, &value)?;
                if let Some(kind) = info.backend.as_ref().map(|spec| spec.kind)
                    && key == "extra"
                {
                    info.set_place(&take_place(&mut value, kind))?;
                }
                if key == ACCESS && !value.is_null() {
                    check_mask(&value)?;
                }
                settings::refuse_clouds(key, &value)?;
                if !value.is_null() {
                    info.set_section(key, value);
                }
            }
        }
    }
    info.validate()
}

/// Whether a section of properties enables its feature.
fn is_on(section: &Value) -> bool {
    let enabled = section.get("enabled");
    enabled.is_some_and(|on| on.as_bool() == Some(true) || on.as_str() == Some("true"))
}

/// An `ais` bucket gets its backend only at creation.
fn no_backend_bucket(value: &Value) -> Result<()> {
    match value.get("name").and_then(Value::as_str) {
        None | Some("") => Ok(()),
        Some(name) => {
            Err(Error::unsupported(format!("cannot put bucket \"{name}\" behind one that exists"))
                .hint("use the remote bucket itself, such as s3://NAME"))
        }
    }
}

/// Resets all properties; the cluster's defaults apply again.
pub(crate) fn reset(info: &mut BucketInfo, state: &ClusterState) {
    let fresh = state.requested(info.bucket.clone(), info.backend.clone());
    *info = BucketInfo {
        id: info.id,
        created_ns: info.created_ns,
        created_version: info.created_version,
        endpoint_trust: info.endpoint_trust,
        ..fresh
    };
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::bucket::Freshness;
    use forebay_core::checksum::ChecksumKind;
    use forebay_core::erasure::Erasure;
    use forebay_core::state::Command;
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
            "freshness": {"age": 5}, "bid": "7"});
        apply(&mut info, &set).unwrap();
        let props = shown(&info);
        assert_eq!(props["mirror"], json!({"copies": 2, "burst_buffer": 512, "enabled": true}));
        assert_eq!((&props["checksum"]["type"], &props["features"]), (&json!("md5"), &json!("2")));
        assert_eq!(props["bid"], json!("0"));
        assert_eq!(info.checksum, ChecksumKind::Md5);
        assert_eq!(info.freshness, Freshness::Age(5));
        apply(&mut info, &json!({"mirror": {"copies": 3}})).unwrap();
        assert_eq!(shown(&info)["mirror"]["enabled"], json!(true), "a later change merges");
        reset(&mut info, &ClusterState::default());
        assert_eq!(shown(&info)["mirror"]["copies"], json!(2));
    }

    #[test]
    fn erasure_coding_is_set_in_parts_and_read_back() {
        let mut info = info();
        apply(&mut info, &json!({"ec": {"data_slices": 4}})).unwrap();
        assert_eq!(info.erasure, None, "it is not turned on");
        let set = json!({"ec": {"enabled": true, "data_slices": 3, "parity_slices": 1}});
        apply(&mut info, &set).unwrap();
        let limit = forebay_core::erasure::DEFAULT_LIMIT;
        assert_eq!(info.erasure, Some(Erasure { data: 3, parity: 1, limit }));
        apply(&mut info, &json!({"ec": {"objsize_limit": 1 << 20}})).unwrap();
        assert_eq!(info.erasure.unwrap().limit, 1 << 20);
        let ec = &shown(&info)["ec"];
        assert_eq!((&ec["enabled"], &ec["data_slices"]), (&json!(true), &json!(3)));
        assert_eq!((&ec["parity_slices"], &ec["objsize_limit"]), (&json!(1), &json!(1 << 20)));
        for (bad, word) in [
            (json!({"ec": {"data_slices": 9}}), "1 to 8"),
            (json!({"mirror": {"enabled": true}}), "copies"),
        ] {
            let e = apply(&mut info.clone(), &bad).unwrap_err();
            assert!(e.to_string().contains(word) || e.hint.unwrap().contains(word));
        }
        apply(&mut info, &json!({"ec": {"enabled": false}})).unwrap();
        assert_eq!((info.erasure, &shown(&info)["ec"]["enabled"]), (None, &json!(false)));
        let mut cloud = BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None);
        let e = apply(&mut cloud, &json!({"ec": {"enabled": true}})).unwrap_err();
        assert!(e.message.contains("backend"), "{e}");
        reset(&mut info, &ClusterState::default());
        assert_eq!(shown(&info)["ec"]["data_slices"], json!(2));
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
        reset(&mut info, &ClusterState::default());
        assert!(info.cache.is_default());
        let native = &mut self::info();
        assert!(apply(native, &json!({"cache": {"pin": true}})).is_err());
        assert_eq!(shown(&self::info()).get("cache"), None);
    }

    #[test]
    fn numbers_and_texts_become_the_types_that_clients_decode() {
        let mut info = info();
        let set = json!({"Features": 2, "access": 775, "chunks": {"chunk_size": "64mb"},
            "mirror": {"copies": "3"}, "extra": {"custom": "team=a"}, "bid": 5});
        apply(&mut info, &set).unwrap();
        let props = shown(&info);
        assert_eq!((&props["features"], &props["access"]), (&json!("2"), &json!("775")));
        assert_eq!(props["chunks"]["chunk_size"], json!("64MiB"));
        assert_eq!(props["mirror"]["copies"], json!(3));
        assert_eq!(props["extra"]["custom"], json!("team=a"));
        assert_eq!(props["bid"], json!("0"));
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_name_and_nothing_is_taken() {
        for (bad, status) in [
            (json!({"mirror": "x"}), 400),
            (json!({"mirror": {"copies": 0}}), 400),
            (json!({"mirrors": {"copies": 2}}), 400),
            (json!({"mirror": {"size": 2}}), 400),
            (json!({"timeout": {"max_keepalive": "5s"}}), 400),
            (json!({"checksum": {"type": "sum"}}), 400),
            (json!({"write_policy": {"data": "never"}}), 400),
            (json!({"backend_bck": {"name": "b", "provider": "aws"}}), 501),
            (json!({"extra": {"aws": {"endpoint": "http://127.0.0.1:9000"}}}), 501),
            (json!({"extra": {"gcp": {"application_creds": "/key.json"}}}), 501),
            (json!([1]), 400),
        ] {
            let e = apply(&mut info(), &bad).unwrap_err();
            assert_eq!(e.code.status(), status, "{bad}: {e}");
        }
        let e = apply(&mut info(), &json!({"mirrors": 1})).unwrap_err();
        assert_eq!(e.hint.as_deref(), Some("did you mean \"mirror\"?"));
    }

    #[test]
    fn properties_of_remote_buckets_that_mean_something_here_take_effect() {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None);
        apply(&mut info, &json!({"versioning": {"validate_warm_get": true}})).unwrap();
        assert_eq!(info.freshness, Freshness::Always);
        apply(&mut info, &json!({"versioning": {"validate_warm_get": false}})).unwrap();
        assert_eq!(info.freshness, Freshness::default());
        apply(&mut info, &json!({"lru": {"enabled": false}})).unwrap();
        assert!(info.cache.pin);
        assert_eq!(shown(&info)["lru"]["enabled"], json!(false));
    }

    #[test]
    fn v1_clients_choose_the_account_and_region_and_read_them_back() {
        let mut info = BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None);
        let set = json!({"extra": {"aws": {"profile": "prod", "cloud_region": "eu-west-1"}}});
        apply(&mut info, &set).unwrap();
        let spec = info.backend.clone().unwrap();
        assert_eq!(
            (spec.account.as_deref(), spec.region.as_deref()),
            (Some("prod"), Some("eu-west-1"))
        );
        let props = shown(&info);
        assert_eq!(props["extra"]["aws"], json!({"profile": "prod", "cloud_region": "eu-west-1"}));
        assert_eq!(props["backend"]["account"], json!("prod"));
        assert!(without_effect(&BucketInfo { backend: None, ..info.clone() }, &info).is_empty());
        apply(&mut info, &props).unwrap();
        assert_eq!(info.backend, Some(spec), "a whole document changes nothing");
        apply(&mut info, &json!({"extra": {"aws": {"profile": ""}}})).unwrap();
        assert_eq!(info.backend.as_ref().unwrap().account, None);
        let mut google = BucketInfo::requested(Bucket::new(Provider::Gcp, "b").unwrap(), None);
        apply(&mut google, &json!({"extra": {"gcp": {"application_creds": "lab"}}})).unwrap();
        assert_eq!(google.backend.as_ref().unwrap().account.as_deref(), Some("lab"));
        assert!(apply(&mut google, &set).is_err(), "no property of that cloud");
    }

    #[test]
    fn new_buckets_take_the_defaults_of_the_cluster() {
        let mut state = ClusterState::default();
        let change = settings::parse(
            &json!({"mirror": {"copies": 4}, "checksum": {"type": "md5"}, "lru": {"enabled": false}}),
        );
        let configure = Command::Configure { change: change.unwrap(), reset: false, now_ns: 1 };
        state.apply(1, configure).unwrap();
        let mut info = state.requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        let props = shown(&info);
        assert_eq!(props["mirror"]["copies"], json!(4));
        assert_eq!(props["checksum"]["type"], json!("md5"));
        apply(&mut info, &json!({"mirror": {"copies": 3}})).unwrap();
        reset(&mut info, &state);
        assert_eq!(shown(&info)["mirror"]["copies"], json!(4));
        assert!(state.requested(Bucket::new(Provider::Aws, "c").unwrap(), None).cache.pin);
    }
}
