//! Where the values of a configuration come from.

use std::path::Path;

use forebay_core::{Error, Result};
use toml::de::{DeTable, DeValue};

/// The sources of values, for errors about them.
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    /// Name and text of the file.
    file: Option<String>,
    text: String,
    /// Keys that were set by variables and flags, each with its variable or flag.
    overrides: Vec<(String, String)>,
}

impl Places {
    /// The places of the file's values.
    pub(super) fn of_file(file: Option<&Path>) -> Result<Self> {
        let Some(path) = file else { return Ok(Self::default()) };
        let text = std::fs::read_to_string(path)
            .map_err(|e| Error::invalid(format!("cannot read {}: {e}", path.display())))?;
        Ok(Self { file: Some(path.display().to_string()), text, overrides: Vec::new() })
    }

    /// The text of the file.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Records that a variable or a flag sets a key.
    pub(super) fn overridden(&mut self, key: String, origin: String) {
        self.overrides.push((key, origin));
    }

    /// The source of a key's value: a variable, a flag, or a line of the file.
    pub(super) fn of(&self, key: &str) -> String {
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

    /// The error of a rule, with the place of the first key in its text that a source sets.
    pub(super) fn name_place(&self, mut error: Error) -> Error {
        let is_part = |c: char| word(c) || c == '.';
        let keys = error.message.split(|c| !is_part(c)).filter(|key| key.contains('.'));
        let is_set = |key: &&str| {
            self.overrides.iter().any(|(path, _)| path == key) || self.line(key).is_some()
        };
        let place = keys.into_iter().find(is_set).map(|key| self.of(key));
        if let Some(place) = place {
            error.message = format!("{place}: {}", error.message);
        }
        error
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
