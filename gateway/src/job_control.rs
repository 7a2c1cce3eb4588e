//! Jobs as one thing: started on every target, watched and stopped on all of them.
//!
//! Targets keep the jobs, and which targets have parts in them, so any gateway can answer for any job.
//! What this gateway started it also remembers, so that a job of which all parts are lost with their
//! targets' restarts is a failure and not forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use forebay_core::ishard::IshardSpec;
use forebay_core::job::{self, JobKind, JobSpec, JobState, JobStatus, Selection, Task};
use forebay_core::state::{ClusterState, Node, Summary};
use forebay_core::v1::jobs::unknown_job;
use forebay_core::{Bucket, Error, ErrorCode, NodeId, Result, placement};
use forebay_node::clock::unix_ns;
use forebay_node::maps::Maps;

use crate::changes;
use crate::route::Found;
use crate::targets::{self, Targets};

const JOBS: &str = "/internal/v1/job";
/// Jobs remembered here; the oldest go first.
const REMEMBERED: usize = 1_000;
/// How long the start of a job that packs shards waits for its plan, so that what cannot work is
/// refused in the answer.
const PLANNED_WITHIN: Duration = Duration::from_secs(8);

/// Starts, watches and stops jobs; cheap to clone.
#[derive(Clone)]
pub(crate) struct JobControl {
    maps: Maps,
    targets: Targets,
    /// The last that was heard of each job that this gateway started.
    started: Arc<Mutex<BTreeMap<String, JobStatus>>>,
}

/// Targets that do not say what they know of jobs.
struct Unresponsive {
    /// Alive: a part there may well go on.
    silent: BTreeSet<NodeId>,
    /// Members that are down: a part there goes on with them, if it is of such a kind.
    away: BTreeSet<NodeId>,
}

/// Which jobs a question is about; empty fields match all.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobFilter {
    pub(crate) id: String,
    pub(crate) kind: Option<JobKind>,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) running_only: bool,
    /// Only this target's parts.
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

    /// Starts a job on what a bucket holds.
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
            // Half a job would look like a whole one.
            self.targets.delete_all(nodes, &path(&spec.id)).await;
            return Err(e);
        }
        self.remember(JobStatus::new(&spec, unix_ns()));
        changes::log(&started(&spec), Ok(None));
        Ok(spec.id)
    }

    /// Starts a job that packs shards, on the living target that its id falls to. Returns when it is
    /// planned, or goes on being planned for long; what the plan refuses is an error here.
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
            // Its end will be told by whoever asks for the job.
            let Ok(asked) = self.targets.get(runner, &path(&id)).await else { break };
            status = asked;
        }
        match status.failure {
            Some(e) if status.total_objects == 0 => Err(e),
            _ => Ok(id),
        }
    }

    /// Starts a job that one target runs, on the living one that its id falls to. Starting one that
    /// exists is its status.
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

    /// Forgets a job that is over, here and on all targets that answer.
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
        self.started.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remember(&self, job: JobStatus) {
        let mut table = self.table();
        if table.len() >= REMEMBERED {
            let oldest = table.values().min_by_key(|job| job.started_ns).map(|job| job.id.clone());
            oldest.and_then(|id| table.remove(&id));
        }
        table.insert(job.id.clone(), job);
    }

    /// Every target's part of the jobs asked for. A target that does not answer has no part.
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
                    tracing::warn!(node = %target, error = %e, "target does not tell its jobs")
                }
            }
        }
        Ok(parts)
    }

    /// The jobs asked for, each merged over its targets, latest first.
    pub(crate) async fn list(&self, filter: &JobFilter) -> Result<Vec<JobStatus>> {
        // The filter holds for merged jobs: one that runs somewhere runs.
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

    /// One job.
    pub(crate) async fn status(&self, id: &str) -> Result<JobStatus> {
        let filter = JobFilter { id: id.to_owned(), ..JobFilter::default() };
        self.list(&filter).await?.pop().ok_or_else(|| unknown_job(id))
    }

    /// Stops what matches; nothing to stop is no error. A job that idles is aborted by its id.
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
                // Its end is another one now.
                self.table().remove(&job.id);
            }
        }
        Ok(())
    }

    /// One status out of the parts, and of those that are missing: what a silent target has of it goes
    /// on, as does what a target that is down will take up again; any other part is lost.
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
        // Targets forget jobs that do not go on when they start again, also those that had ended well.
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
/// The line of the log about a job that was started.
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
