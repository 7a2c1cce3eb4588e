//! The cache of backends' objects on this target: fetches, partial copies, freshness, and writes
//! through to the backend.
//!
//! [`ColdCache`] is the one entrance. Its dependencies are this target ([`Local`]), the backends, and
//! what decides whether an object is kept ([`Gate`], [`CacheWatch`]). A read of a missing object joins
//! or starts a [`fetch`]; of a large object only the requested ranges are kept ([`partial`]); jobs
//! bring objects with [`prefetch`] and [`blob`], within their share ([`background`]).

mod background;
mod blob;
mod fetch;
mod following;
mod freshness;
mod meta;
mod partial;
mod prefetch;
mod progress;
mod ranges;
mod write_through;

use std::sync::Arc;

use forebay_clouds::{Announced, Backend, Backends, BodyStream, COMPOSED, Journal};
use forebay_core::Result;
use forebay_core::backend_access::{AccessRequest, BackendAccess};
use forebay_core::bucket::BucketInfo;
use forebay_core::cloud_rules::Compose;
use forebay_core::object::ObjectMeta;
use forebay_core::state::ClusterState;
use forebay_node::bill::Bill;
use forebay_node::clock::unix_s;
use forebay_node::metrics::Metrics;
use forebay_store::Store;
use tokio::sync::Semaphore;

pub(crate) use self::blob::not_remote;
pub(super) use self::following::{Following, read_at};
pub(super) use self::freshness::{is_unchanged, validation_of};
pub(super) use self::meta::{cached_meta, object_meta};
pub(crate) use self::partial::CheckedParts;
pub(super) use self::partial::Parts;
pub(crate) use self::prefetch::PrefetchResult;
pub(crate) use self::ranges::BlobOptions;
use super::Key;
use super::local::Local;
use crate::cache::{CacheWatch, Gate};

/// The dependencies of a [`ColdCache`].
pub(super) struct ColdCacheParts {
    pub(super) local: Arc<Local>,
    pub(super) backends: Arc<Backends>,
    pub(super) gate: Gate,
    pub(super) watch: Arc<CacheWatch>,
    /// Maximum number of concurrent fetches.
    pub(super) cold_gets: usize,
    /// Share of background work in them.
    pub(super) prefetch_percent: u8,
}

/// The cache of backends' objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct ColdCache(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    backends: Arc<Backends>,
    gate: Gate,
    watch: Arc<CacheWatch>,
    cold_gets: usize,
    fetches: fetch::Fetches,
    lives: partial::Lives,
    cold_permits: Arc<Semaphore>,
    background: Arc<background::Background>,
    ahead: ranges::AheadMemory,
}

impl ColdCache {
    pub(super) fn new(parts: ColdCacheParts) -> Self {
        let ColdCacheParts { local, backends, gate, watch, cold_gets, prefetch_percent } = parts;
        Self(Arc::new(Inner {
            local,
            backends,
            gate,
            watch,
            cold_gets,
            fetches: fetch::Fetches::default(),
            lives: partial::Lives::default(),
            cold_permits: Arc::new(Semaphore::new(cold_gets)),
            background: Arc::new(background::Background::new(prefetch_percent, cold_gets)),
            ahead: ranges::AheadMemory::default(),
        }))
    }

    fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn state(&self) -> Arc<ClusterState> {
        self.0.local.state()
    }

    fn metrics(&self) -> &Metrics {
        &self.0.local.metrics
    }

    /// Forgets a bucket that was destroyed or evicted.
    pub(super) fn forget_bucket(&self, bucket_id: u64) {
        self.0.backends.forget(bucket_id);
        self.0.fetches.supersede_all(|key| key.bucket_id == bucket_id);
        self.0.background.forget(bucket_id);
    }

    /// Whether the object is being fetched.
    pub(super) fn is_fetching(&self, key: &Key) -> bool {
        self.0.fetches.has(key)
    }

    pub(in crate::object) async fn backend(&self, info: &BucketInfo) -> Result<Arc<dyn Backend>> {
        let targets = self.state().alive_targets().count();
        self.0.backends.for_bucket_among(info, targets).await
    }

    /// Whether an object that was just missed is to be cached.
    pub(in crate::object) fn admits(&self, info: &BucketInfo, name: &str) -> bool {
        let (gate, rules) = (&self.0.gate, &info.cache);
        let now_s = u32::try_from(unix_s()).unwrap_or(u32::MAX);
        gate.has_space(self.store().demands())
            && (!rules.pin || self.0.watch.has_share_left(info.id, rules))
            && gate.admits(rules, info.id, name, now_s)
    }

    /// Announces reads, or fetches, of this many objects of a bucket, some of them concurrently.
    /// `None`: no announcement is needed.
    pub(crate) fn announce(
        &self,
        info: &BucketInfo,
        concurrency: usize,
        objects: impl FnOnce() -> usize,
    ) -> Option<Announced> {
        // With fewer concurrent reads, objects would wait for a group that cannot fill.
        let full = concurrency.min(self.0.cold_gets) >= COMPOSED;
        if full { self.0.backends.announce(info, objects) } else { None }
    }

    /// This target's part of the costs at the bucket's cloud; `None` if there are none.
    pub(crate) fn bill(&self, info: &BucketInfo) -> Option<Arc<Bill>> {
        self.0.backends.bill(info)
    }

    /// Streams the object from the backend without keeping it.
    pub(in crate::object) async fn pass_through(
        &self,
        info: &BucketInfo,
        name: &str,
    ) -> Result<(ObjectMeta, BodyStream)> {
        let asked = self.asked_now();
        let remote = self.backend(info).await?.get(name, None, None).await;
        self.noticed(info, name, remote.as_ref().map(|o| &o.meta).map_err(|e| e.code), asked)
            .await?;
        let remote = remote?;
        Ok((object_meta(&remote.meta, false), remote.stream))
    }

    /// The permissions of this target at a bucket's backend, and its identity there.
    pub(crate) async fn backend_access(&self, request: &AccessRequest) -> Result<BackendAccess> {
        self.0.backends.access(&request.info, &request.prefix).await
    }

    /// Checks whether this target may call the endpoint of a bucket.
    pub(crate) async fn check_endpoint(&self, info: &BucketInfo) -> Result<()> {
        self.0.backends.check_endpoint(info).await
    }

    /// Whether the bucket exists at its backend.
    pub(crate) async fn head_backend(&self, info: &BucketInfo) -> Result<()> {
        let backend = self.backend(info).await?;
        backend.head_bucket().await?;
        match info.cloud.compose() {
            Compose::On => backend.check_composing().await,
            Compose::Off | Compose::Force => Ok(()),
        }
    }

    /// The journal of writes to a bucket's backend through this target.
    pub(in crate::object) fn journal(&self, bucket_id: u64) -> Arc<Journal> {
        self.0.backends.journal(bucket_id)
    }
}
