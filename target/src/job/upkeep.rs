//! Jobs about a target as a whole. Much of what they ask for goes on by itself here: then they
//! hurry it, or are over at once.

use forebay_core::Result;
use forebay_core::job::JobKind;

use super::{Job, Jobs, rebalance};

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
        JobKind::MoveBucket | JobKind::Rebalance | JobKind::MakeCopies => {
            rebalance::run(jobs, job).await?;
        }
        JobKind::Cleanup => {
            let swept = objects.sweep_clouds().await?;
            job.count(swept, 0);
        }
        // What is not needed any more goes with the next compaction and the scrub; metadata needs no
        // loading.
        _ => {}
    }
    Ok(())
}
