//! One change of the cluster's buckets: decided by the metadata log, then heard of by every
//! node that is alive, and only then acknowledged.

use std::sync::Arc;

use forebay_core::Result;
use forebay_core::state::Command;

use crate::cluster::publish::Publisher;
use crate::meta::MetaLog;

/// Where front ends bring their changes; cheap to clone.
#[derive(Clone)]
pub(crate) struct Changes {
    meta: Arc<dyn MetaLog>,
    /// Absent on gateways that follow: the primary waits for them.
    publisher: Option<Publisher>,
}

impl Changes {
    pub(crate) fn new(meta: Arc<dyn MetaLog>, publisher: Option<Publisher>) -> Self {
        Self { meta, publisher }
    }

    /// Returns the version that holds the change.
    pub(crate) async fn commit(&self, command: Command) -> Result<u64> {
        let version = self.meta.propose(command).await?;
        if let Some(publisher) = &self.publisher {
            publisher.settled(version).await;
        }
        Ok(version)
    }
}
