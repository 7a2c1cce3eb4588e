//! The cached copies of all disks as the evictor sees them, kept up to date by the store.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use forebay_core::cache_rules::CacheRules;
use forebay_core::config::CachePolicy;
use forebay_node::clock::unix_s;
use tokio::sync::Notify;

use super::notes::Notes;
use super::policy;
use super::residents::{Resident, Residents};
use crate::store::{Arrival, Observer};

/// Rules by bucket id; buckets that are not named have the defaults.
pub type Rules = BTreeMap<u64, CacheRules>;

/// The residents of each disk.
pub struct CacheWatch {
    disks: Vec<Disk>,
    /// Rung when a bucket has more than its share.
    pub(super) over_share: Notify,
}

struct Disk {
    budget: u64,
    residents: Mutex<Residents>,
    notes: Notes,
}

impl Disk {
    fn lock(&self) -> MutexGuard<'_, Residents> {
        self.residents.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl CacheWatch {
    /// For disks of these budgets, in the order of their numbers.
    pub fn new(policy: CachePolicy, budgets: impl IntoIterator<Item = u64>) -> Self {
        let disk = |budget| Disk {
            budget,
            residents: Mutex::new(Residents::new(policy::build(policy))),
            notes: Notes::default(),
        };
        Self { disks: budgets.into_iter().map(disk).collect(), over_share: Notify::new() }
    }

    /// The residents of a disk, with all accesses that are noted.
    pub(super) fn lock(&self, disk: usize) -> MutexGuard<'_, Residents> {
        let disk = &self.disks[disk];
        let mut residents = disk.lock();
        Self::drain(disk, &mut residents);
        residents
    }

    fn drain(disk: &Disk, residents: &mut Residents) {
        let now_s = seconds(unix_s());
        disk.notes.drain(|generation| residents.access(generation, now_s));
    }

    /// Makes the rules hold from now on.
    pub(super) fn set_rules(&self, rules: &Rules) {
        for disk in 0..self.disks.len() {
            let budget = self.disks[disk].budget;
            let mut residents = self.lock(disk);
            let known: Vec<u64> = residents.tallies().iter().map(|t| t.bucket_id).collect();
            for id in known.into_iter().chain(rules.keys().copied()) {
                let rules = rules.get(&id).copied().unwrap_or_default();
                residents.pin(id, rules.pin);
                residents.limit(id, share_of(budget, rules.share));
            }
        }
    }

    /// Whether another copy of this bucket has room within its share, on some disk.
    pub fn has_share_left(&self, bucket_id: u64, rules: &CacheRules) -> bool {
        rules.share >= 100
            || self
                .disks
                .iter()
                .any(|disk| disk.lock().stored_of(bucket_id) < share_of(disk.budget, rules.share))
    }

    /// Takes copies back that did not go after all.
    pub(super) fn put_back(&self, disk: usize, copies: &[Resident]) {
        let mut residents = self.lock(disk);
        for copy in copies {
            residents.insert(*copy, policy::mix(copy.generation));
        }
    }

    /// A copy that the index has and that may be unknown here: after a start.
    pub(super) fn learn(&self, disk: usize, arrival: &Arrival) {
        if arrival.evictable {
            self.disks[disk].lock().insert(resident(arrival), arrival.key);
        }
    }
}

/// Bytes that `share` percent of a budget are.
pub(super) fn share_of(budget: u64, share: u8) -> u64 {
    u64::try_from(u128::from(budget) * u128::from(share) / 100).unwrap_or(u64::MAX)
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
        let mut residents = self.disks[disk].lock();
        if !arrival.evictable {
            residents.remove(arrival.generation);
        } else if residents.insert(resident(arrival), arrival.key) {
            drop(residents);
            self.over_share.notify_one();
        }
    }

    fn accessed(&self, disk: usize, generation: u64) {
        let disk = &self.disks[disk];
        if disk.notes.add(generation)
            && let Ok(mut residents) = disk.residents.try_lock()
        {
            Self::drain(disk, &mut residents);
        }
    }

    fn removed(&self, disk: usize, generation: u64) {
        self.disks[disk].lock().remove(generation);
    }
}
