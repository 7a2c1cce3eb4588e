//! What a job does beyond what its kind says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ishard::IshardSpec;
use crate::name::Bucket;

/// The part of a job that only jobs of its kind have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// The kind and the selection say all.
    #[default]
    Plain,
    Ishard(Box<IshardSpec>),
    Prefetch(PrefetchTask),
    Copy(Box<CopyTask>),
    Archive(Box<ArchiveTask>),
}

impl Task {
    /// The bucket that the job writes to, when it is another than it reads from.
    pub fn destination(&self) -> Option<&Bucket> {
        match self {
            Self::Plain | Self::Prefetch(_) => None,
            Self::Ishard(spec) => Some(&spec.destination),
            Self::Copy(task) => Some(&task.to),
            Self::Archive(task) => Some(&task.to),
        }
    }
}

/// How objects are brought here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchTask {
    /// Compare what is here with the backend, whatever the bucket's rules say.
    #[serde(default)]
    pub latest: bool,
}

/// Copies of objects, under names that may differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTask {
    pub to: Bucket,
    /// Put before every destination name.
    #[serde(default)]
    pub prepend: String,
    /// Extensions to replace, without dots.
    #[serde(default)]
    pub ext: BTreeMap<String, String>,
    /// Count and write nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Compare what is here with the backend first.
    #[serde(default)]
    pub latest: bool,
    /// Also remove, here and at the destination, what the backend does not have any more.
    #[serde(default)]
    pub synchronize: bool,
    /// Only names without a slash behind the prefix.
    #[serde(default)]
    pub flat: bool,
    /// Go on after an object that fails.
    #[serde(default)]
    pub continue_on_error: bool,
    /// Copy also what only the backend has.
    #[serde(default)]
    pub remote_too: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
}

/// ETLs that the bytes go through on their way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transform {
    /// Names of ETLs, the first first.
    pub pipeline: Vec<String>,
    /// Milliseconds for one object; 0 is the ETL's own.
    #[serde(default)]
    pub timeout_ms: u64,
}

/// A shard made of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveTask {
    pub to: Bucket,
    /// Name of the shard.
    pub name: String,
    /// `.tar`, `.tgz`, …; empty: what the name says.
    #[serde(default)]
    pub format: String,
    /// Members are named `bucket/object`.
    #[serde(default)]
    pub with_bucket: bool,
    /// Members are named by what stands behind the last slash.
    #[serde(default)]
    pub base_names: bool,
    /// Add to the shard when it exists.
    #[serde(default)]
    pub append: bool,
    /// Only names without a slash behind the prefix.
    #[serde(default)]
    pub flat: bool,
    /// Leave out what cannot be read.
    #[serde(default)]
    pub continue_on_error: bool,
}
