//! Parses a request to sort shards. In addition to AIStore's keys it may have Forebay's: `ekm`, the
//! text of a key map, `timeout` and `overwrite`.

use serde_json::{Map, Value, json};

use crate::dsort::{
    Algorithm, DsortSpec, InputFormat, KeyMapAt, KeyMapSource, Memory, Overwrite, Reaction,
};
use crate::error::{Error, Result};
use crate::job::Selection;
use crate::name::Bucket;
use crate::settings::ClusterSettings;
use crate::size::{ByteSize, parse_duration};
use crate::v1::action::{lower_keys, parse_json, selection};

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
const ALGORITHMS: &str = "one of alphanumeric, none, md5, shuffle, content";

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

/// The request for a specification.
pub fn request_json(spec: &DsortSpec) -> Value {
    let input = match &spec.input {
        InputFormat::Names(names) => json!({ "objnames": names }),
        InputFormat::Template(text) => json!({ "template": text }),
        InputFormat::Prefix(prefix) => json!({ "prefix": prefix }),
    };
    let (kind, more) = match &spec.algorithm {
        Algorithm::Alphanumeric => ("alphanumeric", Value::Null),
        Algorithm::None => ("none", Value::Null),
        Algorithm::Md5 => ("md5", Value::Null),
        Algorithm::Shuffle { seed } => ("shuffle", json!({ "seed": seed.to_string() })),
        Algorithm::Content { ext, kind } => {
            ("content", json!({ "extension": ext, "content_key_type": kind }))
        }
    };
    let mut algorithm = Map::from_iter([
        ("kind".to_owned(), json!(kind)),
        ("decreasing".to_owned(), json!(spec.decreasing)),
    ]);
    if let Value::Object(more) = more {
        algorithm.extend(more);
    }
    let (file, text, separator) = match &spec.key_map {
        None => ("", "", ""),
        Some(KeyMapSource { at: KeyMapAt::Url(url), separator }) => (&**url, "", &**separator),
        Some(KeyMapSource { at: KeyMapAt::Text(text), separator }) => ("", &**text, &**separator),
    };
    let memory = match spec.memory {
        Memory::Percent(percent) => format!("{percent}%"),
        Memory::Bytes(bytes) => format!("{bytes}B"),
    };
    json!({
        "input_bck": spec.source, "input_format": input, "input_extension": spec.input_ext,
        "output_bck": spec.destination, "output_format": spec.template,
        "output_extension": spec.output_ext, "output_shard_size": format!("{}B", spec.shard_bytes),
        "algorithm": algorithm, "description": spec.description,
        "ekm_file": file, "ekm": text, "ekm_file_sep": separator,
        "max_mem_usage": memory,
        "extract_concurrency_max_limit": spec.extract_limit,
        "create_concurrency_max_limit": spec.create_limit,
        "timeout": format!("{}ms", spec.timeout_ms), "dry_run": spec.dry_run,
        "overwrite": match spec.overwrite {
            Overwrite::OthersThanInput => "",
            Overwrite::Never => "never",
            Overwrite::Always => "always",
        },
        "duplicated_records": spec.on.duplicated_records, "missing_shards": spec.on.missing_shards,
        "ekm_malformed_line": spec.on.ekm_malformed_line,
        "ekm_missing_key": spec.on.ekm_missing_key,
    })
}

fn unknown(key: &str) -> Error {
    Error::invalid(format!("a dsort spec has no key \"{key}\""))
}

fn config(message: &Value) -> Result<Map<String, Value>> {
    match message.get("config").cloned().map(lower_keys) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(_) => Err(Error::invalid("Config must be an object")),
    }
}

fn text(message: &Value, key: &str) -> Result<String> {
    text_of(message.get(key), key)
}

fn text_of(value: Option<&Value>, key: &str) -> Result<String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(_) => Err(Error::invalid(format!("{key} must be a string"))),
    }
}

fn flag(message: &Value, key: &str) -> Result<bool> {
    match message.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Error::invalid(format!("{key} must be true or false"))),
    }
}

fn limit(message: &Value, key: &str) -> Result<u32> {
    match text(message, key)?.as_str() {
        "" => Ok(0),
        given => given.parse().map_err(|_| {
            Error::invalid(format!("invalid {key} \"{given}\"")).hint("0, or a number above it")
        }),
    }
}

fn bucket(message: &Value, key: &str) -> Result<Option<Bucket>> {
    let value = match message.get(key).cloned().map(lower_keys) {
        None | Some(Value::Null) => return Ok(None),
        Some(value @ Value::Object(_)) => value,
        Some(_) => return Err(Error::invalid(format!("{key} must be an object"))),
    };
    let name = text(&value, "name")?;
    if name.is_empty() {
        return Ok(None);
    }
    let namespace = value.get("namespace").cloned().map(lower_keys).unwrap_or(Value::Null);
    let namespace = match (text(&namespace, "uuid")?, text(&namespace, "name")?) {
        (uuid, name) if uuid.is_empty() && name.is_empty() => String::new(),
        (uuid, name) => format!("@{uuid}#{name}"),
    };
    Bucket::from_parts(&name, &text(&value, "provider")?, &namespace).map(Some)
}

fn input(value: Option<&Value>) -> Result<InputFormat> {
    let value = match value {
        None | Some(Value::Null) => return Ok(InputFormat::default()),
        Some(Value::String(template)) => return InputFormat::parse(template),
        Some(value) => lower_keys(value.clone()),
    };
    let template = text(&value, "template")?;
    let listed = value.get("objnames").and_then(Value::as_array).is_some_and(|n| !n.is_empty());
    if !listed && !template.is_empty() {
        return InputFormat::parse(&template);
    }
    Ok(match selection(&value)? {
        Selection::Names(names) => InputFormat::Names(names),
        Selection::Template(template) => InputFormat::Template(template),
        Selection::Prefix(prefix) => InputFormat::Prefix(prefix),
    })
}

/// The order, and whether it is descending.
fn algorithm(value: Option<&Value>, seed: u64) -> Result<(Algorithm, bool)> {
    let value = match value {
        None | Some(Value::Null) => return Ok((Algorithm::default(), false)),
        Some(value @ Value::Object(_)) => lower_keys(value.clone()),
        Some(_) => return Err(Error::invalid("algorithm must be an object")),
    };
    let algorithm = match text(&value, "kind")?.as_str() {
        "" | "alphanumeric" => Algorithm::Alphanumeric,
        "none" => Algorithm::None,
        "md5" => Algorithm::Md5,
        "shuffle" => Algorithm::Shuffle {
            seed: match text(&value, "seed")?.as_str() {
                "" => seed,
                given => given.parse().map_err(|_| {
                    Error::invalid(format!("invalid seed \"{given}\""))
                        .hint("an integer that is not negative")
                })?,
            },
        },
        "content" => Algorithm::Content {
            ext: text(&value, "extension")?.trim().to_owned(),
            kind: text(&value, "content_key_type")?.parse()?,
        },
        other => {
            return Err(
                Error::invalid(format!("invalid sorting algorithm \"{other}\"")).hint(ALGORITHMS)
            );
        }
    };
    Ok((algorithm, flag(&value, "decreasing")?))
}

fn key_map(message: &Value) -> Result<Option<KeyMapSource>> {
    let mut separator = text(message, "ekm_file_sep")?;
    if separator.is_empty() {
        separator = text(message, "ekm_sep")?;
    }
    match (text(message, "ekm")?, text(message, "ekm_file")?) {
        (none, url) if none.is_empty() && url.is_empty() => Ok(None),
        (none, url) if none.is_empty() => Ok(Some(KeyMapSource::url(&url, &separator))),
        (text, none) if none.is_empty() => Ok(Some(KeyMapSource::text(&text, &separator))),
        _ => Err(Error::invalid("ekm and ekm_file are two key maps; one is enough")),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::dsort::ContentType;

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
        assert_eq!(spec.on, crate::dsort::Reactions::default());
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
