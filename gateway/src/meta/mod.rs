//! The cluster's metadata behind one seam: propose a command, read the state it made.
//!
//! Today one gateway holds the log ([`log::RedbMeta`]) and the others send it their commands
//! ([`follower::Follower`]). A replicated log needs nothing else than another [`MetaLog`].

pub(crate) mod follower;
pub(crate) mod log;
pub(crate) mod record;

use std::sync::Arc;

use async_trait::async_trait;
use forebay_core::Result;
use forebay_core::state::{ClusterState, Command};

/// Where changes of the cluster's state are decided.
#[async_trait]
pub(crate) trait MetaLog: Send + Sync {
    /// Makes `command` part of the cluster's state. Returns the version that holds it, after it is
    /// durable and visible in [`Self::state`]; a command that the state refuses is not logged.
    ///
    /// Dropping the future does not withdraw the command.
    async fn propose(&self, command: Command) -> Result<u64>;

    /// The newest state known here.
    fn state(&self) -> Arc<ClusterState>;
}
