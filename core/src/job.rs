//! Jobs: long work on all targets, named, watched and stopped as one.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::ishard::IshardSpec;
use crate::name::{Bucket, NodeId};

/// Kinds of job of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    Prefetch,
    Evict,
    Delete,
    /// Packs objects into shards; runs on one target.
    Ishard,
    /// Compares what is stored with its checksums.
    Scrub,
}

impl JobKind {
    pub const ALL: [Self; 5] =
        [Self::Prefetch, Self::Evict, Self::Delete, Self::Ishard, Self::Scrub];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch",
            Self::Evict => "evict",
            Self::Delete => "delete",
            Self::Ishard => "ishard",
            Self::Scrub => "scrub",
        }
    }

    /// The kind's name in AIStore v1.
    pub fn v1_kind(self) -> &'static str {
        match self {
            Self::Prefetch => "prefetch-listrange",
            Self::Evict => "evict-listrange",
            Self::Delete => "delete-listrange",
            Self::Ishard => "ishard",
            Self::Scrub => "scrub",
        }
    }
}

impl FromStr for JobKind {
    type Err = Error;
    /// Accepts our name, the v1 kind, and the v1 display name.
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|k| s == k.as_str() || s == k.v1_kind() || s == format!("{}-objects", k.as_str()))
            .ok_or_else(|| Error::invalid(format!("unknown job kind \"{s}\"")))
    }
}

/// Which objects a job works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    Names(Vec<String>),
    /// All names that start so; empty means the whole bucket.
    Prefix(String),
}

/// What to do; sent to every target, each of which takes the objects that it owns. A job that packs
/// shards goes to one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub id: String,
    pub kind: JobKind,
    pub bucket: Bucket,
    pub selection: Selection,
    /// The whole of a job of kind [`JobKind::Ishard`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ishard: Option<Box<IshardSpec>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    Running,
    Done,
    Failed,
    Stopped,
}

/// How far a job is: on one target, or merged over all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    pub id: String,
    pub kind: JobKind,
    pub bucket: Bucket,
    pub state: JobState,
    /// Unix nanoseconds.
    pub started_ns: u64,
    /// 0 while it runs.
    pub ended_ns: u64,
    pub objects: u64,
    pub bytes: u64,
    pub errors: u64,
    /// How many there will be, once that is known.
    #[serde(default)]
    pub total_objects: u64,
    #[serde(default)]
    pub total_bytes: u64,
    /// The first few failures, in words.
    #[serde(default)]
    pub messages: Vec<String>,
    /// What went as it should and is worth knowing all the same.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// What ended the job as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Error>,
}

impl JobStatus {
    pub fn new(spec: &JobSpec, started_ns: u64) -> Self {
        Self {
            id: spec.id.clone(),
            kind: spec.kind,
            bucket: spec.bucket.clone(),
            state: JobState::Running,
            started_ns,
            ended_ns: 0,
            objects: 0,
            bytes: 0,
            errors: 0,
            total_objects: 0,
            total_bytes: 0,
            messages: Vec::new(),
            notes: Vec::new(),
            failure: None,
        }
    }

    pub fn is_over(&self) -> bool {
        self.state != JobState::Running
    }
}

/// One status out of many targets'; `None` when there is none.
pub fn merge(parts: &BTreeMap<NodeId, JobStatus>) -> Option<JobStatus> {
    let mut parts = parts.values();
    let mut all = parts.next()?.clone();
    for part in parts {
        all.state = match (all.state, part.state) {
            (JobState::Running, _) | (_, JobState::Running) => JobState::Running,
            (JobState::Failed, _) | (_, JobState::Failed) => JobState::Failed,
            (JobState::Stopped, _) | (_, JobState::Stopped) => JobState::Stopped,
            (JobState::Done, JobState::Done) => JobState::Done,
        };
        all.started_ns = all.started_ns.min(part.started_ns);
        all.ended_ns = all.ended_ns.max(part.ended_ns);
        all.objects += part.objects;
        all.bytes += part.bytes;
        all.errors += part.errors;
        all.total_objects += part.total_objects;
        all.total_bytes += part.total_bytes;
        all.messages.extend(part.messages.iter().cloned());
        all.notes.extend(part.notes.iter().cloned());
        all.failure = all.failure.or_else(|| part.failure.clone());
    }
    if all.state == JobState::Running {
        all.ended_ns = 0;
    }
    all.messages.truncate(16);
    Some(all)
}
