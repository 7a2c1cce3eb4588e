//! The specification of a dsort job.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::archive::ArchiveFormat;
use crate::error::{Error, Result};
use crate::name::Bucket;
use crate::shard_names::{check_extension, unknown_extension};
use crate::size::ByteSize;
use crate::template::{Ranges, Template};

/// A complete job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DsortSpec {
    pub source: Bucket,
    #[serde(default)]
    pub input: InputFormat,
    /// Extension of the input shards; empty: every object whose name is that of an archive.
    #[serde(default)]
    pub input_ext: String,
    pub destination: Bucket,
    /// Names the output shards; empty with a key map, which has its own templates.
    #[serde(default)]
    pub template: String,
    /// Extension of the output shards; empty: that of the input.
    #[serde(default)]
    pub output_ext: String,
    /// Bytes of members after which a shard is full; 0: spreads the records over all names.
    #[serde(default)]
    pub shard_bytes: u64,
    #[serde(default)]
    pub algorithm: Algorithm,
    #[serde(default)]
    pub decreasing: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_map: Option<KeyMapSource>,
    #[serde(default)]
    pub on: Reactions,
    /// Maximum memory for the metadata of records.
    #[serde(default)]
    pub memory: Memory,
    /// Input shards indexed concurrently; 0: the default.
    #[serde(default)]
    pub extract_limit: u32,
    /// Output shards that one target writes concurrently; 0: the default.
    #[serde(default)]
    pub create_limit: u32,
    /// How long a shard is retried without progress; 0: the default.
    #[serde(default)]
    pub timeout_ms: u64,
    #[serde(default)]
    pub overwrite: Overwrite,
    /// Plan and count without writing.
    #[serde(default)]
    pub dry_run: bool,
    #[serde(default)]
    pub description: String,
}

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
fn ranges(text: &str) -> Result<Ranges> {
    match Template::parse(text)? {
        Template::Ranges(ranges) => Ok(ranges),
        Template::Prefix(_) => {
            Err(Error::invalid(format!("the input template \"{text}\" has no end"))
                .hint("for example shard-{0000..0099}, or a prefix: shard-"))
        }
    }
}

/// Order of the records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Algorithm {
    /// By their names.
    #[default]
    Alphanumeric,
    /// In input order: shard by shard, member by member.
    None,
    /// By the MD5 of their names.
    Md5,
    /// By a hash of the seed, the shard and the name: the same order on any cluster.
    Shuffle { seed: u64 },
    /// By the content of the member with this extension (with its dot).
    Content { ext: String, kind: ContentType },
}

/// The type of a key member's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ContentType {
    Int,
    Float,
    String,
}

impl FromStr for ContentType {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "int" => Self::Int,
            "float" => Self::Float,
            "string" => Self::String,
            other => {
                return Err(Error::invalid(format!("invalid content_key_type \"{other}\""))
                    .hint("one of int, float, string"));
            }
        })
    }
}

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

/// The reaction to a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reaction {
    Ignore,
    /// Continue, with a warning.
    Warn,
    Abort,
}

impl FromStr for Reaction {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "ignore" => Self::Ignore,
            "warn" => Self::Warn,
            "abort" => Self::Abort,
            other => {
                return Err(Error::invalid(format!("unknown reaction \"{other}\""))
                    .hint("one of ignore, warn, abort"));
            }
        })
    }
}

impl fmt::Display for Reaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ignore => "ignore",
            Self::Warn => "warn",
            Self::Abort => "abort",
        })
    }
}

impl Reaction {
    /// Records a problem, or ends the job with it.
    pub fn to(self, warnings: &mut Vec<String>, problem: impl FnOnce() -> Error) -> Result<()> {
        /// Maximum number of warnings that are kept.
        const WARNINGS: usize = 32;
        match self {
            Self::Abort => return Err(problem()),
            Self::Warn if warnings.len() < WARNINGS => warnings.push(problem().message),
            Self::Warn | Self::Ignore => {}
        }
        Ok(())
    }
}

/// The reactions of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reactions {
    /// Two members of one name in one input shard; the first counts.
    pub duplicated_records: Reaction,
    /// A name of the input without an object.
    pub missing_shards: Reaction,
    /// A line of a key map that is not a key and a template.
    pub ekm_malformed_line: Reaction,
    /// A record that the key map does not contain; it is left out.
    pub ekm_missing_key: Reaction,
}

impl Default for Reactions {
    /// By default only missing input is skipped without a warning.
    fn default() -> Self {
        Self {
            duplicated_records: Reaction::Abort,
            missing_shards: Reaction::Ignore,
            ekm_malformed_line: Reaction::Abort,
            ekm_missing_key: Reaction::Abort,
        }
    }
}

/// Whether objects of the destination may be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Overwrite {
    Never,
    /// Objects that are not input of the job, as in AIStore.
    #[default]
    OthersThanInput,
    Always,
}

/// A memory limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Memory {
    /// Percent of the node's memory.
    Percent(u8),
    Bytes(u64),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Percent(80)
    }
}

impl FromStr for Memory {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!("invalid amount of memory \"{text}\""))
                .hint("a percentage or bytes: 80%, 4GiB")
        };
        let text = text.trim();
        let parsed = match text.strip_suffix('%') {
            Some(percent) => {
                let percent = percent.trim().parse().map_err(|_| bad())?;
                (1..=100).contains(&percent).then_some(Self::Percent(percent))
            }
            None => ByteSize::parse(text).ok().filter(|s| s.0 > 0).map(|s| Self::Bytes(s.0)),
        };
        parsed.ok_or_else(bad)
    }
}

impl Memory {
    /// The limit in bytes for a node with `total` bytes.
    pub fn of(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => total / 100 * u64::from(percent),
            Self::Bytes(bytes) => bytes.min(total),
        }
    }
}

impl DsortSpec {
    /// A job with every default: all shards of a bucket, by name.
    pub fn new(source: Bucket, destination: Bucket) -> Self {
        Self {
            source,
            input: InputFormat::default(),
            input_ext: String::new(),
            destination,
            template: String::new(),
            output_ext: String::new(),
            shard_bytes: 0,
            algorithm: Algorithm::default(),
            decreasing: false,
            key_map: None,
            on: Reactions::default(),
            memory: Memory::default(),
            extract_limit: 0,
            create_limit: 0,
            timeout_ms: 0,
            overwrite: Overwrite::default(),
            dry_run: false,
            description: String::new(),
        }
    }

    /// Refuses impossible specs, before anything is listed.
    pub fn check(&self) -> Result<()> {
        for ext in [&self.input_ext, &self.output_ext].into_iter().filter(|e| !e.is_empty()) {
            check_extension(ext)?;
        }
        if let InputFormat::Template(text) = &self.input {
            ranges(text)?;
            agree("input_extension", &self.input_ext, text)?;
        }
        if let InputFormat::Names(names) = &self.input
            && names.is_empty()
        {
            return Err(Error::invalid("the list of input shards is empty"));
        }
        if let Algorithm::Content { ext, .. } = &self.algorithm
            && (!ext.starts_with('.') || ext.len() < 2)
        {
            return Err(Error::invalid(format!(
                "algorithm content needs the extension of its key members, not \"{ext}\""
            ))
            .hint("with its dot, for example .cls"));
        }
        if self.key_map.is_some() {
            if self.shard_bytes == 0 {
                return Err(Error::invalid("output_shard_size is missing")
                    .hint("with an external key map it is needed, for example 128MiB"));
            }
            return Ok(());
        }
        agree("output_extension", &self.output_ext, &self.template)?;
        let ranges = Ranges::parse_output(&self.template)
            .map_err(|e| Error { message: format!("output_format: {}", e.message), ..e })?;
        if self.shard_bytes == 0 && ranges.is_open() {
            return Err(Error::invalid("output_shard_size is missing").hint(format!(
                "template \"{}\" has no end, so that the size must say how many shards there are",
                self.template
            )));
        }
        Ok(())
    }

    /// The extension of the output, given that of an input shard.
    pub fn output_extension(&self, input: &str) -> Result<String> {
        let own = |text: &str| ArchiveFormat::from_name(text).map(|_| extension(text).to_owned());
        if !self.output_ext.is_empty() {
            return Ok(self.output_ext.clone());
        }
        let given = if self.key_map.is_none() { own(&self.template) } else { None };
        let or_input = || (!self.input_ext.is_empty()).then(|| self.input_ext.clone());
        given.or_else(or_input).or_else(|| own(input)).ok_or_else(|| unknown_extension(""))
    }

    /// Whether an object is an input shard, judged by its name.
    pub fn is_input(&self, name: &str) -> bool {
        ArchiveFormat::from_name(name)
            .is_some_and(|format| self.input_ext.is_empty() || is_same(format, &self.input_ext))
    }
}

fn is_same(format: ArchiveFormat, ext: &str) -> bool {
    ArchiveFormat::from_name(ext) == Some(format)
}

/// The part of a name that identifies the archive format.
pub(super) fn extension(name: &str) -> &str {
    let ext = crate::shard_names::EXTENSIONS.iter().find(|ext| name.ends_with(**ext));
    ext.copied().unwrap_or("")
}

/// Checks that an extension in a template is the same as the configured one.
fn agree(what: &str, ext: &str, template: &str) -> Result<()> {
    match ArchiveFormat::from_name(template) {
        Some(own) if !ext.is_empty() && !is_same(own, ext) => {
            Err(Error::invalid(format!("{what} is \"{ext}\", but the template is \"{template}\"")))
        }
        _ => Ok(()),
    }
}
