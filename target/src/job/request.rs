//! Jobs that one request does itself: they are shown, counted and stopped like any other.

use std::sync::Arc;

use forebay_core::job::{JobKind, JobSpec, Task};
use forebay_core::{Bucket, Error, ErrorCode, Result};
use rand::RngExt;
use rand::distr::Alphanumeric;
use tokio_util::sync::CancellationToken;

use super::Jobs;
use super::run::JobRun;

/// The parameters of a job that a request does.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) kind: JobKind,
    /// The id that the client got; if absent the job gets a new one.
    pub(crate) id: Option<String>,
    pub(crate) bucket: Option<Bucket>,
    pub(crate) task: Task,
}

impl Registration {
    pub(crate) fn new(kind: JobKind) -> Self {
        Self { kind, id: None, bucket: None, task: Task::Plain }
    }

    pub(crate) fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    pub(crate) fn bucket(mut self, bucket: &Bucket) -> Self {
        self.bucket = Some(bucket.clone());
        self
    }
}

/// A job that a request does. Dropped before [`Self::end`] it has failed: its request went away.
pub(crate) struct RequestJob {
    jobs: Jobs,
    job: Arc<JobRun>,
    over: bool,
}

impl Jobs {
    /// Registers a job for the work of a request.
    ///
    /// Fails with a conflict if another job has the id, or if the bucket does not exist.
    pub(crate) fn register(&self, what: Registration) -> Result<RequestJob> {
        let id = what.id.unwrap_or_else(|| mint(what.kind.id_prefix()));
        let spec = JobSpec { bucket: what.bucket, task: what.task, ..JobSpec::new(what.kind, id) };
        let job = self.prepare(spec)?;
        if self.table().add(&job).is_some() {
            let text = format!("a job with the id \"{}\" exists already", job.spec.id);
            return Err(Error::new(ErrorCode::Conflict, text));
        }
        Ok(RequestJob { jobs: self.clone(), job, over: false })
    }
}

impl RequestJob {
    pub(crate) fn id(&self) -> &str {
        &self.job.spec.id
    }

    /// Cancelled when the job is stopped, or the node stops.
    pub(crate) fn stop_token(&self) -> CancellationToken {
        self.job.stop.clone()
    }

    /// Sets the expected totals, once they are known.
    pub(crate) fn expect(&self, objects: u64, bytes: u64) {
        self.job.expect_totals(objects, bytes);
    }

    /// Counts one finished object of this many bytes.
    pub(crate) fn done(&self, bytes: u64) {
        self.job.done(bytes);
    }

    /// Adds to the job's progress.
    pub(crate) fn count(&self, objects: u64, bytes: u64) {
        self.job.count(objects, bytes);
    }

    /// Counts one object that failed; the job continues.
    pub(crate) fn failed(&self, error: &Error) {
        self.job.failed(error);
    }

    /// Ends the job: finished, failed, or, if a stop was requested, stopped.
    pub(crate) fn end(mut self, outcome: Result<()>) {
        self.over = true;
        self.jobs.ended(&self.job, outcome);
    }
}

impl Drop for RequestJob {
    fn drop(&mut self) {
        if !self.over {
            let gone = Error::new(ErrorCode::Conflict, "its request went away");
            self.jobs.ended(&self.job, Err(gone));
        }
    }
}

fn mint(prefix: &str) -> String {
    let mut id = prefix.to_owned();
    id.extend(rand::rng().sample_iter(Alphanumeric).take(12).map(char::from));
    id
}
