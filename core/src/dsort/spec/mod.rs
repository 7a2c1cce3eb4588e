//! The specification of a dsort job.

mod algorithm;
mod input;
mod memory;
mod reaction;

use serde::{Deserialize, Serialize};

pub use self::algorithm::{Algorithm, ContentType};
pub use self::input::InputFormat;
use self::input::ranges;
pub use self::memory::Memory;
pub use self::reaction::{Reaction, Reactions};
use super::key_map::KeyMapSource;
use crate::error::{Error, Result};
use crate::name::Bucket;
use crate::shard::ArchiveFormat;
use crate::shard_names::{check_extension, unknown_extension};
use crate::template::Ranges;

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
fn extension(name: &str) -> &str {
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
