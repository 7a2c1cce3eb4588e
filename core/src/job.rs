//! Jobs: long work on all targets, named, watched and stopped as one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::name::{Bucket, NodeId};

mod kind;
mod task;

pub use kind::JobKind;
pub use task::{ArchiveTask, CopyTask, PrefetchTask, Task, Transform};

/// Which objects a job works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    Names(Vec<String>),
    /// All names that start so; empty means the whole bucket.
    Prefix(String),
}

impl Default for Selection {
    fn default() -> Self {
        Self::Prefix(String::new())
    }
}

/// What to do; sent to every target, each of which takes the objects that it owns. A job that packs
/// shards goes to one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub id: String,
    pub kind: JobKind,
    /// What it works on, or reads from; none in a job about the whole cluster.
    #[serde(default)]
    pub bucket: Option<Bucket>,
    #[serde(default)]
    pub selection: Selection,
    /// What the kind does not say.
    #[serde(default)]
    pub task: Task,
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
    #[serde(default)]
    pub bucket: Option<Bucket>,
    /// Where it writes, when that is another bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Bucket>,
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
            destination: spec.task.destination().cloned(),
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
