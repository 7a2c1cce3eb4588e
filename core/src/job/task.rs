//! Options of a job that depend on its kind.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dsort::DsortSpec;
use crate::ishard::IshardSpec;
use crate::name::Bucket;

/// The part of a job that only jobs of its kind have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Task {
    /// No options beyond the kind and the selection.
    #[default]
    Plain,
    Ishard(Box<IshardSpec>),
    Dsort(Box<DsortSpec>),
    Prefetch(PrefetchTask),
    Copy(Box<CopyTask>),
    Archive(Box<ArchiveTask>),
}

impl Task {
    /// The bucket that the job writes to, if that differs from its source.
    pub fn destination(&self) -> Option<&Bucket> {
        match self {
            Self::Plain | Self::Prefetch(_) => None,
            Self::Ishard(spec) => Some(&spec.destination),
            Self::Dsort(spec) => Some(&spec.destination),
            Self::Copy(task) => Some(&task.to),
            Self::Archive(task) => Some(&task.to),
        }
    }
}

/// How objects are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrefetchTask {
    /// Compares cached copies with the backend, whatever the bucket's rules are.
    #[serde(default)]
    pub latest: bool,
    /// First drops copies that the backend no longer has, or has in another version.
    #[serde(default)]
    pub sync: bool,
    /// Objects of at least this many bytes are fetched in parallel ranges, each by its own job; 0:
    /// none are.
    #[serde(default)]
    pub blob_threshold: u64,
    /// Bytes of such a range; 0 means the default.
    #[serde(default)]
    pub blob_chunk: u64,
    /// Concurrent ranges; 0 means the default.
    #[serde(default)]
    pub blob_workers: u32,
}

/// Copies of objects, under names that may differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyTask {
    pub to: Bucket,
    /// Prefix of every destination name.
    #[serde(default)]
    pub prepend: String,
    /// Extensions to replace, without dots.
    #[serde(default)]
    pub ext: BTreeMap<String, String>,
    /// Counts without writing.
    #[serde(default)]
    pub dry_run: bool,
    /// Compares cached copies with the backend first.
    #[serde(default)]
    pub latest: bool,
    /// Also removes, here and at the destination, objects that the backend no longer has.
    #[serde(default)]
    pub synchronize: bool,
    /// Continues after an object that fails.
    #[serde(default)]
    pub continue_on_error: bool,
    /// Also copies objects that only the backend has.
    #[serde(default)]
    pub remote_too: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<Transform>,
}

impl CopyTask {
    pub fn new(to: Bucket) -> Self {
        Self {
            to,
            prepend: String::new(),
            ext: BTreeMap::new(),
            dry_run: false,
            latest: false,
            synchronize: false,
            continue_on_error: false,
            remote_too: false,
            transform: None,
        }
    }

    /// The name of an object's copy.
    pub fn name_of(&self, name: &str) -> String {
        let Some((stem, ext)) = name.rsplit_once('.').filter(|(_, ext)| !ext.contains('/')) else {
            return format!("{}{name}", self.prepend);
        };
        let dotted = || self.ext.get(&format!(".{ext}"));
        match self.ext.get(ext).or_else(dotted) {
            Some(new) => format!("{}{stem}.{}", self.prepend, new.trim_start_matches('.')),
            None => format!("{}{name}", self.prepend),
        }
    }
}

/// ETLs that the bytes pass through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Transform {
    /// Names of ETLs, in order.
    pub pipeline: Vec<String>,
    /// Timeout for one object in milliseconds; 0 means the ETL's own.
    #[serde(default)]
    pub timeout_ms: u64,
}

/// A shard made of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveTask {
    pub to: Bucket,
    /// Name of the shard.
    pub name: String,
    /// `.tar`, `.tgz`, …; empty: derived from the name.
    #[serde(default)]
    pub format: String,
    /// Members are named `bucket/object`.
    #[serde(default)]
    pub with_bucket: bool,
    /// Members are named by the part after the last slash.
    #[serde(default)]
    pub base_names: bool,
    /// Appends to an existing shard.
    #[serde(default)]
    pub append: bool,
    /// Leaves out objects that cannot be read.
    #[serde(default)]
    pub continue_on_error: bool,
}

impl ArchiveTask {
    /// The name of an object of `bucket` inside the shard.
    pub fn member_of(&self, bucket: &Bucket, name: &str) -> String {
        let name = match self.base_names {
            true => name.rsplit('/').next().unwrap_or(name),
            false => name,
        };
        match self.with_bucket {
            true => format!("{}/{name}", bucket.name),
            false => name.to_owned(),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::name::Provider;

    fn bucket() -> Bucket {
        Bucket::new(Provider::Ais, "b").unwrap()
    }

    #[test]
    fn copies_take_a_prefix_and_another_extension() {
        let mut task = CopyTask::new(bucket());
        assert_eq!(task.name_of("a/b.jpg"), "a/b.jpg");
        task.prepend = "new-".into();
        task.ext = [("jpg".into(), "txt".into()), (".tar".into(), ".tgz".into())].into();
        assert_eq!(task.name_of("a.jpg/b"), "new-a.jpg/b");
        assert_eq!(task.name_of("a/b.jpg"), "new-a/b.txt");
        assert_eq!(task.name_of("b.tar"), "new-b.tgz");
        assert_eq!(task.name_of("jpg"), "new-jpg");
    }

    #[test]
    fn members_are_named_by_object_base_name_and_bucket() {
        let task = |with_bucket, base_names| ArchiveTask {
            to: bucket(),
            name: "a.tar".into(),
            format: String::new(),
            with_bucket,
            base_names,
            append: false,
            continue_on_error: false,
        };
        let member = |w, b| task(w, b).member_of(&bucket(), "x/y");
        assert_eq!(
            [member(false, false), member(true, false), member(false, true), member(true, true)],
            ["x/y", "b/x/y", "y", "b/y"]
        );
    }
}
