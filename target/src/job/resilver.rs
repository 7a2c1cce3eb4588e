//! Resilvers: moves objects to the disks that they belong on. Copies that were lost with a disk are
//! fetched from other targets, in the background.

use std::time::Duration;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::job::JobKind;
use forebay_node::pace::Pace;
use tokio_util::sync::CancellationToken;

use super::run::{Job, JobRun};
use super::{Jobs, Registration};
use crate::object::ObjectService;

/// Wait after objects were lost with a disk, because the disk may come back with them.
const SETTLING: Duration = Duration::from_secs(10);
/// Pause before missing copies are fetched again; it doubles up to the longest.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Bytes of lost copies that are fetched in a second at most: reads and writes run meanwhile.
const BYTES_PER_SECOND: f64 = (64u64 << 20) as f64;

pub(super) struct Resilver {
    pub(super) objects: ObjectService,
}

#[async_trait]
impl Job for Resilver {
    async fn run(&self, job: &JobRun) -> Result<()> {
        let moved = self.objects.move_to_their_disks().await?;
        job.count(moved, 0);
        Ok(())
    }
}

/// Fetches copies that were lost with a disk of this target from other targets, until `stop` is
/// cancelled.
pub(crate) async fn make_up_for_losses(
    objects: ObjectService,
    jobs: Jobs,
    stop: CancellationToken,
) {
    let losses = Losses { objects, jobs };
    tokio::select! {
        () = stop.cancelled() => {}
        () = losses.refill_after_losses() => {}
    }
}

struct Losses {
    objects: ObjectService,
    jobs: Jobs,
}

impl Losses {
    async fn refill_after_losses(&self) {
        let objects = &self.objects;
        objects.until_alive().await;
        let (mut losses, mut pause) = (objects.replication().losses(), AGAIN_AFTER);
        loop {
            losses.mark_unchanged();
            if !objects.replication().may_have_lost() {
                pause = AGAIN_AFTER;
                if losses.changed().await.is_err() {
                    return;
                }
                continue;
            }
            if tokio::time::timeout(SETTLING, losses.changed()).await.is_ok() {
                continue;
            }
            match self.refill().await {
                Ok(true) => continue,
                Ok(false) => tracing::info!("not all copies that were lost are here again yet"),
                Err(e) => tracing::warn!(error = %e, "copies that were lost did not come yet"),
            }
            let _ = tokio::time::timeout(pause, losses.changed()).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Fetches the missing copies, as a visible job if there are any.
    async fn refill(&self) -> Result<bool> {
        let objects = &self.objects;
        let pace = Pace::new(BYTES_PER_SECOND, 1);
        if !objects.state().has_copies() {
            return objects.replication().refill(&pace, &|_| {}).await;
        }
        let job = self.jobs.register(Registration::new(JobKind::Resilver))?;
        let stop = job.stop_token();
        let note = |came: Result<u64>| match came {
            Ok(bytes) => job.done(bytes),
            Err(e) => job.failed(&e),
        };
        let filled = tokio::select! {
            () = stop.cancelled() => Ok(false),
            filled = objects.replication().refill(&pace, &note) => filled,
        };
        job.end(filled.as_ref().map(drop).map_err(Clone::clone));
        filled
    }
}
