//! Objects of this target: the one module that combines the store with the backends.
//!
//! HTTP, batches and jobs use only [`ObjectService`]. A read goes through [`get`](self::get), a
//! miss through [`cold`](self::cold), a write through [`put`](self::put).

mod append;
mod background;
mod blob;
mod cold;
mod copy;
mod deliver;
mod former_owner;
mod get;
mod heal;
#[cfg(test)]
pub(crate) mod heal_tests;
mod learn;
mod list;
mod listing;
mod lock;
mod many;
mod mend;
mod missed;
mod neighbor;
mod partial;
mod prefetch;
mod put;
mod ranges;
mod refill;
mod scratch;
mod sent;
mod slices;
mod stored;
mod survey;
#[cfg(test)]
pub(crate) mod tests;
mod tombstone;
mod transfer;
#[cfg(test)]
mod transfer_tests;
mod unsettled;
mod upkeep;
mod upload;
mod version_moves;
mod versions;
mod write_back;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use forebay_client::PeerClient;
use forebay_core::bucket::BucketInfo;
use forebay_core::bucket_access::BucketChange;
use forebay_core::object::{ObjectMeta, is_system_key};
use forebay_core::state::ClusterState;
use forebay_core::v1::custom::check_custom;
use forebay_core::{Error, ErrorCode, NodeId, Result};
use forebay_node::bill::Bill;
use forebay_node::clock::unix_s;
use forebay_node::lifecycle::Lifecycle;
use forebay_node::maps::Maps;
use forebay_node::metrics::Metrics;
use tokio::sync::{Notify, Semaphore};

use self::neighbor::News;
use crate::backend::{Announced, Backend, Backends, COMPOSED};
use crate::cache::{CacheWatch, Gate};
use crate::pace::Pace;
use crate::store::{Record, Store};

pub(crate) use append::Spool;
pub(crate) use blob::{BlobOptions, not_remote};
pub(crate) use copy::CopyOptions;
pub(crate) use deliver::{Delivery, KEPT, Label};
pub(crate) use get::HotRead;
pub(crate) use heal::{Turns, Verdict, read_first_chunk};
pub(crate) use many::DiskOrder;
pub(crate) use partial::CheckedParts;
pub(crate) use prefetch::PrefetchResult;
pub(crate) use put::{AtEnd, AtEndMeta, OnlyIf, PutRequest};
pub(crate) use scratch::Scratch;
pub(crate) use stored::Stored;
pub(crate) use transfer::{OLDER, Which, headers_of};
pub(crate) use upload::{ChosenPart, CompleteMeta, Completion, PartRequest, UploadOptions};
pub(crate) use version_moves::VersionLooks;
pub(crate) use versions::{Removed, is_marker, keeps_versions, shown_version};
pub(crate) use write_back::WrittenBack;

/// Maximum rate at which a target sends data for repairs that other targets request.
const REPAIR_BYTES_PER_SECOND: f64 = (64u64 << 20) as f64;

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
    parts: Parts,
    locks: lock::KeyLocks,
    /// The locks of write-backs, by destination.
    written_back: lock::KeyLocks,
    unsettled: unsettled::Unsettled,
    /// Notified when a tombstone is not needed any more when it is written.
    late_tombstones: Notify,
    fetches: cold::Fetches,
    lives: partial::Lives,
    cold_permits: Arc<Semaphore>,
    background: Arc<background::Background>,
    ahead: ranges::AheadMemory,
    listings: listing::Listings,
    lost: heal::Lost,
    mending: mend::Mending,
    /// The locks of tasks that rebuild an object from slices or repair its placement.
    rebuilding: lock::KeyLocks,
    ensuring: lock::KeyLocks,
    repair_pace: Pace,
    slice_ids: slices::SliceIds,
    /// The loss of the store up to which all copies were restored.
    refilled: AtomicU64,
    uploads: upload::Uploads,
    appends: append::Appends,
}

impl ObjectService {
    pub(crate) fn new(parts: Parts) -> Self {
        let cold_permits = Arc::new(Semaphore::new(parts.cold_gets));
        let background = background::Background::new(parts.prefetch_percent, parts.cold_gets);
        Self(Arc::new(Inner {
            parts,
            locks: lock::KeyLocks::default(),
            written_back: lock::KeyLocks::default(),
            unsettled: unsettled::Unsettled::default(),
            late_tombstones: Notify::new(),
            fetches: cold::Fetches::default(),
            lives: partial::Lives::default(),
            cold_permits,
            background: Arc::new(background),
            ahead: ranges::AheadMemory::default(),
            listings: listing::Listings::default(),
            lost: heal::Lost::default(),
            mending: mend::Mending::default(),
            rebuilding: lock::KeyLocks::default(),
            ensuring: lock::KeyLocks::default(),
            repair_pace: Pace::new(REPAIR_BYTES_PER_SECOND, 1),
            slice_ids: slices::SliceIds::default(),
            refilled: AtomicU64::new(0),
            uploads: upload::Uploads::default(),
            appends: append::Appends::default(),
        }))
    }

    /// Returns when the cluster has this target alive: only then does it own anything.
    pub(crate) async fn until_alive(&self) {
        let mut versions = self.0.parts.maps.subscribe();
        while !self.state().node(self.me()).is_some_and(|node| node.alive) {
            if versions.changed().await.is_err() {
                return;
            }
        }
    }

    fn store(&self) -> &Store {
        &self.0.parts.store
    }

    pub(crate) fn me(&self) -> &NodeId {
        &self.0.parts.id
    }

    /// The client for other nodes.
    pub(crate) fn peer(&self) -> &PeerClient {
        &self.0.parts.peer
    }

    pub(crate) fn state(&self) -> Arc<ClusterState> {
        self.0.parts.maps.load()
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.0.parts.metrics
    }

    /// Counts served bytes: `result` is `hit`, `miss` or `coalesced`.
    pub(crate) fn served(&self, info: &BucketInfo, result: &str, bytes: u64) {
        self.metrics().served(result, bytes);
        if result == "miss" || !info.has_backend() {
            return;
        }
        if let Some(bill) = self.bill(info) {
            bill.saved(bytes);
        }
    }

    /// Announces reads, or fetches, of this many objects of a bucket, some of them concurrently.
    /// `None`: no announcement is needed.
    pub(crate) fn announce(
        &self,
        info: &BucketInfo,
        at_once: usize,
        objects: impl FnOnce() -> usize,
    ) -> Option<Announced> {
        // With fewer concurrent reads, objects would wait for a group that cannot fill.
        let full = at_once.min(self.0.parts.cold_gets) >= COMPOSED;
        if full { self.0.parts.backends.announce(info, objects) } else { None }
    }

    /// This target's part of the costs at the bucket's cloud; `None` if there are none.
    pub(crate) fn bill(&self, info: &BucketInfo) -> Option<Arc<Bill>> {
        self.0.parts.backends.bill(info)
    }

    /// Locks an object against other writers while the guard exists.
    pub(crate) async fn lock_key(&self, bucket_id: u64, name: &str) -> lock::KeyGuard {
        self.0.locks.lock(&Key { bucket_id, name: name.into() }).await
    }

    /// Whether the object is being written, or fetched from its backend. Readers take no lock.
    pub(crate) fn is_being_written(&self, info: &BucketInfo, name: &str) -> bool {
        let key = Key::new(info, name);
        self.0.fetches.has(&key) || self.0.locks.is_held(&key)
    }

    /// An error if an object that was not found may be on a disk that is not in use and no other
    /// target has it.
    fn check_absent(&self, info: &BucketInfo, name: &str) -> Result<()> {
        if info.has_backend() { Ok(()) } else { self.store().check_absent(info.id, name) }
    }

    /// The error for an object that was not found here.
    fn missing(&self, info: &BucketInfo, name: &str) -> Error {
        let absent = self.check_absent(info, name);
        absent.err().unwrap_or_else(|| info.bucket.object_not_found(name))
    }

    async fn backend(&self, info: &BucketInfo) -> Result<Arc<dyn Backend>> {
        let targets = self.state().alive_targets().count();
        self.0.parts.backends.for_bucket_among(info, targets).await
    }

    /// Version of the state at which this target became alive (again): copies that were validated
    /// before may have been superseded by a stand-in owner.
    fn alive_since(&self) -> u64 {
        self.state().node(&self.0.parts.id).map_or(u64::MAX, |n| n.alive_since)
    }

    /// Whether an object that was just missed is to be cached.
    fn admits(&self, info: &BucketInfo, name: &str) -> bool {
        let (parts, rules) = (&self.0.parts, &info.cache);
        let now_s = u32::try_from(unix_s()).unwrap_or(u32::MAX);
        parts.gate.has_space(parts.store.demands())
            && (!rules.pin || parts.watch.has_share_left(info.id, rules))
            && parts.gate.admits(rules, info.id, name, now_s)
    }

    /// Metadata of an object; of a backend's object without fetching its bytes.
    pub(crate) async fn head(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        if let Some(record) = self.fresh_record(info, name).await? {
            return Ok(record.object_meta());
        }
        if !info.has_backend() {
            return match self.adopt_from_neighbor(info, name).await? {
                Some(record) => Ok(record.object_meta()),
                None => Err(info.bucket.object_not_found(name)),
            };
        }
        let remote = self.stat(info, name).await?;
        Ok(cold::object_meta(&remote, false))
    }

    /// Metadata of the copy held here as it is, without asking another node.
    pub(crate) async fn head_local(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let record = self.store().get(info.id, name).await?;
        record.map(|r| r.object_meta()).ok_or_else(|| self.missing(info, name))
    }

    /// Metadata of an object whose copy here must be current: `Conflict` if the backend has another
    /// version by now, `Gone` if the object does not exist any more.
    pub(crate) async fn head_latest(&self, info: &BucketInfo, name: &str) -> Result<ObjectMeta> {
        let Some(record) = self.store().get(info.id, name).await? else {
            return self.head(info, name).await;
        };
        let uri = info.bucket.object_uri(name);
        match self.stat(info, name).await {
            Ok(remote) if get::is_unchanged(info, &remote, &record) => Ok(record.object_meta()),
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
        let guard = self.0.locks.lock(&key).await;
        if info.has_backend() {
            self.0.fetches.supersede(&key);
            let remote = self.backend(info).await?.delete(name).await;
            self.0.fetches.supersede(&key);
            let local = self.store().remove(info.id, name).await?;
            return match remote {
                Err(e) if e.code == ErrorCode::ObjectNotFound && local.is_some() => Ok(()),
                other => other,
            };
        }
        let (erased, _guard) = self.erase(info, name, guard).await?;
        self.0.lost.forget(&key);
        if erased { Ok(()) } else { Err(deleted_missing(info, name)) }
    }

    /// Removes only the copy held here.
    pub(crate) async fn delete_local(&self, info: &BucketInfo, name: &str) -> Result<()> {
        let key = Key::new(info, name);
        let _guard = self.0.locks.lock(&key).await;
        let removed = self.store().remove(info.id, name).await?;
        self.0.lost.forget(&key);
        match removed {
            Some(_) => Ok(()),
            None => {
                self.check_absent(info, name)?;
                Err(deleted_missing(info, name))
            }
        }
    }

    /// Drops a cached copy; its backend keeps the object. Returns the freed bytes.
    pub(crate) async fn evict(&self, info: &BucketInfo, name: &str) -> Result<Option<u64>> {
        if !info.has_backend() {
            return Err(Error::invalid(format!(
                "bucket \"{}\" has no backend: evicting its objects would lose them",
                info.bucket
            )));
        }
        let key = Key::new(info, name);
        let _guard = self.0.locks.lock(&key).await;
        // A fetch in progress may be of the previous version: only its current readers get it.
        self.0.fetches.supersede(&key);
        let part = self.store().drop_partial(info.id, name).await?;
        let removed = self.store().remove(info.id, name).await?.map(|r| r.size).or(part);
        if let Some(bytes) = removed {
            self.metrics().evicted("request", bytes);
        }
        Ok(removed)
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
        self.take_over(info, name).await?;
        let guard = self.0.locks.lock(&Key::new(info, name)).await;
        self.may_write(info, name).await?;
        let record: Option<Record> = self.store().get(info.id, name).await?;
        let record = record.ok_or_else(|| self.missing(info, name))?;
        let is_user = |key: &str| !is_system_key(key);
        if pairs.keys().any(|key| is_user(key)) {
            let kept = record.meta.custom.iter().filter(|_| !replace);
            let all = kept.chain(&pairs).filter(|(key, _)| is_user(key));
            check_custom(&all.map(|(key, value)| (key.clone(), value.clone())).collect())?;
        }
        // Copies are compared by their stamps, so a change of metadata needs a new version, too.
        let stamp = info.has_copies().then(|| record.stamp().next(self.state().version));
        self.unsettle(info, name, None);
        let changed = self.store().update(&record, move |meta| {
            if replace {
                meta.custom.retain(|key, _| is_system_key(key));
            }
            meta.custom.extend(pairs);
            if let Some(stamp) = stamp {
                (meta.epoch, meta.version) = (stamp.epoch, stamp.version.to_string());
            }
        });
        let changed = changed.await?;
        if info.has_copies() {
            drop(self.acknowledge(info, name, News::Written(&changed), guard).await?);
        }
        Ok(())
    }
}

/// The text that v1 clients expect for a DELETE of a missing object.
fn deleted_missing(info: &BucketInfo, name: &str) -> Error {
    let text = format!("{} doesn't exist", info.bucket.object_uri(name));
    Error::new(ErrorCode::ObjectNotFound, text)
}
