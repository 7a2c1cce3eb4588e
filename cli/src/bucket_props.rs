//! `forebay bucket show`, `set`, `reset`: the properties of a bucket.

use clap::{Args, Subcommand};
use forebay_core::Error;
use forebay_core::bill::{BucketBill, RequestClass};
use forebay_core::bucket::BackendKind;
use forebay_core::cache_rules::{CacheRules, show_seconds};
use forebay_core::cloud_rules::CloudRules;
use forebay_core::config::nearest;
use forebay_core::quota::BucketQuota;
use forebay_core::rate::BucketRates;
use forebay_core::size::{ByteSize, parse_duration};
use forebay_core::warmth::BucketWarmth;
use serde_json::{Map, Value, json};

use crate::bucket_warmth;
use crate::failure::Failure;
use crate::object;
use crate::output;
use crate::session::Session;
use crate::uri;

/// Properties that `set` accepts.
const KEYS: [&str; 17] = [
    "freshness",
    "class",
    "copies",
    "ec",
    "checksum",
    "pin",
    "share",
    "min_share",
    "ttl",
    "admission",
    "account",
    "region",
    "endpoint",
    "quota.bytes",
    "quota.objects",
    "rate.requests_per_second",
    "rate.bytes_per_second",
];

#[derive(Debug, Subcommand)]
pub(crate) enum BucketCommand {
    /// List buckets with what is cached of them, and what their readers got from the cache
    Ls(bucket_warmth::ListArgs),
    /// Show a bucket's properties, what is cached of it, and the requests and bytes that its cloud
    /// bills
    #[command(visible_alias = "info", after_help = "Example:\n  forebay bucket show s3://data")]
    Show(BucketArgs),
    /// Change properties of a bucket
    Set(SetArgs),
    /// Reset all properties to their defaults
    #[command(after_help = "Example:\n  forebay bucket reset s3://data")]
    Reset(BucketArgs),
}

#[derive(Debug, Args)]
pub(crate) struct BucketArgs {
    /// The bucket, for example s3://data
    #[arg(value_name = "URI")]
    bucket: String,
}

#[derive(Debug, Args)]
#[command(after_help = "Properties:
  freshness=AGE   age after which a copy is compared with its backend: 10m,
                  always or never
  class=CLASS     owned: a write is synced before its answer; cache: it is not
  copies=N        number of targets that hold each object of a native bucket
  ec=D+P          objects over 256 KiB also have D data and P parity slices on
                  other targets, smaller ones P + 1 copies; needs D + P + 1
                  targets; \"4+2,1MiB\" moves the border to 1 MiB; off
  checksum=KIND   checksum of objects that are written from now on
  pin=true        copies are never evicted for space; not with ttl or with
                  admission=never
  share=PERCENT   largest share of each disk's budget for copies
  min_share=PERCENT
                  part of each disk's budget that the bucket keeps while others
                  have more than theirs; at most 100 over all buckets
  ttl=TIME        copies that were not read for this time are dropped: 12h or
                  never
  admission=WHEN  keep a copy at the first read (always), at the second
                  (second-miss), or never
  account=NAME    account of the targets' configuration that calls the cloud;
                  empty for that of their environment. Cached objects of the
                  bucket are dropped
  region=REGION   region of a bucket of S3; empty: it is found out
  endpoint=URL    server of the bucket. Cached objects of the bucket are dropped
  quota.bytes=SIZE, quota.objects=N
                  the most that a native bucket may hold in the whole cluster,
                  without copies and slices; none
  rate.requests_per_second=N, rate.bytes_per_second=SIZE
                  limits of requests for objects, and of the bytes of their
                  bodies, in the whole cluster; none
  cloud.RULE=VALUE  rules for requests to the backend; \"default\" resets one:
    attempts, first_pause_ms, multiplier, longest_pause_ms, jitter,
    deadline_ms: retries
    answer_ms, stall_ms: timeouts of an answer, and of the next byte of a body
    concurrency: most calls in flight from one target
    requests_per_second, bytes_per_second: limits for the whole cluster
    ranges_above: larger objects are fetched by several ranges at once
    compose: on or force: Google composes small objects, which are then read
    together
    list_max_age_ms: age up to which a listing may be reused

A native bucket has copies or ec, and none of pin, share, min_share, ttl,
admission and cloud. A bucket with a backend has no ec and no quota. It accepts
copies=N for AIStore's clients, but each object keeps one copy. Copies and ec
exclude each other: copies=1 ec=4+2 changes both at once. If a property is
refused, the exit code is 2 and nothing is changed.

Examples:
  forebay bucket set ais://results copies=2
  forebay bucket set ais://models ec=4+2
  forebay bucket set ais://results quota.bytes=500GiB quota.objects=1000000
  forebay bucket set s3://data rate.bytes_per_second=2GiB
  forebay bucket set s3://data pin=true
  forebay bucket set s3://train min_share=30%
  forebay bucket set s3://logs share=20% ttl=2d admission=second-miss
  forebay bucket set gs://train cloud.concurrency=16")]
pub(crate) struct SetArgs {
    /// The bucket, for example s3://data
    #[arg(value_name = "URI")]
    bucket: String,
    /// The properties to change
    #[arg(value_name = "KEY=VALUE", required = true)]
    changes: Vec<String>,
}

pub(crate) async fn run(session: &Session, command: &BucketCommand) -> Result<(), Failure> {
    match command {
        BucketCommand::Ls(args) => bucket_warmth::list(session, args).await,
        BucketCommand::Show(args) => {
            object::stat_bucket(session, &uri::bucket(&args.bucket)?).await
        }
        BucketCommand::Set(args) => {
            let bucket = uri::bucket(&args.bucket)?;
            let props = parse(&args.changes)?;
            let without_effect = session.client.set_bucket(&bucket, props).await?;
            if without_effect.is_some_and(|names| names.contains("mirror.")) {
                session.warn(format!(
                    "warning: copies has no effect: {bucket} has a backend, and one copy of each object"
                ));
            }
            object::stat_bucket(session, &bucket).await
        }
        BucketCommand::Reset(args) => {
            let bucket = uri::bucket(&args.bucket)?;
            session.client.reset_bucket(&bucket).await?;
            let json = json!({ "bucket": bucket.to_string() });
            let name = bucket.to_string();
            output::one(session.format, &name, &[("reset", name.clone())], &json)
        }
    }
}

/// The changes in the form of the gateway's API.
fn parse(changes: &[String]) -> Result<Value, Failure> {
    let (mut props, mut cache, mut cloud) = (Map::new(), Map::new(), Map::new());
    let mut backend = Map::new();
    let (mut quota, mut rate) = (Map::new(), Map::new());
    for change in changes {
        let Some((key, value)) = change.split_once('=') else {
            return Err(Failure::usage(
                format!("\"{change}\" is not a property and its value"),
                "for example pin=true".to_owned(),
            ));
        };
        let value = value.trim();
        match key.trim() {
            "freshness" => drop(props.insert("freshness".into(), freshness(value)?)),
            "class" => drop(props.insert("class".into(), json!(value))),
            "copies" => drop(props.insert("mirror".into(), copies(value)?)),
            "ec" => drop(props.insert("ec".into(), erasure(value)?)),
            "checksum" => drop(props.insert("checksum".into(), json!({ "type": value }))),
            key @ ("pin" | "share" | "min_share" | "ttl" | "admission") => {
                drop(cache.insert(key.into(), json!(value)));
            }
            key @ ("account" | "region" | "endpoint") => {
                drop(backend.insert(key.into(), json!(value)));
            }
            other => match other.split_once('.') {
                Some(("cache", rule)) => drop(cache.insert(rule.into(), json!(value))),
                Some(("cloud", rule)) => drop(cloud.insert(rule.into(), json!(value))),
                Some(("quota", limit)) => drop(quota.insert(limit.into(), json!(value))),
                Some(("rate", limit)) => drop(rate.insert(limit.into(), json!(value))),
                _ => return Err(unknown(other)),
            },
        }
    }
    if !cache.is_empty() {
        let cache = Value::Object(cache);
        // Checks single values here; the gateway checks those that depend on others.
        CacheRules::default().apply(&cache)?;
        props.insert("cache".into(), cache);
    }
    if !cloud.is_empty() {
        let cloud = Value::Object(cloud);
        CloudRules::default().apply(&cloud)?;
        props.insert("cloud".into(), cloud);
    }
    if !backend.is_empty() {
        props.insert("backend".into(), Value::Object(backend));
    }
    if !quota.is_empty() {
        let quota = Value::Object(quota);
        BucketQuota::default().apply(&quota)?;
        props.insert("quota".into(), quota);
    }
    if !rate.is_empty() {
        let rate = Value::Object(rate);
        BucketRates::default().apply(&rate)?;
        props.insert("rate".into(), rate);
    }
    Ok(Value::Object(props))
}

fn unknown(key: &str) -> Failure {
    let hint = match nearest(key, KEYS) {
        Some(near) => format!("did you mean {near}?"),
        None => format!("there are {}", KEYS.join(", ")),
    };
    Failure::usage(format!("a bucket has no property \"{key}\" that can be set"), hint)
}

fn copies(value: &str) -> Result<Value, Failure> {
    match value.parse::<u32>() {
        Ok(n @ 1..) => Ok(json!({ "enabled": n > 1, "copies": n.max(2) })),
        _ => Err(Failure::usage(format!("\"{value}\" is no number of copies"), "for example 2")),
    }
}

/// Parses `D+P`, optionally with a comma and the size up to which objects are copied instead; or
/// `off`.
fn erasure(value: &str) -> Result<Value, Failure> {
    if value == "off" {
        return Ok(json!({ "enabled": false }));
    }
    let bad = || Failure::usage(format!("\"{value}\" is no number of slices"), "for example 4+2");
    let (slices, limit) = value.split_once(',').map_or((value, None), |(s, l)| (s, Some(l)));
    let (data, parity) = slices.split_once('+').ok_or_else(bad)?;
    let number = |text: &str| text.trim().parse::<u8>().map_err(|_| bad());
    let mut section = Map::new();
    section.insert("enabled".into(), json!(true));
    section.insert("data_slices".into(), json!(number(data)?));
    section.insert("parity_slices".into(), json!(number(parity)?));
    if let Some(limit) = limit {
        let limit = ByteSize::parse(limit).map_err(|_| bad())?;
        section.insert("objsize_limit".into(), json!(limit.0));
    }
    Ok(Value::Object(section))
}

fn freshness(value: &str) -> Result<Value, Failure> {
    if matches!(value, "always" | "never") {
        return Ok(json!(value));
    }
    let age = value.parse().or_else(|_| parse_duration(value).map(|d| d.as_secs()));
    match age {
        Ok(seconds) => Ok(json!({ "age": seconds })),
        Err(e) => Err(Error::invalid(format!("invalid freshness: {e}"))
            .hint("always, never, or an age such as 10m")
            .into()),
    }
}

/// The properties to print, of those that a gateway returns.
pub(crate) fn lines(props: &Value) -> Vec<(&'static str, String)> {
    let text = |key: &str| props.get(key).and_then(Value::as_str).map(str::to_owned);
    let mut lines = Vec::new();
    if let Some(class) = text("class") {
        lines.push(("class", class));
    }
    if props.pointer("/mirror/enabled").and_then(Value::as_bool) == Some(true) {
        let copies = props.pointer("/mirror/copies").and_then(Value::as_u64);
        lines.extend(copies.map(|n| ("copies", n.to_string())));
    }
    if props.pointer("/ec/enabled").and_then(Value::as_bool) == Some(true) {
        let number = |key: &str| props["ec"][key].as_i64().unwrap_or_default();
        let mut text = format!("{}+{}", number("data_slices"), number("parity_slices"));
        if let Ok(limit) = u64::try_from(number("objsize_limit")) {
            text.push_str(&format!(",{}", ByteSize(limit)));
        }
        lines.push(("ec", text));
    }
    for key in ["account", "region"] {
        let set = props["backend"][key].as_str();
        lines.extend(set.map(|value| (key, value.to_owned())));
    }
    let quota = props.get("quota").cloned();
    let quota: BucketQuota = quota.and_then(|q| serde_json::from_value(q).ok()).unwrap_or_default();
    lines.extend(quota.bytes.map(|most| ("quota.bytes", ByteSize(most).to_string())));
    lines.extend(quota.objects.map(|most| ("quota.objects", most.to_string())));
    lines.extend(rate_lines(props));
    let age = props.pointer("/freshness/age").and_then(Value::as_u64).map(show_seconds);
    let cache = props.get("cache").cloned();
    let Some(rules) = cache.and_then(|c| serde_json::from_value::<CacheRules>(c).ok()) else {
        return lines;
    };
    if let Some(freshness) = age.or_else(|| text("freshness")) {
        lines.push(("freshness", freshness));
    }
    lines.push(("pin", rules.pin.to_string()));
    lines.push(("share", format!("{}%", rules.share)));
    if rules.min_share > 0 {
        lines.push(("min_share", format!("{}%", rules.min_share)));
    }
    lines.push(("ttl", rules.ttl.map_or("never".into(), show_seconds)));
    lines.push(("admission", rules.admission.as_str().to_owned()));
    let cloud = props.get("cloud").cloned();
    let cloud =
        cloud.and_then(|c| serde_json::from_value::<CloudRules>(c).ok()).unwrap_or_default();
    lines.extend(cloud.lines());
    lines
}

/// The rates, as lines to print.
fn rate_lines(props: &Value) -> Vec<(&'static str, String)> {
    let rates = props.get("rate").cloned();
    let rates: BucketRates = rates.and_then(|r| serde_json::from_value(r).ok()).unwrap_or_default();
    let requests = rates.requests_per_second.map(|n| ("rate.requests_per_second", n.to_string()));
    let bytes = rates.bytes_per_second.map(|n| ("rate.bytes_per_second", ByteSize(n).to_string()));
    requests.into_iter().chain(bytes).collect()
}

/// The usage of the quota, as a line to print.
pub(crate) fn quota_line(props: &Value, warmth: &BucketWarmth) -> Option<(&'static str, String)> {
    let quota: BucketQuota = serde_json::from_value(props.get("quota")?.clone()).ok()?;
    let used = warmth.quota_used?;
    let percent = |used: u64, most: u64| (used as f64 / most.max(1) as f64 * 100.0).round();
    let bytes = quota.bytes.map(|most| {
        let (used, percent) = (used.bytes, percent(used.bytes, most));
        format!("{} of {} ({percent}%)", ByteSize(used), ByteSize(most))
    });
    let objects = quota.objects.map(|most| {
        let (used, percent) = (used.objects, percent(used.objects, most));
        format!("{used} of {most} objects ({percent}%)")
    });
    let parts: Vec<String> = bytes.into_iter().chain(objects).collect();
    (!parts.is_empty()).then(|| ("quota used", parts.join(", ")))
}

/// The costs at a cloud, as lines to print.
pub(crate) fn bill_lines(kind: BackendKind, bill: &BucketBill) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    let BucketBill { bill, targets, away } = bill;
    for class in RequestClass::of(kind) {
        let name = match class {
            RequestClass::A => "class A requests",
            RequestClass::B => "class B requests",
            RequestClass::Write => "write requests",
            RequestClass::List => "list requests",
            RequestClass::Read => "read requests",
            RequestClass::Other => "other requests",
            RequestClass::Free => "free requests",
            RequestClass::Request => "requests",
        };
        lines.push((name, bill.requests.get(class).copied().unwrap_or(0).to_string()));
    }
    let bytes = |n| ByteSize(n).to_string();
    if bill.listing_pages > 0 {
        let pages = format!("{} pages, {}", bill.listing_pages, bytes(bill.listing_bytes));
        lines.push(("listed", pages));
    }
    lines.push(("fetched", bytes(bill.fetched_bytes)));
    lines.push(("sent", bytes(bill.sent_bytes)));
    lines.push(("egress saved", bytes(bill.saved_bytes)));
    lines.push((
        "counted by",
        match away {
            0 => format!("{targets} targets since they started"),
            away => format!("{targets} targets since they started; {away} are away"),
        },
    ));
    lines
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn parsed(changes: &[&str]) -> Result<Value, Failure> {
        parse(&changes.iter().map(|c| (*c).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn changes_become_what_the_gateway_takes() {
        let props = parsed(&["freshness=10m", "class=cache", "share=20%", "ttl=2d"]).unwrap();
        let wanted = json!({ "freshness": { "age": 600 }, "class": "cache",
            "cache": { "share": "20%", "ttl": "2d" } });
        assert_eq!(props, wanted);
        let mirror = json!({ "mirror": { "enabled": true, "copies": 3 } });
        assert_eq!(parsed(&["copies=3"]).unwrap(), mirror);
        assert_eq!(parsed(&["copies=1"]).unwrap()["mirror"]["enabled"], json!(false));
        let ec = json!({ "enabled": true, "data_slices": 4, "parity_slices": 2 });
        assert_eq!(parsed(&["ec=4+2"]).unwrap(), json!({ "ec": ec }));
        assert_eq!(parsed(&["ec=2+1,1MiB"]).unwrap()["ec"]["objsize_limit"], json!(1 << 20));
        assert_eq!(parsed(&["ec=off"]).unwrap()["ec"], json!({ "enabled": false }));
        let quota = json!({ "quota": { "bytes": "2GiB", "objects": "none" } });
        assert_eq!(parsed(&["quota.bytes=2GiB", "quota.objects=none"]).unwrap(), quota);
        assert_eq!(parsed(&["freshness=always"]).unwrap(), json!({ "freshness": "always" }));
        let min = json!({ "cache": { "min_share": "30%" } });
        assert_eq!(parsed(&["min_share=30%"]).unwrap(), min);
        assert_eq!(parsed(&["cache.min_share=30%"]).unwrap(), min);
    }

    #[test]
    fn mistakes_are_named_before_anything_is_asked() {
        for (bad, word) in [
            ("pin", "pin=true"),
            ("shares=4", "share"),
            ("share=0", "1 to 100"),
            ("min_share=some", "cache.min_share"),
            ("cache.min_shar=5", "min_share"),
            ("copies=none", "number of copies"),
            ("ec=4", "number of slices"),
            ("ec=4+x", "4+2"),
            ("freshness=soon", "10m"),
            ("admission=maybe", "second-miss"),
            ("quota.bytes=lots", "quota.bytes"),
            ("quota.byte=1", "did you mean"),
            ("rate.bytes_per_second=1", "at least 1024"),
            ("rate.requests_per_secund=1", "did you mean"),
            ("cloud.attempts=0", "from 1 to 100"),
            ("cloud.atempts=2", "attempts"),
        ] {
            let failure = parsed(&[bad]).unwrap_err();
            assert!(format!("{failure:?}").contains(word), "{bad}: {failure:?}");
        }
    }

    #[test]
    fn what_is_shown_can_be_set_again() {
        let cache = json!({ "pin": false, "share": 20, "min_share": 10, "ttl": 172_800, "admission": "always" });
        let cloud = json!({ "attempts": 3, "jitter": 0.25, "bytes_per_second": 1_048_576 });
        let ec = json!({ "enabled": true, "data_slices": 4, "parity_slices": 2,
            "objsize_limit": 1 << 20 });
        let rate = json!({ "requests_per_second": "500", "bytes_per_second": "1GiB" });
        let numbers = json!({ "requests_per_second": 500, "bytes_per_second": 1 << 30 });
        let props = json!({ "class": "cache", "freshness": { "age": 600 }, "cache": cache,
            "cloud": cloud, "ec": ec, "rate": numbers });
        let shown = lines(&props);
        let again: Vec<String> = shown.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let set = parse(&again).unwrap();
        assert_eq!((&set["freshness"], &set["ec"]), (&props["freshness"], &ec));
        assert_eq!(set["rate"], rate);
        let mut rules = CacheRules::default();
        rules.apply(&set["cache"]).unwrap();
        assert_eq!(json!(rules), cache);
        let mut rules = CloudRules::default();
        rules.apply(&set["cloud"]).unwrap();
        assert_eq!(json!(rules), cloud);
        assert!(lines(&json!({ "class": "owned" })).len() == 1, "no cache, no rules");
    }
}
