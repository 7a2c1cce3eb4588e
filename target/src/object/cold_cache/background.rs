//! Limits of background work: it may use a share of a target and of a cloud, so that a waiting
//! reader finds a free slot whatever jobs are in progress.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_clouds::Room;
use forebay_core::bucket::BucketInfo;
use forebay_core::cloud_rules::CloudRule;
use forebay_core::locks::MutexExt;
use forebay_node::pace::Pace;
use tokio::sync::Notify;

/// Polling interval of a cloud's limit, which grows with time without a notification.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// The share of all jobs of a target together.
pub(crate) struct Background {
    percent: u8,
    /// Maximum number of cold GETs in flight of the target.
    cold_gets: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Default)]
struct Taken {
    objects: usize,
    /// Calls in flight by the endpoint of the cloud.
    calls: HashMap<String, usize>,
    /// Budgets by bucket id.
    budgets: HashMap<u64, Arc<Budget>>,
}

/// The jobs' share of a bucket's budgets per second.
struct Budget {
    /// The settings it was created from: requests and bytes per second, number of targets.
    of: (u64, u64, usize),
    requests: Pace,
    bytes: Pace,
}

/// A permit for one object; released on drop.
pub(crate) struct Turn {
    of: Arc<Background>,
    endpoint: String,
    /// Number of concurrent calls that it permits.
    pub(crate) calls: usize,
    budget: Arc<Budget>,
}

impl Background {
    pub(super) fn new(percent: u8, cold_gets: usize) -> Self {
        Self { percent, cold_gets, taken: Mutex::default(), freed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.locked()
    }

    /// Maximum number of objects that all jobs together may have in flight.
    pub(super) fn max_parallel_objects(&self) -> usize {
        self.share(self.cold_gets)
    }

    fn share(&self, all: usize) -> usize {
        (all * usize::from(self.percent) / 100).max(1)
    }

    /// Waits until one call is permitted, and takes up to `most` that are free. `room` returns the
    /// cloud's current limit.
    pub(super) async fn turn(
        self: &Arc<Self>,
        info: &BucketInfo,
        targets: usize,
        most: usize,
        room: impl Fn() -> Room,
    ) -> Turn {
        let turn = loop {
            let freed = self.freed.notified();
            if let Some(turn) = self.take(info, targets, most, room()) {
                break turn;
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, freed).await;
        };
        turn.budget.requests.pass(1).await;
        turn
    }

    fn take(
        self: &Arc<Self>,
        info: &BucketInfo,
        targets: usize,
        most: usize,
        room: Room,
    ) -> Option<Turn> {
        let mut taken = self.lock();
        let in_use = taken.calls.get(&room.endpoint).copied().unwrap_or(0);
        let free = self.share(room.calls).saturating_sub(in_use);
        if free == 0 || taken.objects >= self.share(self.cold_gets) {
            return None;
        }
        let calls = free.min(most.max(1));
        taken.objects += 1;
        *taken.calls.entry(room.endpoint.clone()).or_default() += calls;
        let budget = self.budget(&mut taken, info, targets);
        Some(Turn { of: Arc::clone(self), endpoint: room.endpoint, calls, budget })
    }

    fn budget(&self, taken: &mut Taken, info: &BucketInfo, targets: usize) -> Arc<Budget> {
        let rule = |rule| info.cloud.number(rule).unwrap_or(0);
        let of = (rule(CloudRule::RequestsPerSecond), rule(CloudRule::BytesPerSecond), targets);
        if let Some(known) = taken.budgets.get(&info.id).filter(|known| known.of == of) {
            return Arc::clone(known);
        }
        let pace = |all: u64| Pace::new(all as f64 * f64::from(self.percent) / 100.0, targets);
        let budget = Arc::new(Budget { of, requests: pace(of.0), bytes: pace(of.1) });
        taken.budgets.insert(info.id, Arc::clone(&budget));
        budget
    }

    /// Drops the budgets of a bucket that was destroyed.
    pub(super) fn forget(&self, bucket_id: u64) {
        self.lock().budgets.remove(&bucket_id);
    }
}

impl Turn {
    /// Accounts for received bytes; returns when the budget permits to go on.
    pub(crate) async fn came(&self, bytes: u64) {
        self.budget.bytes.pass(usize::try_from(bytes).unwrap_or(usize::MAX)).await;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut taken = self.of.lock();
        taken.objects -= 1;
        if let Some(calls) = taken.calls.get_mut(&self.endpoint) {
            *calls -= self.calls;
            if *calls == 0 {
                taken.calls.remove(&self.endpoint);
            }
        }
        drop(taken);
        self.of.freed.notify_waiters();
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use forebay_core::cloud_rules::CloudRules;
    use forebay_core::{Bucket, Provider};
    use tokio::time::Instant;

    use super::*;

    fn info(rules: CloudRules) -> BucketInfo {
        let bucket = Bucket::new(Provider::Aws, "b").unwrap();
        BucketInfo { id: 7, cloud: rules, ..BucketInfo::requested(bucket, None) }
    }

    fn room(calls: usize) -> Room {
        Room { endpoint: "http://cloud".into(), calls }
    }

    #[tokio::test]
    async fn jobs_together_take_their_share_of_a_cloud_and_never_nothing() {
        let of = Arc::new(Background::new(50, 64));
        let info = info(CloudRules::default());
        let first = of.take(&info, 1, 4, room(12)).unwrap();
        let second = of.take(&info, 1, 4, room(12)).unwrap();
        assert_eq!((first.calls, second.calls), (4, 2), "six of twelve");
        assert!(of.take(&info, 1, 1, room(12)).is_none());
        let elsewhere = Room { endpoint: "http://other".into(), calls: 1 };
        assert!(of.take(&info, 1, 1, elsewhere).is_some(), "one call is always allowed");
        drop(first);
        assert!(of.take(&info, 1, 1, room(4)).is_none(), "the cloud takes fewer by now");
        let waiting = of.turn(&info, 1, 1, || room(4));
        drop(second);
        assert_eq!(waiting.await.calls, 1);
        assert!(of.lock().calls.is_empty() && of.lock().objects == 0);
    }

    #[tokio::test]
    async fn jobs_take_their_share_of_the_targets_cold_gets() {
        let of = Arc::new(Background::new(25, 8));
        let info = info(CloudRules::default());
        let held: Vec<_> = (0..2).map(|_| of.take(&info, 1, 1, room(1000)).unwrap()).collect();
        assert!(of.take(&info, 1, 1, room(1000)).is_none());
        drop(held);
        assert!(of.take(&info, 1, 1, room(1000)).is_some());
    }

    #[tokio::test]
    async fn half_of_a_budget_per_second_is_left_to_others() {
        let of = Arc::new(Background::new(50, 64));
        let rules = CloudRules::default().with(CloudRule::RequestsPerSecond, 40);
        let rules = rules.with(CloudRule::BytesPerSecond, 1 << 20);
        let (info, started) = (info(rules), Instant::now());
        for _ in 0..6 {
            drop(of.turn(&info, 2, 1, || room(64)).await);
        }
        assert!(started.elapsed() >= Duration::from_millis(490), "10 in a second on each of two");
        let started = Instant::now();
        for _ in 0..3 {
            of.turn(&info, 2, 1, || room(64)).await.came(64 << 10).await;
        }
        assert!(started.elapsed() >= Duration::from_millis(490), "256 KiB in a second on each");
    }
}
