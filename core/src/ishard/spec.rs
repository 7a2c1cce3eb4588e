//! The specification of an ishard job, as in requests and on the command line.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ekm::Ekm;
use super::key::{ExtMode, KeyMode, compile};
use crate::error::{Error, Result};
use crate::name::Bucket;
use crate::shard_names::{check_extension, with_extension};
use crate::size::ByteSize;
use crate::template::Ranges;

/// Shards of 50 to 200 MB give the best read performance.
pub const DEFAULT_SHARD_BYTES: u64 = 128 << 20;
pub const DEFAULT_TEMPLATE: &str = "shard-%06d";
pub const DEFAULT_MANIFEST: &str = "manifest.jsonl";

/// Maximum rules of an external key map, and maximum patterns in all of them.
const MAX_RULES: usize = 10_000;

/// A complete job: the objects, how they form samples, and how samples form shards.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IshardSpec {
    pub source: Bucket,
    /// Only objects whose names start with this.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    pub destination: Bucket,
    /// Prefix of the names of all shards and of the manifest.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub destination_prefix: String,
    /// Whether to create the destination if it does not exist.
    #[serde(default)]
    pub create: bool,
    #[serde(default)]
    pub key: KeyMode,
    #[serde(default)]
    pub ext_mode: ExtMode,
    #[serde(default)]
    pub size: ShardSize,
    #[serde(default = "default_template")]
    pub template: String,
    /// Format of the shards, by their extension.
    #[serde(default = "default_ext")]
    pub ext: String,
    /// The extensions that every sample should have; empty: any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sample_exts: Vec<String>,
    #[serde(default)]
    pub ext_ignore_case: bool,
    #[serde(default)]
    pub missing: MissingAction,
    /// Moves samples that do not fill a shard to the parent folder.
    #[serde(default)]
    pub collapse: bool,
    #[serde(default)]
    pub sort: Sort,
    #[serde(default, skip_serializing_if = "Ekm::is_empty")]
    pub ekm: Ekm,
    #[serde(default)]
    pub ekm_unmatched: EkmUnmatched,
    #[serde(default)]
    pub on_duplicate: OnDuplicate,
    #[serde(default)]
    pub overwrite: Overwrite,
    /// Name of the manifest; empty: none is written.
    #[serde(default = "default_manifest")]
    pub manifest: String,
}

fn default_template() -> String {
    DEFAULT_TEMPLATE.to_owned()
}

fn default_ext() -> String {
    ".tar".to_owned()
}

fn default_manifest() -> String {
    DEFAULT_MANIFEST.to_owned()
}

impl IshardSpec {
    /// A job with every default.
    pub fn new(source: Bucket, destination: Bucket) -> Self {
        Self {
            source,
            prefix: String::new(),
            destination,
            destination_prefix: String::new(),
            create: false,
            key: KeyMode::default(),
            ext_mode: ExtMode::default(),
            size: ShardSize::default(),
            template: default_template(),
            ext: default_ext(),
            sample_exts: Vec::new(),
            ext_ignore_case: false,
            missing: MissingAction::default(),
            collapse: false,
            sort: Sort::default(),
            ekm: Ekm::default(),
            ekm_unmatched: EkmUnmatched::default(),
            on_duplicate: OnDuplicate::default(),
            overwrite: Overwrite::default(),
            manifest: default_manifest(),
        }
    }

    /// Refuses impossible specs, before anything is listed.
    pub fn check(&self) -> Result<()> {
        self.key.check()?;
        check_extension(&self.ext)?;
        if matches!(self.size, ShardSize::Count(0) | ShardSize::Bytes(0)) {
            return Err(Error::invalid("the shard size must be more than 0"));
        }
        if let Some(i) = self.sample_exts.iter().position(|e| e.trim_start_matches('.').is_empty())
        {
            return Err(Error::invalid(format!("sample extension {} is empty", i + 1))
                .hint("write them with commas between, for example .jpg,.json"));
        }
        if self.missing != MissingAction::Ignore && self.sample_exts.is_empty() {
            return Err(Error::invalid("an action on missing extensions needs sample extensions")
                .hint("name those that each sample must have, for example .jpg,.json"));
        }
        Ranges::parse_output(&self.template)?;
        if self.ekm.0.len() > MAX_RULES
            || self.ekm.0.iter().map(|r| r.patterns.len()).sum::<usize>() > MAX_RULES
        {
            return Err(Error::invalid(format!(
                "an external key map has at most {MAX_RULES} rules"
            )));
        }
        for rule in &self.ekm.0 {
            Ranges::parse_output(&rule.template)?;
            if rule.patterns.is_empty() {
                return Err(Error::invalid(format!("rule \"{}\" has no patterns", rule.template)));
            }
            rule.patterns.iter().try_for_each(|p| compile(p).map(drop))?;
        }
        Ok(())
    }

    /// The full name of a shard whose template gave `name`.
    pub(super) fn shard_name(&self, name: &str) -> String {
        format!("{}{}", self.destination_prefix, with_extension(name, &self.ext))
    }

    /// The full name of the manifest, if one is written.
    pub fn manifest_name(&self) -> Option<String> {
        (!self.manifest.is_empty()).then(|| format!("{}{}", self.destination_prefix, self.manifest))
    }
}

/// When a shard is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardSize {
    /// After this many samples.
    Count(u64),
    /// After this many bytes of files; exceeded by less than one sample.
    Bytes(u64),
}

impl Default for ShardSize {
    fn default() -> Self {
        Self::Bytes(DEFAULT_SHARD_BYTES)
    }
}

impl FromStr for ShardSize {
    type Err = Error;
    /// A bare number counts samples; one with a unit is bytes.
    fn from_str(text: &str) -> Result<Self> {
        match text.trim().parse::<u64>() {
            Ok(n) => Ok(Self::Count(n)),
            Err(_) => ByteSize::parse(text)
                .map(|s| Self::Bytes(s.0))
                .map_err(|e| e.hint("a number of samples, or bytes with a unit: 1000 or 128MiB")),
        }
    }
}

impl fmt::Display for ShardSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(n) => write!(f, "{n}"),
            Self::Bytes(n) => write!(f, "{n}B"),
        }
    }
}

impl Serialize for ShardSize {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Count(n) => s.serialize_u64(*n),
            bytes @ Self::Bytes(_) => s.collect_str(bytes),
        }
    }
}

impl<'de> Deserialize<'de> for ShardSize {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Form {
            Number(u64),
            Text(String),
        }
        match Form::deserialize(d)? {
            Form::Number(n) => Ok(Self::Count(n)),
            Form::Text(text) => text.parse().map_err(D::Error::custom),
        }
    }
}

/// The reaction to samples that lack an extension, and to files with an unexpected one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MissingAction {
    #[default]
    Ignore,
    /// Pack everything, with a warning.
    Warn,
    /// Pack nothing.
    Abort,
    /// Leave out the other files and the incomplete samples.
    Exclude,
}

/// The reaction to two files that would have the same name in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnDuplicate {
    #[default]
    Abort,
    /// Packs the first one in name order and leaves out the others.
    KeepFirst,
    /// Adds a number before the extension of the others: `x.jpg`, `x.1.jpg`.
    Rename,
}

/// Whether objects of the destination may be replaced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Overwrite {
    #[default]
    Never,
    Always,
}

/// The handling of samples that match no rule of the external key map.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EkmUnmatched {
    #[default]
    Skip,
    Abort,
    /// They go into shards named by the job's own template.
    Template,
}

/// Order of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By folder and key; samples of different folders never share a shard.
    #[default]
    Folders,
    /// By key over all folders; shards may span folders.
    Alpha { descending: bool },
    /// By a hash of seed and key, over all folders: the same order on any cluster.
    Shuffle { seed: u64 },
}

impl FromStr for Sort {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::invalid(format!("unknown order \"{text}\""))
                .hint("one of alpha, alpha:inc, alpha:dec, shuffle, shuffle:SEED")
        };
        Ok(match text.split_once(':').unwrap_or((text, "")) {
            ("" | "folders", "") => Self::Folders,
            ("alpha", "" | "inc") => Self::Alpha { descending: false },
            ("alpha", "dec") => Self::Alpha { descending: true },
            ("shuffle", "") if !text.ends_with(':') => Self::Shuffle { seed: 0 },
            ("shuffle", seed) => Self::Shuffle { seed: seed.parse().map_err(|_| bad())? },
            _ => return Err(bad()),
        })
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folders => f.write_str("folders"),
            Self::Alpha { descending: false } => f.write_str("alpha:inc"),
            Self::Alpha { descending: true } => f.write_str("alpha:dec"),
            Self::Shuffle { seed } => write!(f, "shuffle:{seed}"),
        }
    }
}

impl Serialize for Sort {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sort {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}
