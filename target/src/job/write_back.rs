//! Write-backs: copies the objects of a native bucket to a cloud's bucket, and deletes removed ones
//! there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use forebay_core::job::CopyTask;
use forebay_core::{Error, ErrorCode, NodeId, ObjectName, Result, placement};
use tokio::time::{Instant, sleep};

use super::copy;
use super::run::JobRun;
use super::scope::{Item, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;
use crate::object::WrittenBack;

/// Objects processed at once, unless the job sets it: each is uploaded in parts.
const PARALLEL: usize = 4;
/// How long a failing upload of an object is retried, after the backend's own retries.
const RETRY_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest pause between these retries.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct WriteBack {
    pub(super) task: CopyTask,
}

#[async_trait]
impl ObjectJob for WriteBack {
    fn scope(&self) -> Scope {
        Scope { sources: copy::sources(&self.task), ..Scope::OWNED }
    }

    /// Counts those of the given names that this target owns.
    async fn prepare(&self, walk: &Walk<'_>) -> Result<()> {
        let Some(names) = walk.job.spec.selection.names()? else { return Ok(()) };
        let (mut objects, mut bytes) = (0, 0);
        for name in names {
            let owner = placement::owner(&walk.objects.state(), &walk.info, &name)?.id.clone();
            if owner != *walk.objects.me() {
                continue;
            }
            // A removed object counts too: its deletion is written back.
            objects += 1;
            bytes += walk.objects.reads().head(&walk.info, &name).await.map_or(0, |meta| meta.size);
        }
        walk.job.expect_totals(objects, bytes);
        Ok(())
    }

    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        self.write_back(walk, &item.name).await
    }

    fn parallel(&self) -> usize {
        PARALLEL
    }

    /// The owner of an object writes it back, if the owner takes part in the job; otherwise an
    /// error.
    fn check_owner(&self, walk: &Walk<'_>, name: &str, owner: &NodeId) -> Result<()> {
        if walk.job.spec.on.contains(owner) {
            return Ok(());
        }
        let uri = walk.info.bucket.object_uri(name);
        let text = format!("{uri} belongs to target {owner} by now, which has no part in this job");
        Err(Error::new(ErrorCode::Conflict, text).hint("start it again"))
    }
}

impl WriteBack {
    /// Writes one object back. Waits for a cloud that is unavailable for minutes; the job's status has
    /// the reason.
    async fn write_back(&self, walk: &Walk<'_>, name: &str) -> Result<Outcome> {
        let end = Instant::now() + RETRY_TIMEOUT;
        let mut pause = Duration::from_secs(1);
        loop {
            let error = match self.once(walk, name).await {
                Err(e) if e.code.is_transient() && Instant::now() + pause < end => e,
                done => return done,
            };
            if pause == Duration::from_secs(1) {
                walk.job.note(format!(
                    "{}: {error}; it is tried again",
                    walk.info.bucket.object_uri(name)
                ));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn once(&self, walk: &Walk<'_>, name: &str) -> Result<Outcome> {
        let (objects, task) = (walk.objects, &self.task);
        let to = objects.state().bucket(&task.to)?.clone();
        let copy = ObjectName::new(task.name_of(name))?;
        let sent = Arc::new(AtomicU64::new(0));
        let counted = sent.clone();
        let shown = Shown { job: walk.job, sent, reported: AtomicU64::new(0) };
        let done = {
            let on_progress = Arc::new(move |bytes| {
                counted.fetch_add(bytes, Ordering::Relaxed);
            });
            let written = objects.write_back(
                (&walk.info, name),
                (&to, copy.as_str()),
                task.synchronize,
                on_progress,
            );
            let mut written = std::pin::pin!(written);
            loop {
                tokio::select! {
                    done = &mut written => break done,
                    () = sleep(Duration::from_millis(200)) => shown.tell(),
                }
            }
        };
        drop(shown);
        Ok(match done? {
            WrittenBack::Sent(bytes) => Outcome::Done(bytes),
            WrittenBack::Present(bytes) => Outcome::Present(bytes),
            WrittenBack::Removed => Outcome::Done(0),
            WrittenBack::Nothing => Outcome::Present(0),
        })
    }
}

/// Shows the uploaded bytes of an unfinished object in the job's counters. They are taken back at
/// the end, when the object itself is counted.
struct Shown<'a> {
    job: &'a JobRun,
    sent: Arc<AtomicU64>,
    reported: AtomicU64,
}

impl Shown<'_> {
    fn tell(&self) {
        let sent = self.sent.load(Ordering::Relaxed);
        let reported = self.reported.swap(sent, Ordering::Relaxed);
        self.job.count(0, sent.saturating_sub(reported));
    }
}

impl Drop for Shown<'_> {
    fn drop(&mut self) {
        self.job.uncount(0, self.reported.load(Ordering::Relaxed));
    }
}
