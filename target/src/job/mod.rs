//! Jobs on this target: start, watch, stop. Each target works on the objects that it owns; a job
//! that packs shards runs on one. What one request does itself is a job too ([`request`]).

mod archive;
pub(crate) mod build;
mod copy;
mod dsort;
mod ishard;
mod request;
mod table;
mod upkeep;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use forebay_client::PeerClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::dsort::DsortReport;
use forebay_core::ishard::Plan;
use forebay_core::job::{JobKind, JobSpec, JobState, JobStatus};
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use tokio_util::sync::CancellationToken;

use self::table::Table;
use crate::etl::Etls;
use crate::object::ObjectService;
use crate::shard::Shards;

pub(crate) use self::request::{Registration, RequestJob};

/// Failures that are kept in words.
const MESSAGES: usize = 8;

/// All jobs of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    me: NodeId,
    peer: PeerClient,
    shards: Shards,
    etls: Etls,
    /// Whether a user's URL may point into private networks, whatever the cluster's settings say.
    allow_private: bool,
    lifecycle: Lifecycle,
    table: Mutex<Table>,
}

/// One job on this target.
pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    /// The bucket of the spec as it was at the start.
    info: Option<Arc<BucketInfo>>,
    status: Mutex<JobStatus>,
    stop: CancellationToken,
}

impl Job {
    /// The bucket that the job is about.
    pub(crate) fn info(&self) -> Result<&Arc<BucketInfo>> {
        let missing =
            || Error::invalid(format!("a job {} needs a bucket", self.spec.kind.as_str()));
        self.info.as_ref().ok_or_else(missing)
    }

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

    fn expect_totals(&self, objects: u64, bytes: u64) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        (status.total_objects, status.total_bytes) = (objects, bytes);
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

    /// Changes what a job that sorts shards tells of itself.
    fn report(&self, change: impl FnOnce(&mut DsortReport)) {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        change(status.dsort.get_or_insert_default());
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
        shards: Shards,
        etls: Etls,
        allow_private: bool,
        lifecycle: Lifecycle,
    ) -> Self {
        let table = Mutex::default();
        Self(Arc::new(Inner { objects, me, peer, shards, etls, allow_private, lifecycle, table }))
    }

    /// Starts a job. Starting one that exists is its status, so that a retry does no harm.
    pub(crate) fn start(&self, spec: JobSpec) -> Result<JobStatus> {
        let job = self.prepare(spec)?;
        if let Some(known) = self.table().add(&job) {
            return Ok(known.status());
        }
        let (jobs, running) = (self.clone(), job.clone());
        self.0.lifecycle.spawn(async move { jobs.run(&running).await });
        Ok(job.status())
    }

    fn prepare(&self, spec: JobSpec) -> Result<Arc<Job>> {
        let state = self.0.objects.state();
        let info = spec.bucket.as_ref().map(|b| state.bucket(b).cloned()).transpose()?;
        let status = Mutex::new(JobStatus::new(&spec, unix_ns()));
        let stop = self.0.lifecycle.token().child_token();
        Ok(Arc::new(Job { spec, info, status, stop }))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn get(&self, id: &str) -> Result<JobStatus> {
        self.find(id).map(|job| job.status())
    }

    pub(crate) fn all(&self) -> Vec<JobStatus> {
        let jobs: Vec<_> = self.table().jobs.values().cloned().collect();
        jobs.iter().map(|job| job.status()).collect()
    }

    /// Asks a job to end after the objects it is at.
    pub(crate) fn stop(&self, id: &str) -> Result<JobStatus> {
        let job = self.find(id)?;
        job.stop.cancel();
        let mut status = job.status.lock().unwrap_or_else(PoisonError::into_inner);
        // To its client a job that idles is not over, and is aborted by a stop.
        if status.lingers(unix_ns()) {
            status.state = JobState::Stopped;
        }
        Ok(status.clone())
    }

    /// Forgets a job that is over.
    pub(crate) fn forget(&self, id: &str) -> Result<()> {
        if !self.find(id)?.status().is_over() {
            let text = format!("job {id} is still in progress and cannot be removed");
            return Err(Error::invalid(text).hint("abort it first"));
        }
        self.table().forget(id);
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Arc<Job>> {
        let job = self.table().jobs.get(id).cloned();
        job.ok_or_else(|| forebay_core::v1::jobs::unknown_job(id))
    }

    async fn run(&self, job: &Arc<Job>) {
        // Jobs that tell others to stop end by themselves when they are stopped.
        let outcome = match job.spec.kind {
            JobKind::Ishard => ishard::run(&self.0.objects, &self.0.peer, job).await,
            JobKind::Dsort => {
                let allow_private = self.0.allow_private;
                dsort::run(&self.0.objects, &self.0.peer, allow_private, job).await
            }
            kind => tokio::select! {
                outcome = archive::run(self, job), if kind == JobKind::Archive => outcome,
                outcome = upkeep::run(self, job), if upkeep::is_upkeep(kind) => outcome,
                outcome = work::run(self, job),
                    if kind != JobKind::Archive && !upkeep::is_upkeep(kind) => outcome,
                () = job.stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "stopped")),
            },
        };
        self.ended(job, outcome);
    }

    fn ended(&self, job: &Arc<Job>, outcome: Result<()>) {
        let mut status = job.status.lock().unwrap_or_else(PoisonError::into_inner);
        status.ended_ns = unix_ns();
        status.state = match outcome {
            Ok(()) if job.stop.is_cancelled() && status.kind.idles() => JobState::Stopped,
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
        tracing::debug!(job = status.id, kind = status.kind.as_str(), state = ?status.state,
            objects = status.objects, errors = status.errors, "job ended");
        drop(status);
        self.table().over(job);
    }
}
