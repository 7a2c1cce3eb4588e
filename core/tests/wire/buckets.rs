//! Tests that properties of buckets keep the form in which the state, the log and the messages have
//! them. Values are given as JSON where older versions wrote it, whatever types read it now.

use forebay_core::intra::{PromoteRequest, PromoteScan};
use serde_json::json;

use super::*;

fn five_targets() -> Vec<Command> {
    let init = Command::Init { cluster_id: "c0ffee".into(), now_ns: NOW_S * 1_000_000_000 };
    let targets = (1..=5).map(|n| join(&format!("target-{n}"), Role::Target, 10 + n, ""));
    std::iter::once(init).chain(targets).collect()
}

/// Settings that only S3 has, each with a value: every grantee and every permission too.
fn s3_settings() -> Value {
    json!({
        "versioning": "enabled",
        "tags": [{"key": "team", "value": "vision"}, {"key": "empty", "value": ""}],
        "cors": [
            {"id": "browsers", "allowed_methods": ["GET", "PUT"], "allowed_origins": ["https://*.test"],
                "allowed_headers": ["x-*"], "expose_headers": ["etag"], "max_age_s": 600},
            {"allowed_methods": ["HEAD"], "allowed_origins": ["*"]},
        ],
        "owner": "ann",
        "acl": [
            {"to": {"user": "bob"}, "may": "FULL_CONTROL"}, {"to": "everybody", "may": "READ"},
            {"to": "holders", "may": "WRITE"}, {"to": "holders", "may": "READ_ACP"},
            {"to": {"user": "eve"}, "may": "WRITE_ACP"},
        ],
        "policy": "{\"Version\":\"2012-10-17\",\"Statement\":[]}",
    })
}

/// A bucket's properties in which `set` replaces or adds fields.
fn info_with(info: &BucketInfo, set: Value) -> BucketInfo {
    let mut value = serde_json::to_value(info).unwrap();
    let (fields, Value::Object(set)) = (value.as_object_mut().unwrap(), set) else {
        panic!("not an object")
    };
    fields.extend(set);
    serde_json::from_value(value).unwrap()
}

fn native(name: &str) -> BucketInfo {
    BucketInfo::requested(bucket(name), None)
}

fn cloud(name: &str) -> BucketInfo {
    BucketInfo::requested(Bucket::new(Provider::Aws, name).unwrap(), None)
}

/// Commands that between them set every property of buckets.
fn bucket_commands() -> Vec<Command> {
    let made = [
        info_with(&native("s3"), json!({"s3": s3_settings()})),
        info_with(&native("suspended"), json!({"s3": {"versioning": "suspended"}})),
        info_with(&native("coded"), json!({"erasure": {"data": 3, "parity": 1, "limit": 4096}})),
        info_with(
            &cloud("cloud"),
            json!({
                "freshness": "never", "checksum": "sha256", "endpoint_trust": "judged",
                "backend": {"type": "gcs", "bucket": "far", "endpoint": "https://gcs.test"},
                "cache": {"pin": true, "share": 40, "ttl": 3600, "admission": "second-miss"},
                "cloud": {"attempts": 3, "multiplier": 1.5, "compose": "on", "concurrency": 16},
            }),
        ),
        info_with(&cloud("plain"), json!({"freshness": "always", "cache": {"pin": false}})),
        info_with(
            &native("folder"),
            json!({"class": "cache", "backend": {"type": "folder", "root": "/data/images"}}),
        ),
        info_with(
            &native("kept"),
            json!({"extra": {
                "access": "775", "features": "2", "extra": {"custom": "team=a"},
                "chunks": {"chunk_size": "64MiB"}, "mirror": {"burst_buffer": 9, "enabled": false},
                "rate_limit": {"backend": {"enabled": true, "max_tokens": 7}},
            }}),
        ),
    ];
    let created = |info: BucketInfo| Command::CreateBucket { info: Box::new(info), now_ns: 20 };
    let changed = info_with(
        &native("s3"),
        json!({"id": 1, "copies": 1, "s3": {"tags": [{"key": "k", "value": "v"}], "owner": "bob"}}),
    );
    let mut log = five_targets();
    log.extend(made.into_iter().map(created));
    log.push(Command::SetBucket { info: Box::new(changed) });
    log.push(created(info_with(&native("again"), json!({"s3": s3_settings()}))));
    log
}

#[test]
fn a_log_with_every_property_of_buckets_is_read_and_makes_the_state_that_it_always_made() {
    let log = bucket_commands();
    let read = captured_log("bucket-commands.jsonl", &log);
    assert_eq!(message("bucket-state.json", &applied(read)), applied(log));
}

/// A command that changes defaults of new buckets, in every section that has one.
fn defaults() -> Command {
    let change = [
        ("checksum.type", "md5"),
        ("checksum.validate_warm_get", "true"),
        ("chunks.chunk_size", "2GiB"),
        ("ec.compression", "always"),
        ("ec.data_slices", "3"),
        ("ec.enabled", "true"),
        ("ec.objsize_limit", "4096"),
        ("lru.dont_evict_time", "3h"),
        ("lru.enabled", "false"),
        ("mirror.burst_buffer", "9"),
        ("mirror.copies", "3"),
        ("mirror.enabled", "false"),
        ("rate_limit.backend.enabled", "true"),
        ("versioning.validate_warm_get", "true"),
        ("write_policy.md", "delayed"),
    ];
    let change = change.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    Command::Configure { change, reset: false, now_ns: 30 }
}

#[test]
fn defaults_of_the_cluster_become_the_same_properties_of_new_buckets_as_ever() {
    let mut log = five_targets();
    log.push(defaults());
    let state = applied(log);
    let folder = BackendSpec {
        root: Some("/data/images".into()),
        ..BackendSpec::new(BackendKind::Folder, "")
    };
    let cloud = Bucket::new(Provider::Aws, "cloud").unwrap();
    let made = [(bucket("native"), None), (cloud, None), (bucket("folder"), Some(folder))]
        .map(|(bucket, backend)| state.requested(bucket, backend));
    captured("bucket-defaults.json", &serde_json::to_vec_pretty(&made).unwrap());
    message("bucket-defaults-state.json", &state);
}

/// Sections of properties in their stored form, one after another for a native bucket and for one
/// with a backend.
fn sections() -> Vec<(&'static str, Value)> {
    vec![
        ("checksum", json!({"type": "crc32c"})),
        ("checksum", json!({"type": "unknown", "validate_warm_get": true})),
        ("versioning", json!({"validate_warm_get": true, "enabled": true})),
        ("versioning", json!({"validate_warm_get": false})),
        ("versioning", json!({"validate_warm_get": "x"})),
        ("mirror", json!({"copies": 4})),
        ("mirror", json!({"enabled": true})),
        ("mirror", json!({"copies": 3, "burst_buffer": 7})),
        ("mirror", json!({"enabled": false})),
        ("mirror", json!({"enabled": true, "copies": 0})),
        ("ec", json!({"data_slices": 4, "disk_only": true})),
        ("ec", json!({"enabled": true, "parity_slices": 300})),
        ("ec", json!({"objsize_limit": -1})),
        ("ec", json!({"objsize_limit": 65536, "parity_slices": 1})),
        ("ec", json!({"enabled": false})),
        ("lru", json!({"enabled": false, "batch_size": 5})),
        ("lru", json!({"enabled": true})),
        ("chunks", json!({"chunk_size": "64MiB"})),
        ("access", json!("775")),
        ("extra", json!({"custom": "team=a"})),
        ("extra", json!({"custom": "team=b"})),
        ("checksum", Value::Null),
    ]
}

#[test]
fn a_section_of_properties_changes_a_bucket_as_it_always_did() {
    let mut lines = String::new();
    for mut info in [native("native"), cloud("cloud")] {
        for (section, value) in sections() {
            info.set_section(section, value.clone());
            let line = json!({"set": section, "to": value, "gives": info});
            lines += &(serde_json::to_string(&line).unwrap() + "\n");
        }
    }
    captured("bucket-sections.jsonl", lines.as_bytes());
}

#[test]
fn a_promotion_starts_by_the_words_of_the_first_version() {
    let args = json!({"target": "target-1", "source": "/data/in", "object": "p/", "recursive": true,
        "overwrite": false, "delete_source": true, "not_shared": false});
    let request: PromoteRequest = serde_json::from_value(json!({
        "id": "promote-1", "bucket": bucket("train"), "args": args, "shared": true,
    }))
    .unwrap();
    message("promote-args.json", &request.args);
    message("promote-request.json", &request);
    message("promote-scan.json", &PromoteScan { files: 3, digest: u64::MAX, more: true });
}
