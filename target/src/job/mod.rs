//! Jobs on this target: start, watch, stop. Each target works on the objects that it owns. A job
//! that packs shards runs on one target. Work that one request does itself is a job too
//! ([`request`]).

mod archive;
pub(crate) mod build;
mod copy;
mod dsort;
mod index_shard;
mod ishard;
mod maintenance;
mod notes;
mod prefetch;
mod rebalance;
mod request;
mod scrub;
mod selection;
mod sync;
mod table;
pub(crate) mod transform_inline;
mod walked;
mod work;
mod write_back;

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use forebay_client::PeerClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::dsort::DsortReport;
use forebay_core::ishard::Plan;
use forebay_core::job::{JobKind, JobSpec, JobState, JobStatus};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;
use tokio_util::sync::CancellationToken;

use self::notes::{Noted, Progress};
use self::table::Table;
use self::walked::Walked;
use crate::egress::WebRules;
use crate::etl::Etls;
use crate::object::ObjectService;
use crate::shard::Shards;

pub(crate) use self::maintenance::make_up_for_losses;
pub(crate) use self::notes::Notes;
pub(crate) use self::request::{Registration, RequestJob};

/// Failures whose messages are kept.
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
    /// Destinations of URLs of callers.
    web: WebRules,
    lifecycle: Lifecycle,
    notes: Notes,
    table: Mutex<Table>,
    /// Held while objects are moved to where they belong.
    moving: tokio::sync::Mutex<()>,
}

/// One job on this target.
pub(crate) struct Job {
    pub(crate) spec: JobSpec,
    /// The bucket of the spec as it was at the start.
    info: OnceLock<Arc<BucketInfo>>,
    status: Mutex<JobStatus>,
    /// The position of its walk over names.
    walked: Mutex<Walked>,
    stop: CancellationToken,
}

impl Job {
    /// The bucket that the job is about.
    pub(crate) fn info(&self) -> Result<&Arc<BucketInfo>> {
        let missing =
            || Error::invalid(format!("a job {} needs a bucket", self.spec.kind.as_str()));
        self.info.get().ok_or_else(missing)
    }

    /// Counts one finished object; `bytes` moved or freed.
    fn done(&self, bytes: u64) {
        let mut status = self.status.locked();
        status.objects += 1;
        status.bytes += bytes;
    }

    /// Counts one object that was present already.
    fn present(&self, bytes: u64) {
        let mut status = self.status.locked();
        status.present += 1;
        status.present_bytes += bytes;
    }

    /// Counts one object that failed; the job continues.
    fn failed(&self, error: &Error) {
        let mut status = self.status.locked();
        status.errors += 1;
        if status.messages.len() < MESSAGES {
            status.messages.push(error.to_string());
        }
    }

    /// Records the plan of a job.
    fn expect(&self, plan: &Plan) {
        let mut status = self.status.locked();
        status.total_objects = plan.totals.files;
        status.total_bytes = plan.totals.bytes;
        status.notes.extend(plan.notes.iter().cloned());
    }

    fn expect_totals(&self, objects: u64, bytes: u64) {
        let mut status = self.status.locked();
        (status.total_objects, status.total_bytes) = (objects, bytes);
    }

    fn note(&self, text: String) {
        self.status.locked().notes.push(text);
    }

    /// Adds to the job's progress.
    fn count(&self, objects: u64, bytes: u64) {
        let mut status = self.status.locked();
        status.objects += objects;
        status.bytes += bytes;
    }

    /// Takes back progress of failed work.
    fn uncount(&self, objects: u64, bytes: u64) {
        let mut status = self.status.locked();
        status.objects = status.objects.saturating_sub(objects);
        status.bytes = status.bytes.saturating_sub(bytes);
    }

    /// Changes the report of a job that sorts shards.
    fn report(&self, change: impl FnOnce(&mut DsortReport)) {
        let mut status = self.status.locked();
        change(status.dsort.get_or_insert_default());
    }

    fn walked(&self) -> MutexGuard<'_, Walked> {
        self.walked.locked()
    }

    /// Its progress, without objects behind the position of its walk.
    fn progress(&self) -> Progress {
        let mut status = self.status();
        let walked = self.walked();
        walked.count_in(&mut status);
        Progress { status, at: walked.at() }
    }

    fn status(&self) -> JobStatus {
        self.status.locked().clone()
    }
}

impl Jobs {
    pub(crate) fn new(
        objects: ObjectService,
        me: NodeId,
        peer: PeerClient,
        shards: Shards,
        etls: Etls,
        web: WebRules,
        lifecycle: Lifecycle,
        notes: Notes,
    ) -> Self {
        Self(Arc::new(Inner {
            objects,
            me,
            peer,
            shards,
            etls,
            web,
            lifecycle,
            notes,
            table: Mutex::default(),
            moving: tokio::sync::Mutex::default(),
        }))
    }

    /// Starts a job. If the job exists, its status is returned, so that a retry does no harm. A job
    /// that continues after a restart is recorded when this returns.
    pub(crate) async fn start(&self, spec: JobSpec) -> Result<JobStatus> {
        let job = self.prepare(spec)?;
        if let Some(known) = self.table().add(&job) {
            return Ok(known.status());
        }
        if job.spec.kind.resumes()
            && let Err(e) = self.0.notes.begin(&job.spec, &job.progress()).await
        {
            self.table().jobs.remove(&job.spec.id);
            return Err(e);
        }
        let (jobs, running) = (self.clone(), job.clone());
        self.0.lifecycle.spawn(async move { jobs.run(&running).await });
        Ok(job.status())
    }

    fn prepare(&self, spec: JobSpec) -> Result<Arc<Job>> {
        let state = self.0.objects.state();
        let info = spec.bucket.as_ref().map(|b| state.bucket(b).cloned()).transpose()?;
        let status = JobStatus::new(&spec, unix_ns());
        let job = self.job(spec, status, Walked::default());
        if let Some(info) = info {
            let _ = job.info.set(info);
        }
        Ok(Arc::new(job))
    }

    fn job(&self, spec: JobSpec, status: JobStatus, walked: Walked) -> Job {
        let stop = self.0.lifecycle.token().child_token();
        let (status, walked) = (Mutex::new(status), Mutex::new(walked));
        Job { spec, info: OnceLock::new(), status, walked, stop }
    }

    /// Resumes jobs that were recorded before a restart: unfinished jobs continue where they
    /// stopped, once this target is back in the cluster.
    pub(crate) fn take_up(&self, mut noted: Vec<Noted>) {
        noted.sort_by_key(|noted| noted.progress.status.ended_ns);
        for Noted { spec, progress: Progress { status, at } } in noted {
            let over = status.is_over();
            let job = Arc::new(self.job(spec, status.clone(), Walked::new(at, &status)));
            self.table().add(&job);
            if over {
                self.remember(&job);
                continue;
            }
            let jobs = self.clone();
            self.0.lifecycle.spawn(async move {
                match jobs.should_resume(&job).await {
                    Ok(true) => jobs.run(&job).await,
                    Ok(false) => {}
                    Err(e) => {
                        jobs.ended(&job, Err(e));
                        jobs.note_end(&job).await;
                    }
                }
            });
        }
    }

    /// Waits until this target is in the cluster again. Returns whether a job is to continue; it
    /// may have been stopped on another target meanwhile.
    async fn should_resume(&self, job: &Job) -> Result<bool> {
        let token = self.0.lifecycle.token();
        tokio::select! {
            () = self.0.objects.until_alive() => {}
            () = token.cancelled() => return Ok(false),
        }
        let state = self.0.objects.state();
        if let Some(bucket) = &job.spec.bucket {
            let _ = job.info.set(state.bucket(bucket)?.clone());
        }
        let path = format!("/internal/v1/job/{}", job.spec.id);
        for node in state.alive_targets().filter(|node| node.id != self.0.me) {
            let asked = self.0.peer.get_json::<JobStatus>(&node.url, &path).await;
            if asked.is_ok_and(|status| status.state == JobState::Stopped) {
                job.stop.cancel();
                return Err(Error::new(ErrorCode::Conflict, "stopped"));
            }
        }
        Ok(true)
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.table.locked()
    }

    pub(crate) fn get(&self, id: &str) -> Result<JobStatus> {
        self.find(id).map(|job| job.status())
    }

    pub(crate) fn all(&self) -> Vec<JobStatus> {
        let jobs: Vec<_> = self.table().jobs.values().cloned().collect();
        jobs.iter().map(|job| job.status()).collect()
    }

    /// Requests that a job ends after its current objects.
    pub(crate) fn stop(&self, id: &str) -> Result<JobStatus> {
        let job = self.find(id)?;
        job.stop.cancel();
        let mut status = job.status.locked();
        // For its client an idle job is not over, and is aborted by a stop.
        if status.is_in_idle_grace(unix_ns()) {
            status.state = JobState::Stopped;
        }
        Ok(status.clone())
    }

    /// Requests that all other jobs of a kind end.
    fn stop_others(&self, kind: JobKind, id: &str) {
        let table = self.table();
        let others = table.jobs.values().filter(|j| j.spec.kind == kind && j.spec.id != id);
        others.for_each(|job| job.stop.cancel());
    }

    /// Removes a job that is over.
    pub(crate) fn forget(&self, id: &str) -> Result<()> {
        if !self.find(id)?.status().is_over() {
            let text = format!("job {id} is still in progress and cannot be removed");
            return Err(Error::invalid(text).hint("abort it first"));
        }
        self.table().forget(id);
        self.0.notes.forget(id);
        Ok(())
    }

    fn find(&self, id: &str) -> Result<Arc<Job>> {
        let job = self.table().jobs.get(id).cloned();
        job.ok_or_else(|| forebay_core::v1::jobs::unknown_job(id))
    }

    async fn run(&self, job: &Arc<Job>) {
        // Jobs that stop work on other targets end by themselves when they are stopped.
        let outcome = match job.spec.kind {
            JobKind::Ishard => ishard::run(&self.0.objects, &self.0.peer, job).await,
            JobKind::Dsort => dsort::run(&self.0.objects, &self.0.peer, &self.0.web, job).await,
            kind => tokio::select! {
                outcome = archive::run(self, job), if kind == JobKind::Archive => outcome,
                outcome = maintenance::run(self, job), if maintenance::is_maintenance(kind) => outcome,
                outcome = work::run(self, job),
                    if kind != JobKind::Archive && !maintenance::is_maintenance(kind) => outcome,
                () = job.stop.cancelled() => Err(Error::new(ErrorCode::Conflict, "stopped")),
            },
        };
        if job.spec.kind.resumes() && self.0.lifecycle.token().is_cancelled() {
            // It continues after the restart.
            return;
        }
        self.ended(job, outcome);
        self.note_end(job).await;
    }

    /// Records how a job ended, so that its part does not count as lost after a restart.
    async fn note_end(&self, job: &Job) {
        if job.spec.kind.resumes() {
            let progress = Progress { status: job.status(), ..job.progress() };
            self.0.notes.save(progress).await;
        }
    }

    /// Records the progress of a job from time to time.
    async fn note_progress(&self, job: &Job) {
        let due = job.spec.kind.resumes() && job.walked().is_due();
        if due {
            self.0.notes.save(job.progress()).await;
        }
    }

    /// Records in the table that a job is over.
    fn remember(&self, job: &Job) {
        let forgotten = self.table().over(job);
        if let Some(forgotten) = forgotten.filter(|job| job.spec.kind.resumes()) {
            self.0.notes.forget(&forgotten.spec.id);
        }
    }

    fn ended(&self, job: &Arc<Job>, outcome: Result<()>) {
        let mut status = job.status.locked();
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
        self.remember(job);
    }
}
