//! Reads of objects: from the copy here while it is current and sound, else from another target or the
//! backend.
//!
//! [`Reads`] is the one entrance. Its dependencies are this target ([`Local`]), which serves the copies,
//! and the two sources of missing and damaged ones ([`Replication`], [`ColdCache`]).

mod get;
mod head;
mod heal;
mod many;
mod stored;

use std::sync::Arc;

use forebay_core::state::ClusterState;
use forebay_node::metrics::Metrics;
use forebay_store::Store;

pub(crate) use self::get::{Found, HotRead};
pub(crate) use self::heal::{Turns, Verdict, read_first_chunk};
pub(crate) use self::many::DiskOrder;
pub(crate) use self::stored::Stored;
use super::cold_cache::ColdCache;
use super::local::Local;
use super::replication::Replication;

/// The reads of this target's objects; cheap to clone.
#[derive(Clone)]
pub(crate) struct Reads(Arc<Inner>);

struct Inner {
    local: Arc<Local>,
    replication: Replication,
    cold_cache: ColdCache,
}

impl Reads {
    pub(super) fn new(local: Arc<Local>, replication: Replication, cold_cache: ColdCache) -> Self {
        Self(Arc::new(Inner { local, replication, cold_cache }))
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

    fn replication(&self) -> &Replication {
        &self.0.replication
    }

    fn cold_cache(&self) -> &ColdCache {
        &self.0.cold_cache
    }
}
