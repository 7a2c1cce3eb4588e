//! Encodes a specification as a request.

use forebay_core::dsort::{
    Algorithm, DsortSpec, InputFormat, KeyMapAt, KeyMapSource, Memory, Overwrite,
};
use serde_json::{Map, Value, json};

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
