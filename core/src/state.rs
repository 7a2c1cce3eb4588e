//! What the gateways agree on: nodes and buckets under one version, changed only by commands.
//!
//! [`ClusterState::apply`] is the whole state machine. It is deterministic and does no I/O; the Raft
//! log of the gateways decides the order of commands. Indexes grow, with gaps.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::bucket::{BackendKind, BackendSpec, BucketInfo};
use crate::error::{Error, ErrorCode, Result};
use crate::etl::{Etl, etl_exists, unknown_etl};
use crate::name::{Bucket, NodeId, Provider};
use crate::settings::{Change, ClusterSettings, OF_BUCKETS};
use crate::v1::bucket::heed;

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
    #[serde(default = "one")]
    pub weight: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub zone: String,
    /// Counts as away until an operator takes this back, whatever its heartbeats say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub maintenance: bool,
}

fn one() -> u32 {
    1
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
    /// Version at which the set of targets changed last: native objects older than that may lie
    /// with a former owner.
    pub targets_changed: u64,
    #[serde(default, skip_serializing_if = "ClusterSettings::is_untouched")]
    pub settings: ClusterSettings,
    next_bucket_id: u64,
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
    },
    SetAlive {
        id: NodeId,
        alive: bool,
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
            Command::Join { id, role, url, weight, zone } => {
                let known = self.nodes.get(&id);
                if known.is_some_and(|n| n.role != role) {
                    return Err(Error::new(
                        ErrorCode::Conflict,
                        format!("node {id} is known with another role"),
                    ));
                }
                if role == Role::Target && known.is_none() {
                    self.targets_changed = index;
                }
                let maintenance = known.is_some_and(|n| n.maintenance);
                let node = Node {
                    id: id.clone(),
                    role,
                    url,
                    alive: !maintenance,
                    alive_since: index,
                    weight,
                    zone,
                    maintenance,
                };
                self.nodes.insert(id, node);
            }
            Command::SetAlive { id, alive } => {
                let node = self.nodes.get_mut(&id).ok_or_else(|| unknown_node(&id))?;
                let alive = alive && !node.maintenance;
                if alive && !node.alive {
                    node.alive_since = index;
                }
                node.alive = alive;
            }
            Command::Remove { id } => {
                let node = self.nodes.remove(&id).ok_or_else(|| unknown_node(&id))?;
                if node.role == Role::Target {
                    self.targets_changed = index;
                }
            }
            Command::CreateBucket { mut info, now_ns } => {
                let uname = info.bucket.uname();
                self.check_free(&info.bucket)?;
                info.id = self.next_bucket_id;
                info.created_ns = now_ns;
                info.created_version = index;
                self.next_bucket_id += 1;
                self.buckets.insert(uname, info.into());
            }
            Command::SetBucket { info } => {
                let known = self
                    .buckets
                    .get_mut(&info.bucket.uname())
                    .filter(|known| known.id == info.id)
                    .ok_or_else(|| info.bucket.not_found())?;
                *known = info.into();
            }
            Command::DestroyBucket { bucket } => {
                self.buckets.remove(&bucket.uname()).ok_or_else(|| bucket.not_found())?;
            }
            Command::Configure { change, reset, now_ns } => {
                self.settings.apply(&change, reset, now_ns)?;
            }
            Command::SetMaintenance { id, on } => {
                let node = self.nodes.get_mut(&id).ok_or_else(|| unknown_node(&id))?;
                node.maintenance = on;
                // Given back, it is alive again when it is heard of next.
                node.alive &= !on;
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
        self.buckets.get(&bucket.uname()).ok_or_else(|| bucket.not_found())
    }

    /// What a request to create `bucket` asks for, with the cluster's defaults for new buckets.
    pub fn requested(&self, bucket: Bucket, backend: Option<BackendSpec>) -> BucketInfo {
        let backend = backend.or_else(|| self.behind(&bucket));
        let mut info = BucketInfo::requested(bucket, backend);
        if let serde_json::Value::Object(defaults) = self.settings.bucket_defaults() {
            info.extra = defaults.into_iter().collect();
            for section in OF_BUCKETS {
                heed(&mut info, section);
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
mod tests {
    use super::*;

    fn join(id: &str) -> Command {
        Command::Join {
            id: NodeId::new(id).unwrap(),
            role: Role::Target,
            url: "http://127.0.0.1:1".into(),
            weight: 1,
            zone: String::new(),
        }
    }

    fn create(name: &str) -> Command {
        let bucket = Bucket::new(Provider::Ais, name).unwrap();
        Command::CreateBucket { info: Box::new(BucketInfo::requested(bucket, None)), now_ns: 7 }
    }

    #[test]
    fn a_bucket_created_again_gets_a_new_id() {
        let mut s = ClusterState::default();
        s.apply(1, Command::Init { cluster_id: "c".into(), now_ns: 1 }).unwrap();
        s.apply(2, create("b")).unwrap();
        let bucket = Bucket::new(Provider::Ais, "b").unwrap();
        let first = s.bucket(&bucket).unwrap().id;
        assert_eq!(s.apply(3, create("b")).unwrap_err().code, ErrorCode::BucketExists);
        s.apply(4, Command::DestroyBucket { bucket: bucket.clone() }).unwrap();
        assert_eq!(s.bucket(&bucket).unwrap_err().code, ErrorCode::BucketNotFound);
        s.apply(5, create("b")).unwrap();
        assert_ne!(s.bucket(&bucket).unwrap().id, first);
        assert_eq!(s.version, 5);
    }

    #[test]
    fn a_node_in_maintenance_stays_away_until_it_is_given_back() {
        let mut s = ClusterState::default();
        s.apply(1, join("target-01")).unwrap();
        let id = NodeId::new("target-01").unwrap();
        let alive = |alive| Command::SetAlive { id: id.clone(), alive };
        s.apply(2, Command::SetMaintenance { id: id.clone(), on: true }).unwrap();
        s.apply(3, alive(true)).unwrap();
        s.apply(4, join("target-01")).unwrap();
        assert_eq!((s.alive_targets().count(), s.targets().count()), (0, 1));
        s.apply(5, Command::SetMaintenance { id: id.clone(), on: false }).unwrap();
        s.apply(6, alive(true)).unwrap();
        assert_eq!(s.alive_targets().count(), 1);
        assert_eq!(s.node(&id).unwrap().alive_since, 6);
    }

    #[test]
    fn settings_are_part_of_the_state_and_a_state_without_them_is_read() {
        let mut s = ClusterState::default();
        assert!(serde_json::to_value(&s).unwrap().get("settings").is_none());
        let change = Change::from([("checksum.type".to_owned(), "md5".to_owned())]);
        s.apply(1, Command::Configure { change, reset: false, now_ns: 3 }).unwrap();
        let read: ClusterState = serde_json::from_value(serde_json::to_value(&s).unwrap()).unwrap();
        assert_eq!(read.settings.checksum().as_str(), "md5");
        let wrong = Change::from([("no.such".to_owned(), "1".to_owned())]);
        assert!(s.apply(2, Command::Configure { change: wrong, reset: true, now_ns: 4 }).is_err());
        assert_eq!(s.settings, read.settings);
    }

    #[test]
    fn a_renamed_bucket_keeps_its_id_and_its_objects_lie_with_former_owners() {
        let mut s = ClusterState::default();
        s.apply(1, join("target-01")).unwrap();
        s.apply(2, create("b")).unwrap();
        s.apply(3, create("c")).unwrap();
        let bucket = |name| Bucket::new(Provider::Ais, name).unwrap();
        let id = s.bucket(&bucket("b")).unwrap().id;
        let rename = |to| Command::RenameBucket {
            from: bucket("b"),
            to: Bucket::new(Provider::Ais, to).unwrap(),
        };
        assert_eq!(s.apply(4, rename("c")).unwrap_err().code, ErrorCode::BucketExists);
        s.apply(5, rename("d")).unwrap();
        assert_eq!(s.bucket(&bucket("b")).unwrap_err().code, ErrorCode::BucketNotFound);
        let renamed = s.bucket(&bucket("d")).unwrap();
        assert_eq!(renamed.id, id);
        assert!(renamed.created_version <= s.targets_changed);
    }

    #[test]
    fn a_bucket_of_an_attached_cluster_has_that_cluster_behind_it() {
        let mut s = ClusterState::default();
        let attach = |alias: &str, url: &str| Command::AttachCluster {
            alias: alias.into(),
            url: url.into(),
        };
        for (alias, url) in [("a", "http://x"), ("a b", "http://x"), ("far", "x"), ("far", "")] {
            assert!(s.apply(1, attach(alias, url)).is_err(), "{alias} {url}");
        }
        s.apply(2, attach("far", "http://x:1/")).unwrap();
        let bucket = Bucket::parse_uri("ais://@far/b").unwrap().0;
        let info = s.requested(bucket.clone(), None);
        let behind = info.backend.clone().unwrap();
        assert_eq!((behind.kind, behind.bucket.as_str()), (BackendKind::Ais, "b"));
        assert_eq!(behind.endpoint.as_deref(), Some("http://x:1"));
        s.apply(3, Command::CreateBucket { info: Box::new(info), now_ns: 7 }).unwrap();
        s.apply(4, attach("far", "http://y:1")).unwrap();
        let moved = s.bucket(&bucket).unwrap().backend.clone().unwrap();
        assert_eq!(moved.endpoint.as_deref(), Some("http://y:1"));
        let native = s.requested(Bucket::new(Provider::Ais, "b").unwrap(), None);
        assert_eq!(native.backend, None);
        s.apply(5, Command::DetachCluster { alias: "far".into() }).unwrap();
        assert!(s.bucket(&bucket).is_err() && s.requested(bucket, None).backend.is_none());
        assert!(s.apply(6, Command::DetachCluster { alias: "far".into() }).is_err());
    }

    #[test]
    fn a_bucket_name_is_unique_over_providers() {
        let mut s = ClusterState::default();
        s.apply(1, create("b")).unwrap();
        let cloud = BucketInfo::requested(Bucket::new(Provider::Aws, "b").unwrap(), None);
        let e = s.apply(2, Command::CreateBucket { info: Box::new(cloud), now_ns: 7 }).unwrap_err();
        assert_eq!(e.code, ErrorCode::Conflict);
        assert!(e.message.contains("\"ais://b\""), "{e}");
    }

    #[test]
    fn a_node_that_comes_back_is_alive_since_then_and_stays_the_same_member() {
        let mut s = ClusterState::default();
        s.apply(1, join("target-01")).unwrap();
        let id = NodeId::new("target-01").unwrap();
        s.apply(2, Command::SetAlive { id: id.clone(), alive: false }).unwrap();
        assert_eq!(s.alive_targets().count(), 0);
        assert_eq!(s.targets().count(), 1);
        s.apply(3, join("target-01")).unwrap();
        assert_eq!(s.node(&id).unwrap().alive_since, 3);
        assert_eq!(s.targets_changed, 1);
        s.apply(4, Command::Remove { id }).unwrap();
        assert_eq!(s.targets_changed, 4);
    }
}
