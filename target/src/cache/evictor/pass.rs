//! One pass over a disk: what is dropped for a number of bytes, and in which order.

use std::sync::Arc;
use std::time::Duration;

use forebay_node::clock::unix_ns;
use forebay_store::{Volume, blocking};

use super::{Evictor, MAX_VICTIMS};
use crate::cache::residents::Resident;

/// Victims picked at once: commits wait meanwhile, a few microseconds each.
const PICKED: usize = 256;
/// Partial objects that were not read for this time are dropped before any whole copy.
const PARTS_IDLE: Duration = Duration::from_secs(600);

impl Evictor {
    /// One pass: selects victims and drops them. Returns the bytes freed.
    pub(super) async fn pass(
        &self,
        volume: &Arc<Volume>,
        of: Option<u64>,
        need: u64,
        why: &'static str,
    ) -> u64 {
        let number = volume.number();
        if of.is_some() {
            let take = |bytes| self.watch.lock(number).victims(of, bytes, PICKED);
            return self.drop_victims(volume, need, why, take).await;
        }
        // Partial objects that were not read for a while are dropped first, and all of them before
        // the pass gives up.
        let idle = self.drop_spare_parts(volume, (need, PARTS_IDLE, why)).await;
        if idle >= need {
            return idle;
        }
        let take = |bytes| self.watch.lock(number).victims(None, bytes, PICKED);
        let freed = idle + self.drop_victims(volume, need - idle, why, take).await;
        if freed > 0 {
            return freed;
        }
        let freed = self.drop_spare_parts(volume, (need, Duration::ZERO, why)).await;
        if freed > 0 || !self.watch.lock(number).have_minimums() {
            return freed;
        }
        // No bucket has more than its minimum: all of them give.
        let take = |bytes| self.watch.lock(number).victims_below_minimums(bytes, PICKED);
        match self.drop_victims(volume, need, why, take).await {
            0 => {
                let pinned = self.pinned();
                let may_go = move |id| !pinned.contains(&id);
                self.drop_parts(volume, (need, Duration::ZERO, why), may_go).await
            }
            freed => freed,
        }
    }

    /// Drops the victims that `take` takes out for a number of bytes. Returns the bytes freed.
    async fn drop_victims(
        &self,
        volume: &Arc<Volume>,
        need: u64,
        why: &'static str,
        take: impl Fn(u64) -> Vec<Resident>,
    ) -> u64 {
        // Victims may be gone already, or be protected: others follow.
        for _ in 0..3 {
            let (mut victims, mut picked) = (Vec::new(), 0);
            while picked < need && victims.len() < MAX_VICTIMS {
                let some = take(need - picked);
                if some.is_empty() {
                    break;
                }
                picked += some.iter().map(|v| v.stored).sum::<u64>();
                victims.extend(some);
            }
            if victims.is_empty() {
                break;
            }
            match self.drop_copies(volume, victims, why, |_| true).await {
                0 => {}
                freed => return freed,
            }
        }
        0
    }

    /// As [`Self::drop_parts`], of all buckets that are not pinned; a bucket with a guaranteed minimum
    /// gives what it has beyond that, and the rest of one object.
    async fn drop_spare_parts(
        &self,
        volume: &Arc<Volume>,
        (need, idle, why): (u64, Duration, &'static str),
    ) -> u64 {
        let mut kept = self.pinned();
        let with_min: Vec<(u64, u64)> = {
            let mut residents = self.watch.lock(volume.number());
            residents.note_parts(|id| volume.partial_space_of(id));
            let with_min = residents.tallies().iter().filter(|t| t.min > 0 && !t.pinned);
            with_min.map(|t| (t.bucket_id, t.above_min())).collect()
        };
        if !volume.has_partials() {
            return 0;
        }
        kept.extend(with_min.iter().map(|(id, _)| *id));
        let may_go = move |id| !kept.contains(&id);
        let mut freed = self.drop_parts(volume, (need, idle, why), may_go).await;
        for (bucket_id, spare) in with_min.into_iter().filter(|(_, spare)| *spare > 0) {
            let wanted = spare.min(need.saturating_sub(freed));
            if wanted > 0 {
                let of_bucket = move |id| id == bucket_id;
                freed += self.drop_parts(volume, (wanted, idle, why), of_bucket).await;
            }
        }
        freed
    }

    /// Drops partial objects that were not read for `idle`, in the buckets for which `may_go` is
    /// true, until `need` bytes are free. Returns the bytes freed.
    pub(super) async fn drop_parts(
        &self,
        volume: &Arc<Volume>,
        (need, idle, why): (u64, Duration, &'static str),
        may_go: impl Fn(u64) -> bool + Send + 'static,
    ) -> u64 {
        if !volume.has_partials() {
            return 0;
        }
        let volume = volume.clone();
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        let horizon = unix_ns().saturating_sub(idle);
        let dropped = blocking(move || Ok(volume.evict_partials(need, horizon, may_go)));
        let dropped = dropped.await.unwrap_or_default();
        dropped.iter().for_each(|bytes| (self.counted)(why, *bytes));
        dropped.iter().sum()
    }
}
