//! The values of a request's keys: texts and numbers, buckets, input, order, key map.

use forebay_core::dsort::{Algorithm, InputFormat, KeyMapSource};
use forebay_core::error::{Error, Result};
use forebay_core::job::Selection;
use forebay_core::name::Bucket;
use serde_json::{Map, Value};

use crate::action::{lower_keys, selection};

const ALGORITHMS: &str = "one of alphanumeric, none, md5, shuffle, content";

pub(super) fn config(message: &Value) -> Result<Map<String, Value>> {
    match message.get("config").cloned().map(lower_keys) {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(map)) => Ok(map),
        Some(_) => Err(Error::invalid("Config must be an object")),
    }
}

pub(super) fn text(message: &Value, key: &str) -> Result<String> {
    text_of(message.get(key), key)
}

pub(super) fn text_of(value: Option<&Value>, key: &str) -> Result<String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(_) => Err(Error::invalid(format!("{key} must be a string"))),
    }
}

pub(super) fn flag(message: &Value, key: &str) -> Result<bool> {
    match message.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(Error::invalid(format!("{key} must be true or false"))),
    }
}

pub(super) fn limit(message: &Value, key: &str) -> Result<u32> {
    match text(message, key)?.as_str() {
        "" => Ok(0),
        given => given.parse().map_err(|_| {
            Error::invalid(format!("invalid {key} \"{given}\"")).hint("0, or a number above it")
        }),
    }
}

pub(super) fn bucket(message: &Value, key: &str) -> Result<Option<Bucket>> {
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

pub(super) fn input(value: Option<&Value>) -> Result<InputFormat> {
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
pub(super) fn algorithm(value: Option<&Value>, seed: u64) -> Result<(Algorithm, bool)> {
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

pub(super) fn key_map(message: &Value) -> Result<Option<KeyMapSource>> {
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
