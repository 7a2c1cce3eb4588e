//! Writes of objects: puts, removals, changes of metadata, and the [`transaction`] that puts, uploads and
//! appends share.
//!
//! [`Writes`] is the one entrance. Its dependencies are this target ([`Local`]), what else gets a new
//! version ([`Replication`]: other targets; [`ColdCache`]: the backend), and the history of the replaced
//! ones ([`Versions`]).

mod custom;
mod hashes;
mod put;
mod remove;
mod transaction;

use std::sync::Arc;

use forebay_store::Store;

pub(super) use self::hashes::Hashes;
pub(crate) use self::put::PutRequest;
pub(super) use self::transaction::NewContent;
use super::cold_cache::ColdCache;
use super::local::Local;
use super::replication::Replication;
use super::versions::Versions;

/// The writes of this target's objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct Writes(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    replication: Replication,
    cold_cache: ColdCache,
    versions: Versions,
}

impl Writes {
    pub(super) fn new(
        local: Arc<Local>,
        replication: Replication,
        cold_cache: ColdCache,
        versions: Versions,
    ) -> Self {
        Self(Arc::new(Inner { local, replication, cold_cache, versions }))
    }

    fn local(&self) -> &Arc<Local> {
        &self.0.local
    }

    fn store(&self) -> &Store {
        &self.0.local.store
    }

    fn replication(&self) -> &Replication {
        &self.0.replication
    }

    fn cold_cache(&self) -> &ColdCache {
        &self.0.cold_cache
    }

    fn versions(&self) -> &Versions {
        &self.0.versions
    }
}
