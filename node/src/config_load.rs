//! Loads the configuration from three sources: file < environment `FOREBAY_SECTION__KEY` < flags.

use std::path::Path;

use forebay_core::config::{NodeConfig, RETIRED_VALUES, nearest};
use forebay_core::{Error, Result};
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

const PREFIX: &str = "FOREBAY_";
/// Settings whose values are not shown in errors.
const SECRETS: [&str; 4] = ["s3.keys", "audit.url", "auth.issuer", "etl.command"];

/// A configuration, and what was replaced in it.
#[derive(Debug)]
pub struct Loaded {
    pub config: NodeConfig,
    /// One sentence for each value that is no longer available, with its place.
    pub warnings: Vec<String>,
}

impl Loaded {
    /// Sets up logging as configured, and logs the warnings.
    pub fn start_logging(self) -> Result<NodeConfig> {
        crate::telemetry::init(&self.config.log)?;
        for warning in self.warnings {
            tracing::warn!("{warning}");
        }
        Ok(self.config)
    }
}

/// Loads a node's configuration. `overrides` are `("section.key", value)` pairs from flags.
pub fn load(file: Option<&Path>, overrides: &[(String, String)]) -> Result<Loaded> {
    let mut places = Places { file: file.map(|f| f.display().to_string()), ..Places::default() };
    let mut table = match file {
        Some(path) => {
            places.text = std::fs::read_to_string(path)
                .map_err(|e| Error::invalid(format!("cannot read {}: {e}", path.display())))?;
            places.text.parse::<Table>().map_err(|e| not_toml(path, &places.text, &e))?
        }
        None => Table::new(),
    };
    for (key, value) in std::env::vars() {
        if let Some(setting) = meant(&key, &value) {
            let text = format!("environment {key}: no setting of this name");
            return Err(Error::invalid(text).hint(format!("did you mean {setting}?")));
        }
    }
    let env = std::env::vars()
        .filter_map(|(key, value)| Some((env_path(&key)?, format!("environment {key}"), value)));
    let flags = overrides.iter().map(|(k, v)| (k.clone(), format!("flag for {k}"), v.clone()));
    for (path, origin, value) in env.chain(flags) {
        set(&mut table, &path, parse_value(&value))
            .map_err(|e| Error::invalid(format!("{origin}: {e}")))?;
        places.overrides.push((path, origin));
    }
    let warnings = replace_retired(&mut table, &places);
    let config: NodeConfig = serde_path_to_error::deserialize(Value::Table(table))
        .map_err(|e| explain(&places, e.path(), e.inner().message()))?;
    config.validate()?;
    Ok(Loaded { config, warnings })
}

/// The error for a file that is not TOML. It names the line and does not show it, since the line may have
/// a secret.
pub fn not_toml(path: &Path, text: &str, e: &toml::de::Error) -> Error {
    let at = e.span().map_or(0, |span| span.start);
    let line = 1 + text.get(..at).unwrap_or(text).matches('\n').count();
    Error::invalid(format!("{}:{line}: {}", path.display(), e.message()))
}

/// Replaces values that are no longer available; returns a sentence for each.
fn replace_retired(table: &mut Table, places: &Places) -> Vec<String> {
    let mut warnings = Vec::new();
    for (key, old, new) in RETIRED_VALUES {
        let mut parts = key.split('.');
        let first = parts.next().and_then(|part| table.get_mut(part));
        let value = parts.try_fold(first, |at, part| Some(at?.get_mut(part)));
        if let Some(Some(value)) = value
            && value.as_str() == Some(old)
        {
            *value = Value::String(new.to_owned());
            let place = places.of(key);
            warnings.push(format!(
                "{place}: {key}: \"{old}\" is no longer available; \"{new}\" is used in its place"
            ));
        }
    }
    warnings
}

/// The sources of values, for errors about them.
#[derive(Default)]
struct Places {
    /// Name and text of the file.
    file: Option<String>,
    text: String,
    /// Keys that were set by variables and flags, each with its variable or flag.
    overrides: Vec<(String, String)>,
}

impl Places {
    /// The source of a key's value: a variable, a flag, or a line of the file.
    fn of(&self, key: &str) -> String {
        let sets = |path: &str| key.strip_prefix(path).is_some_and(|rest| !rest.starts_with(word));
        if let Some((_, origin)) = self.overrides.iter().rev().find(|(path, _)| sets(path)) {
            return origin.clone();
        }
        let Some(file) = &self.file else { return "configuration".to_owned() };
        match self.line(key) {
            Some(line) => format!("{file}:{line}"),
            None => file.clone(),
        }
    }

    /// The line of the file that sets a key, counted from 1.
    fn line(&self, key: &str) -> Option<usize> {
        let root = DeTable::parse(&self.text).ok()?;
        let mut at: Option<usize> = None;
        let mut inside = Some(DeValue::Table(root.into_inner()));
        for part in key.split(['.', '[']).filter(|part| !part.is_empty()) {
            let next = match inside.take()? {
                DeValue::Table(table) => {
                    let (name, value) = table.into_iter().find(|(k, _)| k.get_ref() == part)?;
                    at = Some(name.span().start);
                    value
                }
                DeValue::Array(list) => {
                    let index = part.trim_end_matches(']').parse().ok()?;
                    let value = list.into_iter().nth(index)?;
                    at = Some(value.span().start);
                    value
                }
                _ => return None,
            };
            inside = Some(next.into_inner());
        }
        Some(1 + self.text.get(..at?)?.matches('\n').count())
    }
}

/// Whether a character can continue the name of a key.
fn word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `FOREBAY_LISTEN__HTTP` → `listen.http`; variables without two underscores are not settings.
pub(crate) fn env_path(key: &str) -> Option<String> {
    let rest = key.strip_prefix(PREFIX)?;
    rest.contains("__").then(|| rest.to_ascii_lowercase().replace("__", "."))
}

/// The variable that `key` stands for, if it would be a setting with two underscores after the
/// section: `FOREBAY_LIMITS_BATCHES` → `FOREBAY_LIMITS__BATCHES`.
fn meant(key: &str, value: &str) -> Option<String> {
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

/// TOML if it parses as a value that is not a bare date, otherwise a string.
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

/// A message about a wrong value, without the value.
fn without_value(message: &str) -> String {
    match message.rsplit_once(", expected ") {
        Some((kind, expected)) if kind.starts_with("invalid ") => {
            format!("invalid value, expected {expected}")
        }
        _ => message.to_owned(),
    }
}

/// Turns serde's message into one that names the key and its place, and suggests the nearest known
/// name.
fn explain(places: &Places, path: &serde_path_to_error::Path, message: &str) -> Error {
    let message = message.trim();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let key = match path.to_string() {
        root if root == "." => String::new(),
        key => key,
    };
    let place = places.of(&key);
    let is_secret = SECRETS.iter().any(|secret| key.starts_with(secret));
    let message = if is_secret { without_value(message) } else { message.to_owned() };
    let error = Error::invalid(match key.as_str() {
        "" => format!("{place}: {message}"),
        key => format!("{place}: {key}: {message}"),
    });
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
    use forebay_core::config::CachePolicy;

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
        .unwrap()
        .config;
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
    fn a_variable_with_one_underscore_after_the_section_is_recognized() {
        for (key, value, expected) in [
            ("FOREBAY_LIMITS_BATCHES", "512", Some("FOREBAY_LIMITS__BATCHES")),
            ("FOREBAY_LIMITS_BATCHES", "many", Some("FOREBAY_LIMITS__BATCHES")),
            ("FOREBAY_LISTEN_HTTP", "a:1", Some("FOREBAY_LISTEN__HTTP")),
            (
                "FOREBAY_S3_DELETE_NONEMPTY_BUCKETS",
                "true",
                Some("FOREBAY_S3__DELETE_NONEMPTY_BUCKETS"),
            ),
            ("FOREBAY_TLS_SKIP_VERIFY", "1", None),
            ("FOREBAY_ENDPOINT", "http://a:1", None),
            ("FOREBAY_LOG", "debug", None),
            ("FOREBAY_LIMITS__BATCHES", "512", None),
            ("HOME", "/", None),
        ] {
            assert_eq!(meant(key, value).as_deref(), expected, "{key}={value}");
        }
    }

    #[test]
    fn a_retired_value_of_an_old_file_is_replaced_with_one_warning() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        for old in ["sieve", "s3-fifo"] {
            std::fs::write(&path, format!("[cache]\nhigh = 85\npolicy = \"{old}\"\n")).unwrap();
            let loaded = load(Some(&path), &[]).unwrap();
            assert_eq!(loaded.config.cache.policy, CachePolicy::Density);
            assert_eq!(loaded.config.cache.high, 85);
            let [warning] = loaded.warnings.try_into().unwrap();
            let expected = format!("target.toml:3: cache.policy: \"{old}\" is no longer available");
            assert!(warning.contains(&expected), "{warning}");
        }
        let loaded = load(None, &flags(&[("cache.policy", "sieve")])).unwrap();
        assert!(loaded.warnings[0].starts_with("flag for cache.policy: "), "{:?}", loaded.warnings);
        let loaded = load(None, &flags(&[("cache.policy", "lru")])).unwrap();
        assert_eq!((loaded.config.cache.policy, loaded.warnings.len()), (CachePolicy::Lru, 0));
    }

    fn refused(file: &str, overrides: &[(&str, &str)]) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("target.toml");
        std::fs::write(&path, file).unwrap();
        let text = load(Some(&path), &flags(overrides)).unwrap_err().to_string();
        text.replace(&format!("{}/", folder.path().display()), "")
    }

    #[test]
    fn an_error_names_the_line_of_the_file_and_the_key() {
        for (file, expected) in [
            (
                "[listen]\nhttp = \"a:1\"\n\n[cache]\nhigh = \"80%\"\n",
                "target.toml:5: cache.high: ",
            ),
            ("[cache]\nlow = 3\nhihg = 8\n", "target.toml:3: cache.hihg: unknown field"),
            ("cache.high = [1]\n", "target.toml:1: cache.high: "),
            ("[[disk]]\npath = \"/a\"\n[[disk]]\npath = 7\n", "target.toml:4: disk[1].path: "),
            ("\n[nothing]\n", "target.toml:2: nothing: unknown field"),
        ] {
            let error = refused(file, &[]);
            assert!(error.contains(expected), "{file}: {error}");
        }
    }

    #[test]
    fn an_error_shows_no_value_that_may_be_a_secret() {
        for (file, expected) in [
            ("[[s3.keys]]\naccess = \"a\"\nsecret = \"planted\n", "target.toml:3: "),
            ("[[s3.keys]]\naccess = \"a\"\nsecret = planted\n", "target.toml:3: "),
            ("[[s3.keys]]\nsecret = [\"planted\"]\n", "target.toml:2: s3.keys[0].secret: "),
            ("[s3]\nkeys = \"planted\"\n", "target.toml:2: s3.keys: invalid value, expected "),
            ("[audit]\nurl = [\"http://a:planted@h\"]\n", "target.toml:2: audit.url: "),
            ("[[auth.issuer]]\nurl = {planted = \"planted\"}\n", "target.toml:2: auth.issuer[0]."),
        ] {
            let error = refused(file, &[]);
            assert!(error.contains(expected) && !error.contains("planted"), "{file}: {error}");
        }
        let keys = ("s3.keys", "[{access = \"a\", secret = \"planted\"");
        let error = refused("", &[keys]);
        assert!(error.contains("flag for s3.keys") && !error.contains("planted"), "{error}");
        let number = ("s3.keys", "[{access = \"a\", secret = 1234567}]");
        let error = refused("", &[number]);
        assert!(error.contains("expected a string") && !error.contains("1234567"), "{error}");
    }

    #[test]
    fn an_error_names_the_flag_that_overrides_the_file() {
        let error = refused("[cache]\nhigh = 80\n", &[("cache.high", "most")]);
        assert!(error.contains("flag for cache.high: cache.high: invalid type"), "{error}");
    }

    #[test]
    fn only_variables_with_two_underscores_are_settings() {
        assert_eq!(env_path("FOREBAY_LISTEN__HTTP").as_deref(), Some("listen.http"));
        assert_eq!(env_path("FOREBAY_ENDPOINT"), None);
        assert_eq!(env_path("HOME__X"), None);
    }
}
