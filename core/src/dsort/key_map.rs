//! External key maps: their location, and the template of the shards that each record goes into.

use std::collections::HashMap;

use regex_lite::Regex;
use serde::{Deserialize, Serialize};

use super::spec::Reaction;
use crate::error::{Error, Result};
use crate::ishard::Ekm;
use crate::template::Ranges;

/// Maximum keys, and maximum keys that are patterns and not names: each pattern is tried in turn.
const MAX_KEYS: usize = 10_000_000;
const MAX_PATTERNS: usize = 10_000;
/// Malformed lines that are shown.
const SHOWN: usize = 80;

/// The location of an external key map.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyMapSource {
    pub at: KeyMapAt,
    /// Separates key and template on a line.
    pub separator: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyMapAt {
    Url(String),
    /// The map itself.
    Text(String),
}

impl KeyMapSource {
    /// Default separator of key and template.
    pub const SEPARATOR: &'static str = "\t";

    fn new(at: KeyMapAt, separator: &str) -> Self {
        let separator = if separator.is_empty() { Self::SEPARATOR } else { separator };
        Self { at, separator: separator.to_owned() }
    }

    pub fn url(url: &str, separator: &str) -> Self {
        Self::new(KeyMapAt::Url(url.to_owned()), separator)
    }

    pub fn text(text: &str, separator: &str) -> Self {
        Self::new(KeyMapAt::Text(text.to_owned()), separator)
    }
}

/// A key map that was read.
pub struct KeyMap {
    templates: Vec<String>,
    /// Keys as literal text, with their template, for lookup by name.
    names: HashMap<String, u32>,
    /// Keys as regular expressions, in order.
    patterns: Vec<(Regex, u32)>,
}

impl KeyMap {
    /// Reads a map: JSON, `{"template": ["key", …]}`, or lines of key, `separator` and template.
    pub fn parse(
        text: &str,
        separator: &str,
        malformed: Reaction,
        warnings: &mut Vec<String>,
    ) -> Result<Self> {
        let mut map = Self { templates: Vec::new(), names: HashMap::new(), patterns: Vec::new() };
        if text.trim_start().starts_with('{') {
            for rule in Ekm::parse(text)?.0 {
                let template = map.template(&rule.template)?;
                for key in rule.patterns {
                    map.add(key, template)?;
                }
            }
        } else {
            let mut ids: HashMap<&str, u32> = HashMap::new();
            for (number, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() {
                    continue;
                }
                let mut parts = line.split(separator).map(str::trim);
                let (Some(key), Some(template), None) = (parts.next(), parts.next(), parts.next())
                else {
                    let start: String = line.chars().take(SHOWN).collect();
                    let problem = || {
                        let text = format!(
                            "line {} of the external key map is not a key and a template: {start}",
                            number + 1
                        );
                        Error::invalid(text).hint(format!(
                            "they stand with {separator:?} between them; or choose another separator"
                        ))
                    };
                    malformed.to(warnings, problem)?;
                    continue;
                };
                let id = match ids.get(template) {
                    Some(id) => *id,
                    None => {
                        let id = map.template(template)?;
                        ids.insert(template, id);
                        id
                    }
                };
                map.add(key.to_owned(), id)?;
            }
        }
        if map.names.is_empty() {
            return Err(Error::invalid("the external key map has no keys"));
        }
        Ok(map)
    }

    fn template(&mut self, template: &str) -> Result<u32> {
        Ranges::parse_output(template)?;
        self.templates.push(template.to_owned());
        Ok(self.templates.len() as u32 - 1)
    }

    fn add(&mut self, key: String, template: u32) -> Result<()> {
        if self.names.len() >= MAX_KEYS {
            return Err(Error::invalid(format!("an external key map has at most {MAX_KEYS} keys")));
        }
        // A map with very many keys is treated as a map of names only.
        if self.patterns.len() < MAX_PATTERNS {
            let pattern = crate::ishard::compile(&key)?;
            self.patterns.push((pattern, template));
        } else if key.contains(['*', '+', '?', '[', '(', '|', '^', '$', '\\']) {
            return Err(Error::invalid(format!(
                "key \"{key}\" of the external key map is a pattern; there are more than \
                 {MAX_PATTERNS} keys before it"
            ))
            .hint("of so many keys each is the name of a record or of a member"));
        }
        // For a repeated name, the first entry counts.
        self.names.entry(key).or_insert(template);
        Ok(())
    }

    /// The templates, in the order of the map.
    pub fn templates(&self) -> impl Iterator<Item = &str> {
        self.templates.iter().map(String::as_str)
    }

    /// The template of a record: of the key that equals its name or the name of one of its members,
    /// with or without folders; otherwise of the first pattern that matches one of these.
    pub(super) fn find<'a>(
        &self,
        key: &'a str,
        members: impl Iterator<Item = &'a str> + Clone,
    ) -> Option<usize> {
        let names = || members.clone().chain([key]);
        let exact = |name: &str| {
            let base = name.rsplit('/').next().unwrap_or(name);
            self.names.get(name).or_else(|| self.names.get(base))
        };
        let by_pattern = || {
            let found = |(pattern, _): &&(Regex, u32)| names().any(|n| pattern.is_match(n));
            self.patterns.iter().find(found).map(|(_, template)| template)
        };
        names().find_map(exact).or_else(by_pattern).map(|template| *template as usize)
    }
}
