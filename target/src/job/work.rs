//! Walks over the objects of a job, and executes the job's kind for each of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::cloud_rules::{CloudRule, Compose};
use forebay_core::intra::{ListPage, ListRequest};
use forebay_core::job::{JobKind, PrefetchTask, Selection, Task};
use forebay_core::list_page::Detail;
use forebay_core::locks::MutexExt;
use forebay_core::object::ListEntry;
use forebay_core::v1::object::BlobArgs;
use forebay_core::{Error, ErrorCode, Result, placement};
use futures::{Stream, TryStreamExt};
use tokio::sync::mpsc;

use super::walked::Outcome;
use super::{Job, Jobs, Registration, copy, sync, write_back};
use crate::backend::Announced;
use crate::object::{BlobOptions, ObjectService, PrefetchResult, Verdict};

/// Objects processed at once, unless the job sets it.
const PARALLEL: usize = 16;
/// The same if small objects are fetched together.
const COMPOSED: usize = 128;
/// The same for write-backs: each is uploaded in parts.
const WRITTEN_BACK: usize = 4;
/// Names taken from a listing at once.
const PAGE: usize = 1000;
/// Pages of a backend's listing that are read ahead: the totals are known early.
const PAGES_AHEAD: usize = 64;
/// Longer lists of names are not counted before the work begins.
const COUNTED: usize = 1_000_000;

/// An object to process.
struct Item {
    name: String,
    /// If the listing has it.
    size: Option<u64>,
}

impl From<String> for Item {
    fn from(name: String) -> Self {
        Self { name, size: None }
    }
}

/// One walk of a job over its names.
pub(super) struct Walk<'a> {
    pub(super) jobs: &'a Jobs,
    pub(super) job: &'a Job,
    pub(super) info: Arc<BucketInfo>,
}

/// The source of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The list of the client.
    Named,
    /// The copies on this target.
    Here,
    /// The listing of the backend.
    Backend,
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
        walk.objects().keep_nothing_under_way(&walk.info, prefix, job.spec.flat);
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
fn is_local(kind: JobKind) -> bool {
    matches!(kind, JobKind::Evict | JobKind::Scrub)
}

impl Walk<'_> {
    pub(super) fn objects(&self) -> &ObjectService {
        &self.jobs.0.objects
    }

    /// The listings to walk for a prefix.
    fn sources(&self) -> Vec<Source> {
        if !self.info.has_backend() || is_local(self.job.spec.kind) {
            return vec![Source::Here];
        }
        match &self.job.spec.task {
            Task::Copy(task) if !task.remote_too => vec![Source::Here],
            // Objects that the backend does not have any more are found only among the copies here.
            Task::Copy(task) if task.synchronize => vec![Source::Here, Source::Backend],
            _ => vec![Source::Backend],
        }
    }

    /// Counts those of the given names that this target owns, for the job's status.
    async fn count_mine(&self) -> Result<()> {
        match self.job.spec.kind {
            JobKind::Prefetch => {}
            JobKind::WriteBack => return write_back::count_mine(self).await,
            _ => return Ok(()),
        }
        let Some(mut names) = self.job.spec.selection.names()? else { return Ok(()) };
        let (mut mine, mut seen) = (0, 0);
        loop {
            let state = self.objects().state();
            let before = seen;
            for name in names.by_ref().take(PAGE) {
                seen += 1;
                mine +=
                    u64::from(placement::owner(&state, &self.info, &name)?.id == self.jobs.0.me);
            }
            if seen > COUNTED {
                return Ok(());
            }
            if seen == before {
                self.job.expect_totals(mine, 0);
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
    }

    async fn listed(&self, source: Source) -> Result<()> {
        let Selection::Prefix(prefix) = &self.job.spec.selection else { return Ok(()) };
        if source == Source::Backend {
            let (pages, coming) = mpsc::channel(PAGES_AHEAD);
            let list = self.list_backend(prefix, pages);
            return tokio::try_join!(list, self.each_page(coming)).map(drop);
        }
        let mut after = String::new();
        loop {
            let (names, more) = self.page_here(prefix, &after).await?;
            let Some(last) = names.last().cloned() else { return Ok(()) };
            let items = names.into_iter().map(Item::from).collect();
            self.each(self.chosen(items, prefix), source).await?;
            if !more {
                return Ok(());
            }
            after = last;
        }
    }

    /// Sends the pages of the backend's listing ahead of the work, and records the totals at its
    /// end.
    async fn list_backend(&self, prefix: &str, to: mpsc::Sender<Vec<Item>>) -> Result<()> {
        let at = self.job.walked().at();
        let pages = self.pages(prefix, &at.after, Detail::Size);
        let mut pages = std::pin::pin!(pages);
        let (mut objects, mut bytes) = (at.listed, at.listed_bytes);
        while let Some(page) = pages.try_next().await? {
            let item = |entry: ListEntry| Item { name: entry.name, size: Some(entry.meta.size) };
            let items = self.chosen(page.into_iter().map(item).collect(), prefix);
            let state = self.objects().state();
            for item in &items {
                if placement::owner(&state, &self.info, &item.name)?.id == self.jobs.0.me {
                    objects += 1;
                    bytes += item.size.unwrap_or(0);
                }
            }
            if to.send(items).await.is_err() {
                return Ok(());
            }
        }
        if self.job.spec.kind == JobKind::Prefetch {
            self.job.expect_totals(objects, bytes);
        }
        Ok(())
    }

    /// The backend's listing, not older than the start of the job; shared by the job's parts of all
    /// targets.
    pub(super) fn pages(
        &self,
        prefix: &str,
        after: &str,
        detail: Detail,
    ) -> impl Stream<Item = Result<Vec<ListEntry>>> + Send + use<> {
        let age = self.info.cloud.time(CloudRule::ListMaxAgeMs).unwrap_or_default();
        let age_ns = u64::try_from(age.as_nanos()).unwrap_or(u64::MAX);
        let since_ns = self.job.spec.asked_ns.saturating_sub(age_ns);
        self.objects().listed(&self.info, prefix, after, since_ns, detail)
    }

    async fn each_page(&self, mut pages: mpsc::Receiver<Vec<Item>>) -> Result<()> {
        while let Some(items) = pages.recv().await {
            self.each(items, Source::Backend).await?;
        }
        Ok(())
    }

    /// The entries of a listing page that the job is about.
    fn chosen(&self, mut items: Vec<Item>, prefix: &str) -> Vec<Item> {
        if self.job.spec.flat {
            items.retain(|item| !item.name[prefix.len()..].contains('/'));
        }
        items
    }

    async fn page_here(&self, prefix: &str, after: &str) -> Result<(Vec<String>, bool)> {
        let page = self.copies_here(prefix, after).await?;
        Ok((page.entries.into_iter().map(|entry| entry.name).collect(), page.more))
    }

    /// The copies of a prefix on this target.
    pub(super) async fn copies_here(&self, prefix: &str, after: &str) -> Result<ListPage> {
        let request = ListRequest {
            bucket_id: self.info.id,
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            limit: PAGE,
            detail: Detail::Size,
            ..ListRequest::default()
        };
        match self.job.spec.kind {
            JobKind::Scrub => {
                let page = self.objects().page_of_anything(&request).await?;
                Ok(self.objects().with_parts(&request, page))
            }
            JobKind::Evict | JobKind::Prefetch => self.objects().page_of_copies(&request).await,
            _ => self.objects().page_here(&request).await,
        }
    }

    /// Processes some objects. Fails if one failed and the job must not continue after that.
    async fn each(&self, items: Vec<Item>, source: Source) -> Result<()> {
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
            true => self.objects().announce_ahead(&self.info, parallel, items.len()),
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
                return self.prefetch_large(task, item).await;
            }
            (JobKind::Prefetch, _) => {
                return objects.bring(info, name, item.size).await.map(Outcome::from);
            }
            (JobKind::Evict, _) => objects.evict(info, name).await,
            (JobKind::Scrub, _) => self.scrub(name).await,
            // The owner deletes it, wherever it is stored.
            (JobKind::Delete, _) => {
                Box::pin(objects.remove_at_owner(info, name)).await.map(|()| Some(0))
            }
            (JobKind::WriteBack, Task::Copy(task)) => {
                return write_back::one(self, task, name).await;
            }
            (_, Task::Copy(task)) => copy::one(self, task, name).await,
            (JobKind::IndexShard, _) => self.index(name).await,
            (kind, _) => {
                Err(Error::unsupported(format!("jobs {} are not served yet", kind.as_str())))
            }
        };
        Ok(done?.map_or(Outcome::Nothing, Outcome::Done))
    }

    /// Fetches a large object by ranges in parallel, as a job of its own.
    async fn prefetch_large(&self, task: &PrefetchTask, item: &Item) -> Result<Outcome> {
        let (objects, name) = (self.objects(), item.name.as_str());
        let meta = objects.head(&self.info, name).await?;
        if meta.size < task.blob_threshold || meta.present && !task.latest {
            return objects.bring(&self.info, name, item.size).await.map(Outcome::from);
        }
        let what = Registration::new(JobKind::BlobDownload).bucket(&self.info.bucket);
        let blob = self.jobs.register(what)?;
        blob.expect(1, meta.size);
        let mut how = BlobOptions { latest: task.latest, ..BlobArgs::default().into() };
        if task.blob_chunk > 0 {
            how.chunk = task.blob_chunk;
        }
        if task.blob_workers > 0 {
            how.workers = task.blob_workers as usize;
        }
        let turn = objects.background_turn(&self.info, how.workers).await?;
        how.workers = turn.calls;
        let fetched = objects.blob_fetch(&self.info, name, how).await;
        if let Ok(Some(bytes)) = &fetched {
            blob.done(*bytes);
            turn.came(*bytes).await;
        }
        blob.end(fetched.as_ref().map(drop).map_err(Clone::clone));
        Ok(fetched?.map_or(Outcome::Present(meta.size), Outcome::Done))
    }

    /// A client waits for it, so it does not pause as the background scrub does.
    async fn scrub(&self, name: &str) -> Result<Option<u64>> {
        let (objects, info) = (self.objects(), &self.info);
        let mut checked = None;
        for record in objects.anything_of(info, name).await? {
            match objects.check(&record, |_, _, _| Duration::ZERO).await? {
                Verdict::Sound => {}
                Verdict::Gone => continue,
                Verdict::Healed => {
                    let uri = info.bucket.object_uri(name);
                    self.job.note(format!(
                        "{uri}: a damaged copy was dropped; its backend has the object"
                    ));
                }
                Verdict::Lost => {
                    let uri = info.bucket.object_uri(name);
                    return Err(Error::new(ErrorCode::Corrupt, format!("{uri} is damaged"))
                        .hint("there is no other copy: write the object again, or delete it"));
                }
            }
            checked = Some(checked.unwrap_or(0) + record.size);
        }
        if let Some(parts) = objects.check_parts(info.id, name, |_, _, _| Duration::ZERO).await? {
            if parts.damaged > 0 {
                let uri = info.bucket.object_uri(name);
                self.job.note(format!(
                    "{uri}: {} damaged parts were dropped; its backend has the object",
                    parts.damaged
                ));
            }
            checked = Some(checked.unwrap_or(0) + parts.bytes);
        }
        Ok(checked)
    }

    /// Builds the index of a shard, if the object is one.
    async fn index(&self, name: &str) -> Result<Option<u64>> {
        if forebay_core::archive::ArchiveFormat::from_name(name).is_none() {
            return Ok(None);
        }
        let (meta, _) = self.jobs.0.shards.described(&self.info, name, None).await?;
        Ok(Some(meta.size))
    }
}

/// One of the announced objects is finished.
fn tell_of_one(announced: &Mutex<Option<Announced>>) {
    let mut announced = announced.locked();
    if let Some(announced) = announced.as_mut() {
        announced.one_is_done();
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
