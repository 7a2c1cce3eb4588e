//! Prefetches: copies objects of a backend to this target.

use forebay_core::Result;
use forebay_core::job::{JobKind, PrefetchTask};
use forebay_core::v1::object::BlobArgs;

use super::Registration;
use super::walked::Outcome;
use super::work::Walk;
use crate::object::{BlobOptions, PrefetchResult};

/// Fetches a large object by ranges in parallel, as a job of its own.
pub(super) async fn large(
    walk: &Walk<'_>,
    task: &PrefetchTask,
    name: &str,
    listed: Option<u64>,
) -> Result<Outcome> {
    let objects = walk.objects();
    let meta = objects.head(&walk.info, name).await?;
    if meta.size < task.blob_threshold || meta.present && !task.latest {
        return objects.cold_cache().bring(&walk.info, name, listed).await.map(Outcome::from);
    }
    let what = Registration::new(JobKind::BlobDownload).bucket(&walk.info.bucket);
    let blob = walk.jobs.register(what)?;
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

impl From<PrefetchResult> for Outcome {
    fn from(result: PrefetchResult) -> Self {
        match result {
            PrefetchResult::Fetched(bytes) => Self::Done(bytes),
            PrefetchResult::Here(bytes) => Self::Present(bytes),
        }
    }
}
