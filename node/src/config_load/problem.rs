//! Errors about values of a configuration: which key, where it is set, and which values are allowed.

use forebay_core::Error;
use forebay_core::config::{NodeConfig, nearest};
use toml::{Table, Value};

use super::places::Places;
use super::secret_variable::SECRETS;
use super::{PREFIX, parse_value, set};

/// The allowed values of a type of Rust, for people.
const ALLOWED: [(&str, &str); 8] = [
    ("u8", "a whole number from 0 to 255"),
    ("u32", "a whole number from 0 to 4294967295"),
    ("u64", "a whole number of at least 0"),
    ("usize", "a whole number of at least 0"),
    ("f64", "a number, such as 0.5"),
    ("a boolean", "true or false"),
    ("a sequence", "a list, such as [\"a\", \"b\"]"),
    ("a string", "a string in quotes"),
];

/// The variable that `key` stands for, if it would be a setting with two underscores after the
/// section: `FOREBAY_LIMITS_BATCHES` → `FOREBAY_LIMITS__BATCHES`.
pub(super) fn meant(key: &str, value: &str) -> Option<String> {
    let rest = key.strip_prefix(PREFIX).filter(|rest| !rest.contains("__"))?;
    rest.match_indices('_').find_map(|(at, _)| {
        let (section, name) = (&rest[..at], &rest[at + 1..]);
        let path = format!("{section}.{name}").to_ascii_lowercase();
        let mut table = Table::new();
        set(&mut table, &path, parse_value(value)).ok()?;
        let read = serde_path_to_error::deserialize::<_, NodeConfig>(Value::Table(table));
        // Another error, such as a wrong type, is that of a key that exists.
        let is_unknown = |e: &serde_path_to_error::Error<toml::de::Error>| {
            let text = e.inner().message();
            text.starts_with("unknown field") || e.path().to_string() != path
        };
        let is_setting = read.as_ref().err().is_none_or(|e| !is_unknown(e));
        is_setting.then(|| format!("{PREFIX}{section}__{name}"))
    })
}

/// A message about a wrong value, without the value.
fn without_value(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((kind, expected)) if kind.starts_with("invalid ") => {
            format!("invalid value, expected {expected}")
        }
        _ => message.to_owned(),
    }
}

/// The message with what is allowed in words instead of a type of Rust.
fn with_allowed_values(message: &str) -> String {
    let Some((what, expected)) = message.rsplit_once(", expected ") else {
        return message.to_owned();
    };
    let words = ALLOWED.iter().find(|(kind, _)| *kind == expected).map(|(_, words)| *words);
    match words {
        Some(words) => format!("{what}, expected {words}"),
        None if expected.starts_with("struct ") => {
            format!("{what}, expected a section with keys of its own")
        }
        None => message.to_owned(),
    }
}

/// Removes the value at a path such as `disk[1].size`; returns whether there was one.
pub(super) fn remove(table: &mut Table, path: &str) -> bool {
    let (parent, last) = match path.rfind(['.', '[']) {
        Some(at) => (&path[..at], path[at..].trim_start_matches('.')),
        None => ("", path),
    };
    let mut root = Value::Table(std::mem::take(table));
    let found =
        parent.split(['.', '[']).filter(|part| !part.is_empty()).try_fold(&mut root, |at, part| {
            match at {
                Value::Table(table) => table.get_mut(part),
                Value::Array(list) => {
                    list.get_mut(part.trim_end_matches(']').parse::<usize>().ok()?)
                }
                _ => None,
            }
        });
    let is_removed = match found {
        Some(Value::Table(inner)) => inner.remove(last).is_some(),
        Some(Value::Array(list)) => {
            let index = last.trim_matches(['[', ']']).parse::<usize>();
            index.ok().filter(|index| *index < list.len()).map(|index| list.remove(index)).is_some()
        }
        _ => false,
    };
    if let Value::Table(left) = root {
        *table = left;
    }
    is_removed
}

/// Turns serde's message into one that names the key and its place, and suggests the nearest known
/// name.
pub(super) fn explain(places: &Places, path: &serde_path_to_error::Path, message: &str) -> Error {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let key = match path.to_string() {
        root if root == "." => String::new(),
        key => key,
    };
    let place = places.of(&key);
    let is_secret = SECRETS.iter().any(|secret| key.starts_with(secret));
    let message = if is_secret { without_value(message) } else { message.to_owned() };
    let message = with_allowed_values(&message);
    let error = Error::invalid(match key.as_str() {
        "" => format!("{place}: {message}"),
        key => format!("{place}: {key}: {message}"),
    });
    let is_name = message.starts_with("unknown field") || message.starts_with("unknown variant");
    if is_name
        && let Some(wrong) = quoted.next()
        && let Some(near) = nearest(wrong, quoted)
    {
        return error.hint(format!("did you mean `{near}`?"));
    }
    error
}
