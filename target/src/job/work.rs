//! The walk over the objects that a job was given, and what each kind does with one of them.

use std::sync::Arc;
use std::time::Duration;

use forebay_core::bucket::{BucketInfo, Freshness};
use forebay_core::intra::ListRequest;
use forebay_core::job::{JobKind, PrefetchTask, Selection, Task};
use forebay_core::list_page::Detail;
use forebay_core::v1::object::BlobArgs;
use forebay_core::{Error, ErrorCode, Result, placement};
use futures::TryStreamExt;

use super::{Job, Jobs, Registration, copy};
use crate::object::{BlobOptions, ObjectService, Verdict};

/// Objects worked on at once, unless the job says.
const PARALLEL: usize = 16;
/// Names taken from a listing at once.
const PAGE: usize = 1000;

/// One walk of a job over its names.
pub(super) struct Walk<'a> {
    pub(super) jobs: &'a Jobs,
    pub(super) job: &'a Job,
    pub(super) info: Arc<BucketInfo>,
}

/// Where names come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The client named them.
    Named,
    /// What lies here.
    Here,
    /// What the backend has.
    Backend,
}

/// Runs a job to its end. Dropping the future stops it between two steps of each object.
pub(super) async fn run(jobs: &Jobs, job: &Job) -> Result<()> {
    let mut info = job.info()?.clone();
    if is_latest(job) {
        Arc::make_mut(&mut info).freshness = Freshness::Always;
    }
    let walk = Walk { jobs, job, info };
    if let Some(mut names) = job.spec.selection.names()? {
        loop {
            let chunk: Vec<String> = names.by_ref().take(PAGE).collect();
            if chunk.is_empty() {
                return Ok(());
            }
            walk.each(chunk, Source::Named).await?;
        }
    }
    for source in walk.sources() {
        walk.listed(source).await?;
    }
    Ok(())
}

fn is_latest(job: &Job) -> bool {
    matches!(job.spec.task, Task::Prefetch(PrefetchTask { latest: true, .. }))
}

/// Whether a kind is about the copies that lie here, whoever owns their objects.
fn is_local(kind: JobKind) -> bool {
    matches!(kind, JobKind::Evict | JobKind::Scrub)
}

impl Walk<'_> {
    pub(super) fn objects(&self) -> &ObjectService {
        &self.jobs.0.objects
    }

    /// Whose listings hold the names of a prefix.
    fn sources(&self) -> Vec<Source> {
        if !self.info.has_backend() || is_local(self.job.spec.kind) {
            return vec![Source::Here];
        }
        match &self.job.spec.task {
            Task::Copy(task) if !task.remote_too => vec![Source::Here],
            // Only the copies here tell what the backend does not have any more.
            Task::Copy(task) if task.synchronize => vec![Source::Here, Source::Backend],
            _ => vec![Source::Backend],
        }
    }

    async fn listed(&self, source: Source) -> Result<()> {
        let Selection::Prefix(prefix) = &self.job.spec.selection else { return Ok(()) };
        if source == Source::Backend {
            let mut pages = self.objects().sweep(&self.info, prefix, "").await?;
            while let Some(page) = pages.try_next().await? {
                let names = page.into_iter().map(|entry| entry.name).collect();
                self.some(names, prefix, source).await?;
            }
            return Ok(());
        }
        let mut after = String::new();
        loop {
            let (names, more) = self.page_here(prefix, &after).await?;
            let Some(last) = names.last().cloned() else { return Ok(()) };
            self.some(names, prefix, source).await?;
            if !more {
                return Ok(());
            }
            after = last;
        }
    }

    /// Works on a page of a listing.
    async fn some(&self, mut names: Vec<String>, prefix: &str, source: Source) -> Result<()> {
        if self.job.spec.flat {
            names.retain(|name| !name[prefix.len()..].contains('/'));
        }
        self.each(names, source).await
    }

    async fn page_here(&self, prefix: &str, after: &str) -> Result<(Vec<String>, bool)> {
        let request = ListRequest {
            bucket_id: self.info.id,
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            until: None,
            limit: PAGE,
            archive: false,
            detail: Detail::Size,
        };
        let page = self.objects().page_here(&request).await?;
        Ok((page.entries.into_iter().map(|entry| entry.name).collect(), page.more))
    }

    /// Works on some names. Fails where the job may not go on after an object that failed.
    async fn each(&self, names: Vec<String>, source: Source) -> Result<()> {
        let parallel = match self.job.spec.workers {
            0 => PARALLEL,
            asked => asked as usize,
        };
        futures::stream::iter(names.into_iter().map(Ok))
            .try_for_each_concurrent(parallel, |name| async move {
                match self.turn(&name, source).await {
                    Ok(Some(bytes)) => self.job.done(bytes),
                    Ok(None) => {}
                    Err(e) if self.ends_at(&e) => return Err(e),
                    Err(e) => self.job.failed(&e),
                }
                Ok(())
            })
            .await
    }

    /// Whether one object's failure is the job's.
    fn ends_at(&self, error: &Error) -> bool {
        match &self.job.spec.task {
            Task::Copy(task) => !task.continue_on_error && error.code != ErrorCode::ObjectNotFound,
            _ => false,
        }
    }

    async fn turn(&self, name: &str, source: Source) -> Result<Option<u64>> {
        if !self.is_mine(name, source).await? {
            return Ok(None);
        }
        match self.one(name).await {
            // Only of what was named one by one is it an error that it is not there.
            Err(e) if e.code == ErrorCode::ObjectNotFound && !self.is_named_one_by_one() => {
                Ok(None)
            }
            done => done,
        }
    }

    fn is_named_one_by_one(&self) -> bool {
        matches!(self.job.spec.selection, Selection::Names(_))
    }

    /// Each object is done by its owner; copies are dropped and checked where they lie. A native
    /// object that was not moved to its owner yet is done by whoever has it.
    async fn is_mine(&self, name: &str, source: Source) -> Result<bool> {
        if is_local(self.job.spec.kind) {
            return Ok(true);
        }
        let state = self.objects().state();
        let owner = placement::owner(&state, &self.info, name)?;
        if owner.id == self.jobs.0.me {
            return Ok(true);
        }
        let unmoved = source == Source::Here
            && !self.info.has_backend()
            && self.info.created_version <= state.targets_changed;
        if !unmoved {
            return Ok(false);
        }
        match self.jobs.0.peer.head_object(&owner.url, &self.info.bucket, name).await {
            Ok(_) => Ok(false),
            Err(e) if e.code() == ErrorCode::ObjectNotFound => Ok(true),
            Err(e) => Err(e.into()),
        }
    }

    /// Bytes moved or freed; `None` when there was nothing to do.
    async fn one(&self, name: &str) -> Result<Option<u64>> {
        let (objects, info) = (self.objects(), &self.info);
        match (self.job.spec.kind, &self.job.spec.task) {
            (JobKind::Prefetch, Task::Prefetch(task)) if task.blob_threshold > 0 => {
                self.prefetch_large(task, name).await
            }
            (JobKind::Prefetch, _) => objects.prefetch(info, name).await,
            (JobKind::Evict, _) => objects.evict(info, name).await,
            (JobKind::Scrub, _) => self.scrub(name).await,
            (JobKind::Delete, _) => objects.delete(info, name).await.map(|()| Some(0)),
            (_, Task::Copy(task)) => copy::one(self, task, name).await,
            (JobKind::IndexShard, _) => self.index(name).await,
            (kind, _) => {
                Err(Error::unsupported(format!("jobs {} are not served yet", kind.as_str())))
            }
        }
    }

    /// An object that is large enough is fetched by ranges in parallel, as a job of its own.
    async fn prefetch_large(&self, task: &PrefetchTask, name: &str) -> Result<Option<u64>> {
        let meta = self.objects().head(&self.info, name).await?;
        if meta.size < task.blob_threshold || meta.present && !task.latest {
            return self.objects().prefetch(&self.info, name).await;
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
        let fetched = self.objects().blob_fetch(&self.info, name, how).await;
        if let Ok(Some(bytes)) = &fetched {
            blob.done(*bytes);
        }
        blob.end(fetched.as_ref().map(drop).map_err(Clone::clone));
        fetched
    }

    /// Somebody waits for it, so it does not pause as the scrub that always runs does.
    async fn scrub(&self, name: &str) -> Result<Option<u64>> {
        let (objects, info) = (self.objects(), &self.info);
        let Some(record) = objects.record(info, name).await? else { return Ok(None) };
        match objects.check(&record, |_, _, _| Duration::ZERO).await? {
            Verdict::Sound => Ok(Some(record.size)),
            Verdict::Gone => Ok(None),
            Verdict::Healed => {
                let uri = info.bucket.object_uri(name);
                let text = format!("{uri}: a damaged copy was dropped; its backend has the object");
                self.job.note(text);
                Ok(Some(record.size))
            }
            Verdict::Lost => {
                let uri = info.bucket.object_uri(name);
                Err(Error::new(ErrorCode::Corrupt, format!("{uri} is damaged"))
                    .hint("there is no other copy: write the object again, or delete it"))
            }
        }
    }

    /// Has the index of a shard made, if it is one.
    async fn index(&self, name: &str) -> Result<Option<u64>> {
        if forebay_core::archive::ArchiveFormat::from_name(name).is_none() {
            return Ok(None);
        }
        let (meta, _) = self.jobs.0.shards.described(&self.info, name, None).await?;
        Ok(Some(meta.size))
    }
}
