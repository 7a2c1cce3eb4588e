//! What each kind of job does with one object, and the walk over the objects it was given.

use std::time::Duration;

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::ListRequest;
use forebay_core::job::{JobKind, Selection};
use forebay_core::list_page::Detail;
use forebay_core::placement;
use forebay_core::{Error, ErrorCode, NodeId, Result};
use futures::StreamExt;

use super::Job;
use crate::object::{ObjectService, Verdict};

/// Objects worked on at once.
const PARALLEL: usize = 16;
/// Names taken from a listing at once.
const PAGE: usize = 1000;

/// Runs a job to its end. Dropping the future stops it between two steps of each object.
pub(super) async fn run(objects: &ObjectService, me: &NodeId, job: &Job) -> Result<()> {
    let info = job.info()?;
    match &job.spec.selection {
        Selection::Names(names) => {
            each(objects, me, job, info, names.clone()).await;
            Ok(())
        }
        Selection::Prefix(prefix) => {
            let mut after = String::new();
            loop {
                let (names, more) = page(objects, job, info, prefix, &after).await?;
                let Some(last) = names.last().cloned() else { return Ok(()) };
                each(objects, me, job, info, names).await;
                if !more {
                    return Ok(());
                }
                after = last;
            }
        }
    }
}

/// Whether a kind is about the copies that lie here, whoever owns their objects.
fn is_local(kind: JobKind) -> bool {
    matches!(kind, JobKind::Evict | JobKind::Scrub)
}

/// The next names: of what is here where that is what counts, else of what the bucket has.
async fn page(
    objects: &ObjectService,
    job: &Job,
    info: &BucketInfo,
    prefix: &str,
    after: &str,
) -> Result<(Vec<String>, bool)> {
    let everywhere = info.has_backend() && !is_local(job.spec.kind);
    let page = if everywhere {
        objects.page_backend(info, prefix, after, PAGE).await?
    } else {
        let request = ListRequest {
            bucket_id: info.id,
            prefix: prefix.to_owned(),
            after: after.to_owned(),
            until: None,
            limit: PAGE,
            archive: false,
            detail: Detail::Size,
        };
        objects.page_here(&request).await?
    };
    Ok((page.entries.into_iter().map(|entry| entry.name).collect(), page.more))
}

async fn each(
    objects: &ObjectService,
    me: &NodeId,
    job: &Job,
    info: &BucketInfo,
    names: Vec<String>,
) {
    futures::stream::iter(names)
        .for_each_concurrent(PARALLEL, |name| async move {
            if !is_mine(objects, me, job, info, &name) {
                return;
            }
            match one(objects, job, info, &name).await {
                Ok(Some(bytes)) => job.done(bytes),
                Ok(None) => {}
                Err(e) => job.failed(&e),
            }
        })
        .await;
}

/// Each object is done by its owner; copies are dropped and checked where they lie.
fn is_mine(objects: &ObjectService, me: &NodeId, job: &Job, info: &BucketInfo, name: &str) -> bool {
    if is_local(job.spec.kind) {
        return true;
    }
    let state = objects.state();
    placement::owner(&state, info, name).is_ok_and(|owner| owner.id == *me)
}

/// Bytes moved or freed; `None` when there was nothing to do.
async fn one(
    objects: &ObjectService,
    job: &Job,
    info: &BucketInfo,
    name: &str,
) -> Result<Option<u64>> {
    match job.spec.kind {
        JobKind::Prefetch => objects.prefetch(info, name).await,
        JobKind::Evict => objects.evict(info, name).await,
        JobKind::Scrub => scrub(objects, job, info, name).await,
        JobKind::Delete => match objects.delete(info, name).await {
            Ok(()) => Ok(Some(0)),
            // Named one by one, a missing object is an error worth telling.
            Err(e)
                if e.code == ErrorCode::ObjectNotFound
                    && matches!(job.spec.selection, Selection::Prefix(_)) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        },
        kind => Err(Error::unsupported(format!("jobs {} are not served yet", kind.as_str()))),
    }
}

/// Somebody waits for it, so it does not pause as the scrub that always runs does.
async fn scrub(
    objects: &ObjectService,
    job: &Job,
    info: &BucketInfo,
    name: &str,
) -> Result<Option<u64>> {
    let Some(record) = objects.record(info, name).await? else { return Ok(None) };
    match objects.check(&record, |_, _, _| Duration::ZERO).await? {
        Verdict::Sound => Ok(Some(record.size)),
        Verdict::Gone => Ok(None),
        Verdict::Healed => {
            let uri = info.bucket.object_uri(name);
            job.note(format!("{uri}: a damaged copy was dropped; its backend has the object"));
            Ok(Some(record.size))
        }
        Verdict::Lost => {
            let uri = info.bucket.object_uri(name);
            Err(Error::new(ErrorCode::Corrupt, format!("{uri} is damaged"))
                .hint("there is no other copy: write the object again, or delete it"))
        }
    }
}
