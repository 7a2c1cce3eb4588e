//! The runner: starts, stops, resumes and records jobs, whatever their kind.

use std::sync::{Arc, Mutex, MutexGuard};

use forebay_core::job::{JobSpec, JobState, JobStatus};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, Result};
use forebay_node::clock::unix_ns;
use forebay_node::lifecycle::Lifecycle;

use super::notes::{Noted, Notes, Progress};
use super::run::{Job, JobRun, stopped};
use super::table::Table;
use super::walked::Walked;
use crate::object::ObjectService;

/// Makes the kind of a requested job.
pub(crate) type MakeJob = Box<dyn Fn(&JobSpec, &Jobs) -> Box<dyn Job> + Send + Sync>;

/// All jobs of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Jobs(Arc<Inner>);

struct Inner {
    objects: ObjectService,
    make: MakeJob,
    lifecycle: Lifecycle,
    notes: Notes,
    table: Mutex<Table>,
}

impl Jobs {
    pub(crate) fn new(
        objects: ObjectService,
        make: MakeJob,
        lifecycle: Lifecycle,
        notes: Notes,
    ) -> Self {
        Self(Arc::new(Inner { objects, make, lifecycle, notes, table: Mutex::default() }))
    }

    /// Starts a job. If the job exists, its status is returned, so that a retry does no harm. A job
    /// that continues after a restart is recorded when this returns.
    pub(crate) async fn start(&self, spec: JobSpec) -> Result<JobStatus> {
        let job = self.prepare(spec)?;
        if let Some(known) = self.table().add(&job) {
            return Ok(known.status());
        }
        if let Err(e) = job.create_record().await {
            self.table().jobs.remove(&job.spec.id);
            return Err(e);
        }
        let (jobs, running) = (self.clone(), job.clone());
        self.0.lifecycle.spawn(async move { jobs.run(&running).await });
        Ok(job.status())
    }

    pub(super) fn prepare(&self, spec: JobSpec) -> Result<Arc<JobRun>> {
        let state = self.0.objects.state();
        let info = spec.bucket.as_ref().map(|b| state.bucket(b).cloned()).transpose()?;
        let status = JobStatus::new(&spec, unix_ns());
        let job = self.job(spec, status, Walked::default());
        if let Some(info) = info {
            job.set_bucket(info);
        }
        Ok(Arc::new(job))
    }

    fn job(&self, spec: JobSpec, status: JobStatus, walked: Walked) -> JobRun {
        let stop = self.0.lifecycle.token().child_token();
        JobRun::new(spec, status, walked, &self.0.notes, stop)
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
                        job.save_end().await;
                    }
                }
            });
        }
    }

    /// Waits until this target is in the cluster again. Returns whether a job is to continue; it
    /// may have been stopped on another target meanwhile.
    async fn should_resume(&self, job: &JobRun) -> Result<bool> {
        let (objects, token) = (&self.0.objects, self.0.lifecycle.token());
        tokio::select! {
            () = objects.until_alive() => {}
            () = token.cancelled() => return Ok(false),
        }
        let state = objects.state();
        if let Some(bucket) = &job.spec.bucket {
            job.set_bucket(state.bucket(bucket)?.clone());
        }
        let path = format!("/internal/v1/job/{}", job.spec.id);
        for node in state.alive_targets().filter(|node| node.id != *objects.me()) {
            let asked = objects.peer().get_json::<JobStatus>(&node.url, &path).await;
            if asked.is_ok_and(|status| status.state == JobState::Stopped) {
                job.stop.cancel();
                return Err(stopped());
            }
        }
        Ok(true)
    }

    async fn run(&self, job: &Arc<JobRun>) {
        let kind = (self.0.make)(&job.spec, self);
        let outcome = if kind.ends_itself() {
            kind.run(job).await
        } else {
            tokio::select! {
                outcome = kind.run(job) => outcome,
                () = job.stop.cancelled() => Err(stopped()),
            }
        };
        if job.spec.kind.resumes() && self.0.lifecycle.token().is_cancelled() {
            // It continues after the restart.
            return;
        }
        self.ended(job, outcome);
        job.save_end().await;
    }

    /// Records the outcome of a job.
    pub(super) fn ended(&self, job: &JobRun, outcome: Result<()>) {
        job.end(outcome);
        self.remember(job);
    }

    /// Records in the table that a job is over.
    fn remember(&self, job: &JobRun) {
        let oldest = self.table().over(job);
        if let Some(oldest) = oldest {
            oldest.remove_record();
        }
    }

    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
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
        Ok(job.update(|status| {
            // For its client an idle job is not over, and is aborted by a stop.
            if status.is_in_idle_grace(unix_ns()) {
                status.state = JobState::Stopped;
            }
            status.clone()
        }))
    }

    /// Requests that all other jobs of a job's kind end.
    pub(super) fn stop_others(&self, job: &JobRun) {
        let JobSpec { kind, id, .. } = &job.spec;
        let table = self.table();
        let others = table.jobs.values().filter(|j| j.spec.kind == *kind && j.spec.id != *id);
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

    fn find(&self, id: &str) -> Result<Arc<JobRun>> {
        let job = self.table().jobs.get(id).cloned();
        job.ok_or_else(|| forebay_v1::jobs::unknown_job(id))
    }
}
