//! Objects of this target: the one module that combines the store with the backends and with other
//! targets.
//!
//! HTTP, batches and jobs use only [`ObjectService`]. A read goes through [`get`](self::get), a
//! write through [`put`](self::put). They rest on four parts, each with its own dependencies:
//!
//! | part | what it does |
//! |---|---|
//! | [`Local`] | this target: its store, the cluster's state, the locks of objects |
//! | [`Replication`] | copies and slices of native objects on several targets |
//! | [`ColdCache`] | copies of backends' objects: fetches, ranges, freshness |
//! | [`Listing`] | names of the objects here, and of backends |

mod append;
mod cold_cache;
mod copy;
mod deliver;
mod get;
mod heal;
#[cfg(test)]
pub(crate) mod heal_tests;
mod learn;
mod listing;
mod local;
mod lock;
mod maintenance;
mod many;
mod ownership;
mod put;
mod replication;
mod scratch;
mod sent;
mod stored;
#[cfg(test)]
pub(crate) mod tests;
mod unowned;
mod upload;
mod versions;
mod warmth;
mod write_back;

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_client::PeerClient;
use forebay_clouds::Backends;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::object::{ObjectMeta, is_system_key};
use forebay_core::state::ClusterState;
use forebay_core::{Error, ErrorCode, NodeId, Result, history};
use forebay_node::exchange;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use forebay_store::{Record, RecordMeta, Store, Usage};
use forebay_v1::custom::check_custom;

use self::cold_cache::ColdCacheParts;
use self::local::Local;
use self::replication::MetadataChange;
use crate::cache::{CacheWatch, Gate};

pub(crate) use append::Spool;
pub(crate) use cold_cache::{BlobOptions, CheckedParts, ColdCache, PrefetchResult, not_remote};
pub(crate) use copy::CopyOptions;
pub(crate) use deliver::{Delivery, KEPT, Label};
pub(crate) use get::HotRead;
pub(crate) use heal::{Turns, Verdict, read_first_chunk};
pub(crate) use listing::Listing;
pub(crate) use many::DiskOrder;
pub(crate) use put::{AtEnd, AtEndMeta, OnlyIf, PutRequest};
pub(crate) use replication::{OLDER, Replication, VersionLooks, headers_of};
pub(crate) use scratch::Scratch;
pub(crate) use stored::Stored;
pub(crate) use upload::{ChosenPart, CompleteMeta, Completion, PartRequest, UploadOptions};
pub(crate) use versions::{Removed, is_marker, keeps_versions, shown_version};
pub(crate) use write_back::WrittenBack;

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
    uploads: upload::Uploads,
    appends: append::Appends,
}

impl ObjectService {
    pub(crate) fn new(parts: Parts) -> Self {
        let Parts { id, store, maps, metrics, lifecycle, backends, peer, .. } = parts;
        let (locks, lost) = (lock::KeyLocks::default(), heal::Lost::default());
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
        Self(Arc::new(Inner {
            local,
            replication,
            peer,
            cold_cache,
            written_back: lock::KeyLocks::default(),
            listing,
            uploads: upload::Uploads::default(),
            appends: append::Appends::default(),
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

    /// Metadata of an object; of a backend's object without fetching its bytes.
    pub(crate) async fn head(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        if let Some(record) = self.fresh_record(info, name).await? {
            return Ok(record.object_meta());
        }
        if !info.has_backend() {
            return match self.replication().newest(info, name).await? {
                Some(record) => Ok(record.object_meta()),
                None => Err(info.bucket.object_not_found(name)),
            };
        }
        let remote = self.cold_cache().stat(info, name).await?;
        Ok(cold_cache::object_meta(&remote, false))
    }

    /// Metadata of the copy held here as it is, without asking another node.
    pub(crate) async fn head_local(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let record = self.store().get(info.id, name).await?;
        record.map(|r| r.object_meta()).ok_or_else(|| self.local().missing(info, name))
    }

    /// Metadata of an object whose copy here must be current: `Conflict` if the backend has another
    /// version by now, `Gone` if the object does not exist any more.
    pub(crate) async fn head_latest(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let Some(record) = self.store().get(info.id, name).await? else {
            return self.head(info, name).await;
        };
        let uri = info.bucket.object_uri(name);
        match self.cold_cache().stat(info, name).await {
            Ok(remote) if cold_cache::is_unchanged(info, &remote, &record) => {
                Ok(record.object_meta())
            }
            Ok(remote) => Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "{uri} has version \"{}\" at its backend, the copy here \"{}\"",
                    remote.version, record.meta.backend_version
                ),
            )),
            Err(e) if e.code == ErrorCode::ObjectNotFound => {
                Err(Error::new(ErrorCode::Gone, format!("{uri} is gone from its backend")))
            }
            Err(e) => Err(e),
        }
    }

    /// Metadata of an object that is not in the cluster.
    pub(crate) async fn head_outside(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let meta = self.head(info, name).await?;
        if meta.present {
            let uri = info.bucket.object_uri(name);
            return Err(Error::invalid(format!("{uri} is present, and was asked for outside")));
        }
        Ok(meta)
    }

    /// Removes an object, at its backend too.
    pub(crate) async fn delete(&self, info: &BucketInfo, name: &str) -> Result<()> {
        info.check_access(BucketChange::Delete)?;
        if keeps_versions(info) {
            return self.delete_if(info, name, None).await.map(drop);
        }
        let key = Key::new(info, name);
        let guard = self.local().locks.lock(&key).await;
        if info.has_backend() {
            return self.cold_cache().delete_through(info, &key).await;
        }
        let (erased, _guard) = self.replication().remove(info, name, guard).await?;
        self.local().lost.forget(&key);
        if erased { Ok(()) } else { Err(deleted_missing(info, name)) }
    }

    /// Removes only the copy held here.
    pub(crate) async fn delete_local(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let key = Key::new(info, name);
        let _guard = self.local().locks.lock(&key).await;
        let removed = self.store().remove(info.id, name).await?;
        self.local().lost.forget(&key);
        match removed {
            Some(_) => Ok(()),
            None => {
                self.local().check_absent(info, name)?;
                Err(deleted_missing(info, name))
            }
        }
    }

    /// Adds to the custom metadata of an object (or replaces all of it).
    pub(crate) async fn set_custom(
        &self,
        info: &BucketInfo,
        name: &str,
        pairs: BTreeMap<String, String>,
        replace: bool,
    ) -> Result<()> {
        info.check_access(BucketChange::Put)?;
        let is_user = |key: &str| !is_system_key(key);
        let added = pairs.clone();
        let check = move |record: &Record| {
            if !added.keys().any(|key| is_user(key)) {
                return Ok(());
            }
            let kept = record.meta.custom.iter().filter(|_| !replace);
            let all = kept.chain(&added).filter(|(key, _)| is_user(key));
            check_custom(&all.map(|(key, value)| (key.clone(), value.clone())).collect())
        };
        let change = move |meta: &mut RecordMeta| {
            if replace {
                meta.custom.retain(|key, _| is_system_key(key));
            }
            meta.custom.extend(pairs);
        };
        if info.has_backend() {
            let _guard = self.local().locks.lock(&Key::new(info, name)).await;
            let record = self.store().get(info.id, name).await?;
            let record = record.ok_or_else(|| self.local().missing(info, name))?;
            check(&record)?;
            return self.store().update(&record, change).await.map(drop);
        }
        let change = MetadataChange { check: Box::new(check), change: Box::new(change) };
        let updated = self.replication().update(info, name, change).await?;
        updated.map(drop).ok_or_else(|| self.local().missing(info, name))
    }

    /// Drops all records of a bucket that was destroyed or evicted.
    pub(crate) async fn drop_bucket(&self, bucket_id: u64) -> Result<()> {
        self.local().lost.forget_bucket(bucket_id);
        self.cold_cache().forget_bucket(bucket_id);
        self.listing().forget_bucket(bucket_id);
        self.metrics().bucket_reads().forget(bucket_id);
        self.drop_uploads_of(bucket_id).await?;
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
        ids.extend(self.upload_buckets().await?);
        ids.sort_unstable();
        ids.dedup();
        Ok(ids)
    }

    /// Records on the disks which cluster their objects belong to.
    pub(crate) async fn note_cluster(&self, id: &str) -> Result<()> {
        self.store().note_cluster(id).await
    }

    pub(crate) fn usage(&self) -> Usage {
        self.store().usage()
    }
}

/// The text that v1 clients expect for a DELETE of a missing object.
fn deleted_missing(info: &BucketInfo, name: &str) -> Error {
    let text = format!("{} doesn't exist", info.bucket.object_uri(name));
    Error::new(ErrorCode::ObjectNotFound, text)
}
