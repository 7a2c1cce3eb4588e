//! A kind of job, and one job of it on this target: its specification, its status, the position of
//! its walk and its stop.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use async_trait::async_trait;
use forebay_core::bucket::BucketInfo;
use forebay_core::job::{JobSpec, JobState, JobStatus};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result};
use forebay_node::clock::unix_ns;
use tokio_util::sync::CancellationToken;

use super::notes::{Notes, Progress};
use super::walked::Walked;

/// Failures whose messages are kept.
const MESSAGES: usize = 8;

/// A kind of job. The runner ([`super::Jobs`]) starts, stops, resumes and records its jobs.
///
/// A kind that does one step for each object implements [`super::walk::ObjectJob`] instead.
#[async_trait]
pub(crate) trait Job: Send + Sync {
    /// Does the work of one job. Progress and failures of single objects are counted in `job`; an
    /// error ends the job.
    async fn run(&self, job: &JobRun) -> Result<()>;

    /// Whether [`Self::run`] ends by itself when the job is stopped, because it has work on other
    /// targets to stop. Otherwise the runner drops its future.
    fn ends_itself(&self) -> bool {
        false
    }
}

/// The error of stopped work.
pub(super) fn stopped() -> Error {
    Error::new(ErrorCode::Conflict, "stopped")
}

/// One job on this target.
pub(crate) struct JobRun {
    pub(super) spec: JobSpec,
    /// Cancelled when the job is stopped, or the node stops.
    pub(super) stop: CancellationToken,
    /// The bucket of the spec as it was at the start.
    info: OnceLock<Arc<BucketInfo>>,
    status: Mutex<JobStatus>,
    /// The position of its walk over names.
    walked: Mutex<Walked>,
    /// Where its progress is recorded, if its kind resumes.
    notes: Option<Notes>,
}

impl JobRun {
    /// A job that was not run yet, or continues with `status` at the position of `walked`.
    pub(super) fn new(
        spec: JobSpec,
        status: JobStatus,
        walked: Walked,
        notes: &Notes,
        stop: CancellationToken,
    ) -> Self {
        let notes = spec.kind.resumes().then(|| notes.clone());
        let (status, walked) = (Mutex::new(status), Mutex::new(walked));
        Self { spec, stop, info: OnceLock::new(), status, walked, notes }
    }

    /// Sets the bucket of the spec, once.
    pub(super) fn set_bucket(&self, info: Arc<BucketInfo>) {
        let _ = self.info.set(info);
    }

    /// The bucket that the job is about; `None` for a job on the whole cluster.
    pub(super) fn bucket(&self) -> Option<&Arc<BucketInfo>> {
        self.info.get()
    }

    /// As [`Self::bucket`], for a kind that needs one.
    pub(super) fn info(&self) -> Result<&Arc<BucketInfo>> {
        let missing =
            || Error::invalid(format!("a job {} needs a bucket", self.spec.kind.as_str()));
        self.bucket().ok_or_else(missing)
    }

    /// Changes its status.
    pub(super) fn update<T>(&self, change: impl FnOnce(&mut JobStatus) -> T) -> T {
        change(&mut self.status.locked())
    }

    /// Counts one finished object; `bytes` moved or freed.
    pub(super) fn done(&self, bytes: u64) {
        self.count(1, bytes);
    }

    /// Counts one object that was present already.
    pub(super) fn present(&self, bytes: u64) {
        self.update(|status| {
            status.present += 1;
            status.present_bytes += bytes;
        });
    }

    /// Counts one object that failed; the job continues.
    pub(super) fn failed(&self, error: &Error) {
        self.update(|status| {
            status.errors += 1;
            if status.messages.len() < MESSAGES {
                status.messages.push(error.to_string());
            }
        });
    }

    pub(super) fn expect_totals(&self, objects: u64, bytes: u64) {
        self.update(|status| (status.total_objects, status.total_bytes) = (objects, bytes));
    }

    /// Adds a line to the status that is not a failure.
    pub(super) fn note(&self, text: String) {
        self.update(|status| status.notes.push(text));
    }

    /// Adds to the job's progress.
    pub(super) fn count(&self, objects: u64, bytes: u64) {
        self.update(|status| {
            status.objects += objects;
            status.bytes += bytes;
        });
    }

    /// Takes back progress of failed work.
    pub(super) fn uncount(&self, objects: u64, bytes: u64) {
        self.update(|status| {
            status.objects = status.objects.saturating_sub(objects);
            status.bytes = status.bytes.saturating_sub(bytes);
        });
    }

    pub(super) fn walked(&self) -> MutexGuard<'_, Walked> {
        self.walked.locked()
    }

    pub(super) fn status(&self) -> JobStatus {
        self.status.locked().clone()
    }

    /// Records the outcome in the status.
    pub(super) fn end(&self, outcome: Result<()>) {
        self.update(|status| {
            status.ended_ns = unix_ns();
            status.state = match outcome {
                Ok(()) if self.stop.is_cancelled() && status.kind.idles() => JobState::Stopped,
                Ok(()) if status.errors == 0 => JobState::Done,
                Ok(()) => JobState::Failed,
                Err(_) if self.stop.is_cancelled() => JobState::Stopped,
                Err(e) => {
                    status.errors += 1;
                    status.messages.insert(0, e.to_string());
                    status.failure = Some(e);
                    JobState::Failed
                }
            };
            tracing::debug!(job = status.id, kind = status.kind.as_str(), state = ?status.state,
                objects = status.objects, errors = status.errors, "job ended");
        });
    }

    /// Creates the durable record of a job that resumes.
    pub(super) async fn create_record(&self) -> Result<()> {
        match &self.notes {
            Some(notes) => notes.begin(&self.spec, &self.progress()).await,
            None => Ok(()),
        }
    }

    /// Records the progress from time to time.
    pub(super) async fn save_progress(&self) {
        let Some(notes) = &self.notes else { return };
        if self.walked().is_due() {
            notes.save(self.progress()).await;
        }
    }

    /// Records how the job ended, so that its part does not count as lost after a restart.
    pub(super) async fn save_end(&self) {
        let Some(notes) = &self.notes else { return };
        notes.save(Progress { status: self.status(), ..self.progress() }).await;
    }

    /// Removes the durable record.
    pub(super) fn remove_record(&self) {
        if let Some(notes) = &self.notes {
            notes.forget(&self.spec.id);
        }
    }

    /// Its progress, without objects behind the position of its walk.
    fn progress(&self) -> Progress {
        let mut status = self.status();
        let walked = self.walked();
        walked.count_in(&mut status);
        Progress { status, at: walked.at() }
    }
}
