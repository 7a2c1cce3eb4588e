//! The state that the gateways agree on: nodes and buckets under one version, changed only by
//! commands.
//!
//! [`ClusterState::apply`] is the whole state machine. It is deterministic and does no I/O; the
//! Raft log of the gateways decides the order of commands. Indexes grow, with gaps.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use self::limits::check_bucket;
pub use self::summary::Summary;
use crate::bucket::{BackendKind, BackendSpec, BucketInfo};
use crate::error::{Error, ErrorCode, Result};
use crate::etl::{Etl, etl_exists, unknown_etl};
use crate::name::{Bucket, NodeId, Provider};
use crate::settings::{Change, ClusterSettings, OF_BUCKETS};
use crate::v1::bucket::apply_patch;

pub mod backup;
mod limits;
mod summary;

/// The two kinds of node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    Gateway,
    Target,
}

/// A member of the cluster. Membership determines ownership; `alive` says whether the node answers
/// now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub role: Role,
    /// Base URL for clients and for other nodes: `http://host:port`.
    pub url: String,
    pub alive: bool,
    /// Version of the state at which it last became alive: cached copies validated before that may
    /// be stale, since another target owned their objects meanwhile.
    pub alive_since: u64,
    /// Relative capacity; equal weights give the placement of AIStore v1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Owns nothing until an operator ends the maintenance: its objects move to the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
    /// All its native objects were moved; it gets none while it is in maintenance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
    /// It was away and may have missed writes of objects that have copies elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lagging: bool,
    /// How the node ends when it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
    /// Id of the process that joined last, random for each start; 0 if an older gateway admitted
    /// it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
}

/// How a node in maintenance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// Its process stops; it remains a member.
    Stop,
    /// Its process stops, and it is no longer a member.
    Remove,
}

/// The status of a node for operators: whether it replies, and whether it may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    Alive,
    Down,
    /// In maintenance: its native objects move to other targets.
    Draining,
    /// In maintenance, and all its native objects were moved.
    Drained,
}

impl NodeStatus {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Down, Self::Draining, Self::Drained];

    /// Its name in tables, JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }

    /// The status of a node with these properties, named as in [`Node`].
    pub fn of(alive: bool, maintenance: bool, emptied: bool) -> Self {
        match (alive, maintenance, emptied) {
            (false, ..) => Self::Down,
            (true, true, true) => Self::Drained,
            (true, true, false) => Self::Draining,
            (true, false, _) => Self::Alive,
        }
    }
}

impl Node {
    /// The node's status for operators.
    pub fn status(&self) -> NodeStatus {
        NodeStatus::of(self.alive, self.maintenance, self.emptied)
    }
}

fn one() -> u32 {
    1
}

fn is_one(weight: &u32) -> bool {
    *weight == 1
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

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
}

/// A change of the cluster's state, as logged. Append only: stored logs contain these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Command {
    /// First command of every log.
    Init {
        cluster_id: String,
        now_ns: u64,
    },
    /// A node joins, or returns with the same id (perhaps at another address).
    Join {
        id: NodeId,
        role: Role,
        url: String,
        weight: u32,
        zone: String,
        /// Id of the process; 0 from older nodes.
        #[serde(default, skip_serializing_if = "is_zero")]
        instance: u64,
    },
    SetAlive {
        id: NodeId,
        alive: bool,
        /// It will stop soon: from now on the others own the objects of which they have copies.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        yields: bool,
    },
    /// The node's data is permanently gone.
    Remove {
        id: NodeId,
    },
    CreateBucket {
        info: Box<BucketInfo>,
        now_ns: u64,
    },
    SetBucket {
        info: Box<BucketInfo>,
    },
    DestroyBucket {
        bucket: Bucket,
    },
    /// Changes settings of the cluster; `reset` drops all earlier changes.
    Configure {
        change: Change,
        reset: bool,
        now_ns: u64,
    },
    /// An operator starts or ends a node's maintenance.
    SetMaintenance {
        id: NodeId,
        on: bool,
    },
    /// Renames a native bucket. Its objects stay on their targets until they are moved.
    RenameBucket {
        from: Bucket,
        to: Bucket,
    },
    CreateEtl {
        etl: Box<Etl>,
    },
    SetEtl {
        etl: Box<Etl>,
    },
    DeleteEtl {
        name: String,
    },
    /// Adds another cluster under an alias, or changes the URL of an existing alias.
    AttachCluster {
        alias: String,
        url: String,
    },
    DetachCluster {
        alias: String,
    },
    /// Stops a target once its objects are moved.
    Retire {
        id: NodeId,
        leaving: Leaving,
    },
    /// The rebalance for the placement of this version is complete.
    #[serde(rename = "settled")]
    RebalanceComplete {
        placed: u64,
        /// Targets that got everything they missed, and since when they were alive meanwhile.
        #[serde(default)]
        repaired: Vec<(NodeId, u64)>,
    },
}

impl ClusterState {
    /// Applies the command logged at `index`.
    ///
    /// A refused command changes only the version, so that all replicas stay equal.
    pub fn apply(&mut self, index: u64, command: Command) -> Result<()> {
        self.version = index;
        match command {
            Command::Init { cluster_id, now_ns } => {
                if !self.cluster_id.is_empty() {
                    return Err(Error::new(ErrorCode::Conflict, "the cluster has an id already"));
                }
                self.cluster_id = cluster_id;
                self.created_ns = now_ns;
                self.next_bucket_id = 1;
            }
            Command::Join { id, role, url, weight, zone, instance } => {
                let known = self.nodes.get(&id);
                if known.is_some_and(|n| n.role != role) {
                    return Err(Error::new(
                        ErrorCode::Conflict,
                        format!("node {id} is known with another role"),
                    ));
                }
                let known = known.cloned();
                let (maintenance, emptied, leaving) = match &known {
                    // If an operator restarted a stopped node, it is needed again.
                    Some(n) => {
                        (n.maintenance, n.emptied, n.leaving.filter(|l| *l == Leaving::Remove))
                    }
                    None => (false, false, None),
                };
                let lagging = known.as_ref().is_some_and(|n| n.lagging) && self.has_copies();
                if role == Role::Target && known.is_none() {
                    self.places_changed(index);
                }
                let node = Node {
                    id: id.clone(),
                    role,
                    url,
                    alive: true,
                    alive_since: index,
                    weight,
                    zone,
                    maintenance,
                    emptied,
                    lagging,
                    leaving,
                    instance,
                };
                self.nodes.insert(id, node);
            }
            Command::SetAlive { id, alive, yields } => {
                let has_copies = self.has_copies();
                let node = self.nodes.get_mut(&id).ok_or_else(|| unknown_node(&id))?;
                if alive && !node.alive {
                    node.alive_since = index;
                    node.lagging &= has_copies;
                }
                node.lagging |= (!alive || yields && has_copies) && node.role == Role::Target;
                node.alive = alive;
            }
            Command::Remove { id } => {
                let node = self.nodes.remove(&id).ok_or_else(|| unknown_node(&id))?;
                if node.role == Role::Target && !node.maintenance {
                    self.places_changed(index);
                }
            }
            Command::CreateBucket { mut info, now_ns } => {
                let uname = info.bucket.uname();
                self.check_free(&info.bucket)?;
                self.check_width(&info)?;
                info.id = self.next_bucket_id;
                info.created_ns = now_ns;
                info.created_version = index;
                self.next_bucket_id += 1;
                self.buckets.insert(uname, info.into());
            }
            Command::SetBucket { info } => {
                let now = self.buckets.get(&info.bucket.uname());
                if now.is_some_and(|now| now.erasure != info.erasure) {
                    self.check_width(&info)?;
                }
                let known = self
                    .buckets
                    .get_mut(&info.bucket.uname())
                    .filter(|known| known.id == info.id)
                    .ok_or_else(|| info.bucket.not_found())?;
                let moves = known.copies != info.copies || known.erasure != info.erasure;
                *known = info.into();
                if moves {
                    self.targets_changed = index;
                }
            }
            Command::DestroyBucket { bucket } => {
                self.buckets.remove(&bucket.uname()).ok_or_else(|| bucket.not_found())?;
            }
            Command::Configure { change, reset, now_ns } => {
                self.settings.apply(&change, reset, now_ns)?;
            }
            Command::SetMaintenance { id, on } => {
                self.maintain(index, &id, on, None)?;
            }
            Command::Retire { id, leaving } => {
                self.maintain(index, &id, true, Some(leaving))?;
            }
            Command::RebalanceComplete { placed, repaired } => {
                for (id, since) in repaired {
                    if let Some(node) = self.nodes.get_mut(&id) {
                        node.lagging &= !(node.alive && node.alive_since == since);
                    }
                }
                self.rebalanced_version =
                    self.rebalanced_version.max(placed.min(self.targets_changed));
                if self.is_rebalance_complete() {
                    for node in self.nodes.values_mut().filter(|n| n.maintenance) {
                        node.emptied = true;
                    }
                }
            }
            Command::RenameBucket { from, to } => {
                if self.bucket(&from)?.has_backend() || to.provider != from.provider {
                    return Err(Error::invalid(format!(
                        "cannot rename \"{from}\" to \"{to}\": only native buckets are renamed"
                    )));
                }
                self.check_free(&to)?;
                if let Some(mut shared) = self.buckets.remove(&from.uname()) {
                    let info = Arc::make_mut(&mut shared);
                    // Names determine ownership: from now on objects are on former owners.
                    info.created_version = 0;
                    info.bucket = to;
                    self.buckets.insert(info.bucket.uname(), shared);
                    self.targets_changed = index;
                }
            }
            Command::CreateEtl { etl } => {
                if self.etls.contains_key(&etl.name) {
                    return Err(etl_exists(&etl.name));
                }
                self.etls.insert(etl.name.clone(), *etl);
            }
            Command::SetEtl { etl } => {
                let known = self.etls.get_mut(&etl.name).ok_or_else(|| unknown_etl(&etl.name))?;
                *known = *etl;
            }
            Command::DeleteEtl { name } => {
                self.etls.remove(&name).ok_or_else(|| unknown_etl(&name))?;
            }
            Command::AttachCluster { alias, url } => self.attach(alias, url)?,
            Command::DetachCluster { alias } => {
                self.remotes.remove(&alias).ok_or_else(|| unknown_cluster(&alias))?;
                // Cached objects of its buckets could not be validated any more.
                self.buckets.retain(|_, info| info.bucket.namespace.uuid != alias);
            }
        }
        Ok(())
    }

    /// Starts or ends a node's maintenance. The last target that owns objects cannot enter it.
    fn maintain(
        &mut self,
        index: u64,
        id: &NodeId,
        on: bool,
        leaving: Option<Leaving>,
    ) -> Result<()> {
        let node = self.nodes.get(id).ok_or_else(|| unknown_node(id))?;
        let is_target = node.role == Role::Target;
        if on && is_target && !self.owning_targets().any(|n| n.id != *id) {
            return Err(Error::new(
                ErrorCode::Conflict,
                format!("node {id} is the only target in use: its objects could go nowhere"),
            )
            .hint("start another target that joins this cluster first"));
        }
        let changed = node.maintenance != on;
        if let Some(node) = self.nodes.get_mut(id) {
            (node.maintenance, node.leaving) = (on, leaving);
            node.emptied &= on;
        }
        if changed && is_target {
            self.places_changed(index);
        }
        Ok(())
    }

    /// Records that placement changed; without native objects, nothing has to move.
    fn places_changed(&mut self, index: u64) {
        let was_complete = self.is_rebalance_complete();
        self.targets_changed = index;
        if was_complete && self.buckets.values().all(|info| info.has_backend()) {
            self.rebalanced_version = index;
            for node in self.nodes.values_mut().filter(|n| n.maintenance) {
                node.emptied = true;
            }
        }
    }

    /// Whether the bucket of this id no longer exists, so that its data may be removed.
    pub fn is_destroyed(&self, bucket_id: u64) -> bool {
        self.buckets.values().all(|info| info.id != bucket_id)
            && !self.unlisted_ids.iter().any(|ids| ids.contains(&bucket_id))
    }

    /// Whether all native objects are in place.
    pub fn is_rebalance_complete(&self) -> bool {
        self.rebalanced_version >= self.targets_changed
    }

    /// Returns an error if there are fewer targets than a bucket's erasure coding needs.
    fn check_width(&self, info: &BucketInfo) -> Result<()> {
        let Some(erasure) = &info.erasure else { return Ok(()) };
        let (needed, there) = (erasure.width(), self.owning_targets().count());
        if needed <= there {
            return Ok(());
        }
        let (bucket, data, parity) = (&info.bucket, erasure.data, erasure.parity);
        let text = format!(
            "bucket \"{bucket}\": {data} data and {parity} parity slices beside the whole object need \
             {needed} targets, and there are {there}"
        );
        Err(Error::new(ErrorCode::TooFewTargets, text)
            .hint("use fewer slices, or start more targets first"))
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

    /// Adds another cluster. Its known buckets change to the new URL.
    fn attach(&mut self, alias: String, url: String) -> Result<()> {
        let fits = alias.len() >= 2
            && alias.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'));
        if !fits {
            return Err(Error::invalid(format!("\"{alias}\" cannot be the alias of a cluster"))
                .hint("use at least 2 letters, digits, '-' or '_'"));
        }
        if !(url.starts_with("http://") || url.starts_with("https://")) || url.contains('@') {
            return Err(Error::invalid(format!("the URL of cluster \"{alias}\" is none"))
                .hint("give it as http://host:port, without a user or password"));
        }
        let url = url.trim_end_matches('/').to_owned();
        for info in self.buckets.values_mut().filter(|i| i.bucket.namespace.uuid == alias) {
            if let Some(backend) = &mut Arc::make_mut(info).backend {
                backend.endpoint = Some(url.clone());
            }
        }
        self.remotes.insert(alias, url);
        Ok(())
    }

    /// The backend of a bucket of another cluster, if that is attached.
    fn behind(&self, bucket: &Bucket) -> Option<BackendSpec> {
        let url = self.remotes.get(&bucket.namespace.uuid)?;
        let (kind, endpoint) = (BackendKind::Ais, Some(url.clone()));
        let native = bucket.provider == Provider::Ais;
        native.then(|| BackendSpec { kind, bucket: bucket.name.to_string(), endpoint, root: None })
    }

    /// Checks that a bucket of this name can be created.
    fn check_free(&self, bucket: &Bucket) -> Result<()> {
        if self.buckets.contains_key(&bucket.uname()) {
            return Err(Error::new(
                ErrorCode::BucketExists,
                format!("bucket \"{bucket}\" already exists"),
            ));
        }
        let namesake = self
            .buckets
            .values()
            .find(|b| b.bucket.name == bucket.name && b.bucket.namespace == bucket.namespace);
        match namesake {
            None => Ok(()),
            // S3 identifies a bucket by its name alone.
            Some(other) => Err(Error::new(
                ErrorCode::Conflict,
                format!(
                    "bucket \"{bucket}\" cannot be added: its name is taken by \"{}\"",
                    other.bucket
                ),
            )
            .hint("bucket names are unique over all providers; choose another name")),
        }
    }

    /// The bucket, or the error that it does not exist; cheap to keep.
    pub fn bucket(&self, bucket: &Bucket) -> Result<&Arc<BucketInfo>> {
        bucket.with_uname(|uname| self.buckets.get(uname)).ok_or_else(|| bucket.not_found())
    }

    /// The properties of a new `bucket`, with the cluster's defaults.
    pub fn requested(&self, bucket: Bucket, backend: Option<BackendSpec>) -> BucketInfo {
        let backend = backend.or_else(|| self.behind(&bucket));
        let mut info = BucketInfo::requested(bucket, backend);
        if let serde_json::Value::Object(defaults) = self.settings.bucket_defaults() {
            info.extra = defaults.into_iter().collect();
            for section in OF_BUCKETS {
                apply_patch(&mut info, section);
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
}

fn unknown_cluster(alias: &str) -> Error {
    Error::new(ErrorCode::NodeNotFound, format!("no cluster is attached as \"{alias}\""))
}

fn unknown_node(id: &NodeId) -> Error {
    Error::new(ErrorCode::NodeNotFound, format!("node {id} is not a member of the cluster"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
