//! Bucket properties as v1 clients read and write them (§5.6–5.7).
//!
//! Clients write sections of properties. Their names are those in which a bucket stores them
//! ([`BucketInfo::set_section`]); a name that v1 changes would be mapped here.

use forebay_core::bucket::{BackendKind, BackendSpec, BucketInfo, Freshness};
use forebay_core::config::nearest;
use forebay_core::erasure::Erasure;
use forebay_core::error::{Error, Result};
use serde_json::{Map, Value, json};

/// All permissions: access is not restricted per bucket yet.
const ACCESS_ALL: &str = "18446744073709551615";

/// The properties object; sections without an effect here contain the reference's defaults, because
/// clients decode the whole document into a typed structure.
pub fn props_json(info: &BucketInfo) -> Value {
    let rate = |burst: &str, n: u32| json!({"interval": "1m", "max_tokens": 1000, "enabled": false, burst: n});
    let coding = info.erasure.unwrap_or_default();
    let mut props = json!({
        "backend_bck": {"name": "", "provider": "", "namespace": {"uuid": "", "name": ""}},
        "write_policy": {"data": "immediate", "md": "immediate"},
        "provider": info.bucket.provider, "Renamed": "",
        "checksum": {"type": info.checksum.as_str(), "validate_cold_get": true,
            "validate_warm_get": false, "validate_obj_move": false, "enable_read_range": false},
        "extra": {"aws": {}, "gcp": {}, "oci": {}},
        "rate_limit": {"backend": rate("num_retries", 3), "frontend": rate("burst_size", 375)},
        "ec": {"compression": "never", "bundle_multiplier": 2, "burst_buffer": 512,
            "objsize_limit": size_limit(&coding), "data_slices": coding.data,
            "parity_slices": coding.parity, "enabled": info.erasure.is_some(), "disk_only": false},
        "chunks": {"objsize_limit": "0B", "max_monolithic_size": "1TiB", "chunk_size": "1GiB"},
        "mirror": {"copies": info.copies.max(2), "burst_buffer": 512, "enabled": info.copies > 1},
        "lru": {"dont_evict_time": "2h0m", "capacity_upd_time": "10m", "batch_size": 32768,
            "enabled": info.has_backend() && !info.cache.pin},
        "access": ACCESS_ALL, "features": "0", "bid": info.id.to_string(),
        "created": info.created_ns.to_string(),
        "versioning": {"enabled": true, "synchronize": false,
            "validate_warm_get": info.has_backend() && info.freshness == Freshness::Always},
    });
    if let Value::Object(props) = &mut props {
        // Forebay's own, in addition to the reference's.
        props.insert("class".into(), json!(info.class));
        props.insert("freshness".into(), json!(info.freshness));
        if let Some(backend) = &info.backend {
            props.insert("backend".into(), json!(backend));
            props.insert("cache".into(), json!(info.cache));
            props.insert("cloud".into(), json!(info.cloud));
            if let Some(extra) = extra_json(backend) {
                props.insert("extra".into(), extra);
            }
        }
    }
    props
}

/// The place of a bucket in its cloud, under the names of v1.
fn extra_json(backend: &BackendSpec) -> Option<Value> {
    let named =
        |name: &str, value: &Option<String>| Some((name.to_owned(), json!(value.as_ref()?)));
    let BackendSpec { account, region, endpoint, .. } = backend;
    Some(match backend.kind {
        BackendKind::S3 => {
            let own = [("profile", account), ("cloud_region", region), ("endpoint", endpoint)];
            let own: Map<_, _> = own.into_iter().filter_map(|(key, v)| named(key, v)).collect();
            json!({"aws": own, "gcp": {}, "oci": {}})
        }
        BackendKind::Gcs => {
            let own: Map<_, _> = named("application_creds", account).into_iter().collect();
            json!({"aws": {}, "gcp": own, "oci": {}})
        }
        _ => return None,
    })
}

/// Moves the place of a bucket out of its section `extra`, where v1 clients set it: as
/// [`BucketInfo::set_place`] takes it.
pub fn take_place(extra: &mut Value, kind: BackendKind) -> Value {
    let names: &[(&str, &str, &str)] = match kind {
        BackendKind::S3 => &[
            ("aws", "profile", "account"),
            ("aws", "cloud_region", "region"),
            ("aws", "endpoint", "endpoint"),
        ],
        BackendKind::Gcs => &[("gcp", "application_creds", "account")],
        _ => &[],
    };
    let mut place = Map::new();
    for (cloud, name, own) in names {
        let section = extra.get_mut(*cloud).and_then(Value::as_object_mut);
        if let Some(value) = section.and_then(|section| section.remove(*name)) {
            place.insert((*own).to_owned(), value);
        }
    }
    Value::Object(place)
}

/// The size limit in the clients' form, in which -1 means unlimited.
fn size_limit(erasure: &Erasure) -> i64 {
    i64::try_from(erasure.limit).unwrap_or(-1)
}

/// The `backend` of a create request: Forebay's own, in addition to the reference's properties.
pub fn requested_backend(value: &Value) -> Result<Option<BackendSpec>> {
    match value.get("backend") {
        None | Some(Value::Null) => Ok(None),
        Some(spec) => {
            check_backend_keys(spec)?;
            serde_json::from_value(spec.clone()).map(Some).map_err(|e| {
                Error::invalid(format!("invalid bucket property \"backend\": {e}"))
                    .hint("for example {\"type\":\"folder\",\"root\":\"/data/images\"}")
            })
        }
    }
}

/// Returns an error for an unknown key of a backend, which would otherwise be ignored.
fn check_backend_keys(spec: &Value) -> Result<()> {
    const KEYS: [&str; 6] = ["type", "bucket", "endpoint", "root", "account", "region"];
    let mut keys = spec.as_object().into_iter().flat_map(Map::keys);
    match keys.find(|key| !KEYS.contains(&key.as_str())) {
        None => Ok(()),
        Some(key) => {
            let text = format!("invalid bucket property \"backend\": unknown key \"{key}\"");
            let hint = match nearest(key, KEYS) {
                Some(near) => format!("did you mean \"{near}\"?"),
                None => format!("the keys are {}", KEYS.join(", ")),
            };
            Err(Error::invalid(text).hint(hint))
        }
    }
}
