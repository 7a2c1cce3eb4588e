//! Configuration from its three places: file < environment `FOREBAY_SECTION__KEY` < flags.

use std::path::Path;

use forebay_core::config::{NodeConfig, nearest};
use forebay_core::{Error, Result};
use toml::{Table, Value};

const PREFIX: &str = "FOREBAY_";

/// Loads a node's configuration. `overrides` are `("section.key", value)` pairs from flags.
pub fn load(file: Option<&Path>, overrides: &[(String, String)]) -> Result<NodeConfig> {
    let mut table = match file {
        Some(path) => read(path)?,
        None => Table::new(),
    };
    let env = std::env::vars()
        .filter_map(|(key, value)| Some((env_path(&key)?, format!("environment {key}"), value)));
    let flags = overrides.iter().map(|(k, v)| (k.clone(), format!("flag for {k}"), v.clone()));
    for (path, origin, value) in env.chain(flags) {
        set(&mut table, &path, parse_value(&value))
            .map_err(|e| Error::invalid(format!("{origin}: {e}")))?;
    }
    let place = file.map_or("configuration".into(), |f| f.display().to_string());
    let config: NodeConfig = Value::Table(table)
        .try_into()
        .map_err(|e: toml::de::Error| explain(&place, e.message()))?;
    config.validate()?;
    Ok(config)
}

fn read(path: &Path) -> Result<Table> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::invalid(format!("cannot read {}: {e}", path.display())))?;
    text.parse().map_err(|e| Error::invalid(format!("{}: {e}", path.display())))
}

/// `FOREBAY_LISTEN__HTTP` → `listen.http`; variables without two underscores are not settings.
fn env_path(key: &str) -> Option<String> {
    let rest = key.strip_prefix(PREFIX)?;
    rest.contains("__").then(|| rest.to_ascii_lowercase().replace("__", "."))
}

/// TOML where it parses as a value that is not a bare date, else a string.
fn parse_value(text: &str) -> Value {
    match format!("v = {text}").parse::<Table>().ok().and_then(|mut t| t.remove("v")) {
        Some(Value::Datetime(_)) | None => Value::String(text.to_owned()),
        Some(value) => value,
    }
}

fn set(table: &mut Table, path: &str, value: Value) -> Result<(), String> {
    let mut table = table;
    let mut parts = path.split('.').peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            table.insert(part.to_owned(), value);
            return Ok(());
        }
        let next = table.entry(part).or_insert_with(|| Value::Table(Table::new()));
        table = next.as_table_mut().ok_or_else(|| format!("{part} is not a section"))?;
    }
    Err("empty path".into())
}

/// Turns serde's message into one that suggests the nearest known name.
fn explain(place: &str, message: &str) -> Error {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let error = Error::invalid(format!("{place}: {message}"));
    if message.starts_with("unknown field")
        && let Some(wrong) = quoted.next()
        && let Some(near) = nearest(wrong, quoted)
    {
        return error.hint(format!("did you mean `{near}`?"));
    }
    error
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn flags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn flags_set_nested_keys_of_any_type() {
        let c = load(
            None,
            &flags(&[
                ("listen.http", "127.0.0.1:9"),
                ("cache.high", "70"),
                ("cache.low", "60"),
                ("cluster.gateways", r#"["http://a:1"]"#),
                ("node.id", "target-1"),
            ]),
        )
        .unwrap();
        assert_eq!(c.listen.http, "127.0.0.1:9");
        assert_eq!((c.cache.high, c.cluster.gateways.len()), (70, 1));
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_name() {
        let e = load(None, &flags(&[("listen.htpp", "x")])).unwrap_err();
        assert_eq!(e.hint.as_deref(), Some("did you mean `http`?"), "{e}");
        let e = load(None, &flags(&[("lisetn.http", "x")])).unwrap_err();
        assert_eq!(e.hint.as_deref(), Some("did you mean `listen`?"), "{e}");
    }

    #[test]
    fn only_variables_with_two_underscores_are_settings() {
        assert_eq!(env_path("FOREBAY_LISTEN__HTTP").as_deref(), Some("listen.http"));
        assert_eq!(env_path("FOREBAY_ENDPOINT"), None);
        assert_eq!(env_path("HOME__X"), None);
    }
}
