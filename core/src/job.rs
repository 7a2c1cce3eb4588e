//! Jobs: long-running work on all targets, identified, monitored and stopped as a unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::dsort::DsortReport;
use crate::error::{Error, Result};
use crate::name::{Bucket, NodeId};
use crate::template::Template;

mod kind;
mod task;

pub use kind::JobKind;
pub use task::{ArchiveTask, CopyTask, PrefetchTask, Task, Transform};

/// How long after its end a job of an idling kind is still reported as idle.
const IDLE_GRACE_NS: u64 = 20_000_000_000;

/// Selects the objects of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selection {
    Names(Vec<String>),
    /// A valid template with a range; each target generates its names from it.
    Template(String),
    /// All names that start with this; empty means the whole bucket.
    Prefix(String),
}

impl Selection {
    /// The selected names in order; `None` if a listing is needed.
    pub fn names(&self) -> Result<Option<Box<dyn Iterator<Item = String> + Send + '_>>> {
        Ok(match self {
            Self::Names(names) => Some(Box::new(names.iter().cloned())),
            Self::Prefix(_) => None,
            Self::Template(text) => match Template::parse(text)? {
                Template::Ranges(ranges) => Some(Box::new(ranges.into_names())),
                Template::Prefix(_) => return Err(Error::invalid(format!("no range in {text}"))),
            },
        })
    }
}

impl Default for Selection {
    fn default() -> Self {
        Self::Prefix(String::new())
    }
}

/// The specification of a job; sent to every target, which processes the objects that it owns. A
/// job that packs shards goes to one target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    pub id: String,
    pub kind: JobKind,
    /// The bucket that it processes or reads from; none for a job on the whole cluster.
    #[serde(default)]
    pub bucket: Option<Bucket>,
    #[serde(default)]
    pub selection: Selection,
    /// Only names without a slash after the prefix.
    #[serde(default)]
    pub flat: bool,
    /// Concurrent objects on each target; 0: the default.
    #[serde(default)]
    pub workers: u32,
    /// Options that depend on the kind.
    #[serde(default)]
    pub task: Task,
    /// The targets that take part.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NodeId>,
    /// When the job was requested, in unix nanoseconds: its listings are not older.
    #[serde(default)]
    pub asked_ns: u64,
}

impl JobSpec {
    /// A job on the whole cluster, until it gets a bucket.
    pub fn new(kind: JobKind, id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            kind,
            bucket: None,
            selection: Selection::default(),
            flat: false,
            workers: 0,
            task: Task::Plain,
            on: Vec::new(),
            asked_ns: 0,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JobState {
    Running,
    Done,
    Failed,
    Stopped,
}

/// The progress of a job: on one target, or merged over all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStatus {
    pub id: String,
    pub kind: JobKind,
    #[serde(default)]
    pub bucket: Option<Bucket>,
    /// The destination, if that is another bucket.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<Bucket>,
    /// Concurrent objects on each target, if its client chose that.
    #[serde(default)]
    pub workers: u32,
    pub state: JobState,
    /// Unix nanoseconds.
    pub started_ns: u64,
    /// 0 while it runs.
    pub ended_ns: u64,
    pub objects: u64,
    pub bytes: u64,
    pub errors: u64,
    /// Objects that needed no work, as they were present already; not included in `objects`.
    #[serde(default)]
    pub present: u64,
    #[serde(default)]
    pub present_bytes: u64,
    /// Expected number of objects, once known.
    #[serde(default)]
    pub total_objects: u64,
    #[serde(default)]
    pub total_bytes: u64,
    /// The messages of the first few failures.
    #[serde(default)]
    pub messages: Vec<String>,
    /// Notes that are not failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The error that ended the whole job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Error>,
    /// For a job that sorts shards: its phases, and the part of each target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dsort: Option<Box<DsortReport>>,
    /// The targets that take part, if they were sent with the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<NodeId>,
}

impl JobStatus {
    pub fn new(spec: &JobSpec, started_ns: u64) -> Self {
        Self {
            id: spec.id.clone(),
            kind: spec.kind,
            bucket: spec.bucket.clone(),
            destination: spec.task.destination().cloned(),
            workers: spec.workers,
            state: JobState::Running,
            started_ns,
            ended_ns: 0,
            objects: 0,
            bytes: 0,
            errors: 0,
            present: 0,
            present_bytes: 0,
            total_objects: 0,
            total_bytes: 0,
            messages: Vec::new(),
            notes: Vec::new(),
            failure: None,
            dsort: None,
            on: spec.on.clone(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.state != JobState::Running
    }

    /// Whether its client may still treat it as an idle job at `now_ns`: AIStore keeps such jobs
    /// for more work, lists them as running and allows aborting them.
    pub fn is_in_idle_grace(&self, now_ns: u64) -> bool {
        self.kind.idles()
            && self.state == JobState::Done
            && now_ns.saturating_sub(self.ended_ns) < IDLE_GRACE_NS
    }
}

/// Merges the statuses of many targets; `None` if there are none.
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
        all.present += part.present;
        all.present_bytes += part.present_bytes;
        all.total_objects += part.total_objects;
        all.total_bytes += part.total_bytes;
        all.messages.extend(part.messages.iter().cloned());
        all.notes.extend(part.notes.iter().cloned());
        all.failure = all.failure.or_else(|| part.failure.clone());
        all.dsort = all.dsort.or_else(|| part.dsort.clone());
    }
    if all.state == JobState::Running {
        all.ended_ns = 0;
    }
    all.messages.truncate(16);
    Some(all)
}
