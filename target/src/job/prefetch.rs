//! Prefetches: copies objects of a backend to this target.

use async_trait::async_trait;
use forebay_clouds::Announced;
use forebay_core::Result;
use forebay_core::job::{JobKind, PrefetchTask, Selection, Task};
use forebay_v1::object::BlobArgs;

use super::scope::{Item, Listed, Scope};
use super::walk::{ObjectJob, Walk};
use super::walked::Outcome;
use super::{Jobs, Registration, sync};
use crate::object::{BlobOptions, PrefetchResult};

pub(super) struct Prefetch {
    task: PrefetchTask,
    /// Large objects are fetched by jobs of their own.
    jobs: Jobs,
}

impl Prefetch {
    /// A job without options uses the defaults.
    pub(super) fn new(task: &Task, jobs: &Jobs) -> Self {
        let task = match task {
            Task::Prefetch(task) => *task,
            _ => PrefetchTask::default(),
        };
        Self { task, jobs: jobs.clone() }
    }
}

#[async_trait]
impl ObjectJob for Prefetch {
    fn scope(&self) -> Scope {
        // The copies here are compared with the backend's listing.
        Scope { listed: Listed::Copies, ..Scope::OWNED }
    }

    async fn prepare(&self, walk: &Walk<'_>) -> Result<()> {
        match &walk.job.spec.selection {
            Selection::Prefix(prefix) if self.task.sync => sync::drop_stale(walk, prefix).await,
            Selection::Prefix(_) => Ok(()),
            Selection::Names(_) | Selection::Template(_) => walk.expect_owned_names().await,
        }
    }

    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        match self.task.blob_threshold {
            0 => bring(walk, item).await,
            _ => self.large(walk, item).await,
        }
    }

    fn is_latest(&self, selection: &Selection) -> bool {
        // For a prefix the listing shows the changes.
        let named = !matches!(selection, Selection::Prefix(_));
        self.task.latest || self.task.sync && named
    }

    fn expects_listed(&self) -> bool {
        true
    }

    fn announce(&self, walk: &Walk<'_>, parallel: usize, count: usize) -> Option<Announced> {
        walk.objects.cold_cache().announce_ahead(&walk.info, parallel, count)
    }
}

async fn bring(walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
    walk.objects.cold_cache().bring(&walk.info, &item.name, item.size).await.map(Outcome::from)
}

impl Prefetch {
    /// Fetches an object; a large one by ranges in parallel, as a job of its own.
    async fn large(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome> {
        let (objects, task, name) = (walk.objects, &self.task, item.name.as_str());
        let meta = objects.reads().head(&walk.info, name).await?;
        if meta.size < task.blob_threshold || meta.present && !task.latest {
            return bring(walk, item).await;
        }
        let what = Registration::new(JobKind::BlobDownload).bucket(&walk.info.bucket);
        let blob = self.jobs.register(what)?;
        blob.expect(1, meta.size);
        let mut how = BlobOptions { latest: task.latest, ..BlobArgs::default().into() };
        if task.blob_chunk > 0 {
            how.chunk = task.blob_chunk;
        }
        if task.blob_workers > 0 {
            how.workers = task.blob_workers as usize;
        }
        let turn = objects.cold_cache().background_turn(&walk.info, how.workers).await?;
        how.workers = turn.calls;
        let fetched = objects.cold_cache().blob_fetch(&walk.info, name, how).await;
        if let Ok(Some(bytes)) = &fetched {
            blob.done(*bytes);
            turn.came(*bytes).await;
        }
        blob.end(fetched.as_ref().map(drop).map_err(Clone::clone));
        Ok(fetched?.map_or(Outcome::Present(meta.size), Outcome::Done))
    }
}

impl From<PrefetchResult> for Outcome {
    fn from(result: PrefetchResult) -> Self {
        match result {
            PrefetchResult::Fetched(bytes) => Self::Done(bytes),
            PrefetchResult::Here(bytes) => Self::Present(bytes),
        }
    }
}
