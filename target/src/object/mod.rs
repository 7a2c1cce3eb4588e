//! Objects of this target: the one module that combines the store with the backends and with other
//! targets.
//!
//! HTTP, batches and jobs use only [`ObjectService`]. It joins these parts, of which each has only the
//! dependencies in the table, and adds what needs many of them: copies, remote puts, write-backs.
//!
//! | part | what it does | dependencies |
//! |---|---|---|
//! | [`Local`] | this target: its store, the cluster's state, the locks of objects | |
//! | [`Replication`] | copies and slices of native objects on several targets | local, peers |
//! | [`ColdCache`] | copies of backends' objects: fetches, ranges, freshness | local, backends, cache rules |
//! | [`Listing`] | names of the objects here, and of backends | local, peers, replication, cold cache |
//! | [`Reads`] | bytes and metadata of objects; repair of damaged ones | local, replication, cold cache |
//! | [`Versions`] | older versions and delete markers | local, replication |
//! | [`Writes`] | the transaction of a write; puts, removals | local, replication, cold cache, versions |
//! | [`Uploads`] | objects that are sent in parts | local, writes |
//! | [`Appends`] | bytes at the end of objects | local, replication, reads, writes |

mod appends;
mod attrs;
mod cold_cache;
mod condition;
mod copy;
mod deliver;
#[cfg(test)]
pub(crate) mod heal_tests;
mod learn;
mod listing;
mod local;
mod lock;
mod lost;
mod maintenance;
mod ownership;
mod quota;
mod reads;
mod replication;
mod scratch;
mod sent;
#[cfg(test)]
pub(crate) mod tests;
mod unowned;
mod upload;
mod versions;
mod warmth;
mod write_back;
mod writes;

use std::sync::Arc;

use bytes::Bytes;
use forebay_client::PeerClient;
use forebay_clouds::Backends;
use forebay_core::bucket::BucketInfo;
use forebay_core::state::ClusterState;
use forebay_core::{NodeId, Result, history};
use forebay_node::exchange;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_store::{Store, Usage};
use futures::stream::BoxStream;

use self::cold_cache::ColdCacheParts;
use self::local::Local;
use crate::cache::{CacheWatch, Gate};

pub(crate) use appends::Appends;
pub(crate) use attrs::{AtEnd, AtEndMeta};
pub(crate) use cold_cache::{BlobOptions, CheckedParts, ColdCache, PrefetchResult, not_remote};
pub(crate) use condition::{OnlyIf, if_still};
pub(crate) use copy::CopyOptions;
pub(crate) use deliver::{Delivery, KEPT, Label};
pub(crate) use listing::Listing;
pub(crate) use reads::{DiskOrder, HotRead, Reads, Stored, Turns, Verdict, read_first_chunk};
pub(crate) use replication::{OLDER, Replication, VersionLooks, headers_of};
pub(crate) use scratch::{Scratch, Spool};
pub(crate) use upload::{
    ChosenPart, CompleteMeta, Completion, PartRequest, UploadOptions, Uploads,
};
pub(crate) use versions::{Removed, Versions, is_marker, shown_version};
pub(crate) use write_back::WrittenBack;
pub(crate) use writes::{PutRequest, Writes};

/// The key of an object on this target: bucket id and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) bucket_id: u64,
    pub(crate) name: Arc<str>,
}

impl Key {
    fn new(info: &BucketInfo, name: &str) -> Self {
        Self { bucket_id: info.id, name: name.into() }
    }
}

/// Reads, writes and drops objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct ObjectService(Arc<Inner>);

/// The dependencies of the service.
pub(crate) struct Parts {
    pub(crate) id: NodeId,
    pub(crate) store: Store,
    pub(crate) backends: Arc<Backends>,
    pub(crate) maps: Maps,
    pub(crate) peer: PeerClient,
    pub(crate) metrics: Metrics,
    pub(crate) lifecycle: Lifecycle,
    pub(crate) cold_gets: usize,
    pub(crate) prefetch_percent: u8,
    pub(crate) gate: Gate,
    pub(crate) watch: Arc<CacheWatch>,
}

struct Inner {
    local: Arc<Local>,
    replication: Replication,
    peer: PeerClient,
    cold_cache: ColdCache,
    /// The locks of write-backs, by destination.
    written_back: lock::KeyLocks,
    listing: Listing,
    reads: Reads,
    versions: Versions,
    writes: Writes,
    uploads: Uploads,
    appends: Appends,
}

impl ObjectService {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, store, maps, metrics, lifecycle, backends, peer, .. } = parts;
        let (locks, lost) = (lock::KeyLocks::default(), lost::Lost::default());
        let local = Arc::new(Local { id, store, maps, metrics, lifecycle, locks, lost });
        let cold_cache = ColdCache::new(ColdCacheParts {
            local: local.clone(),
            backends,
            gate: parts.gate,
            watch: parts.watch,
            cold_gets: parts.cold_gets,
            prefetch_percent: parts.prefetch_percent,
        });
        let replication = Replication::new(local.clone(), peer.clone());
        let listing = {
            let (replication, cold_cache) = (replication.clone(), cold_cache.clone());
            Listing::new(local.clone(), peer.clone(), replication, cold_cache)
        };
        let reads = Reads::new(local.clone(), replication.clone(), cold_cache.clone());
        let versions = Versions::new(local.clone(), replication.clone());
        let writes = {
            let (replication, cold_cache) = (replication.clone(), cold_cache.clone());
            Writes::new(local.clone(), replication, cold_cache, versions.clone())
        };
        let uploads = Uploads::new(local.clone(), writes.clone());
        let appends =
            Appends::new(local.clone(), replication.clone(), reads.clone(), writes.clone());
        Self(Arc::new(Inner {
            local,
            replication,
            peer,
            cold_cache,
            written_back: lock::KeyLocks::default(),
            listing,
            reads,
            versions,
            writes,
            uploads,
            appends,
        }))
    }

    /// The cache of backends' objects.
    pub(crate) fn cold_cache(&self) -> &ColdCache {
        &self.0.cold_cache
    }

    /// Listings of what is here, and of backends.
    pub(crate) fn listing(&self) -> &Listing {
        &self.0.listing
    }

    /// Reads of objects.
    pub(crate) fn reads(&self) -> &Reads {
        &self.0.reads
    }

    /// Older versions of objects.
    pub(crate) fn versions(&self) -> &Versions {
        &self.0.versions
    }

    /// Writes and removals of objects.
    pub(crate) fn writes(&self) -> &Writes {
        &self.0.writes
    }

    /// Uploads in parts.
    pub(crate) fn uploads(&self) -> &Uploads {
        &self.0.uploads
    }

    /// Appends to objects.
    pub(crate) fn appends(&self) -> &Appends {
        &self.0.appends
    }

    /// The replication of native objects.
    pub(crate) fn replication(&self) -> &Replication {
        &self.0.replication
    }

    /// Returns when the cluster has this target alive: only then does it own anything.
    pub(crate) async fn until_alive(&self) {
        let mut versions = self.local().maps.subscribe();
        while !self.state().node(self.me()).is_some_and(|node| node.alive) {
            if versions.changed().await.is_err() {
                return;
            }
        }
    }

    fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    pub(crate) fn me(&self) -> &NodeId {
        &self.0.local.id
    }

    /// The state of the cluster, with the limits at this target.
    pub(crate) fn maps(&self) -> &Maps {
        &self.local().maps
    }

    /// The client for other nodes.
    pub(crate) fn peer(&self) -> &PeerClient {
        &self.0.peer
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.local().state()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.local.metrics
    }

    /// Counts served bytes: `result` is `hit`, `miss` or `coalesced`.
    pub(crate) fn served(&self, info: &BucketInfo, result: &str, bytes: u64) {
        self.metrics().served(result, bytes);
        self.metrics().bucket_reads().served(info, result, bytes);
        if result == "miss" || !info.has_backend() {
            return;
        }
        if let Some(bill) = self.cold_cache().bill(info) {
            bill.saved(bytes);
        }
    }

    /// Counts an object, or a part of one, that a client wrote.
    pub(crate) fn wrote(&self, info: &BucketInfo, bytes: u64) {
        self.metrics().bucket_reads().of(info).wrote(bytes);
        exchange::add_written(bytes);
    }

    /// Locks an object against other writers while the guard exists.
    pub(crate) async fn lock_key(&self, bucket_id: u64, name: &str) -> lock::KeyGuard {
        self.local().lock_key(bucket_id, name).await
    }

    /// Whether the object is being written, or fetched from its backend. Readers take no lock.
    pub(crate) fn is_being_written(&self, info: &BucketInfo, name: &str) -> bool {
        let key = Key::new(info, name);
        self.cold_cache().is_fetching(&key) || self.local().locks.is_held(&key)
    }

    /// Drops all records of a bucket that was destroyed or evicted.
    pub(crate) async fn drop_bucket(&self, bucket_id: u64) -> Result<()> {
        self.local().lost.forget_bucket(bucket_id);
        self.cold_cache().forget_bucket(bucket_id);
        self.listing().forget_bucket(bucket_id);
        self.metrics().bucket_reads().forget(bucket_id);
        self.uploads().drop_bucket(bucket_id).await?;
        let (objects, bytes) = self.store().remove_bucket(bucket_id).await?;
        self.store().remove_bucket(history::id(bucket_id)).await?;
        self.store().remove_bucket(history::tombstones(bucket_id)).await?;
        for id in self.replication().slice_ids(bucket_id).await? {
            self.store().remove_bucket(id).await?;
        }
        tracing::info!(bucket_id, objects, bytes, "dropped the data of a bucket");
        Ok(())
    }

    /// Ids of the buckets that have records here.
    pub(crate) async fn bucket_ids(&self) -> Result<Vec<u64>> {
        let mut ids = self.store().buckets().await?;
        ids.extend(self.uploads().buckets().await?);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Records on the disks which cluster their objects belong to.
    pub(crate) async fn note_cluster(&self, id: &str) -> Result<()> {
        self.store().note_cluster(id).await
    }

    /// Creates an empty temporary file, on a disk of this target.
    pub(crate) async fn scratch(&self, name: &str) -> Result<Scratch> {
        scratch::begin_scratch(self.store(), name).await
    }

    /// Stores a client's body for a reader that needs it later or more than once.
    pub(crate) async fn spool(
        &self,
        info: &BucketInfo,
        name: &str,
        body: BoxStream<'static, Result<Bytes>>,
        len: Option<u64>,
    ) -> Result<Spool> {
        scratch::spool(self.store(), (info.id, name), body, len).await
    }

    pub(crate) fn usage(&self) -> Usage {
        self.store().usage()
    }
}
