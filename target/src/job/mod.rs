//! Jobs on this target: start, watch, stop. Each target works on the objects that it owns; a job
//! that packs shards runs on one.

pub(crate) mod ishard;
mod work;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use forebay_client::PeerClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::ishard::Plan;
use forebay_core::job::{JobKind, JobSpec, JobState, JobStatus};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use tokio_util::sync::CancellationToken;

use crate::object::ObjectService;

/// Finished jobs that are remembered.
const REMEMBERED: usize = 1000;
/// Failures that are kept in words.
const MESSAGES: usize = 8;

/// All jobs of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    me: NodeId,
    peer: PeerClient,
    lifecycle: Lifecycle,
    table: Mutex<BTreeMap<String, Arc<Job>>>,
}

/// One job on this target.
pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    pub(crate) info: BucketInfo,
    status: Mutex<JobStatus>,
    stop: CancellationToken,
}

impl Job {
    /// Notes one object done; `bytes` moved or freed.
    fn done(&self, bytes: u64) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.objects += 1;
        status.bytes += bytes;
    }

    /// Notes one object that failed; the job goes on.
    fn failed(&self, error: &Error) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.errors += 1;
        if status.messages.len() < MESSAGES {
            status.messages.push(error.to_string());
        }
    }

    /// Notes what a job will do.
    fn expect(&self, plan: &Plan) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.total_objects = plan.totals.files;
        status.total_bytes = plan.totals.bytes;
        status.notes.extend(plan.notes.iter().cloned());
    }

    fn note(&self, text: String) {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).notes.push(text);
    }

    /// Adds to the job's progress.
    fn count(&self, objects: u64, bytes: u64) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.objects += objects;
        status.bytes += bytes;
    }

    /// Takes back progress that came to nothing.
    fn uncount(&self, objects: u64, bytes: u64) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.objects = status.objects.saturating_sub(objects);
        status.bytes = status.bytes.saturating_sub(bytes);
    }

    fn status(&self) -> JobStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Jobs {
    pub(crate) fn new(
        objects: ObjectService,
        me: NodeId,
        peer: PeerClient,
        lifecycle: Lifecycle,
    ) -> Self {
        Self(Arc::new(Inner { objects, me, peer, lifecycle, table: Mutex::default() }))
    }

    /// Starts a job. Starting one that exists is its status, so that a retry does no harm.
    pub(crate) fn start(&self, spec: JobSpec) -> Result<JobStatus> {
        let info = self.0.objects.state().bucket(&spec.bucket)?.clone();
        let id = spec.id.clone();
        let status = Mutex::new(JobStatus::new(&spec, unix_ns()));
        let stop = self.0.lifecycle.token().child_token();
        let job = Arc::new(Job { spec, info, status, stop });
        {
            let mut table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = table.get(&id) {
                return Ok(known.status());
            }
            if table.len() >= REMEMBERED
                && let Some(old) = oldest_finished(&table)
            {
                table.remove(&old);
            }
            table.insert(id, job.clone());
        }
        let jobs = self.clone();
        let running = job.clone();
        self.0.lifecycle.spawn(async move { jobs.run(&running).await });
        Ok(job.status())
    }

    pub(crate) fn get(&self, id: &str) -> Result<JobStatus> {
        self.find(id).map(|job| job.status())
    }

    pub(crate) fn all(&self) -> Vec<JobStatus> {
        let table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.values().map(|job| job.status()).collect()
    }

    /// Asks a job to end after the objects it is at.
    pub(crate) fn stop(&self, id: &str) -> Result<JobStatus> {
        let job = self.find(id)?;
        job.stop.cancel();
        Ok(job.status())
    }

    fn find(&self, id: &str) -> Result<Arc<Job>> {
        let table = self.0.table.lock().unwrap_or_else(PoisonError::into_inner);
        let job = table.get(id).cloned();
        job.ok_or_else(|| forebay_core::v1::jobs::unknown_job(id))
    }

    async fn run(&self, job: &Job) {
        let outcome = tokio::select! {
            // It ends by itself when it is stopped, after it has told others to stop.
            outcome = ishard::run(&self.0.objects, &self.0.peer, job),
                if job.spec.kind == JobKind::Ishard => outcome,
            outcome = work::run(&self.0.objects, &self.0.me, job),
                if job.spec.kind != JobKind::Ishard => outcome,
            () = job.stop.cancelled(), if job.spec.kind != JobKind::Ishard => Err(Error::new(ErrorCode::Conflict, "stopped")),
        };
        let mut status = job.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.ended_ns = unix_ns();
        status.state = match outcome {
            Ok(()) if status.errors == 0 => JobState::Done,
            Ok(()) => JobState::Failed,
            Err(_) if job.stop.is_cancelled() => JobState::Stopped,
            Err(e) => {
                status.errors += 1;
                status.messages.insert(0, e.to_string());
                status.failure = Some(e);
                JobState::Failed
            }
        };
        tracing::info!(job = status.id, kind = status.kind.as_str(), state = ?status.state,
            objects = status.objects, errors = status.errors, "job ended");
    }
}

fn oldest_finished(table: &BTreeMap<String, Arc<Job>>) -> Option<String> {
    let finished = table.values().map(|job| job.status()).filter(JobStatus::is_over);
    finished.min_by_key(|status| status.ended_ns).map(|status| status.id)
}
