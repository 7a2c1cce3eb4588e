//! Which settings of AIStore have an effect here. The others are checked, stored and shown, because
//! its clients send and decode whole documents; the answer to a change names them.

use serde_json::Value;

use super::kind::read_features;
use super::schema::find_of_buckets;
use super::{Change, ClusterSettings, DOWNLOAD_PRIVATE, S3_API_VIA_ROOT};
use crate::error::{Error, Result};

/// Names of settings that a request changed and that have no effect, separated by commas. In answers
/// to changes of the cluster's configuration and of a bucket's properties.
pub const NO_EFFECT_HEADER: &str = "forebay-no-effect";
/// Most names in the header; clients limit the length of headers.
const MAX_NAMES: usize = 40;

/// Settings with an effect beyond buckets.
const OF_CLUSTER: [&str; 6] = [
    "rebalance.enabled",
    "distributed_sort.duplicated_records",
    "distributed_sort.missing_shards",
    "distributed_sort.ekm_malformed_line",
    "distributed_sort.ekm_missing_key",
    "distributed_sort.default_max_mem_usage",
];
/// Properties with an effect on every bucket. `extra.custom` is a label.
const OF_EVERY_BUCKET: [&str; 7] = [
    "checksum.type",
    "access",
    "extra.custom",
    "rate_limit.frontend.enabled",
    "rate_limit.frontend.interval",
    "rate_limit.frontend.max_tokens",
    "rate_limit.frontend.burst_size",
];
/// Properties with an effect on buckets that keep their objects.
const OF_NATIVE: [&str; 6] = [
    "mirror.enabled",
    "mirror.copies",
    "ec.enabled",
    "ec.data_slices",
    "ec.parity_slices",
    "ec.objsize_limit",
];
/// Properties with an effect on buckets with a backend.
const OF_BACKED: [&str; 6] = [
    "versioning.validate_warm_get",
    "lru.enabled",
    "extra.aws.profile",
    "extra.aws.cloud_region",
    "extra.aws.endpoint",
    "extra.gcp.application_creds",
];
/// Properties that choose another cloud or account, and that the kind of the bucket does not have. To
/// accept one without effect would read and write the wrong data.
const OF_CLOUDS: [(&str, &str); 5] = [
    ("extra.aws.endpoint", "it is for buckets of S3; others name it in \"backend\""),
    ("extra.aws.profile", "it is for buckets of S3"),
    ("extra.aws.cloud_region", "it is for buckets of S3"),
    ("extra.gcp.application_creds", "it is for buckets of Google Cloud Storage"),
    ("extra.oci.region", "buckets of OCI are reached by their S3 endpoint, in \"backend\""),
];

/// The kept names among the values of `change` that differ from `now`.
pub fn without_effect(change: &Change, now: &ClusterSettings) -> Vec<String> {
    let differs = |(name, value): &(&String, &String)| now.text(name) != value.as_str();
    let changed = change.iter().filter(differs);
    let kept = changed.filter(|(name, value)| match name.as_str() {
        "features" => {
            let set = read_features(value).unwrap_or_default();
            set & !now.features() & !(S3_API_VIA_ROOT | DOWNLOAD_PRIVATE) != 0
        }
        name => {
            let known = [&OF_CLUSTER[..], &OF_EVERY_BUCKET, &OF_NATIVE, &OF_BACKED];
            !known.iter().any(|names| names.contains(&name))
        }
    });
    kept.map(|(name, _)| name.clone()).collect()
}

/// The kept names among the properties of a bucket that differ between two documents of it.
pub fn without_effect_of_bucket(before: &Value, after: &Value, has_backend: bool) -> Vec<String> {
    let mut names = Vec::new();
    differences(before, after, "", &mut names);
    let of_kind: &[&str] = if has_backend { &OF_BACKED } else { &OF_NATIVE };
    names.retain(|name| {
        let is_effective =
            OF_EVERY_BUCKET.contains(&name.as_str()) || of_kind.contains(&name.as_str());
        find_of_buckets(name).is_some() && !is_effective
    });
    names
}

fn differences(before: &Value, after: &Value, name: &str, names: &mut Vec<String>) {
    match after {
        Value::Object(map) if find_of_buckets(name).is_none() => {
            for (key, value) in map {
                let name = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                differences(before.get(key).unwrap_or(&Value::Null), value, &name, names);
            }
        }
        after if before != after => names.push(name.to_owned()),
        _ => {}
    }
}

/// Refuses properties that choose another cloud or account for a bucket, and that its kind does not have.
/// `section` is one section of a bucket's properties, typed by [`parse_of_bucket`](super::parse_of_bucket).
pub fn refuse_clouds(section: &str, value: &Value) -> Result<()> {
    for (name, hint) in OF_CLOUDS {
        let Some(path) = name.strip_prefix(section).and_then(|rest| rest.strip_prefix('.')) else {
            continue;
        };
        let set = path.split('.').try_fold(value, |at, part| at.get(part));
        if set.and_then(Value::as_str).is_some_and(|text| !text.is_empty()) {
            return Err(
                Error::unsupported(format!("bucket property \"{name}\" is not served")).hint(hint)
            );
        }
    }
    Ok(())
}

/// The header's value for these names; none for no names.
pub fn no_effect_value(names: &[String]) -> Option<String> {
    let shown = names.get(..MAX_NAMES).unwrap_or(names).join(", ");
    match names.len() {
        0 => None,
        n if n > MAX_NAMES => Some(format!("{shown}, and {} more", n - MAX_NAMES)),
        _ => Some(shown),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::settings::{find, parse};

    #[test]
    fn every_name_with_an_effect_is_a_setting() {
        for name in OF_CLUSTER {
            assert!(find(name).is_some(), "{name}");
        }
        let of_clouds = OF_CLOUDS.map(|(name, _)| name);
        for name in [&OF_EVERY_BUCKET[..], &OF_NATIVE, &OF_BACKED, &of_clouds].concat() {
            assert!(find_of_buckets(name).is_some(), "{name}");
        }
    }

    #[test]
    fn a_change_of_the_cluster_names_what_is_only_kept() {
        let now = ClusterSettings::default();
        let change = parse(&json!({
            "mirror": {"copies": 3, "burst_buffer": 9}, "rebalance": {"enabled": false},
            "log": {"level": "4"}, "space": {"highwm": 90},
        }));
        // 90 is the default of space.highwm: it changes nothing.
        let names = without_effect(&change.unwrap(), &now);
        assert_eq!(names, ["log.level", "mirror.burst_buffer"]);
    }

    #[test]
    fn only_the_feature_bits_with_an_effect_have_one() {
        let now = ClusterSettings::default();
        let bits = |mask: u64| {
            let change = Change::from([("features".to_owned(), mask.to_string())]);
            without_effect(&change, &now)
        };
        assert!(bits(S3_API_VIA_ROOT | DOWNLOAD_PRIVATE).is_empty());
        assert_eq!(bits(S3_API_VIA_ROOT | 1), ["features"]);
    }

    #[test]
    fn a_change_of_a_bucket_names_what_is_only_kept_for_its_kind() {
        let before = json!({"mirror": {"copies": 2, "enabled": false}, "lru": {"enabled": true},
            "checksum": {"type": "md5"}, "bid": "1"});
        let after = json!({"mirror": {"copies": 3, "enabled": false}, "lru": {"enabled": false},
            "checksum": {"type": "none"}, "bid": "2"});
        assert_eq!(without_effect_of_bucket(&before, &after, false), ["lru.enabled"]);
        assert_eq!(without_effect_of_bucket(&before, &after, true), ["mirror.copies"]);
        assert!(without_effect_of_bucket(&before, &before, true).is_empty());
    }

    #[test]
    fn another_cloud_or_account_is_refused_with_the_way_to_have_it() {
        let e = refuse_clouds("extra", &json!({"aws": {"endpoint": "http://a"}})).unwrap_err();
        assert!(e.message.contains("extra.aws.endpoint"), "{e}");
        assert!(e.hint.unwrap().contains("backend"));
        refuse_clouds("extra", &json!({"aws": {"endpoint": ""}, "custom": "x"})).unwrap();
        refuse_clouds("mirror", &json!({"copies": 2})).unwrap();
    }

    #[test]
    fn the_header_stays_short() {
        let names: Vec<String> = (0..100).map(|i| format!("a.b{i}")).collect();
        let value = no_effect_value(&names).unwrap();
        assert!(value.ends_with("a.b39, and 60 more"), "{value}");
        assert_eq!(no_effect_value(&names[..2]).unwrap(), "a.b0, a.b1");
        assert_eq!(no_effect_value(&[]), None);
    }
}
