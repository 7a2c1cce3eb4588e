//! The cached copies of all disks, for the evictor. The store keeps them up to date.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use forebay_core::cache_rules::CacheRules;
use forebay_core::config::CachePolicy;
use forebay_core::locks::MutexExt;
use forebay_node::clock::unix_s;
use forebay_store::{Arrival, MAX_DISKS, Observer};
use tokio::sync::Notify;

use super::notes::Notes;
use super::policy;
use super::residents::{Resident, Residents};

/// Rules by bucket id; buckets that are not named have the defaults.
pub type Rules = BTreeMap<u64, CacheRules>;

/// The residents of each disk.
pub struct CacheWatch {
    policy: CachePolicy,
    /// By number; created at the first notification of a disk with this number.
    disks: Box<[OnceLock<Box<Disk>>]>,
    /// Notified when a bucket exceeds its share.
    pub(super) over_share: Notify,
}

struct Disk {
    /// 0 until the disk was in use.
    budget: AtomicU64,
    residents: Mutex<Residents>,
    notes: Notes,
}

impl Disk {
    /// Bytes that `percent` of the budget are.
    fn share(&self, percent: u8) -> u64 {
        let budget = u128::from(self.budget.load(Ordering::Relaxed));
        u64::try_from(budget * u128::from(percent) / 100).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Residents> {
        self.residents.locked()
    }
}

impl CacheWatch {
    /// Creates the watch for disks of these budgets, in the order of their numbers.
    pub fn new(policy: CachePolicy, budgets: impl IntoIterator<Item = u64>) -> Self {
        let disks = (0..MAX_DISKS).map(|_| OnceLock::new()).collect();
        let watch = Self { policy, disks, over_share: Notify::new() };
        for (number, budget) in budgets.into_iter().enumerate() {
            watch.disk(number).budget.store(budget, Ordering::Relaxed);
        }
        watch
    }

    fn disk(&self, number: usize) -> &Disk {
        self.disks[number].get_or_init(|| {
            Box::new(Disk {
                budget: AtomicU64::new(0),
                residents: Mutex::new(Residents::new(policy::build(self.policy))),
                notes: Notes::default(),
            })
        })
    }

    fn known(&self) -> impl Iterator<Item = &Disk> {
        self.disks.iter().filter_map(OnceLock::get).map(Box::as_ref)
    }

    /// The residents of a disk, including all noted accesses.
    pub(super) fn lock(&self, disk: usize) -> MutexGuard<'_, Residents> {
        let disk = self.disk(disk);
        let mut residents = disk.lock();
        Self::drain(disk, &mut residents);
        residents
    }

    fn drain(disk: &Disk, residents: &mut Residents) {
        let now_s = seconds(unix_s());
        disk.notes.drain(|generation| residents.access(generation, now_s));
    }

    /// Applies the rules from now on, for disks of these budgets; a disk that is not in use has a
    /// budget of 0 and keeps the one it had.
    pub(super) fn set_rules(&self, rules: &Rules, budgets: &[u64]) {
        for (disk, budget) in budgets.iter().enumerate() {
            if *budget > 0 {
                self.disk(disk).budget.store(*budget, Ordering::Relaxed);
            }
            let mut residents = self.lock(disk);
            let known: Vec<u64> = residents.tallies().iter().map(|t| t.bucket_id).collect();
            for id in known.into_iter().chain(rules.keys().copied()) {
                let rules = rules.get(&id).copied().unwrap_or_default();
                residents.pin(id, rules.pin);
                residents.limit(id, self.disk(disk).share(rules.share));
                residents.set_min(id, self.disk(disk).share(rules.min_share));
            }
        }
    }

    /// Whether another copy of this bucket fits into its share, on some disk.
    pub fn has_share_left(&self, bucket_id: u64, rules: &CacheRules) -> bool {
        rules.share >= 100
            || self.known().any(|disk| disk.lock().stored_of(bucket_id) < disk.share(rules.share))
    }

    /// Returns copies that were not evicted after all.
    pub(super) fn put_back(&self, disk: usize, copies: &[Resident]) {
        let mut residents = self.lock(disk);
        for copy in copies {
            residents.insert(*copy, policy::mix(copy.generation));
        }
    }

    /// Adds a copy that the index has and that may be missing here after a start.
    pub(super) fn learn(&self, disk: usize, arrival: &Arrival) {
        if arrival.evictable {
            self.disk(disk).lock().insert(resident(arrival), arrival.key);
        }
    }
}

fn resident(arrival: &Arrival) -> Resident {
    Resident {
        generation: arrival.generation,
        bucket_id: arrival.bucket_id,
        stored: arrival.stored,
        seen_s: seconds(arrival.atime_ns / 1_000_000_000),
    }
}

pub(super) fn seconds(unix_s: u64) -> u32 {
    u32::try_from(unix_s).unwrap_or(u32::MAX)
}

impl Observer for CacheWatch {
    fn inserted(&self, disk: usize, arrival: &Arrival) {
        let mut residents = self.disk(disk).lock();
        if !arrival.evictable {
            residents.remove(arrival.generation);
        } else if residents.insert(resident(arrival), arrival.key) {
            drop(residents);
            self.over_share.notify_one();
        }
    }

    fn accessed(&self, disk: usize, generation: u64) {
        let disk = self.disk(disk);
        if disk.notes.add(generation)
            && let Ok(mut residents) = disk.residents.try_lock()
        {
            Self::drain(disk, &mut residents);
        }
    }

    fn removed(&self, disk: usize, generation: u64) {
        self.disk(disk).lock().remove(generation);
    }

    fn left(&self, disk: usize) {
        // If the disk comes back, its copies are reported again.
        *self.disk(disk).lock() = Residents::new(policy::build(self.policy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_holds_on_a_disk_that_came_into_use_later_and_while_it_is_away() {
        let watch = CacheWatch::new(CachePolicy::default(), [0]);
        let half = CacheRules { share: 50, ..CacheRules::default() };
        let rules = Rules::from([(1, half)]);
        watch.set_rules(&rules, &[0]);
        assert!(!watch.has_share_left(1, &half));
        watch.set_rules(&rules, &[1000]);
        assert!(watch.has_share_left(1, &half));
        watch.set_rules(&rules, &[0]);
        assert!(watch.has_share_left(1, &half));
    }
}
