//! Jobs that do one step for each object: the walk over the objects of a job.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use forebay_clouds::Announced;
use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::cloud_rules::Compose;
use forebay_core::job::Selection;
use forebay_core::locks::MutexExt;
use forebay_core::{Error, ErrorCode, NodeId, Result, placement};
use futures::TryStreamExt;

use super::run::{Job, JobRun};
use super::scope::{Item, Scope, Source};
use super::walked::Outcome;
use crate::object::ObjectService;

/// Names taken from a selection at once.
pub(super) const PAGE: usize = 1000;
/// Objects processed at once, unless the job or its kind sets it.
const PARALLEL: usize = 16;
/// The same if small objects are fetched together.
const COMPOSED: usize = 128;

/// A kind of job that does one step for each object of its bucket.
#[async_trait]
pub(super) trait ObjectJob: Send + Sync {
    /// The objects that the job processes on this target.
    fn scope(&self) -> Scope;

    /// Does what comes before the first step.
    async fn prepare(&self, _walk: &Walk<'_>) -> Result<()> {
        Ok(())
    }

    /// Processes one object. An error counts as one failure, unless [`Self::ends_at`] accepts it.
    /// It may be dropped at any await, and is repeated if the job resumes.
    async fn step(&self, walk: &Walk<'_>, item: &Item) -> Result<Outcome>;

    /// Whether the failure of one object ends the job.
    fn ends_at(&self, _error: &Error) -> bool {
        false
    }

    /// Objects processed at once, unless the job sets it.
    fn parallel(&self) -> usize {
        PARALLEL
    }

    /// Whether cached copies are compared with the backend first, whatever the bucket's rules are.
    fn is_latest(&self, _selection: &Selection) -> bool {
        false
    }

    /// Whether a listing of the backend sets the totals that the job expects.
    fn expects_listed(&self) -> bool {
        false
    }

    /// Announces the next objects to the backend: `count` of them, `parallel` at once.
    fn announce(&self, _walk: &Walk<'_>, _parallel: usize, _count: usize) -> Option<Announced> {
        None
    }

    /// Returns an error if the job must not leave an object to `owner`, another target.
    fn check_owner(&self, _walk: &Walk<'_>, _name: &str, _owner: &NodeId) -> Result<()> {
        Ok(())
    }
}

/// Runs a kind of job over all objects of its job.
pub(super) struct EachObject<K> {
    pub(super) objects: ObjectService,
    pub(super) kind: K,
}

#[async_trait]
impl<K: ObjectJob> Job for EachObject<K> {
    /// Runs a job to its end. Dropping the future stops it between two steps of each object.
    async fn run(&self, job: &JobRun) -> Result<()> {
        let mut info = job.info()?.clone();
        if self.kind.is_latest(&job.spec.selection) {
            Arc::make_mut(&mut info).freshness = Freshness::Always;
        }
        Walk { objects: &self.objects, kind: &self.kind, job, info }.run().await
    }
}

/// One walk of a job over its names.
pub(super) struct Walk<'a> {
    pub(super) objects: &'a ObjectService,
    pub(super) kind: &'a dyn ObjectJob,
    pub(super) job: &'a JobRun,
    pub(super) info: Arc<BucketInfo>,
}

impl Walk<'_> {
    async fn run(&self) -> Result<()> {
        self.kind.prepare(self).await?;
        let Some(names) = self.job.spec.selection.names()? else {
            for source in self.sources() {
                self.listed(*source).await?;
            }
            return Ok(());
        };
        // Names finished before a restart are skipped.
        let finished = self.job.walked().at().names;
        let mut names = names.skip(usize::try_from(finished).unwrap_or(usize::MAX));
        loop {
            let chunk: Vec<Item> = names.by_ref().take(PAGE).map(Item::from).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            self.each(chunk, Source::Named).await?;
        }
    }

    /// Processes some objects. Fails if one failed and the job must not continue after that.
    pub(super) async fn each(&self, items: Vec<Item>, source: Source) -> Result<()> {
        if self.job.spec.kind.resumes() {
            // While this target counts as dead, another target owns its objects.
            self.objects.until_alive().await;
        }
        let parallel = self.parallel();
        let announced = &Mutex::new(self.kind.announce(self, parallel, items.len()));
        // The walk has the listing's order, independent of the order of completion.
        let started = |item: Item| (self.job.walked().step(&item.name), item);
        futures::stream::iter(items.into_iter().map(started).map(Ok))
            .try_for_each_concurrent(parallel, |(place, item)| async move {
                let mine = self.is_mine(&item.name, source).await;
                let listed = item.size.filter(|_| matches!(mine, Ok(true)));
                let outcome = match mine {
                    Ok(true) => self.step(&item).await,
                    Ok(false) => Ok(Outcome::Nothing),
                    Err(e) => Err(e),
                };
                let outcome = self.count(outcome)?;
                self.job.walked().end(place, outcome, listed);
                count_announced(announced);
                self.job.save_progress().await;
                Ok(())
            })
            .await
    }

    fn parallel(&self) -> usize {
        match self.job.spec.workers {
            0 if self.info.cloud.compose() != Compose::Off => COMPOSED,
            0 => self.kind.parallel(),
            asked => asked as usize,
        }
    }

    async fn step(&self, item: &Item) -> Result<Outcome> {
        match self.kind.step(self, item).await {
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

    /// Counts the outcome of one object in the status. Fails if it ends the job.
    fn count(&self, outcome: Result<Outcome>) -> Result<Outcome> {
        let outcome = match outcome {
            Err(e) if self.kind.ends_at(&e) => return Err(e),
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
        Ok(outcome)
    }

    /// Whether this target processes the object. The owner does; copies are dropped and checked on
    /// the target that has them. A native object that was not moved to its owner yet is processed
    /// by the target that has it.
    async fn is_mine(&self, name: &str, source: Source) -> Result<bool> {
        if self.kind.scope().local {
            return Ok(true);
        }
        let state = self.objects.state();
        let owner = placement::owner(&state, &self.info, name)?;
        if owner.id == *self.objects.me() {
            return Ok(true);
        }
        self.kind.check_owner(self, name, &owner.id)?;
        let unmoved =
            source == Source::Here && !self.info.has_backend() && !state.is_in_place(&self.info);
        if !unmoved {
            return Ok(false);
        }
        match self.objects.peer().head_object(&owner.url, &self.info.bucket, name).await {
            Ok(_) => Ok(false),
            Err(e) if e.code() == ErrorCode::ObjectNotFound => Ok(true),
            Err(e) => Err(e.into()),
        }
    }
}

/// Counts one of the announced objects as finished.
fn count_announced(announced: &Mutex<Option<Announced>>) {
    let mut announced = announced.locked();
    if let Some(announced) = announced.as_mut() {
        announced.one_is_done();
    }
}
