//! Small cold objects of Google Cloud Storage, read many at once: up to 32 are composed into a
//! temporary object there, which is read by one request and deleted.
//!
//! Concurrent reads of whole objects are gathered in groups ([`gather`]), and a group is fetched
//! together ([`group`]). If that fails for any reason, the object is read alone: callers see no
//! difference. Leftovers of processes that ended are deleted later ([`leftovers`]).

mod gather;
mod group;
mod known;
mod leftovers;
mod pause;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use forebay_core::cloud_rules::Compose;
use forebay_core::error::Result;
use forebay_core::locks::MutexExt;
use forebay_core::size::ByteRange;

use super::{After, Backend, Described, PutBody, RemoteMeta, RemoteObject, RemotePage};
pub(crate) use gather::Gather;
pub use gather::{Announced, MAX_COMPOSED_OBJECTS};
pub use leftovers::delete_leftovers;

/// Prefix of temporary objects; listings do not show them.
pub(crate) const TEMPORARY: &str = ".forebay-composed/";

/// The groups of all buckets, by bucket id.
#[derive(Default)]
pub(super) struct Gathers(Mutex<HashMap<u64, Arc<Gather>>>);

impl Gathers {
    pub(super) fn of(&self, bucket_id: u64) -> Arc<Gather> {
        Arc::clone(self.lock().entry(bucket_id).or_default())
    }

    pub(super) fn forget(&self, bucket_id: u64) {
        self.lock().remove(&bucket_id);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<u64, Arc<Gather>>> {
        self.0.locked()
    }
}

/// A backend whose whole objects are read together where possible.
pub(super) struct Composing {
    inner: Arc<dyn Backend>,
    gather: Arc<Gather>,
    how: Compose,
}

impl Composing {
    pub(super) fn new(inner: Arc<dyn Backend>, gather: Arc<Gather>, how: Compose) -> Self {
        Self { inner, gather, how }
    }
}

#[async_trait]
impl Backend for Composing {
    async fn head_bucket(&self) -> Result<()> {
        self.inner.head_bucket().await
    }

    async fn stat(&self, name: &str) -> Result<RemoteMeta> {
        self.inner.stat(name).await
    }

    async fn get(
        &self,
        name: &str,
        range: Option<ByteRange>,
        if_version: Option<&str>,
    ) -> Result<RemoteObject> {
        if range.is_some() || if_version.is_some() {
            return self.inner.get(name, range, if_version).await;
        }
        match self.gather.join(&self.inner, name, self.how).await {
            Some(found) => found,
            None => self.inner.get(name, None, None).await,
        }
    }

    async fn put(&self, name: &str, body: PutBody) -> Result<RemoteMeta> {
        self.inner.put(name, body).await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        self.inner.delete(name).await
    }

    async fn list(&self, prefix: &str, after: After<'_>, limit: usize) -> Result<RemotePage> {
        self.inner.list(prefix, after, limit).await
    }

    async fn describe(&self, from: &str, limit: usize) -> Result<Vec<Described>> {
        self.inner.describe(from, limit).await
    }

    async fn check_composing(&self) -> Result<()> {
        self.inner.check_composing().await
    }
}
