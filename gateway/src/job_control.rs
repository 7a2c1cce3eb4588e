//! Jobs as a unit: started on every target, monitored and stopped on all of them.
//!
//! Targets store the jobs, and which targets have parts of them, so any gateway can report on any
//! job. A gateway also records the jobs that it started, so that a job whose parts were all lost in
//! restarts of their targets is reported as failed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use forebay_core::ishard::IshardSpec;
use forebay_core::job::{self, JobKind, JobSpec, JobState, JobStatus, Selection, Task};
use forebay_core::locks::MutexExt;
use forebay_core::state::{ClusterState, Node, Summary};
use forebay_core::{Bucket, Error, ErrorCode, NodeId, Result, placement};
use forebay_node::clock::unix_ns;
use forebay_node::maps::Maps;
use forebay_v1::jobs::unknown_job;

use crate::changes;
use crate::route::Found;
use crate::targets::{self, Targets};

const JOBS: &str = "/internal/v1/job";
/// Maximum number of recorded jobs; the oldest are dropped first.
const REMEMBERED: usize = 1_000;
/// How long the start of a job that packs shards waits for its plan, so that an impossible job is
/// refused in the answer.
const PLANNED_WITHIN: Duration = Duration::from_secs(8);

/// Starts, monitors and stops jobs; cheap to clone.
#[derive(Clone)]
pub(crate) struct JobControl {
    maps: Maps,
    targets: Targets,
    /// The last known status of each job that this gateway started.
    started: Arc<Mutex<BTreeMap<String, JobStatus>>>,
}

/// Targets that do not report on jobs.
struct Unresponsive {
    /// Alive: a part there may still run.
    silent: BTreeSet<NodeId>,
    /// Members that are down: a part there resumes with them, if its kind of job resumes.
    away: BTreeSet<NodeId>,
}

/// The jobs that a request is about; empty fields match all.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFilter {
    pub(crate) id: String,
    pub(crate) kind: Option<JobKind>,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) running_only: bool,
    /// Only the parts of this target.
    pub(crate) node: Option<NodeId>,
}

impl JobFilter {
    fn matches(&self, s: &JobStatus) -> bool {
        (self.id.is_empty() || self.id == s.id)
            && self.kind.is_none_or(|k| k == s.kind)
            && self
                .bucket
                .as_ref()
                .is_none_or(|b| s.bucket.as_ref() == Some(b) || s.destination.as_ref() == Some(b))
            && !(self.running_only && s.is_over() && !s.is_in_idle_grace(unix_ns()))
    }
}

impl JobControl {
    pub(crate) fn new(maps: Maps, targets: Targets) -> Self {
        Self { maps, targets, started: Arc::default() }
    }

    /// Starts a job on the objects of a bucket.
    pub(crate) async fn start(&self, found: &Found, mut spec: JobSpec) -> Result<String> {
        let (kind, info) = (spec.kind, &found.info);
        if matches!(kind, JobKind::Prefetch | JobKind::Evict) && !info.has_backend() {
            return Err(Error::invalid(format!(
                "cannot {} objects of \"{}\": it has no backend",
                kind.as_str(),
                info.bucket
            ))
            .hint(match kind {
                JobKind::Evict => {
                    "objects of native buckets live only here; delete them to be rid of them"
                }
                _ => "objects of native buckets are in the cluster already",
            }));
        }
        let nodes = targets::holders(&found.state, info)?;
        spec.bucket = Some(info.bucket.clone());
        self.launch(spec, nodes).await
    }

    /// Starts a job on some targets; it is known everywhere when this returns.
    pub(crate) async fn launch(&self, mut spec: JobSpec, nodes: Vec<&Node>) -> Result<String> {
        spec.on = nodes.iter().map(|n| n.id.clone()).collect();
        spec.asked_ns = unix_ns();
        let answers =
            self.targets.post_all::<_, serde_json::Value>(nodes.iter().copied(), JOBS, &spec).await;
        if let Some(e) = answers.into_iter().find_map(|(_, answer)| answer.err()) {
            // A partial job would look like a complete one.
            self.targets.delete_all(nodes, &path(&spec.id)).await;
            return Err(e);
        }
        self.remember(JobStatus::new(&spec, unix_ns()));
        changes::log(&started(&spec), Ok(None));
        Ok(spec.id)
    }

    /// Starts a job that packs shards, on the live target that its id maps to. Returns when the job
    /// is planned, or when planning takes long; if the plan is refused, the error is returned here.
    pub(crate) async fn start_ishard(
        &self,
        id: String,
        source: &Found,
        ishard: IshardSpec,
    ) -> Result<String> {
        let spec = JobSpec {
            bucket: Some(source.info.bucket.clone()),
            selection: Selection::Prefix(ishard.prefix.clone()),
            task: Task::Ishard(Box::new(ishard)),
            ..JobSpec::new(JobKind::Ishard, id.clone())
        };
        let (runner, mut status) = self.launch_on_one(&source.state, spec).await?;
        let (started, mut pause) = (Instant::now(), Duration::from_millis(5));
        while !status.is_over() && status.total_objects == 0 && started.elapsed() < PLANNED_WITHIN {
            tokio::time::sleep(pause).await;
            pause = (pause * 3 / 2).min(Duration::from_millis(200));
            // Later status requests report how the job ended.
            let Ok(asked) = self.targets.get(runner, &path(&id)).await else { break };
            status = asked;
        }
        match status.failure {
            Some(e) if status.total_objects == 0 => Err(e),
            _ => Ok(id),
        }
    }

    /// Starts a job that runs on one target, the live one that its id maps to. Starting an existing
    /// job returns its status.
    pub(crate) async fn launch_on_one<'a>(
        &self,
        state: &'a ClusterState,
        spec: JobSpec,
    ) -> Result<(&'a Node, JobStatus)> {
        let nodes = targets::alive(state)?;
        let runner = placement::highest(nodes.into_iter(), placement::digest(&spec.id));
        let runner = runner.ok_or_else(|| Error::unavailable("no target is alive"))?;
        let spec = JobSpec { on: vec![runner.id.clone()], asked_ns: unix_ns(), ..spec };
        let status: JobStatus = self.targets.post(runner, JOBS, &spec).await?;
        self.remember(status.clone());
        changes::log(&started(&spec), Ok(None));
        Ok((runner, status))
    }

    /// Removes a job that is over, here and on all targets that answer.
    pub(crate) async fn forget(&self, id: &str) -> Result<()> {
        let state = self.maps.load();
        let path = format!("{}/forget", path(id));
        let nodes = targets::alive(&state)?;
        let answers = self.targets.post_all::<_, serde_json::Value>(nodes, &path, &());
        for (_, answer) in answers.await {
            match answer {
                Err(e) if e.code != ErrorCode::JobNotFound => return Err(e),
                _ => {}
            }
        }
        self.table().remove(id);
        Ok(())
    }

    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, JobStatus>> {
        self.started.locked()
    }

    fn remember(&self, job: JobStatus) {
        let mut table = self.table();
        if table.len() >= REMEMBERED {
            let oldest = table.values().min_by_key(|job| job.started_ns).map(|job| job.id.clone());
            oldest.and_then(|id| table.remove(&id));
        }
        table.insert(job.id.clone(), job);
    }

    /// Returns every target's part of the requested jobs. A target that does not answer has no
    /// part.
    pub(crate) async fn by_target(
        &self,
        filter: &JobFilter,
    ) -> Result<BTreeMap<NodeId, Vec<JobStatus>>> {
        let state = self.maps.load();
        let mut nodes = targets::alive(&state)?;
        nodes.retain(|n| filter.node.as_ref().is_none_or(|asked| *asked == n.id));
        let answers = match filter.id.as_str() {
            "" => self.targets.get_all::<Vec<JobStatus>>(nodes, JOBS).await,
            id => {
                let one = self.targets.get_all::<JobStatus>(nodes, &path(id)).await;
                let listed = |answer: Result<JobStatus>| match answer {
                    Err(e) if e.code == ErrorCode::JobNotFound => Ok(Vec::new()),
                    answer => answer.map(|status| vec![status]),
                };
                one.into_iter().map(|(node, answer)| (node, listed(answer))).collect()
            }
        };
        let mut parts = BTreeMap::new();
        for (target, answer) in answers {
            match answer {
                Ok(mut list) => {
                    list.retain(|s| filter.matches(s));
                    parts.insert(target, list);
                }
                Err(e) => {
                    tracing::warn!(node = %target, error = %e, "target did not report its jobs")
                }
            }
        }
        Ok(parts)
    }

    /// Returns the requested jobs, each merged over its targets, latest first.
    pub(crate) async fn list(&self, filter: &JobFilter) -> Result<Vec<JobStatus>> {
        // The filter applies to merged jobs: a job that runs on any target counts as running.
        let all = JobFilter { running_only: false, ..filter.clone() };
        let mut parts: BTreeMap<String, BTreeMap<NodeId, JobStatus>> = BTreeMap::new();
        let answers = self.by_target(&all).await?;
        let state = self.maps.load();
        let ids = |alive| {
            let nodes = state.targets().filter(move |n| n.alive == alive);
            nodes.filter(|n| !answers.contains_key(&n.id)).map(|n| n.id.clone()).collect()
        };
        let unresponsive = Unresponsive { silent: ids(true), away: ids(false) };
        for (target, list) in answers {
            for status in list {
                parts.entry(status.id.clone()).or_default().insert(target.clone(), status);
            }
        }
        for (id, job) in self.table().iter() {
            if all.matches(job) {
                parts.entry(id.clone()).or_default();
            }
        }
        let merged =
            parts.into_iter().filter_map(|(id, parts)| self.merge(&id, &parts, &unresponsive));
        let mut jobs: Vec<JobStatus> = merged.filter(|s| filter.matches(s)).collect();
        jobs.sort_by(|a, b| (b.started_ns, &b.id).cmp(&(a.started_ns, &a.id)));
        Ok(jobs)
    }

    /// Returns the status of one job.
    pub(crate) async fn status(&self, id: &str) -> Result<JobStatus> {
        let filter = JobFilter { id: id.to_owned(), ..JobFilter::default() };
        self.list(&filter).await?.pop().ok_or_else(|| unknown_job(id))
    }

    /// Stops the matching jobs; if there are none, this succeeds. An idle job is aborted by its id.
    pub(crate) async fn stop(&self, filter: &JobFilter) -> Result<()> {
        let state = self.maps.load();
        let now = unix_ns();
        for job in self.list(filter).await? {
            let idles = job.is_in_idle_grace(now) && !filter.id.is_empty();
            if job.is_over() && !idles {
                continue;
            }
            let nodes: Vec<_> = state.alive_targets().collect();
            for (target, answer) in self.targets.delete_all(nodes, &path(&job.id)).await {
                match answer {
                    Err(e) if e.code != ErrorCode::JobNotFound => {
                        return Err(Error {
                            message: format!("target {target}: {}", e.message),
                            ..e
                        });
                    }
                    _ => {}
                }
            }
            changes::log(&Summary::new("job stopped", &job.id), Ok(None));
            if idles {
                // The recorded status is no longer its final one.
                self.table().remove(&job.id);
            }
        }
        Ok(())
    }

    /// Merges the parts into one status. A missing part on a silent target counts as running, as
    /// does a part that a target that is down will resume; any other missing part is lost.
    fn merge(
        &self,
        id: &str,
        parts: &BTreeMap<NodeId, JobStatus>,
        unresponsive: &Unresponsive,
    ) -> Option<JobStatus> {
        let mut table = self.table();
        let known = table.get_mut(id);
        let mut merged = match (&known, job::merge(parts)) {
            (Some(last), _) if last.is_over() => return Some((*last).clone()),
            (_, Some(merged)) => merged,
            (Some(last), None) => {
                let notes = Vec::new();
                JobStatus { state: JobState::Done, ended_ns: unix_ns(), notes, ..(*last).clone() }
            }
            (None, None) => return None,
        };
        // After a restart, targets do not keep jobs that do not resume, including those that
        // succeeded.
        if merged.is_over() && (known.is_some() || merged.kind.resumes()) {
            let missing: Vec<_> = merged.on.iter().filter(|t| !parts.contains_key(*t)).collect();
            let waits = |t: &NodeId| merged.kind.resumes() && unresponsive.away.contains(t);
            let goes_on = missing.iter().any(|t| unresponsive.silent.contains(*t) || waits(t));
            let away = missing.iter().filter(|t| waits(t));
            let line = |t| format!("target {t} is away; its part goes on when it is back");
            let notes: Vec<_> = away.map(line).collect();
            if goes_on {
                (merged.state, merged.ended_ns) = (JobState::Running, 0);
                merged.notes.extend(notes);
            } else if !missing.is_empty() {
                let line = |t| format!("target {t} lost its part of the job");
                let lost: Vec<_> = missing.into_iter().map(line).collect();
                merged.state = JobState::Failed;
                merged.errors += lost.len() as u64;
                merged.messages.extend(lost);
            }
        }
        if let Some(last) = known {
            last.clone_from(&merged);
        }
        Some(merged)
    }
}

fn path(id: &str) -> String {
    format!("{JOBS}/{id}")
}
/// The log line for a job that was started.
fn started(spec: &JobSpec) -> Summary {
    let mut detail = format!("kind={}", spec.kind.as_str());
    if let Some(bucket) = &spec.bucket {
        detail.push_str(&format!(", bucket={bucket}"));
        detail.push_str(&match &spec.selection {
            Selection::Names(names) => format!(", objects={}", names.len()),
            Selection::Template(template) => format!(", template={template}"),
            Selection::Prefix(prefix) => format!(", prefix={prefix}"),
        });
    }
    Summary::new("job started", &spec.id).with(detail)
}
