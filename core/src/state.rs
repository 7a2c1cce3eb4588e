//! What the gateways agree on: nodes and buckets under one version, changed only by commands.
//!
//! [`ClusterState::apply`] is the whole state machine. It is deterministic and does no I/O; the Raft
//! log of the gateways decides the order of commands. Indexes grow, with gaps.

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

/// A member of the cluster. Being a member says who owns what; `alive` says who answers now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub id: NodeId,
    pub role: Role,
    /// Base URL for clients and for other nodes: `http://host:port`.
    pub url: String,
    pub alive: bool,
    /// Version of the state at which it became alive last: cached copies validated before that
    /// may have been overtaken by a stand-in owner.
    pub alive_since: u64,
    /// Relative capacity; equal weights give the placement of AIStore v1.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub weight: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Owns nothing until an operator takes this back: what it has moves to the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
    /// All that it had of native objects was moved; it gets nothing while it is in maintenance.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emptied: bool,
    /// It was away and may have missed writes of objects that have copies elsewhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lagging: bool,
    /// What becomes of it when nothing lies there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving: Option<Leaving>,
    /// Id of the process that joined last, random for each start; 0 where an older gateway let it in.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub instance: u64,
}

/// How a node in maintenance ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Leaving {
    /// Its process stops; it stays a member.
    Stop,
    /// Its process stops, and it is no member any more.
    Remove,
}

/// What an operator has to know of a node: whether it replies, and whether it may be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    Alive,
    Down,
    /// In maintenance: its native objects move to other targets.
    Draining,
    /// In maintenance, and nothing of native objects lies there any more.
    Drained,
}

impl NodeStatus {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Alive, Self::Down, Self::Draining, Self::Drained];

    /// The word for it in tables, JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Down => "down",
            Self::Draining => "draining",
            Self::Drained => "drained",
        }
    }

    /// Of a node with these properties, named as in [`Node`].
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
    /// What an operator has to know of it.
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

/// Everything the gateways agree on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterState {
    /// Id of the cluster, fixed by its first command.
    pub cluster_id: String,
    /// Index of the last applied command; goes out as `Forebay-Map`.
    pub version: u64,
    /// Unix nanoseconds at which the cluster was made.
    pub created_ns: u64,
    pub nodes: BTreeMap<NodeId, Node>,
    /// By bucket uname; shared, because each request takes its bucket along.
    pub buckets: BTreeMap<String, Arc<BucketInfo>>,
    /// Transforms by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub etls: BTreeMap<String, Etl>,
    /// Version at which the places of native objects changed last: what is older may lie with a
    /// former owner.
    pub targets_changed: u64,
    /// Up to which such version all objects are known to lie where they belong.
    #[serde(default, rename = "settled")]
    pub rebalanced_version: u64,
    #[serde(default, skip_serializing_if = "ClusterSettings::is_untouched")]
    pub settings: ClusterSettings,
    next_bucket_id: u64,
    /// Ids that buckets may have had which no backup tells of: what lies under them stays.
    #[serde(default, rename = "untold_ids", skip_serializing_if = "Vec::is_empty")]
    unlisted_ids: Vec<Range<u64>>,
    /// URLs of other clusters whose buckets are reached from here, by alias.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub remotes: BTreeMap<String, String>,
}

/// A change of the cluster's state, as it is logged. Append only: stored logs hold these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Command {
    /// First command of every log.
    Init {
        cluster_id: String,
        now_ns: u64,
    },
    /// A node enters, or comes back with the same id (perhaps at another address).
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
        /// It is about to stop: from now on the others answer for the objects of which they have copies.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        yields: bool,
    },
    /// The node's data is gone for good.
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
    /// Changes settings of the cluster; `reset` forgets all that were set before.
    Configure {
        change: Change,
        reset: bool,
        now_ns: u64,
    },
    /// An operator takes a node out of use, or gives it back.
    SetMaintenance {
        id: NodeId,
        on: bool,
    },
    /// A native bucket gets another name. Its objects stay where they are until they are moved.
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
    /// Another cluster gets an alias here, or another URL for the one that it has.
    AttachCluster {
        alias: String,
        url: String,
    },
    DetachCluster {
        alias: String,
    },
    /// A target is to end when what it has lies elsewhere.
    Retire {
        id: NodeId,
        leaving: Leaving,
    },
    /// All objects lie where they belong since the change of this version.
    #[serde(rename = "settled")]
    RebalanceComplete {
        placed: u64,
        /// Targets that have all they missed, and since when they were alive while they got it.
        #[serde(default)]
        repaired: Vec<(NodeId, u64)>,
    },
}

impl ClusterState {
    /// Applies the command logged at `index`.
    ///
    /// A command that is refused changes nothing but the version, so that all replicas stay equal.
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
                    // Whoever starts it again wants it for something.
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
                    // Names decide who owns what: from now on objects lie with former owners.
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
                // What is cached of its buckets could not be compared with anything any more.
                self.buckets.retain(|_, info| info.bucket.namespace.uuid != alias);
            }
        }
        Ok(())
    }

    /// Takes a node out of use or gives it back. The last target that owns anything stays.
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

    /// From now on native objects belong elsewhere; where there are none, nothing has to move.
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

    /// Whether the bucket of this id is no more, so that its data may go.
    pub fn is_destroyed(&self, bucket_id: u64) -> bool {
        self.buckets.values().all(|info| info.id != bucket_id)
            && !self.unlisted_ids.iter().any(|ids| ids.contains(&bucket_id))
    }

    /// Whether all native objects lie where they belong.
    pub fn is_rebalance_complete(&self) -> bool {
        self.rebalanced_version >= self.targets_changed
    }

    /// An error where there are not as many targets as a bucket's erasure coding needs.
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

    /// Whether some target that is there has to get what it missed.
    pub fn needs_repair(&self) -> bool {
        self.has_copies() && self.holding_targets().any(|n| n.alive && n.lagging)
    }

    /// Whether what anybody has of native objects is what all say of them: no copy is left that an
    /// older state of its object could come from.
    pub fn is_quiescent(&self) -> bool {
        self.is_rebalance_complete() && self.holding_targets().all(|n| n.alive && !n.lagging)
    }

    /// Whether the objects of a bucket need no move: then nobody but the owner of an object may
    /// have it.
    pub fn is_in_place(&self, info: &BucketInfo) -> bool {
        info.has_backend()
            || info.created_version > self.targets_changed
            || self.is_rebalance_complete()
    }

    /// Notes another cluster. Its buckets that are known already follow to the new URL.
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

    /// What is behind a bucket of another cluster, if that is attached.
    fn behind(&self, bucket: &Bucket) -> Option<BackendSpec> {
        let url = self.remotes.get(&bucket.namespace.uuid)?;
        let (kind, endpoint) = (BackendKind::Ais, Some(url.clone()));
        let native = bucket.provider == Provider::Ais;
        native.then(|| BackendSpec { kind, bucket: bucket.name.to_string(), endpoint, root: None })
    }

    /// Whether a bucket of this name can be made.
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
            // S3 names a bucket by its name alone.
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

    /// The bucket, or the error that says it is not there; cheap to keep.
    pub fn bucket(&self, bucket: &Bucket) -> Result<&Arc<BucketInfo>> {
        bucket.with_uname(|uname| self.buckets.get(uname)).ok_or_else(|| bucket.not_found())
    }

    /// What a request to create `bucket` asks for, with the cluster's defaults for new buckets.
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

    /// The targets over which objects are placed, dead or alive.
    pub fn owning_targets(&self) -> impl Iterator<Item = &Node> + Clone {
        self.targets().filter(|n| !n.maintenance)
    }

    /// The targets that may have something of native objects, dead or alive.
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
