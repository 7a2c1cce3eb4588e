//! Listings: of the records on this target, and of backends' objects.
//!
//! [`Listing`] is the one entrance. Its dependencies are this target ([`Local`]), the client for other
//! nodes, and what else knows of objects here: the replication ([`Replication`], removals that this
//! target missed, and slices) and the cache ([`ColdCache`], partial copies and backends).

mod backend;
mod here;
mod keep;
mod overlay;
mod remote;
mod rows;
mod snapshot;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use forebay_client::PeerClient;
use forebay_core::NodeId;
use forebay_core::state::ClusterState;
use forebay_core::warmth::ListingTotals;
use forebay_store::Store;

pub(super) use self::here::{entries, start};
use super::cold_cache::ColdCache;
use super::local::Local;
use super::replication::Replication;

/// The listings of this target; cheap to clone.
#[derive(Clone)]
pub(crate) struct Listing(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    peer: PeerClient,
    replication: Replication,
    cold_cache: ColdCache,
    listings: keep::Listings,
}

impl Listing {
    pub(super) fn new(
        local: Arc<Local>,
        peer: PeerClient,
        replication: Replication,
        cold_cache: ColdCache,
    ) -> Self {
        let listings = keep::Listings::default();
        Self(Arc::new(Inner { local, peer, replication, cold_cache, listings }))
    }

    /// Forgets a bucket that was destroyed or evicted.
    pub(super) fn forget_bucket(&self, bucket_id: u64) {
        self.0.listings.forget(bucket_id);
    }

    /// The totals of the last complete listing of a bucket's backend that was made here.
    pub(super) fn last_complete(&self, bucket_id: u64) -> Option<ListingTotals> {
        self.0.listings.last_complete(bucket_id)
    }

    fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn me(&self) -> &NodeId {
        &self.0.local.id
    }

    fn state(&self) -> Arc<ClusterState> {
        self.0.local.state()
    }

    fn replication(&self) -> &Replication {
        &self.0.replication
    }

    fn cold_cache(&self) -> &ColdCache {
        &self.0.cold_cache
    }
}
