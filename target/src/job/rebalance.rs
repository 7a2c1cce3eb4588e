//! Moves native objects on this target to where they belong, and creates missing copies on other
//! targets. It works by the objects that it finds here, so it can be stopped, killed and started
//! again at any time: moved objects are not found again.

use std::sync::Arc;

use async_trait::async_trait;
use forebay_core::bucket::BucketInfo;
use forebay_core::{Error, ErrorCode, Result, history};
use forebay_node::pace::Pace;
use futures::StreamExt;

use super::Jobs;
use super::run::{Job, JobRun};
use crate::object::ObjectService;

/// Objects that are moved at once.
const PARALLEL: usize = 4;
/// Names taken from a listing at once.
const PAGE: usize = 1000;
/// Bytes that are sent in a second at most: reads and writes run meanwhile.
const BYTES_PER_SECOND: f64 = (64u64 << 20) as f64;
/// Attempts for one object; the next rebalance retries objects that fail longer.
const TRIES: u32 = 4;
const PAUSE: std::time::Duration = std::time::Duration::from_millis(250);

/// Moves objects that belong elsewhere, of the job's bucket or of all buckets.
pub(super) struct Rebalance {
    pub(super) objects: ObjectService,
    /// The jobs of this kind that a new one stops, because it does the same again.
    pub(super) replaces: Option<Jobs>,
    /// Held while objects are moved to where they belong.
    pub(super) moving: Arc<tokio::sync::Mutex<()>>,
}

#[async_trait]
impl Job for Rebalance {
    async fn run(&self, job: &JobRun) -> Result<()> {
        if let Some(jobs) = &self.replaces {
            jobs.stop_others(job);
        }
        let _turn = self.moving.lock().await;
        let objects = &self.objects;
        // Objects on a disk that is not in use are not found, and come back with it.
        objects.check_whole()?;
        objects.replication().changes_under_way().await;
        let moving = Moving { objects, job, pace: Pace::new(BYTES_PER_SECOND, 1) };
        let state = objects.state();
        let chosen = job.bucket().map(|info| &**info);
        let buckets = state.buckets.values().map(|info| &**info);
        for info in buckets.filter(|info| chosen.is_none_or(|chosen| chosen.id == info.id)) {
            if !info.has_backend() {
                // First: owners must have them before older copies arrive.
                moving.all(info, Part::Tombstones).await?;
                moving.all(info, Part::Objects).await?;
                moving.all(info, Part::Versions).await?;
                moving.slices(info).await?;
            }
        }
        Ok(())
    }
}

struct Moving<'a> {
    objects: &'a ObjectService,
    job: &'a JobRun,
    pace: Pace,
}

impl Moving<'_> {
    /// The bucket as it is now, perhaps under another name; `None` if it was destroyed.
    fn current(&self, known: &BucketInfo) -> Option<Arc<BucketInfo>> {
        let state = self.objects.state();
        let same = state.bucket(&known.bucket).ok().filter(|info| info.id == known.id);
        same.or_else(|| state.buckets.values().find(|info| info.id == known.id)).cloned()
    }

    /// Processes all slices of a bucket's objects on this target.
    async fn slices(&self, info: &BucketInfo) -> Result<()> {
        for id in self.objects.replication().slice_ids(info.id).await? {
            self.all(info, Part::Slices(id)).await?;
        }
        Ok(())
    }

    /// Processes one part of a bucket on this target.
    async fn all(&self, info: &BucketInfo, part: Part) -> Result<()> {
        let objects = self.objects;
        let id = match part {
            Part::Tombstones => history::tombstones(info.id),
            Part::Objects => info.id,
            Part::Versions => history::id(info.id),
            Part::Slices(id) => id,
        };
        let mut after = String::new();
        loop {
            let (page, more) = objects.listing().names_here(id, &after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after.clone_from(last);
            let page = match part {
                Part::Objects => objects.replication().objects_to_relocate(info, page).await,
                Part::Tombstones | Part::Versions => page,
                Part::Slices(_) => objects.replication().slices_to_relocate(info, id, page).await,
            };
            futures::stream::iter(page)
                .for_each_concurrent(PARALLEL, |name| async move {
                    match self.one(info, part, &name).await {
                        Ok(Some(bytes)) => self.job.done(bytes),
                        Ok(None) => {}
                        Err(e) => self.job.failed(&e),
                    }
                })
                .await;
            if !more {
                return Ok(());
            }
        }
    }

    async fn one(&self, info: &BucketInfo, part: Part, name: &str) -> Result<Option<u64>> {
        let replication = self.objects.replication();
        let mut tries = 0;
        loop {
            tries += 1;
            let Some(info) = &self.current(info) else { return Ok(None) };
            let done = match part {
                Part::Tombstones => replication.relocate_tombstone(info, name).await.map(|()| None),
                Part::Objects => replication.relocate(info, name, &self.pace).await,
                Part::Versions => replication.relocate_version(info, name, &self.pace).await,
                Part::Slices(_) => replication.relocate_slices(info, name, &self.pace).await,
            };
            match done {
                Err(e) if tries < TRIES && may_pass(&e) => {
                    tokio::time::sleep(PAUSE * tries).await;
                }
                done => return done,
            }
        }
    }
}

/// A part of a bucket.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    /// Tombstones of removed objects.
    Tombstones,
    /// Its objects.
    Objects,
    /// Older versions of them.
    Versions,
    /// Slices, stored under this bucket id.
    Slices(u64),
}

/// Whether a retry may succeed.
fn may_pass(error: &Error) -> bool {
    // Another target may know a bucket's new name first.
    let is_missing = matches!(error.code, ErrorCode::ObjectNotFound | ErrorCode::BucketNotFound);
    is_missing || error.code.is_transient()
}
