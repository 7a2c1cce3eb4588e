//! The input shards of a dsort job.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::shard::ArchiveFormat;
use crate::template::{Ranges, Template};

/// Selects the input shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InputFormat {
    Names(Vec<String>),
    /// A template with ranges, without the extension or with it.
    Template(String),
    /// All archives whose names start with this.
    Prefix(String),
}

impl Default for InputFormat {
    fn default() -> Self {
        Self::Prefix(String::new())
    }
}

impl InputFormat {
    /// Parses a template in any of its three notations; without a range it is a prefix.
    pub fn parse(text: &str) -> Result<Self> {
        let text = text.trim();
        if Ranges::parse_output(text).is_ok() {
            return Ok(Self::Template(text.to_owned()));
        }
        match Template::parse(text)? {
            Template::Prefix(prefix) => Ok(Self::Prefix(prefix)),
            Template::Ranges(_) => Ok(Self::Template(text.to_owned())),
        }
    }

    /// The names of the shards; `None` if a listing is needed.
    pub fn names(&self, ext: &str) -> Result<Option<Vec<String>>> {
        let whole = |name: &str| match ArchiveFormat::from_name(name) {
            Some(_) => name.to_owned(),
            None => format!("{name}{ext}"),
        };
        Ok(match self {
            Self::Names(names) => Some(names.iter().map(|name| whole(name)).collect()),
            Self::Template(text) => Some(ranges(text)?.names().map(|n| whole(&n)).collect()),
            Self::Prefix(_) => None,
        })
    }
}

/// The ranges of an input template. `%d` would stand for an unknown number of shards, so it is
/// refused.
pub(super) fn ranges(text: &str) -> Result<Ranges> {
    match Template::parse(text)? {
        Template::Ranges(ranges) => Ok(ranges),
        Template::Prefix(_) => {
            Err(Error::invalid(format!("the input template \"{text}\" has no end"))
                .hint("for example shard-{0000..0099}, or a prefix: shard-"))
        }
    }
}
