//! Walks over the objects of a job, and executes the job's kind for each of them.

use std::sync::{Arc, Mutex};

use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::cloud_rules::Compose;
use forebay_core::job::{JobKind, PrefetchTask, Selection, Task};
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, Result, placement};
use futures::TryStreamExt;

use super::selection::{Item, PAGE, Source};
use super::walked::Outcome;
use super::{Job, Jobs, copy, index_shard, prefetch, scrub, sync, write_back};
use crate::backend::Announced;
use crate::object::ObjectService;

/// Objects processed at once, unless the job sets it.
const PARALLEL: usize = 16;
/// The same if small objects are fetched together.
const COMPOSED: usize = 128;
/// The same for write-backs: each is uploaded in parts.
const WRITTEN_BACK: usize = 4;

/// One walk of a job over its names.
pub(super) struct Walk<'a> {
    pub(super) jobs: &'a Jobs,
    pub(super) job: &'a Job,
    pub(super) info: Arc<BucketInfo>,
}

/// Runs a job to its end. Dropping the future stops it between two steps of each object.
pub(super) async fn run(jobs: &Jobs, job: &Job) -> Result<()> {
    let mut info = job.info()?.clone();
    if is_latest(job) {
        Arc::make_mut(&mut info).freshness = Freshness::Always;
    }
    let walk = Walk { jobs, job, info };
    if let Some(names) = job.spec.selection.names()? {
        walk.count_mine().await?;
        // Names finished before a restart are skipped.
        let mut names = names.skip(usize::try_from(job.walked().at().names).unwrap_or(usize::MAX));
        loop {
            let chunk: Vec<Item> = names.by_ref().take(PAGE).map(Item::from).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            walk.each(chunk, Source::Named).await?;
        }
    }
    if let (Task::Prefetch(PrefetchTask { sync: true, .. }), Selection::Prefix(prefix)) =
        (&job.spec.task, &job.spec.selection)
    {
        sync::drop_stale(&walk, prefix).await?;
    }
    if let (JobKind::Evict, Selection::Prefix(prefix)) = (job.spec.kind, &job.spec.selection) {
        walk.objects().cold_cache().keep_nothing_under_way(&walk.info, prefix, job.spec.flat);
    }
    for source in walk.sources() {
        walk.listed(source).await?;
    }
    Ok(())
}

fn is_latest(job: &Job) -> bool {
    match &job.spec.task {
        Task::Prefetch(task) => {
            // For a prefix the listing shows the changes.
            let named = !matches!(job.spec.selection, Selection::Prefix(_));
            task.latest || task.sync && named
        }
        _ => false,
    }
}

/// Whether a kind concerns the copies on this target, independent of the owner of their objects.
pub(super) fn is_local(kind: JobKind) -> bool {
    matches!(kind, JobKind::Evict | JobKind::Scrub)
}

impl Walk<'_> {
    pub(super) fn objects(&self) -> &ObjectService {
        &self.jobs.0.objects
    }

    /// Processes some objects. Fails if one failed and the job must not continue after that.
    pub(super) async fn each(&self, items: Vec<Item>, source: Source) -> Result<()> {
        let composes = self.info.cloud.compose() != Compose::Off;
        let parallel = match self.job.spec.workers {
            0 if composes => COMPOSED,
            0 if self.job.spec.kind == JobKind::WriteBack => WRITTEN_BACK,
            0 => PARALLEL,
            asked => asked as usize,
        };
        if self.job.spec.kind.resumes() {
            // While this target counts as dead, another target owns its objects.
            self.objects().until_alive().await;
        }
        let fetches = self.job.spec.kind == JobKind::Prefetch;
        let announced = match fetches {
            true => self.objects().cold_cache().announce_ahead(&self.info, parallel, items.len()),
            false => None,
        };
        let announced = &Mutex::new(announced);
        // The walk has the listing's order, independent of the order of completion.
        let started = |item: Item| (self.job.walked().step(&item.name), item);
        futures::stream::iter(items.into_iter().map(started).map(Ok))
            .try_for_each_concurrent(parallel, |(place, item)| async move {
                let mine = self.is_mine(&item.name, source).await;
                let listed = item.size.filter(|_| matches!(mine, Ok(true)));
                let outcome = match mine {
                    Ok(true) => self.turn(&item).await,
                    Ok(false) => Ok(Outcome::Nothing),
                    Err(e) => Err(e),
                };
                let outcome = match outcome {
                    Err(e) if self.ends_at(&e) => return Err(e),
                    Err(e) => {
                        self.job.failed(&e);
                        Outcome::Failed
                    }
                    Ok(outcome) => outcome,
                };
                match outcome {
                    Outcome::Done(bytes) => self.job.done(bytes),
                    Outcome::Present(bytes) => self.job.present(bytes),
                    Outcome::Nothing | Outcome::Failed => {}
                }
                self.job.walked().end(place, outcome, listed);
                tell_of_one(announced);
                self.jobs.note_progress(self.job).await;
                Ok(())
            })
            .await
    }

    /// Whether the failure of one object ends the job.
    fn ends_at(&self, error: &Error) -> bool {
        match &self.job.spec.task {
            Task::Copy(_) if self.job.spec.kind == JobKind::WriteBack => false,
            Task::Copy(task) => !task.continue_on_error && error.code != ErrorCode::ObjectNotFound,
            _ => false,
        }
    }

    async fn turn(&self, item: &Item) -> Result<Outcome> {
        match self.one(item).await {
            // A missing object is an error only if the client named it explicitly.
            Err(e) if e.code == ErrorCode::ObjectNotFound && !self.is_named_one_by_one() => {
                Ok(Outcome::Nothing)
            }
            done => done,
        }
    }

    fn is_named_one_by_one(&self) -> bool {
        matches!(self.job.spec.selection, Selection::Names(_))
    }

    /// Whether this target processes the object. The owner does; copies are dropped and checked on
    /// the target that has them. A native object that was not moved to its owner yet is processed
    /// by the target that has it.
    async fn is_mine(&self, name: &str, source: Source) -> Result<bool> {
        if is_local(self.job.spec.kind) {
            return Ok(true);
        }
        let state = self.objects().state();
        let owner = placement::owner(&state, &self.info, name)?;
        if owner.id == self.jobs.0.me {
            return Ok(true);
        }
        if self.job.spec.kind == JobKind::WriteBack {
            write_back::check_others(self, name, &owner.id)?;
        }
        let unmoved =
            source == Source::Here && !self.info.has_backend() && !state.is_in_place(&self.info);
        if !unmoved {
            return Ok(false);
        }
        match self.jobs.0.peer.head_object(&owner.url, &self.info.bucket, name).await {
            Ok(_) => Ok(false),
            Err(e) if e.code() == ErrorCode::ObjectNotFound => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    async fn one(&self, item: &Item) -> Result<Outcome> {
        let (objects, info, name) = (self.objects(), &self.info, item.name.as_str());
        let done = match (self.job.spec.kind, &self.job.spec.task) {
            (JobKind::Prefetch, Task::Prefetch(task)) if task.blob_threshold > 0 => {
                return prefetch::large(self, task, name, item.size).await;
            }
            (JobKind::Prefetch, _) => {
                return objects.cold_cache().bring(info, name, item.size).await.map(Outcome::from);
            }
            (JobKind::Evict, _) => objects.cold_cache().evict(info, name).await,
            (JobKind::Scrub, _) => scrub::one(self, name).await,
            // The owner deletes it, wherever it is stored.
            (JobKind::Delete, _) => {
                Box::pin(objects.remove_at_owner(info, name)).await.map(|()| Some(0))
            }
            (JobKind::WriteBack, Task::Copy(task)) => {
                return write_back::one(self, task, name).await;
            }
            (_, Task::Copy(task)) => copy::one(self, task, name).await,
            (JobKind::IndexShard, _) => index_shard::one(self, name).await,
            (kind, _) => {
                Err(Error::unsupported(format!("jobs {} are not served yet", kind.as_str())))
            }
        };
        Ok(done?.map_or(Outcome::Nothing, Outcome::Done))
    }
}

/// One of the announced objects is finished.
fn tell_of_one(announced: &Mutex<Option<Announced>>) {
    let mut announced = announced.locked();
    if let Some(announced) = announced.as_mut() {
        announced.one_is_done();
    }
}
