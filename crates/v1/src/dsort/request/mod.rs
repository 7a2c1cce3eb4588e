//! Parses a request to sort shards. In addition to AIStore's keys it may have Forebay's: `ekm`, the
//! text of a key map, `timeout` and `overwrite`.

mod encode;
mod fields;

use serde_json::Value;

pub use self::encode::request_json;
use forebay_core::dsort::{DsortSpec, Overwrite, Reaction};
use forebay_core::error::{Error, Result};
use forebay_core::settings::ClusterSettings;
use forebay_core::size::{ByteSize, parse_duration};

use self::fields::{algorithm, bucket, config, flag, input, key_map, limit, text, text_of};
use crate::action::parse_json;

/// Keys of a request, in lower case.
const KEYS: [&str; 23] = [
    "input_bck",
    "input_format",
    "input_extension",
    "output_bck",
    "output_format",
    "output_extension",
    "output_shard_size",
    "algorithm",
    "description",
    "ekm_file",
    "ekm_file_sep",
    "ekm_sep",
    "ekm",
    "max_mem_usage",
    "extract_concurrency_max_limit",
    "create_concurrency_max_limit",
    "dsorter_type",
    "dry_run",
    "overwrite",
    "config",
    "timeout",
    // Sent by older clients with each request.
    "uuid",
    "id",
];
/// Keys of the cluster's configuration that a request may override, in `Config` or next to it.
const REACTIONS: [&str; 4] =
    ["duplicated_records", "missing_shards", "ekm_malformed_line", "ekm_missing_key"];
/// Keys without an effect here: nothing is extracted, and transfers between targets are not
/// compressed.
const IDLE: [&str; 5] = [
    "default_max_mem_usage",
    "dsorter_mem_threshold",
    "compression",
    "bundle_multiplier",
    "burst_buffer",
];

/// Parses the specification in a request. `seed` is used for a shuffle without its own.
pub fn requested(body: &[u8], settings: &ClusterSettings, seed: u64) -> Result<DsortSpec> {
    let message = parse_json(body)?;
    let Value::Object(keys) = &message else {
        return Err(Error::invalid("a dsort spec is a JSON object"));
    };
    let config = config(&message)?;
    let known = |key: &str| KEYS.contains(&key) || REACTIONS.contains(&key);
    if let Some(key) = keys.keys().find(|k| !known(k)) {
        return Err(unknown(key));
    }
    let of_config = |key: &str| REACTIONS.contains(&key) || IDLE.contains(&key);
    if let Some(key) = config.keys().find(|k| !of_config(k) && *k != "call_timeout") {
        return Err(unknown(&format!("Config.{key}")));
    }
    let source = bucket(&message, "input_bck")?
        .ok_or_else(|| Error::invalid("missing source bucket: input_bck.name"))?;
    let destination = bucket(&message, "output_bck")?.unwrap_or_else(|| source.clone());
    let (algorithm, decreasing) = algorithm(message.get("algorithm"), seed)?;
    let reaction = |key: &str| -> Result<Reaction> {
        let given = text(&message, key)?;
        let given = if given.is_empty() { text_of(config.get(key), key)? } else { given };
        let or_default = match given.as_str() {
            "" => settings.text(&format!("distributed_sort.{key}")).to_owned(),
            _ => given,
        };
        or_default
            .parse()
            .map_err(|e: Error| Error { message: format!("{key}: {}", e.message), ..e })
    };
    let mut spec = DsortSpec {
        input: input(message.get("input_format"))?,
        input_ext: text(&message, "input_extension")?.trim().to_owned(),
        template: text(&message, "output_format")?.trim().to_owned(),
        output_ext: text(&message, "output_extension")?.trim().to_owned(),
        algorithm,
        decreasing,
        key_map: key_map(&message)?,
        extract_limit: limit(&message, "extract_concurrency_max_limit")?,
        create_limit: limit(&message, "create_concurrency_max_limit")?,
        dry_run: flag(&message, "dry_run")?,
        description: text(&message, "description")?,
        overwrite: match text(&message, "overwrite")?.as_str() {
            "" => Overwrite::OthersThanInput,
            "never" => Overwrite::Never,
            "always" => Overwrite::Always,
            other => {
                return Err(Error::invalid(format!("invalid overwrite \"{other}\""))
                    .hint("never or always; without it all but the input may be replaced"));
            }
        },
        ..DsortSpec::new(source, destination)
    };
    spec.on.duplicated_records = reaction("duplicated_records")?;
    spec.on.missing_shards = reaction("missing_shards")?;
    spec.on.ekm_malformed_line = reaction("ekm_malformed_line")?;
    spec.on.ekm_missing_key = reaction("ekm_missing_key")?;
    let size = text(&message, "output_shard_size")?;
    if !size.trim().is_empty() {
        let bad = |e: Error| Error { message: format!("output_shard_size: {}", e.message), ..e };
        spec.shard_bytes = ByteSize::parse(&size).map_err(bad)?.0;
    }
    let memory = text(&message, "max_mem_usage")?;
    let memory = match memory.as_str() {
        "" => settings.text("distributed_sort.default_max_mem_usage"),
        given => given,
    };
    spec.memory = memory.parse()?;
    let timeout = match text(&message, "timeout")? {
        none if none.is_empty() => text_of(config.get("call_timeout"), "call_timeout")?,
        given => given,
    };
    // Go encodes an absent duration as 0s.
    if !matches!(timeout.as_str(), "" | "0" | "0s") {
        let ms = parse_duration(&timeout)?.as_millis();
        spec.timeout_ms = u64::try_from(ms).unwrap_or(u64::MAX);
    }
    match text(&message, "dsorter_type")?.as_str() {
        "" | "dsort_general" | "dsort_mem" => {}
        other => return Err(Error::invalid(format!("unknown dsorter_type \"{other}\""))),
    }
    spec.check()?;
    Ok(spec)
}

fn unknown(key: &str) -> Error {
    Error::invalid(format!("a dsort spec has no key \"{key}\""))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::dsort::{Algorithm, ContentType, InputFormat, KeyMapSource};
    use serde_json::json;

    use super::*;

    fn parsed(spec: Value) -> Result<DsortSpec> {
        requested(spec.to_string().as_bytes(), &ClusterSettings::default(), 77)
    }

    fn least() -> Value {
        json!({"input_bck": {"name": "a"}, "output_format": "o-{0..9}"})
    }

    fn with(key: &str, value: Value) -> Value {
        let mut spec = least();
        spec[key] = value;
        spec
    }

    #[test]
    fn the_least_spec_sorts_all_shards_of_a_bucket_within_it() {
        let spec = parsed(least()).unwrap();
        assert_eq!(spec.destination, spec.source);
        assert_eq!(spec.input, InputFormat::Prefix(String::new()));
        assert_eq!((spec.algorithm, spec.shard_bytes), (Algorithm::Alphanumeric, 0));
        assert_eq!(spec.on, forebay_core::dsort::Reactions::default());
        assert_eq!(spec.overwrite, Overwrite::OthersThanInput);
    }

    #[test]
    fn everything_that_clients_send_is_read() {
        let spec = parsed(json!({
            "input_bck": {"name": "a", "provider": "aws", "namespace": {"uuid": "", "name": ""}},
            "input_format": {"template": "in-{0..9}", "objnames": null},
            "input_extension": ".tgz", "output_bck": {"name": "b", "provider": "ais"},
            "output_format": "", "output_extension": ".zip", "output_shard_size": "10KB",
            "algorithm": {"kind": "content", "decreasing": true, "seed": "",
                "extension": " .cls ", "content_key_type": "int"},
            "description": "d", "ekm_file": "http://x/y", "ekm_file_sep": "",
            "max_mem_usage": "64MiB", "extract_concurrency_max_limit": 3,
            "create_concurrency_max_limit": 4, "dsorter_type": "", "dry_run": true,
            "Config": {"missing_shards": "abort", "duplicated_records": "", "call_timeout": "2m",
                "compression": "never", "bundle_multiplier": 0},
        }))
        .unwrap();
        assert_eq!(
            (spec.source.to_string(), spec.destination.to_string()),
            ("s3://a".into(), "ais://b".into())
        );
        assert_eq!(spec.input, InputFormat::Template("in-{0..9}".into()));
        assert_eq!(spec.shard_bytes, 10 << 10);
        let content = Algorithm::Content { ext: ".cls".into(), kind: ContentType::Int };
        assert_eq!((spec.algorithm.clone(), spec.decreasing), (content, true));
        assert_eq!(spec.key_map, Some(KeyMapSource::url("http://x/y", "\t")));
        assert_eq!(spec.on.missing_shards, Reaction::Abort);
        assert_eq!(spec.on.duplicated_records, Reaction::Abort, "the cluster's own");
        assert_eq!((spec.extract_limit, spec.create_limit, spec.timeout_ms), (3, 4, 120_000));
        assert_eq!(parsed(request_json(&spec)).unwrap(), spec);
    }

    #[test]
    fn the_input_is_named_in_four_ways() {
        let input = |value| parsed(with("input_format", value)).unwrap().input;
        let template = |text: &str| InputFormat::Template(text.into());
        assert_eq!(input(json!({"template": "s-{0..9}"})), template("s-{0..9}"));
        assert_eq!(input(json!({"template": "s-@09"})), template("s-@09"));
        assert_eq!(input(json!({"template": "s-"})), InputFormat::Prefix("s-".into()));
        let names = InputFormat::Names(vec!["x.tar".into()]);
        assert_eq!(input(json!({"objnames": ["x.tar"], "template": ""})), names);
        assert_eq!(input(json!({"template": "", "objnames": null})), InputFormat::default());
        assert!(parsed(with("input_format", json!({"template": "s-%06d"}))).is_err());
        assert!(parsed(with("input_format", json!({"template": "s-{0..99999999}"}))).is_err());
    }

    #[test]
    fn a_shuffle_without_a_seed_gets_one() {
        let of = |value| parsed(with("algorithm", value)).map(|s| s.algorithm);
        assert_eq!(of(json!({"kind": "shuffle", "seed": ""})), Ok(Algorithm::Shuffle { seed: 77 }));
        assert_eq!(of(json!({"kind": "shuffle", "seed": "5"})), Ok(Algorithm::Shuffle { seed: 5 }));
        assert!(of(json!({"kind": "shuffle", "seed": "-5"})).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_name() {
        for (key, value, word) in [
            ("input_bck", json!({"provider": "ais"}), "input_bck"),
            ("output_format", json!("shard"), "output_format"),
            ("output_format", json!(""), "output_format"),
            ("output_format", json!("shard-%06d"), "output_shard_size"),
            ("output_shard_size", json!("many"), "output_shard_size"),
            ("ekm_file", json!("http://x"), "output_shard_size"),
            ("input_extension", json!(".rar"), "extension"),
            ("algorithm", json!({"kind": "random"}), "algorithm"),
            ("algorithm", json!({"kind": "content"}), "content_key_type"),
            ("algorithm", json!({"kind": "content", "content_key_type": "int"}), "extension"),
            ("create_concurrency_max_limit", json!(-1), "create_concurrency_max_limit"),
            ("missing_shards", json!("panic"), "missing_shards"),
            ("max_mem_usage", json!("101%"), "memory"),
            ("output_shardsize", json!("1MB"), "output_shardsize"),
            ("Config", json!({"shards": 1}), "Config.shards"),
        ] {
            let error = parsed(with(key, value)).unwrap_err();
            assert!(error.message.contains(word), "{key}: {error}");
        }
    }
}
