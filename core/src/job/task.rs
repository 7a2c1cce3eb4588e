//! What a job does beyond what its kind says.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dsort::DsortSpec;
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
    Dsort(Box<DsortSpec>),
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
            Self::Dsort(spec) => Some(&spec.destination),
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
    /// First drop copies of what the backend does not have any more, or has in another version.
    #[serde(default)]
    pub sync: bool,
    /// Objects of this many bytes or more are fetched by ranges in parallel, each by a job of its
    /// own; 0: none are.
    #[serde(default)]
    pub blob_threshold: u64,
    /// Bytes of such a range; 0 is the default.
    #[serde(default)]
    pub blob_chunk: u64,
    /// Ranges at once; 0 is the default.
    #[serde(default)]
    pub blob_workers: u32,
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
    /// Go on after an object that fails.
    #[serde(default)]
    pub continue_on_error: bool,
    /// Copy also what only the backend has.
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

    /// What the copy of an object is called.
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
    /// Leave out what cannot be read.
    #[serde(default)]
    pub continue_on_error: bool,
}

impl ArchiveTask {
    /// What an object of `bucket` is called inside the shard.
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
