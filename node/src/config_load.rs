//! Loads the configuration from three sources: file < environment `FOREBAY_SECTION__KEY` < flags.

mod default_file;
mod places;
mod problem;
mod secret_variable;
mod settings;

use std::path::Path;

use forebay_core::config::{NodeConfig, RETIRED_VALUES};
use forebay_core::{Error, Result};
use toml::{Table, Value};

pub use self::default_file::{DEFAULT_FILE, choose_file};
use self::places::Places;
use self::problem::{explain, meant};
pub use self::settings::{Setting, defaults};

const PREFIX: &str = "FOREBAY_";
/// Maximum number of reported problems of one configuration.
const MAX_PROBLEMS: usize = 100;

/// A configuration, and what was replaced in it.
#[derive(Debug)]
pub struct Loaded {
    pub config: NodeConfig,
    /// One sentence for each value that is no longer available, with its place.
    pub warnings: Vec<String>,
    /// The values that the sources set.
    set: Table,
    places: Places,
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
    let first = |mut problems: Vec<Error>| problems.swap_remove(0);
    read(file, overrides, &variables()).map_err(first)
}

/// Reads a file alone, without environment and flags; returns all of its problems.
pub fn load_file(file: &Path) -> Result<Loaded, Vec<Error>> {
    read(Some(file), &[], &[])
}

/// The environment as far as it is text.
fn variables() -> Vec<(String, String)> {
    let text = |(key, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((key.into_string().ok()?, value.into_string().ok()?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Reads and checks all sources. There is at least one problem in an error.
fn read(
    file: Option<&Path>,
    overrides: &[(String, String)],
    variables: &[(String, String)],
) -> Result<Loaded, Vec<Error>> {
    let (mut table, places) = merge(file, overrides, variables).map_err(|e| vec![e])?;
    let warnings = replace_retired(&mut table, &places);
    let (mut readable, mut problems) = (table.clone(), Vec::new());
    let config: NodeConfig = loop {
        let value = Value::Table(readable.clone());
        let e = match serde_path_to_error::deserialize(value) {
            Ok(config) => break config,
            Err(e) => e,
        };
        let e: serde_path_to_error::Error<toml::de::Error> = e;
        problems.push(explain(&places, e.path(), e.inner().message()));
        // The rest is read without the value that cannot be used.
        let is_left_out = problem::remove(&mut readable, &e.path().to_string());
        if !is_left_out || problems.len() >= MAX_PROBLEMS {
            return Err(problems);
        }
    };
    problems.extend(config.problems().into_iter().map(|e| places.name_place(e)));
    match problems.is_empty() {
        true => Ok(Loaded { config, warnings, set: table, places }),
        false => Err(problems),
    }
}

/// The values of all sources together, and their places.
fn merge(
    file: Option<&Path>,
    overrides: &[(String, String)],
    variables: &[(String, String)],
) -> Result<(Table, Places)> {
    let mut places = Places::of_file(file)?;
    let mut table = match file {
        Some(path) => {
            places.text().parse::<Table>().map_err(|e| not_toml(path, places.text(), &e))?
        }
        None => Table::new(),
    };
    for (key, value) in variables {
        if let Some(setting) = meant(key, value) {
            let text = format!("environment {key}: no setting of this name");
            return Err(Error::invalid(text).hint(format!("did you mean {setting}?")));
        }
    }
    let mut values = Vec::new();
    for (key, value) in variables {
        if let Some((path, origin, value)) = secret_variable::read(key, value, variables)? {
            values.push((path, origin, value));
        } else if let Some(path) = env_path(key) {
            values.push((path, format!("environment {key}"), value.clone()));
        }
    }
    let flags = overrides.iter().map(|(k, v)| (k.clone(), format!("flag for {k}"), v.clone()));
    values.extend(flags);
    for (path, origin, value) in values {
        set(&mut table, &path, parse_value(&value))
            .map_err(|e| Error::invalid(format!("{origin}: {e}")))?;
        places.overridden(path, origin);
    }
    Ok((table, places))
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

/// `FOREBAY_LISTEN__HTTP` → `listen.http`; variables without two underscores are not settings.
pub(crate) fn env_path(key: &str) -> Option<String> {
    let rest = key.strip_prefix(PREFIX)?;
    rest.contains("__").then(|| rest.to_ascii_lowercase().replace("__", "."))
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

#[cfg(test)]
mod tests;
