//! Jobs about a target as a whole. Much of what they ask for goes on by itself here: then they
//! hurry it, or are over at once.

use forebay_core::bucket::BucketInfo;
use forebay_core::intra::{ListRequest, SettleRequest};
use forebay_core::job::JobKind;
use forebay_core::list_page::Detail;
use forebay_core::{Result, placement};
use futures::StreamExt;

use super::{Job, Jobs};

/// Where a target is asked to take an object over that belongs to it.
const SETTLE: &str = "/internal/v1/settle";
/// Objects that move at once.
const PARALLEL: usize = 4;
/// Names taken from a listing at once.
const PAGE: usize = 1000;

/// Whether a kind is about the target and not about chosen objects.
pub(super) fn is_upkeep(kind: JobKind) -> bool {
    matches!(
        kind,
        JobKind::Lru
            | JobKind::Cleanup
            | JobKind::Resilver
            | JobKind::Rebalance
            | JobKind::MoveBucket
            | JobKind::LoadMetadata
            | JobKind::MakeCopies
    )
}

pub(super) async fn run(jobs: &Jobs, job: &Job) -> Result<()> {
    let objects = &jobs.0.objects;
    match job.spec.kind {
        JobKind::Lru => objects.make_room(),
        JobKind::Resilver => {
            let moved = objects.move_to_their_disks().await?;
            job.count(moved, 0);
        }
        JobKind::MoveBucket => settle(jobs, job, job.info()?).await?,
        JobKind::Rebalance => {
            let state = objects.state();
            for info in state.buckets.values().filter(|info| !info.has_backend()) {
                settle(jobs, job, info).await?;
            }
        }
        // What is not needed any more goes with the next compaction and the scrub; metadata needs no
        // loading; every object has its one copy.
        _ => {}
    }
    Ok(())
}

/// Has every object that lies here and belongs to another target taken over by that one.
async fn settle(jobs: &Jobs, job: &Job, info: &BucketInfo) -> Result<()> {
    let mut after = String::new();
    loop {
        let request = ListRequest {
            bucket_id: info.id,
            prefix: String::new(),
            after: after.clone(),
            until: None,
            limit: PAGE,
            archive: false,
            detail: Detail::Size,
        };
        let page = jobs.0.objects.page_here(&request).await?;
        let Some(last) = page.entries.last() else { return Ok(()) };
        after.clone_from(&last.name);
        futures::stream::iter(page.entries)
            .for_each_concurrent(PARALLEL, |entry| async move {
                match settle_one(jobs, info, &entry.name).await {
                    Ok(Some(bytes)) => job.done(bytes),
                    Ok(None) => {}
                    Err(e) => job.failed(&e),
                }
            })
            .await;
        if !page.more {
            return Ok(());
        }
    }
}

async fn settle_one(jobs: &Jobs, info: &BucketInfo, name: &str) -> Result<Option<u64>> {
    let objects = &jobs.0.objects;
    let state = objects.state();
    let owner = placement::owner(&state, info, name)?;
    if owner.id == jobs.0.me {
        return Ok(None);
    }
    let Some(record) = objects.record(info, name).await? else { return Ok(None) };
    let request = SettleRequest { bucket: info.bucket.clone(), name: name.to_owned() };
    let () = jobs.0.peer.post_json(&owner.url, SETTLE, &request).await?;
    objects.drop_moved(info, &record).await?;
    Ok(Some(record.size))
}
