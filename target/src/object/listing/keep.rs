//! The cache of listings, and its limits.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use forebay_core::intra::BackendListRequest;
use forebay_core::locks::MutexExt;
use forebay_core::warmth::ListingTotals;

use super::snapshot::Snapshot;

/// Maximum number of listings of a target; the least recently used go first.
const MOST: usize = 64;
const MOST_BYTES: u64 = 1 << 30;
/// A listing that was not read for this time is dropped, or one that is older than its bucket
/// permits.
const IDLE: Duration = Duration::from_secs(600);

/// The listings of a target.
#[derive(Default)]
pub(crate) struct Listings {
    kept: Mutex<Vec<Kept>>,
    /// By bucket id: the last listing that had all objects. It stays when the listing is dropped.
    complete: Mutex<BTreeMap<u64, ListingTotals>>,
}

struct Kept {
    listing: Arc<Snapshot>,
    idle: Duration,
}

impl Listings {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.locked()
    }

    /// The youngest listing that covers names after `after`, and was not taken before `since_ns`.
    pub(super) fn find(
        &self,
        bucket_id: u64,
        prefix: &str,
        after: &str,
        since_ns: u64,
    ) -> Option<Arc<Snapshot>> {
        let mut all = self.lock();
        all.retain(|kept| kept.listing.is_under_way() || kept.listing.rested() < kept.idle);
        find(&all, bucket_id, prefix, after, since_ns)
    }

    /// Starts a listing at the position of a request, or returns one that was started meanwhile.
    pub(super) fn begin(
        &self,
        request: &BackendListRequest,
        taken_ns: u64,
        age: Duration,
    ) -> (Arc<Snapshot>, bool) {
        let BackendListRequest { info, prefix, after, since_ns, .. } = request;
        let mut all = self.lock();
        if let Some(known) = find(&all, info.id, prefix, after, *since_ns) {
            return (known, false);
        }
        let listing = Arc::new(Snapshot::new(request, taken_ns));
        all.push(Kept { listing: Arc::clone(&listing), idle: age.max(IDLE) });
        make_room(&mut all);
        (listing, true)
    }

    pub(super) fn remove(&self, listing: &Arc<Snapshot>) {
        self.lock().retain(|kept| !Arc::ptr_eq(&kept.listing, listing));
    }

    /// Notes the totals of a listing that ended, if it has all objects of its bucket.
    pub(super) fn ended(&self, listing: &Snapshot) {
        if let Some(totals) = listing.complete_totals() {
            let mut complete = self.complete.locked();
            let last = complete.entry(listing.bucket_id).or_insert(totals);
            if last.taken_ns < totals.taken_ns {
                *last = totals;
            }
        }
    }

    /// The totals of the last complete listing of a bucket.
    pub(super) fn last_complete(&self, bucket_id: u64) -> Option<ListingTotals> {
        self.complete.locked().get(&bucket_id).copied()
    }

    /// Drops the listings of a bucket that was destroyed.
    pub(crate) fn forget(&self, bucket_id: u64) {
        self.lock().retain(|kept| kept.listing.bucket_id != bucket_id);
        self.complete.locked().remove(&bucket_id);
    }
}

fn find(
    all: &[Kept],
    bucket_id: u64,
    prefix: &str,
    after: &str,
    since_ns: u64,
) -> Option<Arc<Snapshot>> {
    let fits = |listing: &&Arc<Snapshot>| {
        listing.taken_ns >= since_ns && listing.covers(bucket_id, prefix, after)
    };
    let listings = all.iter().map(|kept| &kept.listing).filter(fits);
    listings.max_by_key(|listing| listing.taken_ns).cloned()
}

fn make_room(all: &mut Vec<Kept>) {
    let bytes = |all: &[Kept]| all.iter().map(|kept| kept.listing.bytes()).sum::<u64>();
    while all.len() > MOST || bytes(all) > MOST_BYTES {
        let done = all.iter().enumerate().filter(|(_, kept)| !kept.listing.is_under_way());
        let Some((oldest, _)) = done.max_by_key(|(_, kept)| kept.listing.rested()) else { return };
        all.swap_remove(oldest);
    }
}
