//! The request that starts a download job.

use forebay_core::download::{
    DEFAULT_TIMEOUT_MS, DownloadSpec, Limits, What, given_name, name_of_link, with_scheme,
};
use forebay_core::error::{Error, Result};
use forebay_core::name::Bucket;
use forebay_core::shown_url;
use forebay_core::size::parse_duration;
use serde_json::Value;

use super::{flag, text};
use crate::action::{lower_keys, number, parse_json};

/// Headers that belong to the connection and cannot be set by users.
const NOT_THEIRS: [&str; 7] =
    ["host", "content-length", "connection", "transfer-encoding", "te", "upgrade", "range"];

/// Parses the job in the body of `POST /v1/download`.
pub fn requested(body: &[u8], id: String) -> Result<DownloadSpec> {
    let message = parse_json(body)?;
    let kind = text(&message, "type")?;
    if kind.is_empty() {
        return Err(Error::invalid("'type' field is empty"));
    }
    let bucket = bucket(&message)?;
    if !text(&message, "etl_name")?.is_empty() {
        return Err(Error::unsupported("downloads through an etl are not served")
            .hint("download first, then transform the bucket"));
    }
    if !text(&message, "progress_interval")?.is_empty() {
        parse_duration(&text(&message, "progress_interval")?)?;
    }
    let (what, label) = what(&kind, &message, &bucket)?;
    let described = text(&message, "description")?;
    let spec = DownloadSpec {
        id,
        description: if described.is_empty() { label } else { described },
        timeout_ms: timeout_ms(&message)?,
        limits: limits(&message)?,
        headers: headers(&message)?,
        bucket,
        what,
    };
    spec.check()?;
    Ok(spec)
}

fn what(kind: &str, message: &Value, bucket: &Bucket) -> Result<(What, String)> {
    Ok(match kind {
        "single" => {
            let (name, link) = (text(message, "object_name")?, text(message, "link")?);
            let from_backend = flag(message, "from_remote");
            if link.is_empty() && !from_backend {
                return Err(Error::invalid("missing 'link' in the request body"));
            }
            if name.is_empty() && link.is_empty() {
                return Err(Error::invalid("missing 'object_name' in the request body"));
            }
            let link = with_scheme(&link);
            let name = if name.is_empty() { name_of_link(&link)? } else { given_name(&name) };
            let label = format!("{} -> {}", shown_url(&link), bucket.object_uri(&name));
            (What::Objects(vec![(name, link)]), label)
        }
        "range" => {
            let template = text(message, "template")?;
            if template.is_empty() {
                return Err(Error::invalid("missing 'template' in the request body"));
            }
            let label = format!("{} -> {bucket}", shown_url(&template));
            (What::Range { template, subdir: text(message, "subdir")? }, label)
        }
        "multi" => {
            (What::Objects(many(message.get("objects"))?), format!("multi-download -> {bucket}"))
        }
        "backend" => {
            let (prefix, suffix) = (text(message, "prefix")?, text(message, "suffix")?);
            let what = What::Backend { prefix, suffix, sync: flag(message, "synchronize") };
            (what, format!("remote bucket prefetch -> {bucket}"))
        }
        _ => {
            return Err(Error::invalid(
                "input does not match any of the supported formats (single, range, multi, backend)",
            ));
        }
    })
}

/// A list of links, or names and their links.
fn many(objects: Option<&Value>) -> Result<Vec<(String, String)>> {
    let bad =
        || Error::invalid("\"objects\" must be a map (string -> string) or an array of strings");
    let link = |value: &Value| value.as_str().map(with_scheme).ok_or_else(bad);
    let objects: Vec<(String, String)> = match objects {
        Some(Value::Object(map)) => map
            .iter()
            .map(|(name, value)| Ok((given_name(name), link(value)?)))
            .collect::<Result<_>>()?,
        Some(Value::Array(list)) => list
            .iter()
            .map(|value| {
                let link = link(value)?;
                Ok((name_of_link(&link)?, link))
            })
            .collect::<Result<_>>()?,
        None | Some(Value::Null) => return Err(Error::invalid("body should not be empty")),
        Some(_) => return Err(bad()),
    };
    Ok(objects)
}

fn bucket(message: &Value) -> Result<Bucket> {
    let value = message.get("bucket").cloned().map(lower_keys).unwrap_or(Value::Null);
    let name = text(&value, "name")?;
    if name.is_empty() {
        return Err(Error::invalid("missing 'bucket.name'"));
    }
    let namespace = value.get("namespace").cloned().map(lower_keys).unwrap_or(Value::Null);
    let namespace = match (text(&namespace, "uuid")?, text(&namespace, "name")?) {
        (uuid, name) if uuid.is_empty() && name.is_empty() => String::new(),
        (uuid, name) => format!("@{uuid}#{name}"),
    };
    Bucket::from_parts(&name, &text(&value, "provider")?, &namespace)
}

fn timeout_ms(message: &Value) -> Result<u64> {
    match text(message, "timeout")?.as_str() {
        "" => Ok(DEFAULT_TIMEOUT_MS),
        given => {
            let ms = u64::try_from(parse_duration(given)?.as_millis()).unwrap_or(u64::MAX);
            Ok(if ms == 0 { DEFAULT_TIMEOUT_MS } else { ms })
        }
    }
}

fn limits(message: &Value) -> Result<Limits> {
    let limits = message.get("limits").cloned().map(lower_keys).unwrap_or(Value::Null);
    let limit = |key: &str| match limits.get(key) {
        None | Some(Value::Null) => Ok(0),
        Some(value) => number(&limits, key).ok_or_else(|| {
            Error::invalid(format!("'limit.{key}' must be non-negative (got: {value})"))
        }),
    };
    Ok(Limits { connections: limit("connections")?, bytes_per_hour: limit("bytes_per_hour")? })
}

/// Values are strings or lists of strings.
fn headers(message: &Value) -> Result<Vec<(String, String)>> {
    let bad = |name: &str| Error::invalid(format!("header \"{name}\" cannot be sent"));
    let Some(map) = message.get("headers").and_then(Value::as_object) else {
        return Ok(Vec::new());
    };
    let mut headers = Vec::new();
    for (name, value) in map {
        let known: http::HeaderName = name.parse().map_err(|_| bad(name))?;
        if NOT_THEIRS.contains(&known.as_str()) {
            return Err(bad(name));
        }
        let values = match value {
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        for value in values {
            let value = value.as_str().filter(|v| v.parse::<http::HeaderValue>().is_ok());
            headers.push((known.as_str().to_owned(), value.ok_or_else(|| bad(name))?.to_owned()));
        }
    }
    Ok(headers)
}
