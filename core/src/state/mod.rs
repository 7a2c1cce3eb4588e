//! The state that the gateways agree on: nodes and buckets under one version, changed only by
//! commands.
//!
//! [`ClusterState::apply`] is the whole state machine. It is deterministic and does no I/O; the
//! Raft log of the gateways decides the order of commands. Indexes grow, with gaps.
//!
//! [`Node`] is a member and [`Command`] a change. This file has the state and the queries on it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::command::Command;
pub use self::limits::check_bucket;
pub use self::node::{Leaving, Node, NodeStatus, Role};
pub use self::node_keys::{NO_NODE_KEYS, NodeKeyRecord, NodeKeys, check_key};
pub use self::shown::ShownUrls;
pub use self::summary::Summary;
use crate::access::{AccessState, Quotas};
use crate::bucket::{BackendSpec, BucketInfo};
use crate::error::Result;
use crate::etl::Etl;
use crate::name::{Bucket, NodeId};
use crate::settings::ClusterSettings;

mod apply;
pub mod backup;
mod command;
mod limits;
mod node;
mod node_keys;
mod remotes;
mod shown;
mod summary;

/// The newest format of state and commands that this program reads. 0: before sections of users and
/// quotas existed; 1: before that of the nodes' keys; 2: before buckets named accounts of clouds and
/// minimum shares of the cache. A node announces it with every heartbeat.
pub const STATE_FORMAT: u32 = 3;
/// The format of the nodes' keys, without buckets that name an account or have a minimum share.
const FORMAT_OF_KEYS: u32 = 2;
/// The format of users and quotas, without keys of nodes.
const FORMAT_OF_USERS: u32 = 1;

/// The complete state that the gateways agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterState {
    /// Id of the cluster, fixed by its first command.
    pub cluster_id: String,
    /// Index of the last applied command; sent as `Forebay-Map`.
    pub version: u64,
    /// Unix nanoseconds at which the cluster was made.
    pub created_ns: u64,
    pub nodes: BTreeMap<NodeId, Node>,
    /// By bucket uname; shared, because each request keeps a reference to its bucket.
    pub buckets: BTreeMap<String, Arc<BucketInfo>>,
    /// Transforms by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub etls: BTreeMap<String, Etl>,
    /// Version at which the placement of native objects last changed: older objects may still be on
    /// a former owner.
    pub targets_changed: u64,
    /// The version of the placement for which all objects are known to be in place.
    #[serde(default, rename = "settled")]
    pub rebalanced_version: u64,
    #[serde(default, skip_serializing_if = "ClusterSettings::is_untouched")]
    pub settings: ClusterSettings,
    next_bucket_id: u64,
    /// Ids that buckets may have had that are missing in a backup: data under these ids is kept.
    #[serde(default, rename = "untold_ids", skip_serializing_if = "Vec::is_empty")]
    unlisted_ids: Vec<Range<u64>>,
    /// URLs of other clusters whose buckets are accessible from here, by alias.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remotes: BTreeMap<String, String>,
    /// Aliases of the clusters whose URLs were checked when they were attached.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    judged_remotes: BTreeSet<String>,
    /// Users, roles, keys and revoked tokens. Clients do not get this section.
    #[serde(default, skip_serializing_if = "is_unused")]
    pub access: Arc<AccessState>,
    /// Reserved.
    #[serde(default, skip_serializing_if = "Quotas::is_untouched")]
    pub quotas: Quotas,
    /// The public keys of the nodes. Clients do not get this section.
    #[serde(default, skip_serializing_if = "have_none")]
    pub node_keys: Arc<NodeKeys>,
}

impl ClusterState {
    /// Whether the bucket of this id no longer exists, so that its data may be removed.
    pub fn is_destroyed(&self, bucket_id: u64) -> bool {
        self.buckets.values().all(|info| info.id != bucket_id)
            && !self.unlisted_ids.iter().any(|ids| ids.contains(&bucket_id))
    }

    /// Whether all native objects are in place.
    pub fn is_rebalance_complete(&self) -> bool {
        self.rebalanced_version >= self.targets_changed
    }

    /// Whether a bucket has several copies of its objects, or slices.
    pub fn has_copies(&self) -> bool {
        self.buckets.values().any(|info| info.has_copies())
    }

    /// Whether a live target still has to get updates that it missed.
    pub fn needs_repair(&self) -> bool {
        self.has_copies() && self.holding_targets().any(|n| n.alive && n.lagging)
    }

    /// Whether all targets agree on all native objects: no copy of an older state is left anywhere.
    pub fn is_quiescent(&self) -> bool {
        self.is_rebalance_complete() && self.holding_targets().all(|n| n.alive && !n.lagging)
    }

    /// Whether the objects of a bucket are in place: then no target but an object's holders may
    /// have it.
    pub fn is_in_place(&self, info: &BucketInfo) -> bool {
        info.has_backend()
            || info.created_version > self.targets_changed
            || self.is_rebalance_complete()
    }

    /// The bucket, or the error that it does not exist; cheap to keep.
    pub fn bucket(&self, bucket: &Bucket) -> Result<&Arc<BucketInfo>> {
        bucket.with_uname(|uname| self.buckets.get(uname)).ok_or_else(|| bucket.not_found())
    }

    /// The properties of a new `bucket`, with the cluster's defaults.
    pub fn requested(&self, bucket: Bucket, backend: Option<BackendSpec>) -> BucketInfo {
        let behind = if backend.is_none() { self.behind(&bucket) } else { None };
        let attached = behind.as_ref().map(|_| self.trust_of(&bucket.namespace.uuid));
        let mut info = BucketInfo::requested(bucket, backend.or(behind));
        info.endpoint_trust = attached.unwrap_or(info.endpoint_trust);
        if let serde_json::Value::Object(defaults) = self.settings.bucket_defaults() {
            for (section, values) in defaults {
                info.set_section(&section, values);
            }
        }
        info
    }

    pub fn targets(&self) -> impl Iterator<Item = &Node> + Clone {
        self.nodes.values().filter(|n| n.role == Role::Target)
    }

    pub fn gateways(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|n| n.role == Role::Gateway)
    }

    pub fn alive_targets(&self) -> impl Iterator<Item = &Node> + Clone {
        self.targets().filter(|n| n.alive)
    }

    /// The targets that objects are placed on, dead or alive.
    pub fn owning_targets(&self) -> impl Iterator<Item = &Node> + Clone {
        self.targets().filter(|n| !n.maintenance)
    }

    /// The targets that may have parts of native objects, dead or alive.
    pub fn holding_targets(&self) -> impl Iterator<Item = &Node> + Clone {
        self.targets().filter(|n| !n.emptied)
    }

    pub fn node(&self, id: &NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// The state as clients get it: without users, roles, keys and tokens,
    /// and without the keys of nodes.
    pub fn for_clients(&self) -> Self {
        Self { access: Arc::default(), node_keys: Arc::default(), ..self.clone() }
    }

    /// The format that a program has to read to use this state; see [`STATE_FORMAT`].
    pub fn format(&self) -> u32 {
        if self.buckets.values().any(|info| format_of(info) == STATE_FORMAT) {
            return STATE_FORMAT;
        }
        let has_users = !self.access.is_untouched() || !self.quotas.is_untouched();
        match (self.node_keys.is_untouched(), has_users) {
            (true, false) => 0,
            (true, true) => FORMAT_OF_USERS,
            (false, _) => FORMAT_OF_KEYS,
        }
    }
}

/// The format that a program has to read to serve a bucket. An earlier program would use the default
/// account of the cloud, and drop a minimum share.
fn format_of(info: &BucketInfo) -> u32 {
    let has_account = info.backend.as_ref().is_some_and(|spec| spec.account.is_some());
    if has_account || info.cache.min_share > 0 { STATE_FORMAT } else { 0 }
}

/// The part of the state that a program of an earlier format does not know.
pub(crate) fn part_of_format(format: u32) -> &'static str {
    match format {
        ..=FORMAT_OF_USERS => "users",
        FORMAT_OF_KEYS => "keys of nodes",
        _ => "a bucket with an account or a min_share",
    }
}

fn is_unused(access: &Arc<AccessState>) -> bool {
    access.is_untouched()
}

fn have_none(keys: &Arc<NodeKeys>) -> bool {
    keys.is_untouched()
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
